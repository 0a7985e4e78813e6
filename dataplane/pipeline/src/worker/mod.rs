//! Worker of the data plane: devices, the router between them, and commands from control.
//!
//! [`Worker::iterate`] runs one iteration: it carries out commands, takes a batch from each device through
//! the router, and sends queued packets to the devices. An iteration depends only on the state, the batches
//! and `now`. So it can run under a virtual clock; [`crate::worker::thread`] runs it under the real one.

mod control;
mod devices;
mod host_output;
mod outputs;
pub(crate) mod post_mortem;
pub mod thread;

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

use millrace_classify::FlowTableError;
use millrace_forward::FibReader;
use millrace_packet::{BATCH_SIZE, Pool};
use millrace_plugin::{Paid, Pulse};
use millrace_port::Port;
use millrace_units::{Cycles, Instant};
use rtrb::{Consumer, Producer, RingBuffer};

use crate::commands::{Command, CounterCommand, DeviceCommand, PortCommand, answer, set_options, set_port};
use crate::handover::{Handover, HandoverRings};
use crate::observe::event::Event;
use crate::pending::core_functions::CoreUse;
use crate::pending::for_processor::ForProcessor;
use crate::pending::loads::PrincipalLoads;
use crate::ports::{DeviceId, PortCoreTime};
use crate::punt::host_path::HostPath;
use crate::router::Router;
use crate::router::shedding::Shedding;
use crate::router::slices::{CoreWork, core_cycles, core_cycles_of};
use crate::snapshot::{Snapshot, carried, clear_counters};
use crate::tsc::cycles;
use crate::work::Work;
use crate::worker::devices::Devices;
use crate::worker::host_output::HostOutputs;
use crate::worker::outputs::Outputs;
use crate::worker::post_mortem::PostMortem;

/// Maximum number of commands that wait for a worker.
const COMMAND_CAPACITY: usize = 4096;
/// Capacity of the ring of events to control. Beyond it, the worker keeps events up to a limit of its own.
const EVENT_CAPACITY: usize = 4096;
/// Maximum time between the stop command and the end of the worker, while packets still arrive.
const PATIENCE: Duration = Duration::from_millis(100);
/// Minimum time between the stop command and the end of the worker, if other workers may still hand over
/// packets.
const LINGER: Duration = Duration::from_millis(5);
/// Interval at which a worker checks whether other workers have taken its parcels, and whether a full device
/// has room.
const RETRY: Duration = Duration::from_micros(200);
/// Maximum number of commands per iteration. A command that is not [small](Command::is_small) is the last of
/// its iteration.
const COMMANDS_PER_ITERATION: usize = 16;

/// Control's end of a worker's rings.
#[derive(Debug)]
pub struct WorkerLink {
    /// Commands to the worker. Wake the worker after a push.
    pub commands: Producer<Command>,
    /// Events reported by the worker.
    pub events: Consumer<Event>,
    /// Current instance call of the worker, for the watchdog.
    pub pulse: Arc<Pulse>,
    /// Work of the principals at the worker.
    pub loads: Arc<PrincipalLoads>,
    /// Whether the worker has ended and carries out no more commands.
    pub ended: Arc<AtomicBool>,
}

/// Result of an iteration.
#[derive(Clone, Copy, Debug)]
pub struct Iteration {
    /// Number of packets received from devices or taken over from other workers.
    pub received: usize,
    /// Number of commands carried out.
    pub commands: usize,
    /// Number of events reported to control.
    pub events: usize,
    /// Number of parcels sent to other workers.
    pub parcels: usize,
    /// Time of the next task that doesn't wait for a packet or a command; `None` if there is none.
    pub next_event: Option<Instant>,
    /// Whether another process runs a call of an instance.
    pub awaits: bool,
    /// Whether the worker has been stopped and can end: no more packets arrive, or the time for the last
    /// packets is over.
    pub stopped: bool,
}

/// Counters of the worker itself.
#[derive(Default)]
struct WorkerCounts {
    /// Number of packets inside the worker when the counters were cleared.
    carried: u64,
    /// Iterations with packets.
    busy_iterations: u64,
    /// Iterations without packets.
    idle_iterations: u64,
    /// Number of sleeps.
    sleeps: u64,
    /// Longest duration of an iteration with a command.
    longest_change: Duration,
}

/// Worker of the data plane: devices, and the router between them.
pub struct Worker {
    pool: Pool,
    router: Router,
    devices: Devices,
    hosts: HostOutputs,
    work: Work,
    outputs: Outputs,
    commands: Consumer<Command>,
    events: Producer<Event>,
    host: Box<dyn HostPath>,
    /// Time of the stop command; `None` before it.
    stop: Option<Instant>,
    counts: WorkerCounts,
    ended: Arc<AtomicBool>,
}

impl Worker {
    /// Returns a worker that has no devices yet, and control's end of the worker's rings. `pool`: packet
    /// memory; `prefixes`: the shared route table; `host`: path to the kernel. `seed` keys the worker's
    /// hashes.
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
            devices: Devices::default(),
            hosts: HostOutputs::default(),
            work: Work::default(),
            outputs: Outputs::default(),
            commands,
            events,
            host,
            stop: None,
            counts: WorkerCounts::default(),
            ended: Arc::default(),
        };
        let (pulse, ended) = (worker.router.gates.plugins().instances().pulse(), worker.ended.clone());
        let loads = worker.router.pending.loads.clone();
        Ok((worker, WorkerLink { commands: command_producer, events: event_consumer, pulse, loads, ended }))
    }

    /// Runs one iteration, which begins at `now`. If packets were received, `look` reads the clock again
    /// before queues send. Without that, a shaped port would send the bytes that accrue during the receive
    /// step late and in one burst.
    pub fn iterate(&mut self, now: Instant, look: impl FnOnce() -> Instant) -> Iteration {
        // Only principals need the cost of core work.
        let begun = self.router.pending.for_processor.exist().then(cycles).flatten();
        self.router.observation.drop_log.begin(now);
        let commands = self.take_commands(now);
        // Commands are not work for packets of a port.
        let reading = if commands == 0 { begun } else { begun.and_then(|_| cycles()) };
        let reading = reading.map(|reading| core_cycles_of(&self.router.gates, reading));
        let received = self.receive_all(reading, now) + self.take_over(now);
        if let Some(waiting) = self.router.pending.for_processor.active_mut() {
            waiting.end_reception(now);
        }
        self.router.run_timers(now);
        let now = if received > 0 { look() } else { now };
        let measures = begun.is_some() && self.router.pending.measures_core();
        self.transmit_all(measures, now);
        if let Some(mut offload) = self.router.offload_stage() {
            offload.advance(&mut self.devices.all, now);
        }
        self.run_control(now);
        let mut core = CoreWork { begun, received: received > 0, is_alone: false };
        let Self { devices, hosts, router, .. } = &mut *self;
        if router.run_principals(&mut core, &|| devices.have_arrivals(hosts.devices()), now) {
            self.transmit_all(measures, now);
            self.hand_back();
        }
        let parcels = self.router.handover.as_mut().map_or(0, |handover| handover.publish());
        let events = self.put_out_events();
        core.end(&mut self.router, now);
        let WorkerCounts { busy_iterations, idle_iterations, .. } = &mut self.counts;
        *if received > 0 { busy_iterations } else { idle_iterations } += 1;
        Iteration {
            received,
            commands,
            events,
            parcels,
            next_event: self.next_event(now),
            awaits: Paid::of(self.router.gates.plugins()).awaits(),
            stopped: self.stop.is_some_and(|told| {
                let waits = |waiting: &ForProcessor| waiting.control.len() > 0;
                let is_done = received == 0 && !self.router.pending.for_processor.active().is_some_and(waits);
                let quiet = is_done && (self.router.handover.is_none() || now >= told + LINGER);
                quiet || now >= told + PATIENCE
            }),
        }
    }

    /// Closes all devices. From then on, the `on-death` setting of each port decides whether the kernel gets
    /// its packets.
    pub fn close_devices(&mut self) {
        self.devices.all.clear();
    }

    /// Refuses all queued and future commands. Callers that wait for an answer find their channel closed.
    pub fn end(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        // Control pushes a command before it reads the flag. With the fence, either control sees the flag, or
        // this loop sees the command.
        fence(Ordering::SeqCst);
        while self.commands.pop().is_ok() {}
    }

    /// Returns the contents of a panic report: the last batch, and the state needed to replay it.
    pub fn post_mortem(&self) -> PostMortem {
        PostMortem::of(&self.router)
    }

    /// Makes the worker one of several. To be called before any other method.
    pub fn join(&mut self, rings: HandoverRings) {
        let handover = Handover::new(rings, self.router.pool.capacity());
        self.router.gates.plugins_mut().bindings.set_worker(handover.me() as u16);
        self.router.handover = Some(Box::new(handover));
    }

    /// Announces to other workers that this worker will sleep until woken. Returns `false` if it must not
    /// sleep, because other workers have sent parcels.
    pub fn fall_asleep(&self) -> bool {
        self.router.handover.as_ref().is_none_or(|handover| handover.fall_asleep())
    }

    /// Announces to other workers that this worker is awake.
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
        self.counts.sleeps += 1;
    }

    /// Records the duration of an iteration that carried out a command.
    pub fn note_change(&mut self, took: Duration) {
        self.counts.longest_change = self.counts.longest_change.max(took);
    }

    /// Returns the descriptors that become readable when a device has packets.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> + '_ {
        let devices = self.devices.iter().filter_map(|device| device.descriptor());
        devices.chain(self.hosts.descriptors())
    }

    /// Returns whether some device doesn't tell when it needs the worker.
    pub fn must_poll(&mut self) -> bool {
        self.devices.have_silent()
    }

    /// Receives from all devices. `reading`: of the time-stamp counter, lately; `None` if nobody needs the time
    /// of core.
    fn receive_all(&mut self, mut reading: Option<u64>, now: Instant) -> usize {
        let mut received = 0;
        for (index, device) in self.devices.all.iter_mut().enumerate() {
            let Some(device) = device else { continue };
            let id = DeviceId(index as u16);
            let weight = self.router.ports.input_weight(id);
            self.work.packets.set_limit(weight);
            device.receive(&self.pool, now, &mut self.work.packets);
            self.work.packets.set_limit(BATCH_SIZE);
            if self.work.packets.is_empty() {
                continue;
            }
            let count = self.work.packets.len();
            let earlier = received;
            received += count;
            let mut shedding = Shedding::of(&mut self.router);
            shedding.process(id, &mut self.work, now);
            if count >= weight {
                let is_full =
                    shedding.receive_more((id, device.as_mut()), &mut self.work, &mut received, now);
                self.router.pending.note_batches(true, is_full);
            }
            if let Some(before) = reading {
                reading = core_cycles(&self.router.gates);
                let time = Cycles(reading.map_or(0, |now| now.saturating_sub(before)));
                // The port pays for the reception of packets for the router itself; the account of core has the rest.
                let used = CoreUse { weight: weight as u16, time, packets: received - earlier };
                let forwarding = self.router.pending.count_core(id, used);
                let received = self.router.pending.charge_reception(time, received - earlier);
                let time = PortCoreTime { received, forwarding, output: Cycles(0) };
                self.router.ports.count_core(id, time);
            }
        }
        received + self.hosts.receive(&mut self.router, &mut self.work, now)
    }

    /// Transmits by all devices. `measures`: whether core measures its time by function.
    fn transmit_all(&mut self, measures: bool, now: Instant) {
        let Self { router, devices, outputs, pool, .. } = self;
        match measures {
            false => outputs.transmit_all(router, devices, (pool, now)),
            true => outputs.transmit_all_measured(router, devices, (pool, now)),
        }
    }

    fn put_out_events(&mut self) -> usize {
        let mut count = 0;
        while self.events.slots() > 0
            && let Some(event) = self.router.take_event()
        {
            // Can't fail: the ring has a free slot.
            let _ = self.events.push(event);
            count += 1;
        }
        count
    }

    fn next_event(&self, now: Instant) -> Option<Instant> {
        let devices = self.devices.iter().filter_map(|device| device.next_event());
        let end = self.stop.map(|told| told + LINGER);
        let waiting = self.router.handover.as_ref().is_some_and(|handover| handover.is_waiting());
        let again = (waiting || self.router.ports.is_sending()).then(|| now + RETRY);
        devices.chain(self.router.next_timer(now)).chain(end).chain(again).min()
    }

    fn take_commands(&mut self, now: Instant) -> usize {
        let mut count = 0;
        while count < COMMANDS_PER_ITERATION
            && let Ok(command) = self.commands.pop()
        {
            let is_small = command.is_small();
            self.carry_out(command, now);
            count += 1;
            if !is_small {
                // Such a command may use up the time that packets can wait.
                break;
            }
        }
        if let Some(offload) = &mut self.router.offload {
            offload.publish_generation(&self.router.classifier.changes);
        }
        if count > 0 {
            // A command may end the wait of packets. They are resumed before packets are received, to keep
            // their order.
            self.router.run_plugins(now);
        }
        count
    }

    /// Records the invalidation of a command, and has its receiver carry it out.
    fn carry_out(&mut self, command: Command, now: Instant) {
        let Router { classifier, offload, .. } = &mut self.router;
        command.invalidation().record(&mut classifier.changes, offload.as_deref_mut());
        match command {
            Command::Devices(command) => self.change_devices(command, now),
            Command::Ports(command) => self.change_ports(command, now),
            Command::Routes(command) => command.carry_out(&mut self.router),
            Command::Neighbours(command) => command.carry_out(&mut self.router, now),
            Command::Filters(command) => command.carry_out(&mut self.router.gates),
            Command::Plugins(command) => command.carry_out(&mut self.router, now),
            Command::Principals(command) => command.carry_out(&mut self.router, now),
            Command::Schedulers(command) => command.carry_out(&mut self.router, now),
            Command::Flows(command) => command.carry_out(&mut self.router, now),
            Command::Connections(command) => command.carry_out(&mut self.router, now),
            Command::Offload(command) => command.carry_out(&mut self.router, now),
            Command::Observation(command) => command.carry_out(&mut self.router, now),
            Command::Counters(command) => self.count(command, now),
            Command::Options(options) => set_options(&mut self.router, options),
            Command::Barrier(reply) => answer(&reply, ()),
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
                let is_open = self.devices.is_open(settings.device);
                set_port(&mut self.router, id, settings, is_open, now);
                self.devices.set_mtus(&self.router.ports);
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
                self.devices.closed.add(&counted);
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

    /// Adds a device, or replaces the one with the same id.
    pub fn add_device(&mut self, id: DeviceId, port: Box<dyn Port>) {
        if let Some(offload) = &mut self.router.offload {
            offload.device_opened(&self.router.ports, id, port.as_ref());
        }
        self.devices.add(id, port);
    }

    fn close_device(&mut self, id: DeviceId) {
        if self.devices.close(id)
            && let Some(offload) = &mut self.router.offload
        {
            offload.device_closed(&self.router.ports, id);
        }
    }

    fn clear_counters(&mut self) {
        // A packet between two workers counts as carried at the sender until the receiver takes it over.
        let before = carried(&self.router);
        clear_counters(&mut self.router);
        self.hosts.clear_counters();
        let inside = self.devices.clear_counters();
        self.counts.carried = before.wrapping_add(inside);
        self.counts.longest_change = Duration::ZERO;
    }

    /// Adds the counters of the worker itself to a snapshot of its router.
    fn complete(&mut self, mut snapshot: Snapshot) -> Snapshot {
        let WorkerCounts { carried, busy_iterations, idle_iterations, sleeps, longest_change } = self.counts;
        snapshot.devices = self.devices.counters();
        snapshot.hosts = self.hosts.counters();
        snapshot.closed = self.devices.closed.clone();
        snapshot.carried = carried;
        snapshot.memory = (self.pool.in_use(), self.pool.capacity());
        snapshot.iterations = (busy_iterations, idle_iterations);
        snapshot.sleeps = sleeps;
        snapshot.longest_change = longest_change;
        snapshot
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests;
