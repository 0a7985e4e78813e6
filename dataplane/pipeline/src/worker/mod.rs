//! Worker of the data plane: devices, the router between them, and commands from control.
//!
//! [`Worker::turn`] runs one iteration: it carries out commands, takes a batch from each device through the
//! router, and sends queued packets to the devices. An iteration depends only on the state, the batches and
//! `now`, so it also runs under a virtual clock; [`crate::worker::thread`] runs it under the real one.

mod host_output;
pub(crate) mod post_mortem;
pub mod thread;

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

use millrace_classify::FlowTableError;
use millrace_forward::FibReader;
use millrace_packet::{BATCH_SIZE, Batch, DropReason, Pool};
use millrace_plugin::Pulse;
use millrace_port::{Port, PortCounters};
use millrace_units::Instant;
use rtrb::{Consumer, Producer, RingBuffer};

use crate::commands::{Command, CounterCommand, DeviceCommand, PortCommand, answer, set_options, set_port};
use crate::egress::transmit::{for_each_queue, most_waiting, transmit};
use crate::handover::Handover;
use crate::observe::event::Event;
use crate::ports::DeviceId;
use crate::punt::host_path::HostPath;
use crate::router::Router;
use crate::snapshot::{Snapshot, carried, clear_counters};
use crate::work::Work;
use crate::worker::host_output::HostOutputs;
use crate::worker::post_mortem::PostMortem;

/// Maximum number of commands that wait for a worker.
const COMMAND_CAPACITY: usize = 4096;
/// Maximum number of events that wait for control. Further events are discarded, and repeated if they still
/// matter.
const EVENT_CAPACITY: usize = 4096;
/// Maximum time between the stop command and the end of the worker, while packets still arrive.
const PATIENCE: Duration = Duration::from_millis(100);
/// Minimum time between the stop command and the end of the worker, for packets that other workers still hand
/// over.
const LINGER: Duration = Duration::from_millis(5);
/// Interval at which a worker checks whether others have taken its parcels, and whether a full device has
/// room.
const RETRY: Duration = Duration::from_micros(200);
/// Maximum number of commands in an iteration, if all but the last are [small](Command::is_small).
const COMMANDS_PER_TURN: usize = 16;

/// Control's end of a worker's rings.
#[derive(Debug)]
pub struct WorkerLink {
    /// Commands to the worker. After a push, wake the worker.
    pub commands: Producer<Command>,
    /// Events reported by the worker.
    pub events: Consumer<Event>,
    /// Record of the plugin code that the worker runs, for the watchdog.
    pub pulse: Arc<Pulse>,
    /// Whether the worker has ended and takes no more commands.
    pub ended: Arc<AtomicBool>,
}

/// Result of an iteration.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// Number of packets received.
    pub received: usize,
    /// Number of commands carried out.
    pub commands: usize,
    /// Number of events reported to control.
    pub events: usize,
    /// Number of parcels sent to other workers.
    pub parcels: usize,
    /// Time at which the next iteration is due without a packet or a command.
    pub next_event: Option<Instant>,
    /// Whether the worker has been stopped and is finished: no more packets arrive, or its time is over.
    pub stopped: bool,
}

/// Worker of the data plane: devices, and the router between them.
pub struct Worker {
    pool: Pool,
    router: Router,
    devices: Vec<Option<Box<dyn Port>>>,
    hosts: HostOutputs,
    work: Work,
    outgoing: Batch,
    commands: Consumer<Command>,
    events: Producer<Event>,
    host: Box<dyn HostPath>,
    /// Time of the stop command.
    stop: Option<Instant>,
    /// Counters of the devices when the counters were cleared.
    cleared: Vec<(DeviceId, PortCounters)>,
    /// Counters of closed devices.
    closed: PortCounters,
    /// Number of packets inside the worker when the counters were cleared.
    carried: u64,
    busy_turns: u64,
    idle_turns: u64,
    sleeps: u64,
    longest_change: Duration,
    ended: Arc<AtomicBool>,
}

impl Worker {
    /// Returns a worker with packet memory `pool` that looks up routes in `prefixes` and punts packets to the
    /// kernel by `host`. `seed` keys its hashes.
    ///
    /// # Errors
    /// When the kernel maps no memory for the flow table.
    pub fn new(
        pool: Pool,
        prefixes: FibReader,
        host: Box<dyn HostPath>,
        seed: u64,
    ) -> Result<(Self, WorkerLink), FlowTableError> {
        let (command_producer, commands) = RingBuffer::new(COMMAND_CAPACITY);
        let (events, event_consumer) = RingBuffer::new(EVENT_CAPACITY);
        let worker = Self {
            router: Router::new(pool.clone(), prefixes, seed)?,
            pool,
            devices: Vec::new(),
            hosts: HostOutputs::default(),
            work: Work::default(),
            outgoing: Batch::new(),
            commands,
            events,
            host,
            stop: None,
            cleared: Vec::new(),
            closed: PortCounters::default(),
            carried: 0,
            busy_turns: 0,
            idle_turns: 0,
            sleeps: 0,
            longest_change: Duration::ZERO,
            ended: Arc::default(),
        };
        let (pulse, ended) = (worker.router.gates.plugins().pulse(), worker.ended.clone());
        Ok((worker, WorkerLink { commands: command_producer, events: event_consumer, pulse, ended }))
    }

    /// Runs one iteration, which begins at `now`. If packets were received, `look` reads the clock again
    /// before queues send: the receive step takes a varying time, and a shaped port would send the bytes that
    /// accrue in it in one burst.
    pub fn turn(&mut self, now: Instant, look: impl FnOnce() -> Instant) -> Turn {
        self.router.observation.drop_log.begin(now);
        let commands = self.take_commands(now);
        let received = self.receive_all(now) + self.take_over(now);
        self.router.run_timers(now);
        let now = if received > 0 { look() } else { now };
        self.transmit_all(now);
        if let Some(mut offload) = self.router.offload_stage() {
            offload.advance(&mut self.devices, now);
        }
        self.hand_back();
        let parcels = self.router.handover.as_mut().map_or(0, |handover| handover.publish());
        let events = self.put_out_events();
        *if received > 0 { &mut self.busy_turns } else { &mut self.idle_turns } += 1;
        Turn {
            received,
            commands,
            events,
            parcels,
            next_event: self.next_event(now),
            stopped: self.stop.is_some_and(|told| {
                let quiet = received == 0 && (self.router.handover.is_none() || now >= told + LINGER);
                quiet || now >= told + PATIENCE
            }),
        }
    }

    /// Closes all devices. From then on, the setting of each port for the death of the router decides whether
    /// the kernel gets its packets.
    pub fn close_devices(&mut self) {
        self.devices.clear();
    }

    /// Refuses all commands, queued and future. Callers that wait for an answer find their channel closed.
    pub fn end(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        // Control first pushes a command, then reads the flag: either control sees the flag, or this loop
        // sees the command.
        fence(Ordering::SeqCst);
        while self.commands.pop().is_ok() {}
    }

    /// Returns the contents of a panic report: the last batch, and the tables that it met.
    pub fn post_mortem(&self) -> PostMortem {
        PostMortem::of(&self.router)
    }

    /// Makes the worker one of several. Call this before any other method.
    pub fn join(&mut self, handover: Handover) {
        self.router.handover = Some(Box::new(handover));
    }

    /// Announces to other workers that this one will sleep until woken. Returns `false`, without sleep, if
    /// they have sent parcels.
    pub fn fall_asleep(&self) -> bool {
        self.router.handover.as_ref().is_none_or(|handover| handover.fall_asleep())
    }

    /// Announces to other workers that this one is awake.
    pub fn wake_up(&self) {
        if let Some(handover) = &self.router.handover {
            handover.wake_up();
        }
    }

    /// Takes over a batch from each of the other workers. Returns the number of packets.
    fn take_over(&mut self, now: Instant) -> usize {
        let workers = self.router.handover.as_ref().map_or(0, |handover| handover.workers());
        (0..workers).map(|from| self.router.take_over(from, &mut self.work, now)).sum()
    }

    /// Counts a sleep of the thread that runs the worker.
    pub fn count_sleep(&mut self) {
        self.sleeps += 1;
    }

    /// Records the duration of an iteration that carried out a command.
    pub fn note_change(&mut self, took: Duration) {
        self.longest_change = self.longest_change.max(took);
    }

    /// Returns the descriptors that become readable when a device has packets.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> + '_ {
        let devices = self.devices.iter().flatten().filter_map(|device| device.descriptor());
        devices.chain(self.hosts.descriptors())
    }

    /// Returns whether some device has no descriptor, so that the worker has to poll it.
    pub fn must_poll(&self) -> bool {
        self.devices.iter().flatten().any(|device| device.descriptor().is_none() && !device.is_finished())
    }

    fn receive_all(&mut self, now: Instant) -> usize {
        let mut received = 0;
        for (index, device) in self.devices.iter_mut().enumerate() {
            let Some(device) = device else { continue };
            self.work.packets.set_limit(self.router.ports.input_weight(DeviceId(index as u16)));
            device.receive(&self.pool, now, &mut self.work.packets);
            self.work.packets.set_limit(BATCH_SIZE);
            if !self.work.packets.is_empty() {
                received += self.work.packets.len();
                self.router.process(DeviceId(index as u16), &mut self.work, now);
            }
        }
        received + self.hosts.receive(&mut self.router, &mut self.work, now)
    }

    fn transmit_all(&mut self, now: Instant) {
        let (devices, outgoing) = (&mut self.devices, &mut self.outgoing);
        let most = most_waiting(&self.pool, self.router.ports.iter().count());
        for_each_queue(&mut self.router.queueing(), now, |device, queue, departures| {
            let port = devices.get_mut(usize::from(device.0)).and_then(Option::as_mut)?;
            Some(transmit(port.as_mut(), (&self.pool, now), (queue, most), departures, outgoing))
        });
        for device in self.devices.iter_mut().flatten() {
            device.flush(&self.pool, now);
        }
        let devices = &mut self.devices;
        self.router.ports.note_room(|device| {
            let device = devices.get_mut(usize::from(device.0)).and_then(Option::as_mut);
            device.map_or(0, |device| device.room())
        });
    }

    fn hand_back(&mut self) {
        let host = &mut self.host;
        self.router.punt_stage().hand_back(|ifindex, frames| host.hand_back(ifindex, frames));
    }

    fn put_out_events(&mut self) -> usize {
        let mut count = 0;
        while self.events.slots() > 0
            && let Some(event) = self.router.take_event()
        {
            // Never fails: the ring has a free slot.
            let _ = self.events.push(event);
            count += 1;
        }
        count
    }

    fn next_event(&self, now: Instant) -> Option<Instant> {
        let devices = self.devices.iter().flatten().filter_map(|device| device.next_event());
        let end = self.stop.map(|told| told + LINGER);
        let waiting = self.router.handover.as_ref().is_some_and(|handover| handover.is_waiting());
        let again = (waiting || self.router.ports.is_sending()).then(|| now + RETRY);
        devices.chain(self.router.next_timer(now)).chain(end).chain(again).min()
    }

    fn take_commands(&mut self, now: Instant) -> usize {
        let mut count = 0;
        while count < COMMANDS_PER_TURN
            && let Ok(command) = self.commands.pop()
        {
            let is_small = command.is_small();
            self.carry_out(command, now);
            count += 1;
            if !is_small {
                // A command that is not small may take as long as packets can wait.
                break;
            }
        }
        if let Some(driver) = &mut self.router.driver {
            driver.publish_generation(&self.router.classifier.changes);
        }
        if count > 0 {
            // Packets that no longer have to wait are resumed first, ahead of packets received now.
            self.router.run_plugins(now);
        }
        count
    }

    /// Records the invalidation of a command, and has its receiver carry it out.
    fn carry_out(&mut self, command: Command, now: Instant) {
        let Router { classifier, driver, .. } = &mut self.router;
        command.invalidation().record(&mut classifier.changes, driver.as_deref_mut());
        match command {
            Command::Devices(command) => self.change_devices(command, now),
            Command::Ports(command) => self.change_ports(command, now),
            Command::Routes(command) => command.carry_out(&mut self.router),
            Command::Neighbours(command) => command.carry_out(&mut self.router, now),
            Command::Filters(command) => command.carry_out(&mut self.router.gates),
            Command::Plugins(command) => command.carry_out(&mut self.router, now),
            Command::Schedulers(command) => command.carry_out(&mut self.router, now),
            Command::Flows(command) => command.carry_out(&mut self.router, now),
            Command::Offload(command) => command.carry_out(&mut self.router, now),
            Command::Observation(command) => command.carry_out(&mut self.router, now),
            Command::Counters(command) => self.count(command, now),
            Command::Options(options) => set_options(&mut self.router, options),
            Command::Barrier(barrier) => barrier.answer(),
            Command::Stop => self.stop = Some(now),
        }
    }

    fn change_devices(&mut self, command: DeviceCommand, now: Instant) {
        match command {
            DeviceCommand::Add(id, open, reply) => {
                let report = open(&self.pool).map(|opened| {
                    let report = opened.report();
                    self.add_device(id, opened.port);
                    self.router.punt_stage().announce_addresses(id, now);
                    report
                });
                answer(&reply, report);
            }
            DeviceCommand::Remove(id, reply) => {
                self.close_device(id);
                answer(&reply, ());
            }
            DeviceCommand::SetHostPath(host) => self.host = host,
        }
    }

    fn change_ports(&mut self, command: PortCommand, now: Instant) {
        match command {
            PortCommand::Set(id, settings) => {
                let device = self.devices.get(usize::from(settings.device.0));
                let is_open = device.is_some_and(Option::is_some);
                set_port(&mut self.router, id, settings, is_open, now);
                self.spread_mtu();
            }
            PortCommand::AddHostOutput(port, settings, open, reply) => {
                let report = open(&self.pool).map(|opened| {
                    let report = opened.report();
                    self.hosts.add(port, settings, opened.port);
                    report
                });
                answer(&reply, report);
            }
            PortCommand::SetHostOutput(port, settings) => self.hosts.set(port, settings),
            PortCommand::RemoveHostOutput(port, reply) => {
                let counted = self.hosts.remove(port, &mut self.router, &mut self.work, now);
                self.closed.add(&counted);
                answer(&reply, ());
            }
        }
    }

    fn count(&mut self, command: CounterCommand, now: Instant) {
        match command {
            CounterCommand::Snapshot(reply) => {
                let snapshot = Snapshot::of(&self.router, now);
                answer(&reply, self.complete(snapshot));
            }
            CounterCommand::Summary(reply) => {
                let snapshot = Snapshot::counters_of(&self.router, now);
                answer(&reply, self.complete(snapshot));
            }
            CounterCommand::Clear => self.clear_counters(),
        }
    }

    /// Adds a device under this id, and replaces the present one.
    pub fn add_device(&mut self, id: DeviceId, port: Box<dyn Port>) {
        let index = usize::from(id.0);
        if self.devices.len() <= index {
            self.devices.resize_with(index + 1, || None);
        }
        if let Some(driver) = &mut self.router.driver {
            driver.device_opened(&self.router.ports, id, port.as_ref());
        }
        if let Some(device) = self.devices.get_mut(index) {
            *device = Some(port);
        }
    }

    /// Sets the MTU of each device, and the segment MTU of super-frames: the least MTU of all ports.
    fn spread_mtu(&mut self) {
        let mtus: Vec<(DeviceId, u16)> = self.router.ports.mtus().collect();
        let least = mtus.iter().map(|(_, mtu)| *mtu).min().unwrap_or(u16::MAX);
        for (index, device) in self.devices.iter_mut().enumerate() {
            // A sub-interface may have a smaller MTU than its device.
            let own = mtus.iter().filter(|(id, _)| usize::from(id.0) == index).map(|(_, mtu)| *mtu).max();
            if let (Some(device), Some(mtu)) = (device, own) {
                device.set_mtu(mtu, least);
            }
        }
    }

    fn close_device(&mut self, id: DeviceId) {
        let Some(mut device) = self.devices.get_mut(usize::from(id.0)).and_then(Option::take) else { return };
        if let Some(driver) = &mut self.router.driver {
            driver.device_closed(&self.router.ports, id);
        }
        let mut last = since_cleared(&self.cleared, id, device.counters());
        // Packets held inside the device are lost with it.
        last.drops.add(DropReason::PortDown, last.held);
        last.held = 0;
        self.closed.add(&last);
        self.cleared.retain(|(own, _)| *own != id);
    }

    fn clear_counters(&mut self) {
        // Packets between two workers count as carried at the sender until the receiver takes them over.
        let before = carried(&self.router);
        clear_counters(&mut self.router);
        self.longest_change = Duration::ZERO;
        self.closed = PortCounters::default();
        let devices = self.devices.iter_mut().enumerate();
        let counted =
            devices.filter_map(|(index, device)| Some((DeviceId(index as u16), device.as_mut()?.counters())));
        self.cleared = counted.collect();
        self.hosts.clear_counters();
        let inside = self.cleared.iter().map(|(_, count)| count.held).sum();
        self.carried = before.wrapping_add(inside);
    }

    /// Adds the counters of the worker itself to a snapshot of its router.
    fn complete(&mut self, mut snapshot: Snapshot) -> Snapshot {
        for (index, device) in self.devices.iter_mut().enumerate() {
            if let Some(device) = device {
                let id = DeviceId(index as u16);
                snapshot.devices.push((id, since_cleared(&self.cleared, id, device.counters())));
            }
        }
        snapshot.hosts = self.hosts.counters();
        snapshot.closed = self.closed.clone();
        snapshot.carried = self.carried;
        snapshot.memory = (self.pool.in_use(), self.pool.capacity());
        snapshot.turns = (self.busy_turns, self.idle_turns);
        snapshot.sleeps = self.sleeps;
        snapshot.longest_change = self.longest_change;
        snapshot
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end();
    }
}

/// Returns the counters of a device since they were cleared. The number of packets held is a current value,
/// and stays as it is.
pub(crate) fn since_cleared<K: PartialEq>(
    cleared: &[(K, PortCounters)],
    id: K,
    mut now: PortCounters,
) -> PortCounters {
    if let Some((_, before)) = cleared.iter().find(|(own, _)| *own == id) {
        now.subtract(before);
    }
    now
}

#[cfg(test)]
mod tests;
