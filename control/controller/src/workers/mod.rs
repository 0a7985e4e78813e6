//! Handle to all workers: sends commands to all workers or to the owner of a device, and merges their
//! answers.

pub(crate) mod ask;
pub(crate) mod commands;
pub(crate) mod crash;
pub(crate) mod crash_capture;
pub(crate) mod death;
pub(crate) mod handle;
pub(crate) mod memory_guard;
pub(crate) mod placement;
pub(crate) mod route_table;
pub(crate) mod supervision;
pub(crate) mod tsc;
pub(crate) mod watchdog;
pub(crate) mod worker_panic;

use millrace_packet::FlowKey;
use millrace_pipeline::{
    Command, CounterCommand, DeviceId, Event, FilterCommand, Handover, NeighbourChange, NeighbourCommand,
    ReplyTo, Snapshot, flow_hash,
};
use millrace_plugin::BindingId;
use millrace_units::PortId;

use crate::ControlError;
use crate::model::Model;
use crate::show::Counts;
use crate::workers::ask::Ask;
use crate::workers::handle::{Answer, WorkerHandle, ended};
use crate::workers::watchdog::WorkerThread;

/// Handles to the workers of a router, at least one.
#[derive(Debug)]
pub(crate) struct Workers {
    workers: Vec<WorkerHandle>,
    /// Seed of the workers' flow hashes.
    seed: u64,
    /// Number of the worker whose event comes next.
    turn: usize,
}

impl Workers {
    /// Creates the handle to all workers. `seed` is the seed of their flow hashes.
    ///
    /// # Panics
    /// Later calls panic if `workers` is empty.
    pub fn new(workers: Vec<WorkerHandle>, seed: u64) -> Self {
        Self { workers, seed, turn: 0 }
    }

    pub fn hash_of(&self, key: &FlowKey) -> u32 {
        flow_hash(key, self.seed)
    }

    pub fn len(&self) -> usize {
        self.workers.len()
    }

    pub fn watched(&self) -> Vec<WorkerThread> {
        self.workers.iter().map(WorkerHandle::watched).collect()
    }

    /// Whether the thread of any worker has ended.
    pub fn has_one_ended(&self) -> bool {
        self.workers.iter().any(WorkerHandle::has_ended)
    }

    /// Returns the processor time of each worker's thread, in seconds.
    pub fn cpu_times(&self) -> Vec<f64> {
        let seconds = |thread: WorkerThread| thread.cpu_time().unwrap_or_default().as_secs_f64();
        self.watched().into_iter().map(seconds).collect()
    }

    pub fn get(&mut self, worker: usize) -> &mut WorkerHandle {
        &mut self.workers[worker]
    }

    pub fn owner(&mut self, device: DeviceId) -> &mut WorkerHandle {
        let workers = self.len();
        self.get(Handover::owner(device, workers))
    }

    pub fn owner_of_flow(&mut self, key: &FlowKey) -> &mut WorkerHandle {
        let workers = self.len();
        self.get(Handover::owner_of_flow(key, self.seed, workers))
    }

    /// Sends a command to all workers.
    ///
    /// # Errors
    /// Returns the first error of a worker that can't be reached. All workers get the command, as
    /// [`WorkerHandle::tell`] does.
    pub fn tell<C: Into<Command>>(&mut self, command: impl Fn() -> C) -> Result<(), ControlError> {
        self.workers.iter_mut().map(|worker| worker.tell(command())).fold(Ok(()), Result::and)
    }

    /// Sends the stop command to all workers that have not ended.
    ///
    /// # Errors
    /// Returns the first error of a worker that can't be reached. All other workers get the command.
    pub fn stop(&mut self) -> Result<(), ControlError> {
        let there = self.workers.iter_mut().filter(|worker| !worker.has_ended());
        let stop = |worker: &mut WorkerHandle| match worker.tell(Command::Stop) {
            // The worker may have ended in the meantime, so `tell` fails.
            Err(_) if worker.has_ended() => Ok(()),
            told => told,
        };
        there.map(stop).fold(Ok(()), Result::and)
    }

    /// Sends each worker its own command: the list has one for each worker, in order.
    ///
    /// # Errors
    /// As [`tell`](Self::tell).
    pub fn tell_each(&mut self, commands: Vec<impl Into<Command>>) -> Result<(), ControlError> {
        let told = self.workers.iter_mut().zip(commands).map(|(worker, command)| worker.tell(command));
        told.fold(Ok(()), Result::and)
    }

    /// Sends a change of a neighbour to all workers except worker `from`.
    ///
    /// # Errors
    /// As [`tell`](Self::tell).
    pub fn tell_others(&mut self, from: usize, change: NeighbourChange) -> Result<(), ControlError> {
        let others = self.workers.iter_mut().enumerate().filter(|(worker, _)| *worker != from);
        let told = others.map(|(_, worker)| worker.tell(NeighbourCommand::Set(vec![change])));
        told.fold(Ok(()), Result::and)
    }

    /// Asks all workers at the same time, and waits for their answers.
    pub fn ask<T, C: Into<Command>>(
        &mut self,
        question: impl Fn(ReplyTo<T>) -> C,
    ) -> Result<Vec<T>, ControlError> {
        self.ask_each(|_, reply| question(reply))
    }

    /// Asks all workers at the same time, and waits for their answers. `question` makes the question for the
    /// worker with a given number.
    ///
    /// # Errors
    /// Returns the error of a worker that doesn't answer. All workers get the question.
    pub fn ask_each<T, C: Into<Command>>(
        &mut self,
        question: impl Fn(usize, ReplyTo<T>) -> C,
    ) -> Result<Vec<T>, ControlError> {
        let each = self.workers.iter_mut().enumerate();
        let asked: Vec<_> =
            each.map(|(number, worker)| worker.begin(|reply| question(number, reply))).collect();
        let answers = self.workers.iter().zip(asked);
        let answered: Result<Vec<T>, ControlError> =
            answers.map(|(worker, answer)| worker.finish(&answer?)).collect();
        answered.map_err(|error| if self.has_one_ended() { ended() } else { error })
    }

    /// Asks all workers at the same time, as [`ask_each`](Self::ask_each) does. A worker that doesn't answer in time
    /// carries the question out when it resumes, and answers late.
    ///
    /// # Errors
    /// A worker has ended.
    pub fn ask_with_late<T, C: Into<Command>>(
        &mut self,
        mut question: impl FnMut(usize, ReplyTo<T>) -> C,
    ) -> Result<Vec<Answer<T>>, ControlError> {
        let each = self.workers.iter_mut().enumerate();
        let posed = each.map(|(number, worker)| worker.pose(|reply| question(number, reply)));
        let posed: Vec<_> = posed.collect::<Result<_, ControlError>>()?;
        self.workers.iter().zip(posed).map(|(worker, answer)| worker.wait_for(answer)).collect()
    }

    /// Waits until all workers have carried out all earlier commands.
    pub fn barrier(&mut self) -> Result<(), ControlError> {
        self.ask(Command::Barrier).map(drop)
    }

    /// Returns all counters, summed over the workers.
    pub fn snapshot(&mut self) -> Result<Snapshot, ControlError> {
        self.ask(CounterCommand::Snapshot).map(sum)
    }

    /// Returns the summed counters without the long lists: scheduler nodes, EtherTypes and neighbours.
    pub fn counters(&mut self) -> Result<Snapshot, ControlError> {
        self.ask(CounterCommand::Summary).map(sum)
    }

    /// Returns the counts of these bindings, summed over the workers.
    pub fn counts_of(&mut self, ids: &[BindingId]) -> Result<Counts, ControlError> {
        let mut ids = ids.to_vec();
        ids.sort_unstable_by_key(|id| id.0);
        let mut sums = Counts::default();
        for worker in &mut self.workers {
            // A page holds the counts of several ids; ids below `asked` were in the previous page.
            let mut asked = Some(BindingId(0));
            for id in &ids {
                if asked.is_some_and(|next| id.0 >= next.0) {
                    let page = worker.ask(|reply| FilterCommand::Count(*id, reply))?;
                    asked = page.next;
                    sums.add(page);
                }
            }
        }
        Ok(sums)
    }

    /// Returns the next event of any worker, with the worker's number; `None` if there is none.
    pub fn next_event(&mut self) -> Option<(usize, Event)> {
        let count = self.workers.len();
        let turns = (0..count).map(|step| (self.turn + step) % count);
        let found = turns.into_iter().find_map(|number| {
            let event = self.workers.get_mut(number)?.next_event()?;
            Some((number, event))
        });
        // The other workers come first next time.
        self.turn = found.as_ref().map_or(self.turn, |(number, _)| number + 1);
        found
    }
}

/// Returns the worker that owns a port's device.
pub(crate) fn owner_of<'a>(
    port: PortId,
    model: &Model,
    workers: &'a mut Workers,
) -> Result<&'a mut WorkerHandle, ControlError> {
    let plan = model.ports.iter().find(|plan| plan.id == port);
    let plan = plan.ok_or_else(|| ControlError::System(format!("port {}: no such port", port.0)))?;
    Ok(workers.owner(plan.settings.device))
}

impl Ask for Workers {
    fn len(&self) -> usize {
        Self::len(self)
    }

    fn tell<C: Into<Command>>(&mut self, command: impl Fn() -> C) -> Result<(), ControlError> {
        Self::tell(self, command)
    }

    fn ask_one<T, C: Into<Command>>(
        &mut self,
        worker: usize,
        question: impl FnOnce(ReplyTo<T>) -> C,
    ) -> Result<T, ControlError> {
        self.get(worker).ask(question)
    }

    fn ask<T, C: Into<Command>>(
        &mut self,
        question: impl Fn(ReplyTo<T>) -> C,
    ) -> Result<Vec<T>, ControlError> {
        Self::ask(self, question)
    }
}

/// Returns the sum of the counters of several workers.
pub(crate) fn sum(snapshots: Vec<Snapshot>) -> Snapshot {
    let add = |mut sum: Snapshot, snapshot| {
        sum.merge(snapshot);
        sum
    };
    snapshots.into_iter().reduce(add).unwrap_or_default()
}
