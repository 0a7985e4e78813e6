//! Plain flows go down into the driver: flows whose packets need no queue or copy, and no instance but one that has a form for the driver, and leave by a port that the
//! driver can send to.
//!
//! A flow is offered with its second packet, and with others, ever more rarely, as long as it has no place. From then on
//! the driver forwards its packets ([`DriverCache`]); those that come up nevertheless, because something has changed or
//! because they are exceptional, are treated here as ever, and renew the flow's entry.
//!
//! *Changes.* Entries bear the generation of the change log, with a count of what else changes their contents (neighbours,
//! what numbers of routes mean, schedulers). Each command declares its [`Invalidation`], and the worker publishes it before it carries the
//! command out, so when a change is reported as done no packet is treated by the old state. Entries that a change in the log does not concern are
//! carried over by the worker itself ([`Carry`]), and a neighbour, or a number of a route, that no entry uses changes nothing ([`Uses`]).
//!
//! *Order.* An entry is used only while the workers are done with all packets of the flow that went up ([`Way`], [`Round`]).
//!
//! *Traces and captures.* When one begins, all entries have to be renewed, and those of flows that it asks for are not until it ends: so
//! it sees their packets, and other flows go down again at once.
//!
//! *Records.* The flow's record in the flow table stays, and is told what the driver has forwarded; when the record goes
//! the entry goes.

mod accounting;
mod budget;
mod cache;
mod carry;
mod eviction;
mod invalidation;
mod level;
mod mark;
mod plan;
mod round;
mod settle;
mod upcalls;
mod uses;
mod way;

use std::time::Duration;

pub use budget::{ASK, BUDGET, FORWARD, MOST_OF_FORM, POLICE};
pub use cache::{DriverAction, DriverCache, DriverFlow, DriverTotals, DriverWay};
pub(crate) use invalidation::Invalidation;
pub(crate) use level::Placements;
pub use level::{Level, Placement, StaysUp};
use millrace_classify::FlowIndex;
use millrace_forward::NeighbourKey;
use millrace_packet::{DropReason, Exceptions, FlowKey};
use millrace_plugin::Policer;
use millrace_units::{Instant, PortId};

use self::carry::Carry;
use self::eviction::{Asking, Rate};
use self::mark::Mark;
use self::plan::Plan;
use self::round::Round;
use self::upcalls::{KeptUp, Upcalls};
use self::uses::Uses;
use self::way::Way;
use crate::filter_route::is_filter;
use crate::router::Router;
use crate::work::{Fate, Work};

/// In every generation of an entry.
const IN_FORCE: u64 = 1 << 63;
/// The generation of no entry.
const SUSPENDED: u64 = 1;
/// How long no program may still look at a packet whose flow it did not find.
const SETTLING: Duration = Duration::from_micros(100);
/// In place of the number of a flow's entry: it has none, or will have one with its next packet if it can.
const NEVER: u32 = 0;
const DUE: u32 = u32::MAX;
/// The same: its packets came up although it had one, and it stays up for now.
const UP: u32 = u32::MAX - 1;
/// The same: it found no room.
const REFUSED: u32 = u32::MAX - 2;
/// How often all entries are looked at, and how many in a turn.
const ROUND: Duration = Duration::from_millis(250);
const ENTRIES_PER_TURN: usize = 128;
/// Entries that are made in a turn.
const INSERTS_PER_TURN: usize = 128;
/// A flow that has no entry is offered with each of so many packets, and with the first 2, 4, 8, ….
const OFFER: u32 = 256;
/// One of so many is asked whether its flow was placed in the driver, as long as that is not there; and its first ones.
const PLACED: u32 = 16;
/// A flow that is dropped goes down with one of so many packets: some of each are to be among the last drops that are kept.
const SHOWN: u32 = 16;
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
    /// The receive queues that are read, by one worker or several: a bit for each.
    pub receive_queues: u64,
    /// Packets that leave by the port wait in a scheduler, which may be another worker's.
    pub queues: bool,
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
    /// Entries given up so that heavier flows, or those that somebody wants in the driver, have their places.
    pub evicted: u64,
    /// Flows that found no room, each once.
    pub refused: u64,
}

/// A flow that has an entry in the driver.
#[derive(Clone, Copy, Debug)]
struct Entry {
    key: FlowKey,
    flow: FlowIndex,
    plan: Plan,
    /// That in which it was right.
    generation: u64,
    /// Whether it has settled.
    begun: bool,
    /// Packets accounted so far.
    accounted: DriverTotals,
    /// Whether somebody wants it in the driver.
    placed: bool,
    upcalls: Upcalls,
    rate: Rate,
    last_used: Instant,
}

/// The flows that the driver forwards for a worker.
pub(crate) struct DriverFlows {
    cache: Box<dyn DriverCache>,
    ports: Vec<DriverPort>,
    ways: Vec<Way>,
    round: Round,
    mark: Mark,
    /// Whether an entry waits for packets to be done with.
    waits: bool,
    /// Where flows are wanted.
    placements: Placements,
    /// Entries by their numbers in the cache.
    entries: Vec<Option<Entry>>,
    /// For each record of the flow table the number of its entry, plus 1; it may be another flow's by now.
    by_flow: Vec<u32>,
    /// Entries that are to be begun.
    settling: Vec<(u32, Instant)>,
    /// Entries that may still be made in this turn.
    inserts: usize,
    /// Flows that left the offload because of their upcalls.
    kept_up: KeptUp,
    /// Flows that ask for places while there are none, and which entry is the next to be looked at for them.
    asking: Asking,
    looked_at: usize,
    uses: Uses,
    carry: Carry,
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
            round: Round::default(),
            mark: Mark::default(),
            waits: false,
            placements: Placements::default(),
            entries: Vec::new(),
            by_flow: Vec::new(),
            settling: Vec::new(),
            inserts: INSERTS_PER_TURN,
            kept_up: KeptUp::default(),
            asking: Asking::default(),
            looked_at: 0,
            uses: Uses::default(),
            carry: Carry::default(),
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
        if let Some(known) = self.ports.get_mut(port.index()) {
            *known = can;
        }
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

    /// Whether the driver has the packets of a flow.
    pub fn has(&self, flow: FlowIndex, key: &FlowKey) -> bool {
        let entry = self.entry_of(flow, key).and_then(|slot| self.entries.get(slot as usize)?.as_ref());
        entry.is_some_and(|entry| entry.begun && entry.generation == self.published)
    }

    /// Whether somebody has said where a flow is to be.
    pub fn is_placed(&self, key: &FlowKey) -> bool {
        self.placements.of(key).is_some()
    }

    /// What the cache is told of a plan; `None` where there is no place for its token bucket.
    fn content(&mut self, plan: &Plan, policer: Option<&Policer>) -> Option<DriverFlow> {
        let policer = match policer {
            Some(policer) => Some(self.cache.police(policer)?),
            None => None,
        };
        Some(DriverFlow { action: plan.action, policer, form: plan.form.asks() })
    }

    fn insert(&mut self, entry: Entry, content: &DriverFlow, now: Instant) {
        if self.inserts == 0 {
            self.note(entry.flow, DUE);
            return;
        }
        self.inserts -= 1;
        let Some(slot) = self.cache.insert(&entry.key, content) else {
            self.refuse(entry.flow);
            return;
        };
        let place = slot as usize;
        if self.entries.len() <= place {
            self.entries.resize(place + 1, None);
        }
        self.uses.begin(&entry.plan);
        self.note(entry.flow, slot + 1);
        if let Some(vacant) = self.entries.get_mut(place) {
            *vacant = Some(entry);
        }
        self.settling.push((slot, now + SETTLING));
        self.counts.inserted += 1;
        self.counts.flows += 1;
    }

    /// Notes of a flow which entry it has, or that it has none.
    fn note(&mut self, flow: FlowIndex, number: u32) {
        let flow = flow.slot() as usize;
        if self.by_flow.len() <= flow {
            self.by_flow.resize((flow + 1).next_power_of_two(), NEVER);
        }
        if let Some(noted) = self.by_flow.get_mut(flow) {
            *noted = number;
        }
    }

    /// Whether a flow without an entry had one, or would have had one if there had not been too many others in that turn.
    fn is_due(&self, flow: FlowIndex) -> bool {
        self.by_flow.get(flow.slot() as usize).is_some_and(|number| !matches!(*number, NEVER | UP | REFUSED))
    }

    /// Returns whether a flow stays at the worker because of its upcalls.
    pub fn keeps_up(&self, flow: FlowIndex, key: &FlowKey, now: Instant) -> bool {
        self.by_flow.get(flow.slot() as usize) == Some(&UP) && self.kept_up.has(flow, key, now)
    }

    /// Counts an upcall of a flow whose entry is right. Returns whether it is.
    fn count_upcall(&mut self, slot: u32) -> bool {
        let is_right = !self.is_old(slot);
        let entry = self.entries.get_mut(slot as usize).and_then(Option::as_mut);
        if is_right && let Some(entry) = entry.filter(|entry| entry.begun) {
            entry.upcalls.count();
            self.waits = true;
        }
        is_right
    }

    /// Gives an entry up; what it was, and what was done by it.
    fn remove(&mut self, slot: u32) -> Option<(Entry, DriverTotals)> {
        let entry = self.entries.get_mut(slot as usize)?.take()?;
        self.uses.end(&entry.plan);
        let totals = self.cache.remove(&entry.key, slot);
        self.settling.retain(|(settling, _)| *settling != slot);
        self.counts.flows -= 1;
        Some((entry, totals))
    }

    /// Whether an entry is in use, and of an older generation than the one that is published.
    fn is_old(&self, slot: u32) -> bool {
        let entry = self.entries.get(slot as usize).and_then(Option::as_ref);
        entry.is_some_and(|entry| entry.generation != self.published && entry.begun)
    }

    /// An old entry is as the flow is to be treated now.
    fn renew(&mut self, slot: u32, (plan, content): (Plan, &DriverFlow), placed: bool, now: Instant) {
        let generation = self.published;
        let Some(entry) = self.entries.get_mut(slot as usize).and_then(Option::as_mut) else { return };
        let before = entry.plan;
        (entry.plan, entry.generation, entry.placed, entry.last_used) = (plan, generation, placed, now);
        if before != plan {
            self.uses.begin(&plan);
            self.uses.end(&before);
        }
        self.cache.renew(slot, content, generation);
        self.waits = true;
        self.counts.renewed += 1;
    }

    fn publish(&mut self, generation: u64) {
        if generation != self.published {
            if generation >> 32 == self.published >> 32 {
                self.carry.begin(self.entries.len());
            }
            self.published = generation;
            self.cache.publish(generation);
        }
    }

    /// Begins what has settled. If something has changed meanwhile, the flow's next packet renews it.
    fn begin(&mut self, now: Instant) {
        let Self { settling, entries, cache, waits, .. } = self;
        settling.retain(|(slot, due)| {
            let Some(entry) = entries.get_mut(*slot as usize).and_then(Option::as_mut) else { return false };
            if *due > now {
                return true;
            }
            entry.begun = true;
            cache.begin(*slot, entry.key.port, entry.generation);
            *waits = true;
            false
        });
    }

    pub fn next_event(&self, now: Instant) -> Option<Instant> {
        let settled = (!self.settling.is_empty()).then(|| now + SETTLING);
        let round = (self.counts.flows > 0).then_some(self.next_round);
        let carried = self.carry.is_under_way().then_some(now);
        settled.into_iter().chain(round).chain(carried).min()
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

    /// A neighbour is not where it was.
    pub(crate) fn neighbour_moved(&mut self, NeighbourKey { port, address }: NeighbourKey) {
        self.forget_adjacencies();
        if let Some(driver) = self.driver.as_mut().filter(|driver| driver.uses.neighbour((port, address))) {
            driver.other_change();
        }
    }

    /// Offers the driver the flows of a batch that was classified, and whose packets' ways are decided.
    pub(crate) fn offer_to_driver(&mut self, work: &mut Work, now: Instant) {
        let in_force = self.driver.as_ref().is_some_and(|driver| driver.published != SUSPENDED);
        if !in_force || !self.classifier.remembers() {
            return;
        }
        work.complete_all();
        for (index, packet) in work.packets.iter().enumerate() {
            if let Some(flow) = work.flows[index]
                && packet.port != crate::parse::ROUTER
                && is_plain(work, index)
            {
                self.offer_one(packet.hash, &work.keys[index], flow, now);
            }
        }
    }

    /// Offers a flow, of which a packet was just treated that is as all others.
    fn offer_one(&mut self, hash: u32, key: &FlowKey, flow: FlowIndex, now: Instant) {
        let Some(driver) = &mut self.driver else { return };
        let slot = driver.entry_of(flow, key);
        if slot.is_some_and(|slot| driver.count_upcall(slot)) || driver.keeps_up(flow, key, now) {
            return;
        }
        let record = self.classifier.flows.record(flow);
        let packets = record.packets_low();
        let is_due = slot.is_none() && driver.is_due(flow);
        if packets <= 2 {
            driver.forget_refusal(flow);
        }
        let is_sampled = slot.is_none() && driver.asking.is_sampled() && driver.cache.room() == 0;
        let is_time = packets >= 2
            && (is_due || is_sampled || packets.is_power_of_two() || packets.is_multiple_of(OFFER));
        // Each packet of a flow that has to stay up would ask otherwise.
        let may_be_placed = slot.is_some() || is_time || packets < PLACED || packets.is_multiple_of(PLACED);
        let placed = may_be_placed
            && !driver.placements.is_empty()
            && driver.placements.of(key) == Some(Level::Driver);
        // A record that was recycled within the batch is another flow's by now.
        let is_asked = (is_time || (placed && packets >= 2)) && self.classifier.flows.key(flow) == *key;
        if (slot.is_none() && !is_asked) || record.variant() != 0 {
            return;
        }
        // Where it can't, its entry is of an older generation, or there is none.
        let plan = self.plan_of(key, hash, &record.answer);
        if is_due && let Some(driver) = &mut self.driver {
            driver.note(flow, NEVER);
        }
        let Ok(plan) = plan else { return };
        if plan.form.drops() && !packets.is_multiple_of(SHOWN) {
            return;
        }
        if let Some(slot) = slot {
            // Its packets so far belong to the plan before.
            self.account_offloaded(slot, now);
        }
        let Self { driver: Some(driver), gates, .. } = self else { return };
        let policer = gates.plugins().driver_policer(&plan.form).map(|policer| &**policer);
        let Some(content) = driver.content(&plan, policer) else {
            driver.refuse(flow);
            return;
        };
        match slot {
            Some(slot) => driver.renew(slot, (plan, &content), placed, now),
            None => {
                let (generation, accounted) = (driver.published, DriverTotals::default());
                let (upcalls, rate, begun, last_used) = (Upcalls::from(now), Rate::from(now), false, now);
                let entry = Entry {
                    key: *key,
                    flow,
                    plan,
                    generation,
                    begun,
                    accounted,
                    placed,
                    upcalls,
                    rate,
                    last_used,
                };
                let makes_way = match driver.inserts > 0 && driver.cache.room() == 0 {
                    true if placed => driver.least_wanted(),
                    true => driver.lighter_than(flow, packets, now),
                    false => None,
                };
                if let Some(slot) = makes_way {
                    self.remove_offloaded(slot);
                }
                if let Some(driver) = &mut self.driver {
                    driver.counts.evicted += u64::from(makes_way.is_some());
                    driver.insert(entry, &content, now);
                }
            }
        }
    }

    /// Says where flows are wanted. Every flow comes up once, and goes where it is wanted then.
    pub(crate) fn place_flows(&mut self, placements: Vec<Placement>) {
        if let Some(driver) = &mut self.driver {
            driver.placements = Placements::new(placements);
        }
    }

    /// Tells the driver what changed: at the end of a turn, and between a change and the next question.
    pub(crate) fn tell_driver(&mut self) {
        let Some(driver) = &mut self.driver else { return };
        let changes = u64::from(driver.other_changes & 0x7fff_ffff) << 32;
        driver.publish(IN_FORCE | changes | u64::from(self.classifier.changes.current()));
    }
}

/// Whether nothing about a packet of a batch is exceptional, and it is sent on as it is, or dropped because a filter or a plugin says so.
fn is_plain(work: &Work, index: usize) -> bool {
    let packet = work.packets.at(index);
    let is_settled = match work.fates[index] {
        Fate::Forward | Fate::Queue => !is_filter(packet.next_hop),
        Fate::Drop(reason) => matches!(reason, DropReason::Filter | DropReason::Plugin),
        _ => false,
    };
    is_settled && packet.exceptions == Exceptions::NONE
}
