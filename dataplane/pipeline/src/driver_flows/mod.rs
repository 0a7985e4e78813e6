//! Plain flows go down into the driver: flows whose packets need no instance, queue or copy, and leave by a port that the
//! driver can send to.
//!
//! A flow is offered with its second packet, and with others, ever more rarely, as long as it has no place. From then on
//! the driver forwards its packets ([`DriverCache`]); those that come up nevertheless, because something has changed or
//! because they are exceptional, are treated here as ever, and renew the flow's entry.
//!
//! *Changes.* Entries bear the generation of the change log, with a count of what else changes their contents (neighbours,
//! what numbers of routes mean, schedulers). The worker publishes it before it answers any later question of control, so
//! when a change is reported as done no packet is treated by the old state.
//!
//! *Order.* An entry is used only while the worker is done with all packets of the flow that went up ([`Way`]).
//!
//! *Traces.* When a trace begins, all entries have to be renewed, and those of flows that it asks for are not until it ends: so a
//! trace sees their packets, and other flows go down again at once.
//!
//! *Records.* The flow's record in the flow table stays, and is told what the driver has forwarded; when the record goes
//! the entry goes.

mod cache;
mod way;

use std::net::IpAddr;
use std::time::Duration;

pub use cache::{DriverCache, DriverFlow, DriverTotals};
use millrace_classify::FlowIndex;
use millrace_forward::Route;
use millrace_packet::{DropReason, Exceptions, FlowKey, Packet};
use millrace_plugin::EMPTY_PATH;
use millrace_port::Port;
use millrace_units::{Amount, Instant, NextHopIndex, PortId};
use millrace_wire::MacAddr;

use self::way::Way;
use crate::command::Command;
use crate::filter_route::is_filter;
use crate::forward::alive;
use crate::ports::{DeviceId, PortEntry};
use crate::router::Router;
use crate::tags::Tags;
use crate::work::{Fate, Work};

/// In every generation of an entry.
const IN_FORCE: u64 = 1 << 63;
/// The generation of no entry.
const SUSPENDED: u64 = 1;
/// How long no program may still look at a packet whose flow it did not find.
const SETTLING: Duration = Duration::from_micros(100);
/// How often all entries are looked at, and how many in a turn.
const ROUND: Duration = Duration::from_millis(250);
const ENTRIES_PER_TURN: usize = 128;
/// Entries that are made in a turn.
const INSERTS_PER_TURN: usize = 32;
/// A flow that has no entry is offered with each of so many packets, and with the first 2, 4, 8, ….
const OFFER: u32 = 256;
/// An entry that forwards nothing for so long is given up.
const IDLE: Duration = Duration::from_secs(15);
/// The same when there is no room for others.
const IDLE_WHEN_FULL: Duration = Duration::from_secs(1);

/// What the driver can do at a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DriverPort {
    /// Packets that come in by the port are looked up in the flow cache.
    pub receives: bool,
    /// Packets can be sent by the port in the driver.
    pub sends: bool,
}

/// How flows are in the driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DriverFlowCounts {
    /// Flows that have an entry.
    pub flows: u64,
    /// Flows that there is room for still.
    pub room: u64,
    /// Entries made so far.
    pub inserted: u64,
    /// Entries that were renewed after a change.
    pub renewed: u64,
    /// Entries given up because they forwarded nothing for a time.
    pub idle: u64,
    /// Flows that found no room.
    pub refused: u64,
}

/// A flow that has an entry in the driver.
#[derive(Clone, Copy, Debug)]
struct Entry {
    key: FlowKey,
    flow: FlowIndex,
    content: DriverFlow,
    neighbour: IpAddr,
    /// That in which it was right.
    generation: u64,
    /// Whether it has settled.
    begun: bool,
    told: DriverTotals,
    /// The route by which it is forwarded.
    route: NextHopIndex,
    last_used: Instant,
}

/// The flows that the driver forwards for a worker.
pub(crate) struct DriverFlows {
    cache: Box<dyn DriverCache>,
    ports: Vec<DriverPort>,
    ways: Vec<Way>,
    /// Entries by their numbers in the cache.
    entries: Vec<Option<Entry>>,
    /// For each record of the flow table the number of its entry, plus 1; it may be another flow's by now.
    by_flow: Vec<u32>,
    /// Entries that are to be begun.
    settling: Vec<(u32, Instant)>,
    /// Entries that may still be made in this turn.
    inserts: usize,
    published: u64,
    /// Changes that the change log does not know.
    other_changes: u32,
    next_round: Instant,
    hand: usize,
    counts: DriverFlowCounts,
}

impl std::fmt::Debug for DriverFlows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DriverFlows").field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl DriverFlows {
    pub fn new(cache: Box<dyn DriverCache>) -> Self {
        Self {
            cache,
            ports: Vec::new(),
            ways: Vec::new(),
            entries: Vec::new(),
            by_flow: Vec::new(),
            settling: Vec::new(),
            inserts: INSERTS_PER_TURN,
            published: SUSPENDED,
            other_changes: 0,
            next_round: Instant::ZERO,
            hand: 0,
            counts: DriverFlowCounts::default(),
        }
    }

    /// Something changed that entries depend on and the change log does not know.
    pub fn other_change(&mut self) {
        self.other_changes = self.other_changes.wrapping_add(1);
    }

    pub fn set_port(&mut self, port: PortId, can: DriverPort) {
        if self.ports.len() <= port.index() {
            self.ports.resize(port.index() + 1, DriverPort::default());
            self.ways.resize_with(port.index() + 1, Way::default);
        }
        self.ports[port.index()] = can;
        self.other_change();
    }

    fn port(&self, port: PortId) -> DriverPort {
        self.ports.get(port.index()).copied().unwrap_or_default()
    }

    /// The entry of a flow.
    fn entry_of(&self, flow: FlowIndex, key: &FlowKey) -> Option<u32> {
        let slot = self.by_flow.get(flow.slot() as usize)?.checked_sub(1)?;
        let entry = self.entries.get(slot as usize)?.as_ref()?;
        (entry.key == *key).then_some(slot)
    }

    /// Whether a flow has an entry.
    pub fn has(&self, flow: FlowIndex, key: &FlowKey) -> bool {
        self.entry_of(flow, key).is_some()
    }

    fn insert(&mut self, entry: Entry, now: Instant) {
        if self.inserts == 0 {
            return;
        }
        self.inserts -= 1;
        let Some(slot) = self.cache.insert(&entry.key, &entry.content) else {
            self.counts.refused += 1;
            return;
        };
        let (place, flow) = (slot as usize, entry.flow.slot() as usize);
        if self.entries.len() <= place {
            self.entries.resize(place + 1, None);
        }
        if self.by_flow.len() <= flow {
            self.by_flow.resize((flow + 1).next_power_of_two(), 0);
        }
        self.entries[place] = Some(entry);
        self.by_flow[flow] = slot + 1;
        self.settling.push((slot, now + SETTLING));
        self.counts.inserted += 1;
        self.counts.flows += 1;
    }

    /// Gives an entry up; by which route it forwarded, and what of that was not told yet.
    fn remove(&mut self, slot: u32) -> Option<(NextHopIndex, Amount)> {
        let entry = self.entries.get_mut(slot as usize)?.take()?;
        let totals = self.cache.remove(&entry.key, slot);
        self.settling.retain(|(settling, _)| *settling != slot);
        self.counts.flows -= 1;
        Some((entry.route, since(totals, entry.told)))
    }

    /// Whether an entry is in use, and of an older generation than the one that is published.
    fn is_old(&self, slot: u32) -> bool {
        let entry = self.entries.get(slot as usize).and_then(Option::as_ref);
        entry.is_some_and(|entry| entry.generation != self.published && entry.begun)
    }

    /// An old entry is as the flow is to be treated now.
    fn renew(
        &mut self,
        slot: u32,
        content: DriverFlow,
        (neighbour, route): (IpAddr, NextHopIndex),
        now: Instant,
    ) {
        let generation = self.published;
        let Some(entry) = self.entries.get_mut(slot as usize).and_then(Option::as_mut) else { return };
        (entry.content, entry.neighbour, entry.generation) = (content, neighbour, generation);
        (entry.route, entry.last_used) = (route, now);
        self.cache.renew(slot, &content, generation);
        self.counts.renewed += 1;
    }

    fn publish(&mut self, generation: u64) {
        if generation != self.published {
            self.published = generation;
            self.cache.publish(generation);
        }
    }

    /// Begins what has settled. If something has changed meanwhile, the flow's next packet renews it.
    fn begin(&mut self, now: Instant) {
        let Self { settling, entries, cache, .. } = self;
        settling.retain(|(slot, due)| {
            let Some(entry) = entries.get_mut(*slot as usize).and_then(Option::as_mut) else { return false };
            if *due > now {
                return true;
            }
            entry.begun = true;
            cache.begin(*slot, entry.key.port, entry.generation);
            false
        });
    }

    /// Says what the worker is done with of what came up from a port; all that it was given is sent.
    fn settle(&mut self, port: PortId, device: &mut dyn Port, now: Instant) {
        let Some(progress) = device.progress() else { return };
        let up = self.cache.up(port);
        let way = &mut self.ways[port.index()];
        let losses = || device.counters().drops.get(DropReason::ReceiveRingFull);
        let (done, overloaded) = (way.done(progress, up, now, losses), way.is_overloaded());
        self.cache.set_done(port, done);
        self.cache.set_overloaded(port, overloaded);
    }

    /// The device of a port was opened: what went up before is nobody's any more.
    fn begin_way(&mut self, port: PortId) {
        let base = self.cache.up(port);
        if let Some(way) = self.ways.get_mut(port.index()) {
            *way = Way::from(base);
        }
    }

    pub fn next_event(&self, now: Instant) -> Option<Instant> {
        let settled = (!self.settling.is_empty()).then(|| now + SETTLING);
        let round = (self.counts.flows > 0).then_some(self.next_round);
        settled.into_iter().chain(round).min()
    }

    pub fn counts(&self) -> DriverFlowCounts {
        DriverFlowCounts { room: self.cache.room() as u64, ..self.counts }
    }
}

impl Router {
    /// Says what the driver can do at a port.
    pub(crate) fn set_driver_port(&mut self, port: PortId, can: DriverPort) {
        if let Some(driver) = &mut self.driver {
            driver.set_port(port, can);
        }
    }

    /// Before a command is carried out, which may be answered: what was changed so far is told to the driver, and
    /// what it is about to change, if the change log will not know.
    pub(crate) fn prepare_driver(&mut self, command: &Command) {
        let Some(driver) = &mut self.driver else { return };
        if matches!(
            command,
            Command::SetRoutes(..)
                | Command::Schedule(..)
                | Command::FlushFlows(..)
                | Command::Succeed(..)
                | Command::RemoveDevice(..)
                | Command::StartTrace(..)
        ) {
            driver.other_change();
        }
        self.tell_driver();
    }

    /// A neighbour is not where it was.
    pub(crate) fn neighbour_moved(&mut self) {
        self.forget_adjacencies();
        if let Some(driver) = &mut self.driver {
            driver.other_change();
        }
    }

    /// Offers the driver the flows of a batch that was classified, and whose packets' ways are decided.
    pub(crate) fn offer_to_driver(&mut self, work: &Work, now: Instant) {
        let in_force = self.driver.as_ref().is_some_and(|driver| driver.published != SUSPENDED);
        if !in_force || !self.classifier.remembers() {
            return;
        }
        for (index, packet) in work.packets.iter().enumerate() {
            if let Some(flow) = work.flows[index]
                && packet.port != crate::parse::ROUTER
            {
                self.offer_one(packet, &work.keys[index], flow, offered(work, index), now);
            }
        }
    }

    fn offer_one(
        &mut self,
        packet: &Packet,
        key: &FlowKey,
        flow: FlowIndex,
        plain: Option<MacAddr>,
        now: Instant,
    ) {
        let Some(driver) = &mut self.driver else { return };
        if self.trace.as_ref().is_some_and(|tracer| tracer.wants(key)) {
            // Its packets are to come up, as long as the trace goes on.
            return;
        }
        let slot = driver.entry_of(flow, key);
        let record = self.classifier.flows.record(flow);
        let packets = record.packets_low();
        let is_time = packets >= 2 && (packets.is_power_of_two() || packets.is_multiple_of(OFFER));
        // A record that was recycled within the batch is another flow's by now.
        if slot.is_none() && (!is_time || self.classifier.flows.key(flow) != *key) {
            return;
        }
        let plain = plain.filter(|_| record.answer.varying_mask == 0 && record.variant() == 0);
        let content = plain.and_then(|destination| {
            let out = self.ports.get(packet.out_port).filter(|out| is_plain(out))?;
            let arrival = self.ports.get(packet.port).filter(|port| port.settings.tags == Tags::NONE)?;
            let can = driver.port(packet.port).receives && driver.port(packet.out_port).sends;
            let leaves = can && packet.port != packet.out_port && arrival.settings.up;
            let (mtu, source) = (out.settings.mtu, out.settings.mac);
            leaves.then_some(DriverFlow { out: packet.out_port, mtu, destination, source })
        });
        let Some(content) = content else {
            // Its entry is of an older generation, or packets of the flow are exceptional now and then.
            return;
        };
        let Route::Forward(hops) = self.fib.route(packet.next_hop) else { return };
        let neighbour = alive(hops, packet.hash, &self.ports).neighbour(key.destination());
        match slot {
            Some(slot) if driver.is_old(slot) => {
                // What it forwarded so far went by the route of before.
                self.tell_driven(slot, now);
                if let Some(driver) = &mut self.driver {
                    driver.renew(slot, content, (neighbour, packet.next_hop), now);
                }
            }
            Some(_) => {}
            None => {
                let entry = Entry {
                    key: *key,
                    flow,
                    content,
                    neighbour,
                    generation: driver.published,
                    begun: false,
                    told: DriverTotals::default(),
                    route: packet.next_hop,
                    last_used: now,
                };
                driver.insert(entry, now);
            }
        }
    }

    /// The device of some ports was opened.
    pub(crate) fn begin_ways(&mut self, device: DeviceId) {
        let Some(driver) = &mut self.driver else { return };
        let ports = self.ports.iter().filter(|(_, entry)| entry.settings.device == device);
        ports.for_each(|(id, _)| driver.begin_way(id));
    }

    /// Tells the driver what changed: at the end of a turn, and between a change and the next question.
    pub(crate) fn tell_driver(&mut self) {
        let tapped = self.is_tapped();
        let Some(driver) = &mut self.driver else { return };
        let changes = u64::from(driver.other_changes & 0x7fff_ffff) << 32;
        let generation = IN_FORCE | changes | u64::from(self.classifier.changes.current());
        driver.publish(if tapped { SUSPENDED } else { generation });
    }

    /// Lets flows go down whose packets are all dealt with. `devices`: the worker's, by their numbers.
    pub(crate) fn settle_driver(&mut self, devices: &mut [Option<Box<dyn Port>>], now: Instant) {
        self.tell_driver();
        let Some(driver) = &mut self.driver else { return };
        driver.inserts = INSERTS_PER_TURN;
        // What waits at a port that is down isn't sent, nor does anything plain go there.
        let waits = self.ports.iter().filter(|(_, entry)| entry.settings.up).any(|(_, entry)| {
            let device = devices.get_mut(usize::from(entry.settings.device.0)).and_then(Option::as_mut);
            let progress = device.and_then(|device| device.progress());
            !entry.queue.is_empty() || progress.is_some_and(|progress| progress.unsent > 0)
        });
        for (id, entry) in self.ports.iter() {
            if driver.port(id).receives && waits {
                driver.cache.set_overloaded(id, false);
            } else if driver.port(id).receives {
                let device = devices.get_mut(usize::from(entry.settings.device.0)).and_then(Option::as_mut);
                if let Some(device) = device {
                    driver.settle(id, device.as_mut(), now);
                }
            }
        }
        driver.begin(now);
    }

    /// Tells the flow table what the driver has forwarded, and gives up entries that forward nothing.
    pub(crate) fn keep_driver_flows(&mut self, now: Instant) {
        let Some(driver) = &mut self.driver else { return };
        if now < driver.next_round || driver.counts.flows == 0 {
            return;
        }
        let (full, suspended) = (driver.cache.room() == 0, driver.published == SUSPENDED);
        let end = driver.entries.len().min(driver.hand + ENTRIES_PER_TURN);
        let part = driver.hand..end;
        driver.hand = if end < driver.entries.len() { end } else { 0 };
        if driver.hand == 0 {
            driver.next_round = now + ROUND;
        }
        for place in part {
            let slot = place as u32;
            let Some((known, last_used)) = self.tell_driven(slot, now) else { continue };
            let patience = if full { IDLE_WHEN_FULL } else { IDLE };
            if !known || (now >= last_used + patience && !suspended) {
                let Some(driver) = &mut self.driver else { return };
                driver.counts.idle += u64::from(known);
                if let Some((route, last)) = driver.remove(slot) {
                    self.route_accounts.queued(route, last);
                }
            }
        }
    }

    /// Tells the flow table and the account of the route what the driver has forwarded by an entry since the last time. Returns
    /// whether the flow has a record still, and when the entry was used.
    fn tell_driven(&mut self, slot: u32, now: Instant) -> Option<(bool, Instant)> {
        let driver = self.driver.as_mut()?;
        let entry = driver.entries.get_mut(slot as usize)?.as_mut()?;
        let totals = driver.cache.totals(slot);
        let flows = &mut self.classifier.flows;
        let known = flows.record(entry.flow).is_live() && flows.key(entry.flow) == entry.key;
        let since = since(totals, entry.told);
        if since.packets > 0 {
            self.route_accounts.queued(entry.route, since);
            if known {
                flows.touch_many(entry.flow, since.packets, since.bytes, now);
            }
            // Who looks up a neighbour says that it is used.
            let _ = self.neighbours.lookup(entry.content.out, entry.neighbour);
            (entry.told, entry.last_used) = (totals, now);
        }
        Some((known, entry.last_used))
    }
}

/// What was forwarded since it was last told.
fn since(now: DriverTotals, told: DriverTotals) -> Amount {
    Amount { packets: now.packets.wrapping_sub(told.packets), bytes: now.bytes.wrapping_sub(told.bytes) }
}

/// Where a packet of a batch is sent to, if nothing was done to it and it is sent on as it is.
fn offered(work: &Work, index: usize) -> Option<MacAddr> {
    let packet = &work.packets[index];
    let destination = match work.fates[index] {
        Fate::Forward => work.destinations[index],
        // By the express way: its link header is there.
        Fate::Queue => MacAddr(*packet.data().first_chunk()?),
        _ => return None,
    };
    let plain = work.paths[index] == EMPTY_PATH
        && packet.exceptions == Exceptions::NONE
        && !is_filter(packet.next_hop);
    plain.then_some(destination)
}

/// Whether packets leave by a port as they are, in the order in which they come.
fn is_plain(out: &PortEntry) -> bool {
    out.settings.tags == Tags::NONE && out.scheduler.is_none() && out.settings.up
}
