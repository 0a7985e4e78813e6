//! Who asks, and what they may do.

use std::net::IpAddr;

use millrace_controller::{AuditEntry, Outcome, Role, Who};

/// Whom a request comes from. Who has no role may do nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Principal {
    /// The user at the other end of the Unix socket, or the token.
    pub who: Who,
    /// What they may do.
    pub role: Option<Role>,
    /// The process at the other end of the Unix socket.
    pub pid: Option<i32>,
    /// The address at the other end of a connection from elsewhere.
    pub from: Option<IpAddr>,
}

impl Principal {
    /// Somebody at an address who has not said by what they ask.
    pub fn stranger(from: IpAddr) -> Self {
        Self { who: Who { uid: None, name: "unknown".to_owned() }, role: None, pid: None, from: Some(from) }
    }

    /// A process of this machine of whose user nobody has been asked yet.
    pub fn user(uid: Option<u32>, pid: Option<i32>) -> Self {
        let name = uid.map_or_else(|| "unknown".to_owned(), |uid| format!("uid {uid}"));
        Self { who: Who { uid, name }, role: None, pid, from: None }
    }

    /// Who has a token.
    pub fn token(name: &str, role: Role, from: IpAddr) -> Self {
        let who = Who { uid: None, name: format!("token {name}") };
        Self { who, role: Some(role), pid: None, from: Some(from) }
    }

    /// The role, or the least one where there is none.
    pub fn least(&self) -> Role {
        self.role.unwrap_or(Role::Viewer)
    }

    /// A line of the audit log about an operation of theirs, without what was asked for, and when.
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
