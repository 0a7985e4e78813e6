//! Memory that the workers may use for principals: flow state, waiting packets, and sandboxed instances.
//!
//! Processes of a principal come first. Each worker may use an equal part of what they leave of `memory`, as
//! measured about once a second.

use std::collections::BTreeMap;

use millrace_config::Principal;
use millrace_pipeline::PrincipalCommand;
use millrace_units::PrincipalId;

use crate::ControlError;
use crate::model::Model;
use crate::workers::Workers;

/// Limits that the workers have, in bytes at each worker.
#[derive(Debug, Default)]
pub(crate) struct WorkerMemory(BTreeMap<PrincipalId, u64>);

impl WorkerMemory {
    /// Gives the workers the limits of all principals of the model. `used`: memory of a principal's processes,
    /// in bytes. Call this after each change of principals, and about once a second.
    ///
    /// # Errors
    /// A worker takes no commands.
    pub fn follow(
        &mut self,
        model: &Model,
        used: impl Fn(&str) -> u64,
        workers: &mut Workers,
    ) -> Result<(), ControlError> {
        let limited = model.principals.iter().filter(|one| one.memory.is_some());
        let limit = |one: &Principal| {
            Some((model.principal_ids.id(&one.name)?, part(one, used(&one.name), workers.len())?))
        };
        let wanted: BTreeMap<_, _> = limited.filter_map(limit).collect();
        for id in self.0.keys().filter(|id| !wanted.contains_key(id)) {
            workers.tell(|| PrincipalCommand::LimitMemory(*id, None))?;
        }
        for (id, limit) in wanted.iter().filter(|(id, limit)| self.0.get(id) != Some(limit)) {
            workers.tell(|| PrincipalCommand::LimitMemory(*id, Some(*limit)))?;
        }
        self.0 = wanted;
        Ok(())
    }
}

/// Returns the memory of a principal at each worker; `None` without a limit.
fn part(principal: &Principal, used: u64, workers: usize) -> Option<u64> {
    Some(principal.memory?.bytes().saturating_sub(used) / workers.max(1) as u64)
}

#[cfg(test)]
mod tests {
    use millrace_config::Config;

    use super::*;

    #[test]
    fn workers_divide_what_processes_leave() {
        let entries = "[[principal]]\nname = \"a\"\nmemory = \"8 MiB\"\n[[principal]]\nname = \"b\"\n";
        let principals = Config::parse(entries, "test").unwrap().principal;
        assert_eq!(part(&principals[0], 0, 1), Some(8 << 20));
        assert_eq!(part(&principals[0], 2 << 20, 2), Some(3 << 20));
        assert_eq!(part(&principals[0], 9 << 20, 2), Some(0));
        assert_eq!(part(&principals[1], 0, 2), None);
    }
}
