//! Workers without threads: they run their iterations one after the other, when the caller asks.

use std::collections::{BTreeSet, HashMap};

use millrace_config::Config;
use millrace_packet::{FlowKey, Pool};
use millrace_pipeline::{
    Command, CounterCommand, DeviceId, Event, FilterCommand, Handover, NeighbourChange,
    NeighbourCommand, NeighbourKnowledge, NoHost, NumberedRoutes, OffloadCommand, ReplyTo, RouteCommand,
    Snapshot, WaitingRoutes, Worker, WorkerLink, flow_hash,
};
use millrace_plugin::BindingId;
use millrace_port::Port;
use millrace_units::{Instant, NextHopIndex, PortId, QueueAccount};

use crate::ControlError;
use crate::show::Counts;
use crate::workers::route_table::{RouteTable, TellRoutes};
use crate::workers::{MOST_PIECES, sum_accounts};

/// Seed of all hashes; it is fixed, so that each replay has the same result.
const SEED: u64 = 0x6d69_6c6c;

/// Outcome of one iteration of all workers.
pub(super) struct Round {
    /// Whether a worker did any work, so that another iteration at the same time may find more.
    pub active: bool,
    /// Time of the next timed work; `None` if there is none.
    pub next_event: Option<Instant>,
}

/// Data plane whose workers run when the caller asks.
pub(super) struct OfflineWorkers {
    workers: Vec<(Worker, WorkerLink)>,
    devices: HashMap<PortId, DeviceId>,
    pub now: Instant,
}

impl OfflineWorkers {
    pub fn new(config: &Config, routes: &RouteTable) -> Result<Self, ControlError> {
        let count = config.router.workers.max(1);
        let mut ways = Handover::mesh(&vec![None; count]);
        let mut workers = Vec::new();
        for _ in 0..count {
            let pool = Pool::new(config.router.frames)
                .map_err(|error| ControlError::system("allocate packet memory", error))?;
            let (mut worker, link) = Worker::new(pool, routes.reader(), Box::new(NoHost), SEED)
                .map_err(|error| ControlError::system("allocate the flow table", error))?;
            let way = ways.remove(0);
            if count > 1 {
                worker.join(way);
            }
            workers.push((worker, link));
        }
        Ok(Self { workers, devices: HashMap::new(), now: Instant::ZERO })
    }

    /// Returns the number of workers.
    pub fn len(&self) -> usize {
        self.workers.len()
    }

    /// Returns the worker that owns a flow.
    pub fn owner_of_flow(&self, key: &FlowKey) -> usize {
        Handover::owner_of_hash(flow_hash(key, SEED), self.len())
    }

    /// Adds a device to the worker that owns it.
    pub fn add_device(&mut self, device: DeviceId, port: Box<dyn Port>) {
        let owner = Handover::owner(device, self.len());
        self.workers[owner].0.add_device(device, port);
    }

    /// Records the device of a port.
    pub fn note_port(&mut self, port: PortId, device: DeviceId) {
        self.devices.insert(port, device);
    }

    /// Runs one iteration of each worker, then handles the events of the workers.
    pub fn turn(&mut self) -> Round {
        let mut round = Round { active: false, next_event: None };
        for (worker, _) in &mut self.workers {
            let turn = worker.turn(self.now, || self.now);
            round.active |= turn.received > 0 || turn.commands > 0 || turn.parcels > 0;
            round.next_event = round.next_event.into_iter().chain(turn.next_event).min();
        }
        for from in 0..self.workers.len() {
            while let Ok(event) = self.workers[from].1.events.pop() {
                round.active |= self.hear(from, event);
            }
        }
        round
    }

    /// Handles a worker's event as control does. Returns whether this gave a worker new work.
    fn hear(&mut self, from: usize, event: Event) -> bool {
        match event {
            Event::Neighbour(change) => {
                (0..self.len()).filter(|to| *to != from).for_each(|to| self.push_neighbour(to, change));
                true
            }
            Event::Resolve(port, address) => {
                let state = NeighbourKnowledge::Wanted;
                self.tell_owner(NeighbourChange { port, address, state });
                true
            }
            Event::AddressConflict(..)
            | Event::InstanceFailed(_)
            | Event::InstanceSays(..)
            | Event::InstanceSends(..)
            | Event::InstanceRequests(..) => false,
        }
    }

    fn tell_owner(&mut self, change: NeighbourChange) {
        if let Some(device) = self.devices.get(&change.port) {
            self.push_neighbour(Handover::owner(*device, self.len()), change);
        }
    }

    fn push_neighbour(&mut self, worker: usize, change: NeighbourChange) {
        // If the command ring is full, the worker is busy, and the neighbour is requested again later.
        let _ = self.workers[worker].1.commands.push(NeighbourCommand::Set(vec![change]).into());
    }

    /// Sends a command to a worker, which carries it out at once.
    pub fn tell_one(&mut self, worker: usize, command: impl Into<Command>) {
        let mut command = Some(command.into());
        while let Some(next) = command.take() {
            if let Err(rtrb::PushError::Full(back)) = self.workers[worker].1.commands.push(next) {
                self.turn();
                command = Some(back);
            }
        }
        self.turn();
    }

    /// Sends a command to all workers.
    pub fn tell<C: Into<Command>>(&mut self, command: impl Fn() -> C) {
        (0..self.len()).for_each(|worker| self.tell_one(worker, command()));
    }

    /// Sends one command of the list to each worker.
    pub fn tell_each(&mut self, commands: Vec<impl Into<Command>>) {
        commands.into_iter().enumerate().for_each(|(worker, command)| self.tell_one(worker, command));
    }

    /// Asks a worker, and returns its answer.
    pub fn ask_one<T, C: Into<Command>>(
        &mut self,
        worker: usize,
        question: impl FnOnce(ReplyTo<T>) -> C,
    ) -> Option<T> {
        let (reply, answer) = std::sync::mpsc::sync_channel(1);
        self.tell_one(worker, question(reply));
        answer.try_recv().ok()
    }

    /// Asks all workers, and returns the answers that arrive.
    pub fn ask<T, C: Into<Command>>(&mut self, question: impl Fn(ReplyTo<T>) -> C) -> Vec<T> {
        (0..self.len()).filter_map(|worker| self.ask_one(worker, &question)).collect()
    }

    /// Checks that each worker has answered.
    ///
    /// # Errors
    /// Fewer answers than workers.
    fn all_answered(&self, answers: usize) -> Result<(), ControlError> {
        match answers == self.len() {
            true => Ok(()),
            false => Err(ControlError::System("the data plane did not answer".into())),
        }
    }

    /// Returns the summed counters of all workers.
    pub fn snapshot(&mut self) -> Snapshot {
        let mut sum = Snapshot::default();
        self.ask(CounterCommand::Snapshot).into_iter().for_each(|snapshot| sum.merge(snapshot));
        sum
    }

    /// Sets all counters to zero.
    pub fn clear_counters(&mut self) {
        for worker in 0..self.len() {
            let mut entry = Some(0);
            while let Some(from) = entry {
                entry = self.ask_one(worker, |reply| OffloadCommand::Account(from, reply)).flatten();
            }
            let mut route = Some(NextHopIndex(0));
            while let Some(from) = route {
                route = self.ask_one(worker, |reply| RouteCommand::Clear(from, reply)).flatten();
            }
            let mut binding = Some(BindingId(0));
            while let Some(from) = binding {
                binding = self.ask_one(worker, |reply| FilterCommand::Clear(from, reply)).flatten();
            }
        }
        self.tell(|| CounterCommand::Clear);
    }

    /// Returns the counts of all bindings, summed over the workers.
    pub fn filter_counts(&mut self) -> Counts {
        let mut sums = Counts::default();
        for worker in 0..self.len() {
            let mut from = Some(BindingId(0));
            while let Some(start) = from {
                let page = self.ask_one(worker, |reply| FilterCommand::Count(start, reply));
                from = page.as_ref().and_then(|page| page.next);
                sums.add(page.unwrap_or_default());
            }
        }
        sums
    }

    /// Lets workers refresh the neighbours used since the last refresh, as control does.
    pub fn refresh_neighbours(&mut self) {
        // There is no kernel to refresh: the reports go to the workers that resolve the neighbours.
        let mut used = BTreeSet::new();
        for _ in 0..MOST_PIECES {
            let pieces = self.ask(NeighbourCommand::TakeUsed);
            let more = pieces.iter().any(|piece| piece.more);
            used.extend(pieces.into_iter().flat_map(|piece| piece.used));
            if !more {
                break;
            }
        }
        for (port, address) in used {
            self.tell_owner(NeighbourChange { port, address, state: NeighbourKnowledge::Used });
        }
    }
}

impl TellRoutes for OfflineWorkers {
    fn tell(&mut self, command: &dyn Fn() -> RouteCommand) -> Result<(), ControlError> {
        Self::tell(self, command);
        Ok(())
    }

    fn exchange(
        &mut self,
        command: &dyn Fn(ReplyTo<NumberedRoutes>) -> RouteCommand,
    ) -> Result<(), ControlError> {
        let answers = self.ask(command).len();
        self.all_answered(answers)
    }

    fn barrier(&mut self) -> Result<(), ControlError> {
        let answers = self.ask(Command::Barrier).len();
        self.all_answered(answers)
    }

    fn waiting_routes(&mut self, from: NextHopIndex) -> Result<Vec<WaitingRoutes>, ControlError> {
        Ok(self.ask(|reply| RouteCommand::Waiting(from, reply)))
    }

    fn count_routes(&mut self, routes: &[NextHopIndex]) -> Result<Vec<QueueAccount>, ControlError> {
        Ok(sum_accounts(self.ask(|reply| RouteCommand::Count(routes.to_vec(), reply))))
    }
}
