//! Limits on simultaneous streams, so that no user or token takes all of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::StatusCode;
use millrace_controller::{Principal, Role};

use crate::http::problem::Problem;

/// Maximum number of streams: of events, rates, traces, drops and captures.
const ALL: usize = 64;
/// Maximum number of streams that guests have together. Guests are all owners except administrators at the
/// Unix socket, for whom the other streams are reserved.
const GUESTS: usize = 48;
/// Maximum number of remote streams.
const ELSEWHERE: usize = 32;
/// Maximum number of streams of a user or token; administrators at the Unix socket have no such limit.
const EACH: usize = 16;

/// Numbers of streams in progress. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Streams(Arc<Mutex<Taken>>);

/// Numbers of streams in progress: in total, and for each owner.
#[derive(Debug, Default)]
struct Taken {
    all: usize,
    guests: usize,
    elsewhere: usize,
    each: HashMap<Owner, usize>,
}

/// Owner of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Owner {
    /// Administrator at the Unix socket.
    Administrator,
    /// Other user at the Unix socket, by uid.
    User(Option<u32>),
    /// Holder of an API token, by the token's name.
    Token(String),
}

impl Owner {
    fn of(principal: &Principal) -> Self {
        match principal.from {
            Some(_) => Self::Token(principal.who.name.clone()),
            None if principal.role == Some(Role::Admin) => Self::Administrator,
            None => Self::User(principal.who.uid),
        }
    }
}

/// Slot of a stream, held until dropped.
#[derive(Debug)]
pub(crate) struct StreamPlace {
    streams: Streams,
    owner: Owner,
}

impl Streams {
    /// Returns a slot for a caller's stream.
    ///
    /// # Errors
    /// Returns 429 if a limit is reached.
    pub fn enter(&self, principal: &Principal) -> Result<StreamPlace, Problem> {
        let owner = Owner::of(principal);
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        taken.check(&owner).map_err(|detail| {
            Problem::new(StatusCode::TOO_MANY_REQUESTS, format!("{detail}: close a stream first"))
                .with_retry(10)
        })?;
        taken.count(&owner, |count| *count += 1);
        drop(taken);
        Ok(StreamPlace { streams: self.clone(), owner })
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let mut taken = self.streams.0.lock().unwrap_or_else(PoisonError::into_inner);
        taken.count(&self.owner, |count| *count -= 1);
        taken.each.retain(|_, count| *count > 0);
    }
}

impl Taken {
    /// Checks whether an owner may have another stream.
    fn check(&self, owner: &Owner) -> Result<(), String> {
        let (is_guest, is_elsewhere) = owner.kind();
        let own = self.each.get(owner).copied().unwrap_or(0);
        if self.all >= ALL {
            return Err(format!("{ALL} streams are open, the limit of the router"));
        }
        if is_guest && own >= EACH {
            return Err(format!("you have {EACH} open streams, the limit of one user or token"));
        }
        if is_elsewhere && self.elsewhere >= ELSEWHERE {
            return Err(format!("{ELSEWHERE} remote streams are open, the limit of the router"));
        }
        if is_guest && self.guests >= GUESTS {
            return Err(format!(
                "{GUESTS} streams are open, and the remaining {} are reserved for administrators at the \
                 router's Unix socket",
                ALL - GUESTS
            ));
        }
        Ok(())
    }

    fn count(&mut self, owner: &Owner, count: impl Fn(&mut usize)) {
        let (is_guest, is_elsewhere) = owner.kind();
        count(&mut self.all);
        if is_guest {
            count(&mut self.guests);
            count(self.each.entry(owner.clone()).or_default());
        }
        if is_elsewhere {
            count(&mut self.elsewhere);
        }
    }
}

impl Owner {
    /// Returns whether the owner is a guest (not an administrator at the Unix socket), and whether it is
    /// remote.
    const fn kind(&self) -> (bool, bool) {
        match self {
            Self::Administrator => (false, false),
            Self::User(_) => (true, false),
            Self::Token(_) => (true, true),
        }
    }
}

#[cfg(test)]
mod tests {
    use millrace_controller::Who;

    use super::*;

    fn token(name: &str) -> Principal {
        Principal::token(name, Role::Admin, [10, 0, 0, 1].into())
    }

    fn user(uid: u32, role: Role) -> Principal {
        Principal { who: Who::user(uid, None), role: Some(role), pid: None, from: None }
    }

    /// Opens streams of a caller until one is refused. Keeps them and returns their number.
    fn fill(streams: &Streams, who: &Principal, kept: &mut Vec<StreamPlace>) -> usize {
        let before = kept.len();
        while let Ok(place) = streams.enter(who) {
            kept.push(place);
        }
        kept.len() - before
    }

    #[test]
    fn each_kind_of_asker_leaves_some_to_the_next() {
        let (streams, mut kept) = (Streams::default(), Vec::new());
        assert_eq!(fill(&streams, &token("a"), &mut kept), EACH);
        assert_eq!(fill(&streams, &token("b"), &mut kept), ELSEWHERE - EACH);
        assert_eq!(fill(&streams, &token("c"), &mut kept), 0, "what is left is for this machine");
        assert_eq!(fill(&streams, &user(1000, Role::Operator), &mut kept), GUESTS - ELSEWHERE);
        assert_eq!(fill(&streams, &user(1001, Role::Operator), &mut kept), 0);
        assert_eq!(fill(&streams, &user(0, Role::Admin), &mut kept), ALL - GUESTS);
        let problem = streams.enter(&user(0, Role::Admin)).unwrap_err();
        assert_eq!(problem.status, StatusCode::TOO_MANY_REQUESTS);
        kept.clear();
        assert_eq!(fill(&streams, &user(0, Role::Admin), &mut kept), ALL, "administrators may have all");
        kept.clear();
        assert!(streams.0.lock().unwrap().each.is_empty());
    }
}
