//! Host level: runs host companions of plugins on a thread of their own.
//!
//! Companions run like instances at a worker. No companion blocks the others: a call is suspended at the end
//! of its slice, and then another companion's call runs. A call may run for one second in total. The thread
//! starts with the first companion.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use millrace_confine::Privileges;
use millrace_pipeline::thread::{Wake, now};
use millrace_plugin::{
    BindingId, BindingTable, CallLimits, Failure, Given, Inheritance, InstanceReport, Limits, PluginChange,
    Remains, Successor, WorkerPlugins,
};
use millrace_plugin_abi::{Instance, Message, NoQueues, Output, Reply};
use millrace_units::InstanceId;
use tokio::sync::oneshot;

use crate::ControlError;

/// Maximum number of queued commands to the host thread, and of queued outputs to control.
const MOST_WAITING: usize = 1024;
/// Maximum number of further commands that the thread carries out before companions run again.
const AT_ONCE: usize = 64;
/// Maximum time to wait for an answer of the host thread.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum running time of a companion's call, both for a message and for periodic work.
const CALL: Duration = Duration::from_secs(1);

/// Reports of host companions, by instance id.
pub(crate) type CompanionReports = BTreeMap<InstanceId, InstanceReport>;

/// Command from control to the host thread.
enum HostCommand {
    /// Adds a host companion. If the instance already has a companion, the old companion hands over its
    /// state.
    Put(InstanceId, Successor),
    /// Removes the companion of this instance.
    Remove(InstanceId),
    /// Delivers a message from an instance at the workers to the instance's companion.
    Message(InstanceId, Vec<u8>),
    /// Delivers a control message. The sender gets the reply; `None` if the instance has no companion.
    Control(InstanceId, Message, oneshot::Sender<Option<Reply>>),
    /// Requests the reports of all companions.
    Report(SyncSender<CompanionReports>),
}

/// Output of a host companion for control.
pub(crate) enum HostSays {
    /// Output of a companion's call.
    Given(Given),
    Failed(Failure),
}

/// Queue of outputs that control has not taken yet.
struct Said {
    waiting: Mutex<VecDeque<HostSays>>,
    wake: Wake,
}

impl Said {
    /// Queues an output for control, and wakes control. Returns false if the queue is full; the output is
    /// then lost. A failure always has room: failures are few, because a companion pauses after each.
    fn say(&self, says: HostSays) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let room = waiting.len() < MOST_WAITING || matches!(says, HostSays::Failed(_));
        if room {
            waiting.push_back(says);
        }
        drop(waiting);
        self.wake.signal();
        room
    }
}

struct Running {
    commands: SyncSender<HostCommand>,
    thread: JoinHandle<()>,
}

/// Control's handle on the host level.
pub(crate) struct HostLevel {
    said: Arc<Said>,
    running: Option<Running>,
    /// For each instance, the number of messages lost because the command queue was full or the host thread
    /// did not run.
    lost: HashMap<InstanceId, u64>,
    /// Resource limits of companions.
    limits: Limits,
}

impl Drop for HostLevel {
    fn drop(&mut self) {
        if let Some(Running { commands, thread }) = self.running.take() {
            drop(commands);
            // A panic of the thread has already been logged.
            let _ = thread.join();
        }
    }
}

impl HostLevel {
    /// Creates a host level without companions. Queued output signals `wake`.
    pub fn new(wake: Wake, limits: Limits) -> Self {
        let said = Arc::new(Said { waiting: Mutex::default(), wake });
        Self { said, running: None, lost: HashMap::new(), limits }
    }

    /// Starts the host thread, unless it runs.
    ///
    /// # Errors
    /// The system has no room for a thread.
    pub fn make_ready(&mut self) -> Result<(), ControlError> {
        self.start().map(|_| ())
    }

    /// Adds the host companion of an instance; `None` removes the current companion. A current companion
    /// hands over its state to the new one, if it can. `version` is the version of this state, and `same`
    /// tells whether the new companion's state has the same version.
    pub fn put(
        &mut self,
        id: InstanceId,
        companion: Option<Box<dyn Instance>>,
        (version, same): (u32, bool),
    ) -> Result<(), ControlError> {
        let Some(instance) = companion else {
            self.remove(id);
            return Ok(());
        };
        let (contexts, inheritance) = (vec![instance], Inheritance::Tried);
        let successor = Successor::new(contexts, inheritance, version, same);
        self.start()?.commands.send(HostCommand::Put(id, successor)).map_err(|_| gone())
    }

    /// Removes the host companion of an instance, if it has one.
    pub fn remove(&mut self, id: InstanceId) {
        self.lost.remove(&id);
        if let Some(running) = self.running() {
            // If sending fails, the thread has ended, and the companion with it.
            let _ = running.commands.send(HostCommand::Remove(id));
        }
    }

    /// Sends a message to the host companion of an instance. If the queue is full or there is no companion,
    /// the message is lost and counted.
    pub fn message(&mut self, id: InstanceId, bytes: Vec<u8>) {
        let sent = self.running().map(|running| running.commands.try_send(HostCommand::Message(id, bytes)));
        if !matches!(sent, Some(Ok(()))) {
            *self.lost.entry(id).or_default() += 1;
        }
    }

    /// Sends a control message to the host companion of an instance. The reply arrives in the returned
    /// channel. No reply arrives if the call doesn't end.
    pub fn control(
        &self,
        id: InstanceId,
        message: Message,
    ) -> Result<oneshot::Receiver<Option<Reply>>, ControlError> {
        let (reply, answer) = oneshot::channel();
        let running = self.running().ok_or_else(gone)?;
        let busy = |_| {
            ControlError::System(format!(
                "{MOST_WAITING} commands to host companions are waiting already: try again later"
            ))
        };
        running.commands.try_send(HostCommand::Control(id, message, reply)).map_err(busy)?;
        Ok(answer)
    }

    /// Returns the reports of all host companions. Adds the messages that were lost before they reached the
    /// host thread.
    pub fn report(&self) -> Result<CompanionReports, ControlError> {
        let Some(running) = self.running() else { return Ok(CompanionReports::new()) };
        let (reply, answer) = sync_channel(1);
        running.commands.send(HostCommand::Report(reply)).map_err(|_| gone())?;
        let mut reports = answer.recv_timeout(PATIENCE).map_err(|_| gone())?;
        for (id, report) in &mut reports {
            report.messages.lost += self.lost.get(id).copied().unwrap_or(0);
        }
        Ok(reports)
    }

    /// Takes the queued output of host companions.
    pub fn take_said(&self) -> VecDeque<HostSays> {
        std::mem::take(&mut *self.said.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the host thread; `None` before the first companion, and after a panic of the thread.
    fn running(&self) -> Option<&Running> {
        self.running.as_ref().filter(|running| !running.thread.is_finished())
    }

    fn start(&mut self) -> Result<&Running, ControlError> {
        if self.running().is_none() {
            let (commands, received) = sync_channel(MOST_WAITING);
            let (said, limits) = (self.said.clone(), self.limits);
            let begin = || {
                let thread = std::thread::Builder::new().name("host-level".to_owned());
                thread.spawn(move || run(&received, &said, limits))
            };
            let what = "start the thread of the host companions";
            let begun = Privileges::Files.apart(begin).map_err(|error| ControlError::system(what, error))?;
            let thread = begun.map_err(|error| ControlError::system(what, error))?;
            self.running = Some(Running { commands, thread });
        }
        self.running().ok_or_else(gone)
    }
}

fn gone() -> ControlError {
    ControlError::System("the thread of the host companions does not answer".to_owned())
}

/// Main function of the host thread. Runs until control drops its handle.
fn run(commands: &Receiver<HostCommand>, said: &Said, limits: Limits) {
    let mut plugins =
        WorkerPlugins::<NoTable>::new().with_errands(CallLimits { call: CALL, ..CallLimits::OF_ERRANDS });
    plugins.instances_mut().set_limits(limits);
    loop {
        match wait(&plugins, commands) {
            Ok(Some(command)) => carry_out(&mut plugins, command),
            Ok(None) => {}
            Err(()) => return,
        }
        for command in commands.try_iter().take(AT_ONCE) {
            carry_out(&mut plugins, command);
        }
        // The host level has no packets to resume.
        plugins.resume(now(), &NoQueues, &mut Vec::new());
        while let Some(given) = plugins.instances_mut().take_given() {
            let (id, is_message) = (given.instance, matches!(given.output, Output::Message(_)));
            if !said.say(HostSays::Given(given)) && is_message {
                plugins.instances_mut().count_messages(id, |messages| messages.unsent += 1);
            }
        }
        while let Some(failure) = plugins.instances_mut().take_failure() {
            said.say(HostSays::Failed(failure));
        }
    }
}

/// Waits for a command, or until a companion's call is due. Returns the command, or `None` for a due call.
/// Returns an error if control has dropped its handle.
fn wait(
    plugins: &WorkerPlugins<NoTable>,
    commands: &Receiver<HostCommand>,
) -> Result<Option<HostCommand>, ()> {
    let time = now();
    let Some(next) = plugins.next_event(time) else { return commands.recv().map(Some).map_err(drop) };
    match commands.recv_timeout(Duration::from_nanos(next.as_nanos().saturating_sub(time.as_nanos()))) {
        Ok(command) => Ok(Some(command)),
        Err(RecvTimeoutError::Timeout) => Ok(None),
        Err(RecvTimeoutError::Disconnected) => Err(()),
    }
}

fn carry_out(plugins: &mut WorkerPlugins<NoTable>, command: HostCommand) {
    match command {
        HostCommand::Put(id, successor) if plugins.instances().reports().any(|(known, _)| known == id) => {
            plugins.succeed(id, successor, now(), Box::new(drop));
        }
        // A companion has one context.
        HostCommand::Put(id, Successor { contexts, .. }) => contexts.into_iter().for_each(|instance| {
            drop(plugins.apply(PluginChange::AddInstance { id, instance }));
        }),
        HostCommand::Remove(id) => match plugins.apply(PluginChange::RemoveInstance { id }) {
            Remains::Instance(instance, states) => drop((instance, states)),
            Remains::Nothing | Remains::Table(_) => {}
        },
        HostCommand::Message(id, bytes) => plugins.message(id, bytes, now()),
        HostCommand::Control(id, message, reply) => {
            // If the caller no longer waits, the answer is dropped.
            let first = |answers: Option<Vec<Reply>>| answers.and_then(|replies| replies.into_iter().next());
            let answer = Box::new(move |answers| _ = reply.send(first(answers)));
            plugins.control(id, &message, now(), answer);
        }
        HostCommand::Report(reply) => _ = reply.try_send(plugins.instances().reports().collect()),
    }
}

/// Binding table of the host level. It is empty, because the host level has no packets.
#[derive(Default)]
struct NoTable;

impl BindingTable for NoTable {
    type Filter = ();
    type Candidate = ();

    fn insert(&mut self, (): (), _: i32, _: BindingId) {}

    fn remove(&mut self, (): (), _: BindingId) {}

    fn lookup(&self, (): &()) -> Option<BindingId> {
        None
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Instant as Clock;

    use millrace_plugin::Health;
    use millrace_plugin_abi::{Fault, Instant, LogLevel, Packets, PluginError, Progress};

    use super::*;

    /// Test companion that returns each message with a number in front, and fails at an empty message.
    struct Echo {
        number: u8,
        outputs: VecDeque<Output>,
        failed: bool,
    }

    impl Instance for Echo {
        fn process(&mut self, _: &mut Packets<'_>, _: Instant) -> Progress {
            Progress::Done
        }

        fn control(&mut self, message: &Message) -> Reply {
            Ok(serde_json::json!([self.number, message.name]))
        }

        fn message(&mut self, bytes: &[u8]) -> Progress {
            self.failed = bytes.is_empty();
            self.outputs.push_back(Output::Message([&[self.number], bytes].concat()));
            self.outputs.push_back(Output::Log(LogLevel::Debug, "heard".into()));
            Progress::Done
        }

        fn has_output(&self) -> bool {
            true
        }

        fn take_output(&mut self) -> Option<Output> {
            self.outputs.pop_front()
        }

        fn take_fault(&mut self) -> Option<Fault> {
            std::mem::take(&mut self.failed).then(|| Fault { kind: "empty", text: "nothing".into() })
        }

        fn save(&mut self) -> Result<Option<Vec<u8>>, PluginError> {
            Ok(Some(vec![self.number]))
        }

        fn restore(&mut self, state: &[u8], _: u32) -> Result<(), PluginError> {
            self.number += state[0];
            Ok(())
        }
    }

    fn echo(number: u8) -> Option<Box<dyn Instance>> {
        Some(Box::new(Echo { number, outputs: VecDeque::new(), failed: false }))
    }

    /// Returns a host level whose thread takes no commands. The thread runs until the sender is dropped.
    pub(crate) fn deaf() -> (HostLevel, SyncSender<()>) {
        let mut level = HostLevel::new(Wake::new().unwrap(), Limits::default());
        let (commands, _) = sync_channel(1);
        let (end, ended) = sync_channel::<()>(1);
        let thread = std::thread::spawn(move || _ = ended.recv());
        level.running = Some(Running { commands, thread });
        (level, end)
    }

    /// Collects the messages and failures of companions. Stops after `most` of them, or after a time limit.
    fn heard(level: &HostLevel, most: usize) -> (Vec<(u16, Vec<u8>)>, usize) {
        let (mut messages, mut failures, end) = (Vec::new(), 0, Clock::now() + PATIENCE);
        while messages.len() + failures < most && Clock::now() < end {
            for says in level.take_said() {
                match says {
                    HostSays::Given(Given { instance, output: Output::Message(bytes), .. }) => {
                        messages.push((instance.0, bytes));
                    }
                    HostSays::Given(_) => {}
                    HostSays::Failed(failure) => {
                        assert_eq!(failure.fault.kind, "empty");
                        failures += 1;
                    }
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        (messages, failures)
    }

    #[test]
    fn messages_are_answered_and_successors_take_over() {
        let mut level = HostLevel::new(Wake::new().unwrap(), Limits::default());
        assert!(level.report().unwrap().is_empty());
        let (one, two) = (InstanceId(1), InstanceId(2));
        level.put(one, echo(10), (0, true)).unwrap();
        level.put(two, echo(20), (0, true)).unwrap();
        level.message(one, vec![1]);
        level.message(two, vec![2]);
        assert_eq!(heard(&level, 2), (vec![(1, vec![10, 1]), (2, vec![20, 2])], 0));
        level.put(one, echo(5), (0, true)).unwrap();
        level.message(one, vec![3]);
        assert_eq!(heard(&level, 1), (vec![(1, vec![15, 3])], 0));
        level.put(two, None, (0, true)).unwrap();
        level.message(two, vec![4]);
        let report = level.report().unwrap();
        assert_eq!(report.keys().collect::<Vec<_>>(), [&one]);
        assert_eq!((report[&one].messages.heard, report[&one].messages.sent), (2, 2));
    }

    #[test]
    fn control_messages_are_answered_if_a_companion_exists() {
        let mut level = HostLevel::new(Wake::new().unwrap(), Limits::default());
        let message = || Message { name: "read".into(), arguments: Default::default() };
        level.control(InstanceId(1), message()).unwrap_err();
        level.put(InstanceId(1), echo(4), (0, true)).unwrap();
        let reply = level.control(InstanceId(1), message()).unwrap().blocking_recv().unwrap();
        assert_eq!(reply, Some(Ok(serde_json::json!([4, "read"]))));
        assert_eq!(level.control(InstanceId(2), message()).unwrap().blocking_recv(), Ok(None));
    }

    #[test]
    fn failure_is_reported_and_lost_messages_are_counted() {
        let mut level = HostLevel::new(Wake::new().unwrap(), Limits::default());
        let id = InstanceId(7);
        level.message(id, vec![0]);
        level.put(id, echo(0), (0, true)).unwrap();
        level.message(id, vec![]);
        level.message(id, vec![1]);
        let (messages, failures) = heard(&level, 2);
        assert_eq!((&messages[0], failures), (&(7, vec![0]), 1));
        let report = &level.report().unwrap()[&id];
        assert_eq!(report.faults["empty"], 1);
        // The first message is lost, because it was sent before the companion existed. Usually the last
        // message is lost too: it arrives during the pause after the failure, unless this thread was delayed.
        let messages = report.messages;
        assert!(messages.lost >= 1 && messages.heard + messages.lost == 3, "{messages:?}");
    }

    #[test]
    fn failure_is_not_lost_among_too_many_outputs() {
        let said = Said { waiting: Mutex::default(), wake: Wake::new().unwrap() };
        let instance = InstanceId(1);
        let line = || Given {
            instance,
            context: 0,
            payer: None,
            output: Output::Log(LogLevel::Debug, "busy".into()),
        };
        for _ in 0..MOST_WAITING {
            assert!(said.say(HostSays::Given(line())));
        }
        assert!(!said.say(HostSays::Given(line())));
        let fault = Fault { kind: "empty", text: "nothing".into() };
        assert!(said.say(HostSays::Failed(Failure { instance, fault, health: Health::Quarantined })));
        let waiting = said.waiting.into_inner().unwrap();
        assert_eq!(waiting.len(), MOST_WAITING + 1);
        assert!(matches!(waiting.back(), Some(HostSays::Failed(_))));
    }
}
