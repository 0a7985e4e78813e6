//! Workers without threads: they run their iterations one after another, when the caller asks.

use std::collections::HashMap;

use millrace_config::Config;
use millrace_packet::{FlowKey, Pool};
use millrace_pipeline::{
    Command, CounterCommand, DeviceId, Event, Handover, HandoverRings, NeighbourChange, NeighbourCommand,
    NeighbourKnowledge, NoHost, ReplyTo, Snapshot, Worker, WorkerLink,
};
use millrace_port::Port;
use millrace_units::{Instant, PortId};

use crate::ControlError;
use crate::workers::ask::Ask;
use crate::workers::route_table::RouteTable;
use crate::workers::sum;

/// Seed of all hashes. It is fixed, so that repeated replays have the same result.
const SEED: u64 = 0x6d69_6c6c;

/// Outcome of one iteration of all workers.
pub(super) struct Round {
    /// Whether a worker had work. If so, another iteration at the same time may find more.
    pub active: bool,
    /// Time of the next timed work of any worker; `None` if there is none.
    pub next_event: Option<Instant>,
}

/// Data plane of an offline router.
pub(super) struct OfflineWorkers {
    workers: Vec<(Worker, WorkerLink)>,
    pub devices: HashMap<PortId, DeviceId>,
    pub now: Instant,
}

impl OfflineWorkers {
    pub fn new(config: &Config, routes: &RouteTable) -> Result<Self, ControlError> {
        let count = config.router.workers.max(1);
        let mut ways = HandoverRings::mesh(&vec![None; count]);
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

    /// Returns the worker that owns a flow.
    pub fn owner_of_flow(&self, key: &FlowKey) -> usize {
        Handover::owner_of_flow(key, SEED, self.len())
    }

    /// Adds a device to the worker that owns it.
    pub fn add_device(&mut self, device: DeviceId, port: Box<dyn Port>) {
        let owner = Handover::owner(device, self.len());
        self.workers[owner].0.add_device(device, port);
    }

    /// Runs one iteration of each worker, then handles the events of the workers.
    pub fn iterate(&mut self) -> Round {
        let mut round = Round { active: false, next_event: None };
        for (worker, _) in &mut self.workers {
            let iteration = worker.iterate(self.now, || self.now);
            round.active |= iteration.received > 0 || iteration.commands > 0 || iteration.parcels > 0;
            round.next_event = round.next_event.into_iter().chain(iteration.next_event).min();
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
            | Event::InstanceRequests(..)
            | Event::Discards(_) => false,
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
                self.iterate();
                command = Some(back);
            }
        }
        self.iterate();
    }

    /// Sends a command to all workers.
    pub fn tell<C: Into<Command>>(&mut self, command: impl Fn() -> C) {
        (0..self.len()).for_each(|worker| self.tell_one(worker, command()));
    }

    /// Sends one command of the list to each worker.
    pub fn tell_each(&mut self, commands: Vec<impl Into<Command>>) {
        commands.into_iter().enumerate().for_each(|(worker, command)| self.tell_one(worker, command));
    }

    /// Returns the summed counters of all workers.
    pub fn snapshot(&mut self) -> Snapshot {
        sum(self.ask(CounterCommand::Snapshot).unwrap_or_default())
    }

    /// Asks the workers to refresh the neighbours used since the last refresh, as control does for a router
    /// with devices.
    pub fn refresh_neighbours(&mut self) {
        // There is no kernel to refresh them: each report goes to the worker that resolves the neighbour.
        for (port, address) in self.take_used_neighbours().unwrap_or_default() {
            self.tell_owner(NeighbourChange { port, address, state: NeighbourKnowledge::Used });
        }
    }
}

impl Ask for OfflineWorkers {
    fn len(&self) -> usize {
        self.workers.len()
    }

    fn tell<C: Into<Command>>(&mut self, command: impl Fn() -> C) -> Result<(), ControlError> {
        Self::tell(self, command);
        Ok(())
    }

    fn ask_one<T, C: Into<Command>>(
        &mut self,
        worker: usize,
        question: impl FnOnce(ReplyTo<T>) -> C,
    ) -> Result<T, ControlError> {
        let (reply, answer) = std::sync::mpsc::sync_channel(1);
        self.tell_one(worker, question(reply));
        answer.try_recv().map_err(|_| ControlError::System("the data plane did not answer".into()))
    }

    fn ask<T, C: Into<Command>>(
        &mut self,
        question: impl Fn(ReplyTo<T>) -> C,
    ) -> Result<Vec<T>, ControlError> {
        (0..self.len()).map(|worker| self.ask_one(worker, &question)).collect()
    }
}
