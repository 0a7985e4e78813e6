//! Test double of a silent worker. The worker carries out all commands, but control gets no answers to
//! selected questions. Or the worker gets no commands for a while.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use millrace_pipeline::{
    Command, CounterCommand, FilterCommand, FlowCommand, NeighbourCommand, PluginCommand, PrincipalCommand,
    ReplyTo, RouteCommand, SchedulerCommand, WorkerLink,
};
use rtrb::{Consumer, Producer, RingBuffer};

use super::WorkerHandle;

/// Schedule that says which of control's next questions are answered.
#[derive(Debug, Default)]
struct Plan {
    /// Number of further questions that are answered, before answers are lost.
    answered: AtomicU64,
    /// Number of questions whose answers are lost, after the answered questions.
    lost: AtomicU64,
    over: AtomicBool,
    /// Whether commands wait before the worker.
    is_held: AtomicBool,
}

/// Makes a worker look silent in a test. A relay thread passes control's commands to the worker, and takes
/// the reply channel out of selected questions. Dropping the value stops the thread.
#[derive(Debug)]
pub(crate) struct Silence {
    plan: Arc<Plan>,
    /// Lock that the relay thread holds while it passes a command.
    turn: Arc<Mutex<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Silence {
    /// Inserts a relay thread between control and a worker. At first all questions are answered.
    pub fn before(worker: &mut WorkerHandle) -> Self {
        let (plan, turn) = (Arc::new(Plan::default()), Arc::new(Mutex::new(())));
        let (commands, taken) = RingBuffer::new(4096);
        let (_, no_events) = RingBuffer::new(1);
        let (pulse, ended) = (worker.seen.pulse.clone(), worker.link.ended.clone());
        let loads = worker.link.loads.clone();
        let link = WorkerLink { commands, events: no_events, pulse, loads, ended };
        let WorkerLink { commands, events, .. } = std::mem::replace(&mut worker.link, link);
        worker.link.events = events;
        let (wake, loses, locks) = (worker.wake.clone(), plan.clone(), turn.clone());
        let pass = move || loses.pass(taken, commands, &locks, || wake.signal());
        Self { plan, turn, thread: Some(std::thread::spawn(pass)) }
    }

    /// Lets the next `answered` questions be answered, and loses the answers to the `lost` questions after
    /// them.
    pub fn after(&self, answered: u64, lost: u64) {
        let _turn = self.turn.lock().unwrap();
        self.plan.answered.store(answered, Ordering::Relaxed);
        self.plan.lost.store(lost, Ordering::Relaxed);
    }

    /// Keeps all commands from the worker until `holds` is false. Questions time out.
    pub fn hold(&self, holds: bool) {
        self.plan.is_held.store(holds, Ordering::Relaxed);
    }

    /// Whether none of the `lost` answers is lost yet.
    pub fn is_whole(&self, lost: u64) -> bool {
        self.plan.lost.load(Ordering::Relaxed) == lost
    }

    /// Whether the plan still contains questions whose answers will be lost.
    pub fn is_to_come(&self) -> bool {
        self.plan.lost.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        self.plan.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Plan {
    fn pass(
        &self,
        mut from: Consumer<Command>,
        mut to: Producer<Command>,
        turn: &Mutex<()>,
        wake: impl Fn(),
    ) {
        while !self.over.load(Ordering::Relaxed) {
            let is_held = self.is_held.load(Ordering::Relaxed);
            let Some(command) = (!is_held).then(|| from.pop().ok()).flatten() else {
                std::thread::sleep(Duration::from_micros(20));
                continue;
            };
            let _turn = turn.lock().unwrap();
            let command = match is_question(&command) && self.loses() {
                true => unheard(command),
                false => command,
            };
            let _ = to.push(command);
            wake();
        }
    }

    fn loses(&self) -> bool {
        let count_down = |count: &AtomicU64| {
            let left = count.load(Ordering::Relaxed);
            count.store(left.saturating_sub(1), Ordering::Relaxed);
            left > 0
        };
        !count_down(&self.answered) && count_down(&self.lost)
    }
}

/// Whether control waits for an answer to the command.
fn is_question(command: &Command) -> bool {
    matches!(
        command,
        Command::Barrier(_)
            | Command::Routes(RouteCommand::Set(..) | RouteCommand::Forget(..) | RouteCommand::Waiting(..))
            | Command::Neighbours(NeighbourCommand::TakeUsed(_))
            | Command::Filters(FilterCommand::Count(..))
            | Command::Flows(FlowCommand::Scan(..))
            | Command::Principals(PrincipalCommand::Configure(..) | PrincipalCommand::Set(..))
            | Command::Plugins(PluginCommand::Replace(..))
            | Command::Schedulers(SchedulerCommand::Change(..))
            | Command::Counters(CounterCommand::Snapshot(_) | CounterCommand::Summary(_))
    )
}

/// Returns the same question with a closed reply channel. Control then learns at once that no answer comes,
/// without waiting for the timeout.
fn unheard(question: Command) -> Command {
    match question {
        Command::Barrier(_) => Command::Barrier(nobody()),
        Command::Routes(command) => match command {
            RouteCommand::Set(routes, _) => RouteCommand::Set(routes, nobody()),
            RouteCommand::Forget(routes, _) => RouteCommand::Forget(routes, nobody()),
            RouteCommand::Waiting(from, _) => RouteCommand::Waiting(from, nobody()),
            other => other,
        }
        .into(),
        Command::Neighbours(NeighbourCommand::TakeUsed(_)) => NeighbourCommand::TakeUsed(nobody()).into(),
        Command::Filters(FilterCommand::Count(from, _)) => FilterCommand::Count(from, nobody()).into(),
        Command::Principals(PrincipalCommand::Configure(settings, core, _)) => {
            PrincipalCommand::Configure(settings, core, nobody()).into()
        }
        Command::Principals(PrincipalCommand::Set(id, settings, _)) => {
            PrincipalCommand::Set(id, settings, nobody()).into()
        }
        Command::Flows(FlowCommand::Scan(scan, _)) => FlowCommand::Scan(scan, nobody()).into(),
        Command::Plugins(PluginCommand::Replace(id, successor, _)) => {
            PluginCommand::Replace(id, successor, nobody()).into()
        }
        Command::Schedulers(SchedulerCommand::Change(port, changes, piece, _)) => {
            SchedulerCommand::Change(port, changes, piece, nobody()).into()
        }
        Command::Counters(CounterCommand::Snapshot(_)) => CounterCommand::Snapshot(nobody()).into(),
        Command::Counters(CounterCommand::Summary(_)) => CounterCommand::Summary(nobody()).into(),
        other => other,
    }
}

fn nobody<T>() -> ReplyTo<T> {
    std::sync::mpsc::sync_channel(1).0
}
