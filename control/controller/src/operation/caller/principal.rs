//! Principals: authenticated callers with their roles.

use std::net::IpAddr;

use millrace_config::Role;
use millrace_store::{AuditEntry, Outcome, Who};

use crate::ControlError;
use crate::admission::allowances::Requester;

/// Authenticated caller of operations. A caller without a role may do nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// Identity: user at the other end of the Unix socket, API token, plugin instance, or the router itself.
    pub who: Who,
    /// Role of the caller; `None` for a caller that may do nothing.
    pub role: Option<Role>,
    /// Process id of a caller at the Unix socket; `None` for other callers.
    pub pid: Option<i32>,
    /// IP address of a remote caller; `None` for local callers.
    pub from: Option<IpAddr>,
}

impl Principal {
    /// Returns the principal of an unauthenticated caller at a remote address.
    pub fn stranger(from: IpAddr) -> Self {
        Self { who: Who { uid: None, name: "unknown".to_owned() }, role: None, pid: None, from: Some(from) }
    }

    /// Returns the principal of a local process whose user is not yet looked up.
    pub fn user(uid: Option<u32>, pid: Option<i32>) -> Self {
        let name = uid.map_or_else(|| "unknown".to_owned(), |uid| format!("uid {uid}"));
        Self { who: Who { uid, name }, role: None, pid, from: None }
    }

    /// Returns the principal of a token's holder.
    pub fn token(name: &str, role: Role, from: IpAddr) -> Self {
        let who = Who { uid: None, name: format!("token {name}") };
        Self { who, role: Some(role), pid: None, from: Some(from) }
    }

    /// Returns the principal of the router itself, with the role `admin`.
    pub fn router() -> Self {
        Self { who: Who::router(), role: Some(Role::Admin), pid: None, from: None }
    }

    /// Returns the principal of a plugin instance with the role that its request needs.
    pub fn instance(name: &str, role: Role) -> Self {
        Self { who: Who::instance(name), role: Some(role), pid: None, from: None }
    }

    /// Checks that the principal has at least the needed role.
    ///
    /// # Errors
    /// [`ControlError::Forbidden`] for a lower role, or none.
    pub fn may(&self, needed: Role) -> Result<(), ControlError> {
        if self.role.is_some_and(|role| role >= needed) {
            return Ok(());
        }
        let name = &self.who.name;
        let problem = match self.role {
            Some(role) => {
                format!("this operation needs the role {needed}, but {name} has the role {role}")
            }
            None => format!(
                "this operation needs the role {needed}, but user {name} has no role: run as root, or give \
                 one of the user's groups a role in [api] groups"
            ),
        };
        Err(ControlError::Forbidden(needed, problem))
    }

    /// Returns the principal as the user who makes a request for shares.
    pub(crate) fn requester(&self) -> Requester {
        Requester { who: self.who.clone(), role: self.role }
    }

    /// Returns the role, or `viewer` if there is none.
    pub fn least(&self) -> Role {
        self.role.unwrap_or(Role::Viewer)
    }

    /// Returns an audit log entry for an operation of the principal. The caller adds request and time.
    pub fn entry(&self, operation: String, outcome: Outcome) -> AuditEntry {
        AuditEntry {
            time: String::new(),
            who: self.who.clone(),
            role: self.role.map(|role| role.name().to_owned()),
            pid: self.pid,
            from: self.from.map(|from| from.to_string()),
            operation,
            request: None,
            outcome,
            status: None,
            why: None,
            revision: None,
        }
    }
}
