//! Processes that principals name in `process`: they join the groups of their principals.

use std::collections::BTreeMap;

use millrace_config::Principal;
use millrace_principals::{GroupError, Process};

use crate::principals::held::Held;

/// Refusals of processes that principals name.
#[derive(Debug, Default)]
pub(in crate::principals) struct NamedProcesses {
    /// Latest refusal of the kernel, by the name of the principal.
    refused: BTreeMap<String, String>,
}

impl NamedProcesses {
    /// Moves the running processes into the groups of the principals that name them. Logs each new refusal once.
    pub fn take(&mut self, groups: &[Held], principals: &[Principal]) {
        let earlier = std::mem::take(&mut self.refused);
        if groups.is_empty() || principals.iter().all(|one| one.process.is_empty()) {
            return;
        }
        let names: Vec<&str> = principals.iter().flat_map(|one| &one.process).map(|name| &**name).collect();
        for process in Process::outside(&names) {
            let is_owner = |one: &&Principal| one.process.iter().any(|name| process.is_of(name));
            let Some(owner) = principals.iter().find(is_owner) else { continue };
            let Some(held) = groups.iter().find(|held| *held.group.name() == *owner.name) else { continue };
            let id = process.member.id().as_raw();
            match held.group.add_member(process.member) {
                Ok(()) => tracing::info!(principal = &*owner.name, process = id, "process joined"),
                Err(GroupError::Join { source, .. }) if source.raw_os_error() == Some(libc::ESRCH) => {}
                Err(error) => self.refuse(&owner.name, error.to_string(), &earlier),
            }
        }
    }

    fn refuse(&mut self, principal: &str, error: String, earlier: &BTreeMap<String, String>) {
        if earlier.get(principal) != Some(&error) {
            tracing::warn!(principal, "a process that the principal names can't join its group: {error}");
        }
        self.refused.insert(principal.to_owned(), error);
    }

    /// Returns the reason why the latest process that a principal names could not join its group.
    pub fn obstacle(&self, principal: &str) -> Option<&str> {
        self.refused.get(principal).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_is_the_obstacle_until_the_next_look() {
        let mut named = NamedProcesses::default();
        named.refuse("a", "no".to_owned(), &BTreeMap::new());
        assert_eq!((named.obstacle("a"), named.obstacle("b")), (Some("no"), None));
        named.take(&[], &[]);
        assert_eq!(named.obstacle("a"), None);
    }
}
