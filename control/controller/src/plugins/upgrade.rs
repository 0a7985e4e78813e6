//! Replaces instances while packets pass through them, and hands over their state.

use std::sync::mpsc::Receiver;

use millrace_pipeline::PluginCommand;
use millrace_plugin::{
    ConnectionStates, FaultHistory, Inheritance, Inherited, PluginChange, Succession, Successor, Successors,
};
use millrace_plugin_abi::{Instance, Plugin, StateScope};
use millrace_units::InstanceId;

use crate::ControlError;
use crate::workers::Workers;
use crate::workers::commands::states_for;
use crate::workers::handle::{WorkerHandle, ended};

/// Old instance that was replaced at a worker, kept so that a failed upgrade can restore it.
struct Replaced {
    worker: usize,
    id: InstanceId,
    /// Copies of the instance, by context.
    contexts: Vec<Box<dyn Instance>>,
    /// Its faults.
    history: FaultHistory,
    /// Its states of connections, unless the successor has them.
    connection_states: Option<ConnectionStates>,
}

/// Treatment of an upgrade that a worker does not answer in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Late {
    /// Control calls it off, unless the worker has begun: the old instance stays.
    CallOff,
    /// The worker carries it out when it resumes.
    CarryOut,
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

/// Returns the text for lost flow state. `old` and `new` are the size per flow in bytes, and the scope, before and after
/// the upgrade.
fn loss_of_flows(old: (usize, StateScope), new: (usize, StateScope), same_version: bool) -> String {
    let change = match same_version {
        true if old.1 != new.1 => {
            format!("its scope changed from {} to {}", old.1.name(), new.1.name())
        }
        true => format!("the size per flow changed from {} to {} bytes", old.0, new.0),
        false => "the state-version changed".to_owned(),
    };
    format!("its flow state is lost: {change}")
}

/// Replaces instances: at all workers, or at none. `version` and `own_version` are the state versions of the
/// old and the new instances, `connections` the maximum number of connections of each worker. Returns the outcomes of the
/// state hand-over, by instance and worker.
pub(crate) fn succeed_all(
    workers: &mut Workers,
    successors: Vec<Successors>,
    (inheritance, late): (Inheritance, Late),
    (version, own_version): (u32, u32),
    connections: u32,
) -> Result<Vec<Succeeded>, ControlError> {
    let same_version = version == own_version;
    let (mut replaced, mut all) = (Vec::new(), Vec::new());
    for Successors { id, name, instances, .. } in successors {
        let mut succeeded = Succeeded { name, inherited: Vec::new(), of_flows: None };
        for (worker, contexts) in instances.into_iter().enumerate() {
            let new = flow_state(&contexts);
            let handle = workers.get(worker);
            let given = states_of(id, &contexts, connections).and_then(|states| give(handle, states));
            let successor = Successor::new(contexts, inheritance, version, same_version);
            match given.and_then(|()| succeed(handle, id, successor, late)) {
                Ok(Succession { contexts, inherited, history, connection_states }) => {
                    let old = flow_state(&contexts);
                    let is_lost = old.0 > 0 && !(old == new && same_version);
                    succeeded.of_flows = is_lost.then(|| loss_of_flows(old, new, same_version));
                    // `succession` has turned a refusal into an error.
                    succeeded.inherited.extend(inherited.ok());
                    replaced.push(Replaced { worker, id, contexts, history, connection_states });
                }
                Err(problem) => {
                    undo(workers, replaced, same_version);
                    return Err(problem.of(&format!("instance {:?}", succeeded.name)));
                }
            }
        }
        all.push(succeeded);
    }
    Ok(all)
}

/// Returns the size of the flow state of an instance in bytes per flow, and its scope. All contexts have the same.
fn flow_state(contexts: &[Box<dyn Instance>]) -> (usize, StateScope) {
    let first = contexts.first();
    first.map_or((0, StateScope::Flow), |instance| (instance.flow_state(), instance.state_scope()))
}

/// Returns the command that gives a worker states for an instance with these contexts, which replaces another one next;
/// `None` if its state does not belong to connections. The worker gives them back if the states of the old instance stay.
///
/// # Errors
/// The kernel has no memory.
pub(super) fn states_of(
    id: InstanceId,
    contexts: &[Box<dyn Instance>],
    connections: u32,
) -> Result<Option<PluginCommand>, ControlError> {
    let Some(instance) = contexts.first() else { return Ok(None) };
    Ok(states_for(id, &**instance, connections)?.map(|change| PluginCommand::Change(vec![change])))
}

/// Sends a worker the command of [`states_of`].
pub(super) fn give(worker: &mut WorkerHandle, states: Option<PluginCommand>) -> Result<(), ControlError> {
    states.map_or(Ok(()), |states| worker.tell(states))
}

/// Replaces an instance at a worker. Returns the old copies, their faults and the outcome of the state hand-over.
///
/// # Errors
/// The instance was not replaced; or, with [`ControlError::Silent`], the worker may have replaced it, or will.
fn succeed(
    worker: &mut WorkerHandle,
    id: InstanceId,
    successor: Successor,
    late: Late,
) -> Result<Succession, ControlError> {
    if late == Late::CarryOut {
        return succession(worker.ask(|reply| PluginCommand::Replace(id, successor, reply))?);
    }
    let claim = successor.claim.clone();
    let answer = worker.pose(|reply| PluginCommand::Replace(id, successor, reply))?;
    match worker.finish(&answer) {
        Err(_) if worker.has_ended() => Err(ended()),
        // The worker replaces the instance at this moment.
        Err(_) if !claim.take() => succession(decided(worker, &answer)?),
        Err(silent) => {
            // The copies that come back end on a thread of their own, not at the worker.
            std::thread::spawn(move || answer.recv().map(drop));
            Err(ControlError::System(format!("{silent}: the upgrade is called off")))
        }
        Ok(answer) => succession(answer),
    }
}

/// Waits for the answer of a worker that has taken the right to decide, and so replaces the instance. The answer comes at
/// once, unless the worker ends or its thread stands still. A failure reported without waiting could be wrong: the caller
/// would restore the old instance at other workers, and this worker would have the new one.
///
/// # Errors
/// The worker has ended, which shows at once; or it is silent.
fn decided<T>(worker: &WorkerHandle, answer: &Receiver<T>) -> Result<T, ControlError> {
    let answered = worker.finish(answer).or_else(|_| worker.finish(answer));
    answered.map_err(|silent| if worker.has_ended() { ended() } else { silent })
}

/// Returns the result of an upgrade, from the answer of a worker.
///
/// # Errors
/// The reason why the instance was not replaced.
pub(super) fn succession(answer: Option<Succession>) -> Result<Succession, ControlError> {
    match answer {
        Some(done @ Succession { inherited: Ok(_), .. }) => Ok(done),
        Some(Succession { inherited: Err(problem), .. }) => Err(ControlError::conflict(problem)),
        None => Err(ControlError::conflict("internal error: the instance is missing at a worker".to_owned())),
    }
}

/// Restores the old instances at their workers, after an upgrade failed at a later worker. The old instances
/// keep their own state and their faults. `same_version`: whether both have the same version of the state format, so that
/// they share the states of flows and connections. Otherwise, an old instance gets its states of connections back.
fn undo(workers: &mut Workers, replaced: Vec<Replaced>, same_version: bool) {
    for Replaced { worker, id, contexts, history, connection_states } in replaced {
        let (inheritance, history) = (Inheritance::Renounced, Some(history));
        let successor = Successor { history, ..Successor::new(contexts, inheritance, 0, same_version) };
        let worker = workers.get(worker);
        let change = connection_states.map(|states| PluginChange::GiveStates { id, states });
        let given = give(worker, change.map(|change| PluginCommand::Change(vec![change])));
        if let Err(problem) = given.and_then(|()| succeed(worker, id, successor, Late::CarryOut).map(drop)) {
            tracing::error!("can't restore an instance after a failed upgrade: {problem}");
        }
    }
}

/// Logs the failure of a step after the workers have decided on a version. This version runs all the same, and a worker
/// that doesn't answer gets the rest when it resumes.
pub(crate) fn warn_if_failed(plugin: &dyn Plugin, what: &str, step: Result<(), ControlError>) {
    if let Err(error) = step {
        tracing::warn!(plugin = plugin.name(), "{what}: {error}");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use millrace_pipeline::ReplyTo;
    use millrace_plugin_abi::{Message, Packets, Progress, Reply};
    use millrace_units::Instant;

    use super::*;
    use crate::workers::handle::tests::{answering, ending};

    struct Idle;

    impl Instance for Idle {
        fn process(&mut self, _packets: &mut Packets<'_>, _now: Instant) -> Progress {
            Progress::Done
        }

        fn control(&mut self, _message: &Message) -> Reply {
            Ok(Default::default())
        }
    }

    fn successors(count: usize) -> Successors {
        let instances = (0..count).map(|_| vec![Box::new(Idle) as Box<dyn Instance>]).collect();
        Successors { id: InstanceId(0), name: "i".to_owned(), instances, maps: Default::default() }
    }

    fn replacement(command: millrace_pipeline::Command) -> (Successor, ReplyTo<Option<Succession>>) {
        let millrace_pipeline::Command::Plugins(PluginCommand::Replace(_, successor, reply)) = command else {
            panic!("no upgrade")
        };
        (successor, reply)
    }

    /// The worker replaces the instance if it takes the right to decide before control gives up, and otherwise keeps it.
    #[test]
    fn control_and_a_late_worker_agree_about_an_upgrade() {
        for (patience, is_in_time) in [(Duration::from_millis(6500), false), (Duration::ZERO, true)] {
            let (told, claimed) = std::sync::mpsc::channel();
            let worker = answering(0, move |command| {
                let (successor, reply) = replacement(command);
                std::thread::sleep(patience);
                let claim = successor.claim.take();
                if claim {
                    // The answer comes late, but it comes.
                    std::thread::sleep(Duration::from_millis(5200));
                }
                let inherited = if claim { Ok(Inherited::Nothing) } else { Err("called off".to_owned()) };
                let (contexts, history) = (successor.contexts, FaultHistory::default());
                reply
                    .send(Some(Succession { contexts, inherited, history, connection_states: None }))
                    .unwrap();
                told.send(claim).unwrap();
            });
            let mut workers = Workers::new(vec![worker], 1);
            let result = succeed_all(
                &mut workers,
                vec![successors(1)],
                (Inheritance::Required, Late::CallOff),
                (0, 0),
                1,
            );
            assert_eq!((result.is_ok(), claimed.recv()), (is_in_time, Ok(is_in_time)));
        }
    }

    #[test]
    fn worker_that_ends_while_it_replaces_an_instance_is_reported_as_ended() {
        let worker = ending(0, |command, ended| {
            let (successor, reply) = replacement(command);
            assert!(successor.claim.take());
            std::thread::sleep(Duration::from_millis(5200));
            ended.store(true, Ordering::SeqCst);
            drop(reply);
        });
        let mut workers = Workers::new(vec![worker], 1);
        let treatment = (Inheritance::Required, Late::CallOff);
        let result = succeed_all(&mut workers, vec![successors(1)], treatment, (0, 0), 1);
        assert!(result.is_err_and(|error| error.to_string().contains("has ended")));
    }

    #[test]
    fn upgrade_that_changes_only_the_scope_loses_the_state() {
        let loss = loss_of_flows((8, StateScope::Flow), (8, StateScope::Connection), true);
        assert_eq!(loss, "its flow state is lost: its scope changed from flow to connection");
    }

    /// The second worker refuses the successor, so the first one gets its old instance back, with its faults.
    #[test]
    fn failed_upgrade_gives_the_old_instance_its_faults_back() {
        let (told, seen) = std::sync::mpsc::channel();
        let workers = (0..2).map(|number| {
            let told = told.clone();
            answering(number, move |command| {
                let (successor, reply) = replacement(command);
                told.send((number, successor.history.is_some(), successor.same_version)).unwrap();
                let inherited = if number == 0 { Ok(Inherited::Nothing) } else { Err("full".to_owned()) };
                let (contexts, history) = (successor.contexts, FaultHistory::default());
                let connection_states = None;
                reply.send(Some(Succession { contexts, inherited, history, connection_states })).unwrap();
            })
        });
        let mut workers = Workers::new(workers.collect(), 1);
        let treatment = (Inheritance::Required, Late::CallOff);
        let result = succeed_all(&mut workers, vec![successors(2)], treatment, (0, 0), 1);
        assert!(result.is_err_and(|error| error.to_string().contains("full")));
        // Both versions of the state are the same, so the states of flows and connections stay.
        let expected = [(0, false, true), (1, false, true), (0, true, true)];
        assert_eq!(seen.try_iter().collect::<Vec<_>>(), expected);
    }
}
