//! Revision: an applied or saved configuration.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// User, router or plugin instance that made a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Who {
    /// User id; `None` for the router itself and for plugins.
    pub uid: Option<u32>,
    /// Name of the user, or the user id if the user has no name.
    pub name: String,
}

impl Who {
    /// Returns the router itself as originator. It applies the configuration at its start, and rolls back an
    /// unconfirmed revision.
    pub fn router() -> Self {
        Self { uid: None, name: "router".to_owned() }
    }

    /// Returns the originator for a plugin instance.
    pub fn instance(name: &str) -> Self {
        Self { uid: None, name: format!("instance {name}") }
    }

    /// Returns the originator for a user.
    pub fn user(uid: u32, name: Option<String>) -> Self {
        Self { uid: Some(uid), name: name.unwrap_or_else(|| uid.to_string()) }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

/// State of a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// The revision is good: it needs no confirmation any more.
    Good,
    /// The revision runs, and is rolled back unless it is confirmed.
    Waiting,
    /// The revision was not confirmed.
    Withdrawn,
}

/// Stored revision, without the text of its configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Revision {
    /// Number of the revision. Numbers count up from 1, and are never reused.
    pub number: u64,
    /// Time of the application, in seconds since 1970.
    pub time: u64,
    /// User, router or plugin instance that applied or saved the configuration.
    pub who: Who,
    /// Comment of the originator.
    pub comment: Option<String>,
    /// Origin of the text: a file's name, or the revision that was restored.
    pub origin: String,
    /// State of the revision.
    pub state: State,
    /// Number of changes, counted as the commands that would make them.
    pub changes: usize,
    /// Socket of the router that owns the revision; `None` if no router was recorded.
    #[serde(default)]
    pub router: Option<String>,
}

/// New revision, before it has a number.
#[derive(Clone, Debug)]
pub struct Draft {
    /// User, router or plugin instance that applied or saved the configuration.
    pub who: Who,
    /// Comment of the originator.
    pub comment: Option<String>,
    /// Origin of the text.
    pub origin: String,
    /// Initial state.
    pub state: State,
    /// Number of changes, counted as the commands that would make them.
    pub changes: usize,
    /// Text of the configuration.
    pub text: String,
}

impl Draft {
    /// Converts the draft to a revision with a number and a time.
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
