//! Groups of principals that a change has removed. If the change is undone, their processes return.

use std::collections::BTreeMap;

use millrace_principals::{Member, RouterGroup};

use super::held::{Held, create};
use crate::ControlError;

/// Processes of removed groups, by the names of the groups.
#[derive(Debug, Default)]
pub(super) struct RemovedGroups(BTreeMap<String, Vec<Member>>);

impl RemovedGroups {
    /// Removes the groups that `is_gone` selects.
    ///
    /// # Errors
    /// A process can't be moved. All groups are as before.
    pub fn remove(
        &mut self,
        groups: &mut Vec<Held>,
        router: &RouterGroup,
        is_gone: impl Fn(&Held) -> bool,
    ) -> Result<(), ControlError> {
        let mut gone = Vec::new();
        while let Some(index) = groups.iter().position(&is_gone) {
            match groups[index].remove() {
                Ok(members) => {
                    let held = groups.remove(index);
                    self.0.insert(held.group.name().to_owned(), members);
                    gone.push(held);
                }
                Err(error) => {
                    gone.into_iter().rev().for_each(|held| self.restore(groups, router, &held));
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Creates a removed group again, with its limits and processes.
    fn restore(&mut self, groups: &mut Vec<Held>, router: &RouterGroup, gone: &Held) {
        let name = gone.group.name();
        let created = create(router, name).and_then(|mut held| {
            held.set(gone.limits, false)?;
            groups.push(held);
            Ok(())
        });
        match created {
            Ok(()) => self.put_back(groups, name),
            Err(error) => tracing::warn!(group = name, "the group was not restored: {error}"),
        }
    }

    /// Moves the processes of a removed group into the new group of the same name. Others stay where they are.
    pub fn put_back(&mut self, groups: &[Held], name: &str) {
        let Some(held) = groups.iter().find(|held| held.group.name() == name) else { return };
        for member in self.0.remove(name).into_iter().flatten().filter(|member| member.has_its_id()) {
            if let Err(error) = held.group.add_member(member) {
                tracing::warn!(group = name, "a process does not return to its group: {error}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use millrace_principals::{CpuWeight, Launch, Limits};

    use super::*;
    use crate::principals::held::create_router;

    /// Process that ends with the test.
    struct Sleeper(std::process::Child);

    impl Sleeper {
        fn is_in(&self, group: &str) -> bool {
            let groups = fs::read_to_string(format!("/proc/{}/cgroup", self.0.id())).unwrap();
            groups.lines().any(|line| line.ends_with(&format!("/{group}")))
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    #[test]
    fn processes_of_a_removed_group_return_when_the_removal_is_undone() {
        let router = match create_router() {
            Ok(router) if nix::unistd::geteuid().is_root() => router,
            refused => {
                assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{refused:?}");
                return println!("skipped: needs root and control groups");
            }
        };
        let mut groups = vec![create(&router, "alice").unwrap(), create(&router, "bob").unwrap()];
        let limits = Limits { cpu_weight: CpuWeight::new(300).ok(), ..Limits::default() };
        groups[0].set(limits, false).unwrap();
        let mut command = Command::new("sleep");
        command.arg("20");
        let sleeper = Sleeper(Launch::new(&groups[0].group, command).unwrap().start().unwrap());
        let mut removed = RemovedGroups::default();
        removed.remove(&mut groups, &router, |held| held.group.name() == "alice").unwrap();
        assert!(groups.len() == 1 && !sleeper.is_in("alice"));
        groups.push(create(&router, "alice").unwrap());
        removed.put_back(&groups, "alice");
        assert!(sleeper.is_in("alice"));
        // Once is enough.
        removed.remove(&mut groups, &router, |held| held.group.name() == "bob").unwrap();
        removed.remove(&mut groups, &router, |_| true).unwrap();
        removed.restore(&mut groups, &router, &{
            let mut gone = create(&router, "carol").unwrap();
            gone.set(limits, false).unwrap();
            gone.remove().unwrap();
            gone
        });
        assert_eq!((groups[0].group.name(), groups[0].limits), ("carol", limits));
    }
}
