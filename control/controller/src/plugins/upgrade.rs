//! Replaces instances while packets pass through them, and hands over their state.

use millrace_pipeline::PluginCommand;
use millrace_plugin::{FaultHistory, Inheritance, Inherited, Succession, Successor, Successors};
use millrace_plugin_abi::{Instance, Plugin};
use millrace_units::InstanceId;

use crate::ControlError;
use crate::workers::Workers;
use crate::workers::handle::{WorkerHandle, ended};

/// Old instance that was replaced at a worker, kept so that a failed upgrade can restore it.
struct Replaced {
    worker: usize,
    id: InstanceId,
    /// Copies of the instance, by context.
    contexts: Vec<Box<dyn Instance>>,
    /// Its faults.
    history: FaultHistory,
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
    (inheritance, late): (Inheritance, Late),
    (version, own_version): (u32, u32),
) -> Result<Vec<Succeeded>, ControlError> {
    let (mut replaced, mut all) = (Vec::new(), Vec::new());
    for Successors { id, name, instances, .. } in successors {
        let mut succeeded = Succeeded { name, inherited: Vec::new(), of_flows: None };
        for (worker, contexts) in instances.into_iter().enumerate() {
            let (same_version, new) = (version == own_version, flow_state(&contexts));
            let successor = Successor::new(contexts, inheritance, version, same_version);
            match succeed(workers.get(worker), id, successor, late) {
                Ok(Succession { contexts, inherited, history }) => {
                    let old = flow_state(&contexts);
                    let is_lost = old > 0 && !(old == new && same_version);
                    succeeded.of_flows = is_lost.then(|| loss_of_flows(old, new, same_version));
                    // `succession` has turned a refusal into an error.
                    succeeded.inherited.extend(inherited.ok());
                    replaced.push(Replaced { worker, id, contexts, history });
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
        Err(_) if !claim.take() => succession(worker.finish(&answer).or_else(|_| worker.finish(&answer))?),
        Err(silent) => {
            // The copies that come back end on a thread of their own, not at the worker.
            std::thread::spawn(move || answer.recv().map(drop));
            Err(ControlError::System(format!("{silent}: the upgrade is called off")))
        }
        Ok(answer) => succession(answer),
    }
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
/// keep their own state and their faults.
fn undo(workers: &mut Workers, replaced: Vec<Replaced>) {
    for Replaced { worker, id, contexts, history } in replaced {
        let (inheritance, history) = (Inheritance::Renounced, Some(history));
        let successor = Successor { history, ..Successor::new(contexts, inheritance, 0, false) };
        if let Err(problem) = succeed(workers.get(worker), id, successor, Late::CarryOut) {
            tracing::error!("can't restore an instance after a failed upgrade: {problem}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use millrace_pipeline::ReplyTo;
    use millrace_plugin_abi::{Message, Packets, Progress, Reply};
    use millrace_units::Instant;

    use super::*;
    use crate::workers::handle::tests::answering;

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
                reply.send(Some(Succession { contexts, inherited, history })).unwrap();
                told.send(claim).unwrap();
            });
            let mut workers = Workers::new(vec![worker], 1);
            let result = succeed_all(
                &mut workers,
                vec![successors(1)],
                (Inheritance::Required, Late::CallOff),
                (0, 0),
            );
            assert_eq!((result.is_ok(), claimed.recv()), (is_in_time, Ok(is_in_time)));
        }
    }

    /// The second worker refuses the successor, so the first one gets its old instance back, with its faults.
    #[test]
    fn failed_upgrade_gives_the_old_instance_its_faults_back() {
        let (told, seen) = std::sync::mpsc::channel();
        let workers = (0..2).map(|number| {
            let told = told.clone();
            answering(number, move |command| {
                let (successor, reply) = replacement(command);
                told.send((number, successor.history.is_some())).unwrap();
                let inherited = if number == 0 { Ok(Inherited::Nothing) } else { Err("full".to_owned()) };
                let (contexts, history) = (successor.contexts, FaultHistory::default());
                reply.send(Some(Succession { contexts, inherited, history })).unwrap();
            })
        });
        let mut workers = Workers::new(workers.collect(), 1);
        let result =
            succeed_all(&mut workers, vec![successors(2)], (Inheritance::Required, Late::CallOff), (0, 0));
        assert!(result.is_err_and(|error| error.to_string().contains("full")));
        assert_eq!(seen.try_iter().collect::<Vec<_>>(), [(0, false), (1, false), (0, true)]);
    }
}
