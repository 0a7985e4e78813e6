//! Control's handle on all workers: what is said to all of them, what to the one that has a device, and their answers as
//! one.

use millrace_packet::FlowKey;
use millrace_pipeline::{
    Barrier, Command, CounterCommand, DeviceId, Event, FilterCommand, Handover, NeighbourChange,
    NeighbourCommand, NumberedRoutes, OffloadCommand, ReplyTo, RouteCommand, Snapshot, WaitingRoutes,
    flow_hash,
};

use millrace_plugin::BindingId;
use millrace_units::{NextHopIndex, QueueAccount};

use crate::ControlError;
use crate::route_table::TellRoutes;
use crate::show::Counts;
use crate::watchdog::WorkerThread;
use crate::worker_handle::{WorkerHandle, ended};

/// The workers of a router, one or more.
#[derive(Debug)]
pub(crate) struct Workers {
    workers: Vec<WorkerHandle>,
    /// The seed of all their hashes.
    seed: u64,
}

impl Workers {
    /// # Panics
    /// Later, when there is none.
    pub fn new(workers: Vec<WorkerHandle>, seed: u64) -> Self {
        Self { workers, seed }
    }

    /// The hash by which workers know a flow.
    pub fn hash_of(&self, key: &FlowKey) -> u32 {
        flow_hash(key, self.seed)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.workers.len()
    }

    /// The threads of all, for who watches them.
    pub fn watched(&self) -> Vec<WorkerThread> {
        self.workers.iter().map(WorkerHandle::watched).collect()
    }

    /// Whether the thread of one has ended.
    pub fn has_one_ended(&self) -> bool {
        self.workers.iter().any(WorkerHandle::has_ended)
    }

    /// Seconds that the thread of each has run on a processor.
    pub fn cpu_times(&self) -> Vec<f64> {
        let seconds = |thread: WorkerThread| thread.cpu_time().unwrap_or_default().as_secs_f64();
        self.watched().into_iter().map(seconds).collect()
    }

    /// The worker of that number.
    pub fn get(&mut self, worker: usize) -> &mut WorkerHandle {
        &mut self.workers[worker]
    }

    /// The worker that has the device.
    pub fn owner(&mut self, device: DeviceId) -> &mut WorkerHandle {
        let workers = self.len();
        self.get(Handover::owner(device, workers))
    }

    /// The worker that the flow belongs to.
    pub fn owner_of_flow(&mut self, key: &FlowKey) -> &mut WorkerHandle {
        let workers = self.len();
        self.get(Handover::owner_of_hash(flow_hash(key, self.seed), workers))
    }

    /// Tells all workers.
    pub fn tell<C: Into<Command>>(&mut self, command: impl Fn() -> C) -> Result<(), ControlError> {
        self.workers.iter_mut().try_for_each(|worker| worker.tell(command()))
    }

    /// Tells all workers to end, but those that have.
    ///
    /// # Errors
    /// When one can't be told; all others are.
    pub fn stop(&mut self) -> Result<(), ControlError> {
        let there = self.workers.iter_mut().filter(|worker| !worker.has_ended());
        let stop = |worker: &mut WorkerHandle| match worker.tell(Command::Stop) {
            // It may have ended before `tell` looks.
            Err(_) if worker.has_ended() => Ok(()),
            told => told,
        };
        there.map(stop).fold(Ok(()), Result::and)
    }

    /// Tells each worker its own.
    pub fn tell_each(&mut self, commands: Vec<impl Into<Command>>) -> Result<(), ControlError> {
        self.workers.iter_mut().zip(commands).try_for_each(|(worker, command)| worker.tell(command))
    }

    /// Tells all workers but one what became known of neighbours.
    pub fn tell_others(&mut self, from: usize, change: NeighbourChange) -> Result<(), ControlError> {
        let mut others = self.workers.iter_mut().enumerate().filter(|(worker, _)| *worker != from);
        others.try_for_each(|(_, worker)| worker.tell(NeighbourCommand::Set(vec![change])))
    }

    /// Asks all workers, at once, and waits for their answers.
    pub fn ask<T, C: Into<Command>>(
        &mut self,
        question: impl Fn(ReplyTo<T>) -> C,
    ) -> Result<Vec<T>, ControlError> {
        self.ask_each(|_, reply| question(reply))
    }

    /// Asks each worker, by its number, its own question, all at once, and waits for their answers.
    pub fn ask_each<T, C: Into<Command>>(
        &mut self,
        question: impl Fn(usize, ReplyTo<T>) -> C,
    ) -> Result<Vec<T>, ControlError> {
        let each = self.workers.iter_mut().enumerate();
        let asked: Vec<_> = each
            .map(|(number, worker)| worker.begin(|reply| question(number, reply)))
            .collect::<Result<_, _>>()?;
        let answered: Result<Vec<T>, ControlError> = asked.into_iter().map(WorkerHandle::finish).collect();
        answered.map_err(|error| if self.has_one_ended() { ended() } else { error })
    }

    /// Waits until all workers have reached a barrier: all earlier commands are in force then.
    ///
    /// # Errors
    /// When a worker does not answer.
    pub fn barrier(&mut self) -> Result<(), ControlError> {
        self.ask(Barrier::new).map(drop)
    }

    /// All that workers count, of all of them together.
    pub fn snapshot(&mut self) -> Result<Snapshot, ControlError> {
        self.ask(CounterCommand::Snapshot).map(sum)
    }

    /// The same without schedulers, EtherTypes and neighbours, which may be long.
    pub fn counters(&mut self) -> Result<Snapshot, ControlError> {
        self.ask(CounterCommand::Summary).map(sum)
    }

    /// Sets all counters to zero: those of routes and bindings, of which there may be many, in pieces.
    ///
    /// # Errors
    /// When a worker does not answer.
    pub fn clear_counters(&mut self) -> Result<(), ControlError> {
        for worker in &mut self.workers {
            // What the driver did is told four times a second: what it did before this is not to be counted after it.
            let mut entry = Some(0);
            while let Some(from) = entry {
                entry = worker.ask(|reply| OffloadCommand::Account(from, reply))?;
            }
            let mut route = Some(NextHopIndex(0));
            while let Some(from) = route {
                route = worker.ask(|reply| RouteCommand::Clear(from, reply))?;
            }
            let mut binding = Some(BindingId(0));
            while let Some(from) = binding {
                binding = worker.ask(|reply| FilterCommand::Clear(from, reply))?;
            }
        }
        self.tell(|| CounterCommand::Clear)
    }

    /// What was counted at bindings, by all workers together.
    pub fn filter_counts(&mut self) -> Result<Counts, ControlError> {
        let mut sums = Counts::default();
        for worker in &mut self.workers {
            let mut from = Some(BindingId(0));
            while let Some(start) = from {
                let page = worker.ask(|reply| FilterCommand::Count(start, reply))?;
                from = page.next;
                sums.add(page);
            }
        }
        Ok(sums)
    }

    /// What went through these bindings, at all workers.
    ///
    /// # Errors
    /// When a worker does not answer.
    pub fn counts_of(&mut self, ids: &[BindingId]) -> Result<Counts, ControlError> {
        let mut ids = ids.to_vec();
        ids.sort_unstable_by_key(|id| id.0);
        let mut sums = Counts::default();
        for worker in &mut self.workers {
            // What is before this was asked for.
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

    /// The next thing that a worker said by itself, with the worker's number.
    pub fn next_event(&mut self) -> Option<(usize, Event)> {
        let workers = self.workers.iter_mut().enumerate();
        workers.into_iter().find_map(|(number, worker)| Some((number, worker.next_event()?)))
    }
}

impl TellRoutes for Workers {
    fn tell(&mut self, command: &dyn Fn() -> RouteCommand) -> Result<(), ControlError> {
        Self::tell(self, command)
    }

    fn exchange(
        &mut self,
        command: &dyn Fn(ReplyTo<NumberedRoutes>) -> RouteCommand,
    ) -> Result<(), ControlError> {
        self.ask(command).map(drop)
    }

    fn barrier(&mut self) -> Result<(), ControlError> {
        Self::barrier(self)
    }

    fn waiting_routes(&mut self, from: NextHopIndex) -> Result<Vec<WaitingRoutes>, ControlError> {
        self.ask(|reply| RouteCommand::Waiting(from, reply))
    }

    fn count_routes(&mut self, routes: &[NextHopIndex]) -> Result<Vec<QueueAccount>, ControlError> {
        Ok(sum_accounts(self.ask(|reply| RouteCommand::Count(routes.to_vec(), reply))?))
    }
}

/// The sums of what workers counted, account by account.
pub(crate) fn sum_accounts(answers: Vec<Vec<QueueAccount>>) -> Vec<QueueAccount> {
    let add = |mut sums: Vec<QueueAccount>, more: Vec<QueueAccount>| {
        sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        sums
    };
    answers.into_iter().reduce(add).unwrap_or_default()
}

fn sum(snapshots: Vec<Snapshot>) -> Snapshot {
    let add = |mut sum: Snapshot, snapshot| {
        sum.merge(snapshot);
        sum
    };
    snapshots.into_iter().reduce(add).unwrap_or_default()
}
