//! A revision: a configuration that was applied.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who applied it, as the kernel says of the other end of the socket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Who {
    /// The user's number; `None` for the router itself and for plugins.
    pub uid: Option<u32>,
    /// The user's name, or the number where it has none.
    pub name: String,
}

impl Who {
    /// The router itself: at its start, or when a confirmation did not come.
    pub fn router() -> Self {
        Self { uid: None, name: "router".to_owned() }
    }

    /// An instance of a plugin.
    pub fn instance(name: &str) -> Self {
        Self { uid: None, name: format!("instance {name}") }
    }

    /// A user.
    pub fn user(uid: u32, name: Option<String>) -> Self {
        Self { uid: Some(uid), name: name.unwrap_or_else(|| uid.to_string()) }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

/// What became of a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It counts.
    Good,
    /// It runs, and goes back by itself unless it is confirmed.
    Waiting,
    /// It was not confirmed.
    Withdrawn,
}

/// A revision without its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Revision {
    /// Its number: the first is 1, each one more than the one before.
    pub number: u64,
    /// When it was applied, in seconds since 1970.
    pub time: u64,
    /// Who applied it.
    pub who: Who,
    /// Why, as that said.
    pub comment: Option<String>,
    /// Where its text came from: a file's name, or the revision that was returned to.
    pub origin: String,
    /// What became of it.
    pub state: State,
    /// Number of changes, counted in commands.
    pub changes: usize,
    /// The router that it is of: its socket. Nothing where none was noted.
    #[serde(default)]
    pub router: Option<String>,
}

/// A revision that is to be.
#[derive(Clone, Debug)]
pub struct Draft {
    /// Who applies it.
    pub who: Who,
    /// Why.
    pub comment: Option<String>,
    /// Where its text came from.
    pub origin: String,
    /// Whether it counts from the beginning.
    pub state: State,
    /// Number of changes, counted in commands.
    pub changes: usize,
    /// The text.
    pub text: String,
}

impl Draft {
    /// The revision of that number, applied at that time.
    pub(crate) fn numbered(&self, number: u64, time: u64, router: Option<String>) -> Revision {
        Revision {
            number,
            time,
            who: self.who.clone(),
            comment: self.comment.clone(),
            origin: self.origin.clone(),
            state: self.state,
            changes: self.changes,
            router,
        }
    }
}
