//! Replaces instances while packets pass through them, and hands over their state.

use millrace_pipeline::PluginCommand;
use millrace_plugin::{Inheritance, Inherited, Succession, Successor, Successors};
use millrace_plugin_abi::{Instance, Plugin};
use millrace_units::InstanceId;

use crate::ControlError;
use crate::workers::Workers;
use crate::workers::handle::WorkerHandle;

/// Old instance that was replaced at a worker, kept so that a failed upgrade can restore it.
struct Replaced {
    worker: usize,
    id: InstanceId,
    /// Copies of the instance, by context.
    contexts: Vec<Box<dyn Instance>>,
}

/// Returns the version of the state that the old plugin's host companion saves, and whether the new plugin's
/// companion has the same state version.
pub(crate) fn handed_on(old: &dyn Plugin, new: &dyn Plugin) -> (u32, bool) {
    let version = |plugin: &dyn Plugin| plugin.host_companion().map(Plugin::state_version);
    (version(old).unwrap_or(0), version(old) == version(new))
}

/// Result of replacing an instance.
pub(crate) struct Succeeded {
    pub name: String,
    /// Outcome of the state hand-over at each worker.
    pub inherited: Vec<Inherited>,
    /// Reason why the flow state of the old instance is lost. `None` if the flow state is kept, or the
    /// instance had none.
    pub of_flows: Option<String>,
}

/// Returns the text for lost flow state. `old` and `new` are the state's sizes per flow before and after the
/// upgrade, in bytes.
fn loss_of_flows(old: usize, new: usize, same_version: bool) -> String {
    let change = match same_version {
        true => format!("the size per flow changed from {old} to {new} bytes"),
        false => "the state-version changed".to_owned(),
    };
    format!("its flow state is lost: {change}")
}

/// Replaces instances: at all workers, or at none. `version` and `own_version` are the state versions of the
/// old and the new instances. Returns the outcomes of the state hand-over, by instance and worker.
pub(crate) fn succeed_all(
    workers: &mut Workers,
    successors: Vec<Successors>,
    inheritance: Inheritance,
    (version, own_version): (u32, u32),
) -> Result<Vec<Succeeded>, ControlError> {
    let (mut replaced, mut all) = (Vec::new(), Vec::new());
    for Successors { id, name, instances, .. } in successors {
        let mut succeeded = Succeeded { name, inherited: Vec::new(), of_flows: None };
        for (worker, contexts) in instances.into_iter().enumerate() {
            let (same_version, new) = (version == own_version, flow_state(&contexts));
            let successor = Successor { contexts, inheritance, version, same_version };
            match succeed(workers.get(worker), id, successor) {
                Ok((contexts, inherited)) => {
                    let old = flow_state(&contexts);
                    let is_lost = old > 0 && !(old == new && same_version);
                    succeeded.of_flows = is_lost.then(|| loss_of_flows(old, new, same_version));
                    succeeded.inherited.push(inherited);
                    replaced.push(Replaced { worker, id, contexts });
                }
                Err(problem) => {
                    undo(workers, replaced);
                    return Err(problem.of(&format!("instance {:?}", succeeded.name)));
                }
            }
        }
        all.push(succeeded);
    }
    Ok(all)
}

/// Returns the size of the flow state of an instance, in bytes per flow. All contexts have the same size.
fn flow_state(contexts: &[Box<dyn Instance>]) -> usize {
    contexts.first().map_or(0, |instance| instance.flow_state())
}

/// Replaces an instance at a worker. Returns the old copies and the outcome of the state hand-over.
fn succeed(
    worker: &mut WorkerHandle,
    id: InstanceId,
    successor: Successor,
) -> Result<(Vec<Box<dyn Instance>>, Inherited), ControlError> {
    succession(worker.ask(|reply| PluginCommand::Replace(id, successor, reply))?)
}

/// Returns the old copies and the outcome of the state hand-over, from the answer of a worker.
///
/// # Errors
/// The reason why the instance was not replaced.
pub(super) fn succession(
    answer: Option<Succession>,
) -> Result<(Vec<Box<dyn Instance>>, Inherited), ControlError> {
    match answer {
        Some(Succession { contexts, inherited: Ok(inherited) }) => Ok((contexts, inherited)),
        Some(Succession { inherited: Err(problem), .. }) => Err(ControlError::conflict(problem)),
        None => Err(ControlError::conflict("internal error: the instance is missing at a worker".to_owned())),
    }
}

/// Restores the old instances at their workers, after an upgrade failed at a later worker. The old instances
/// keep their own state.
fn undo(workers: &mut Workers, replaced: Vec<Replaced>) {
    for Replaced { worker, id, contexts } in replaced {
        let inheritance = Inheritance::Renounced;
        let successor = Successor { contexts, inheritance, version: 0, same_version: false };
        if let Err(problem) = succeed(workers.get(worker), id, successor) {
            tracing::error!("can't restore an instance after a failed upgrade: {problem}");
        }
    }
}
