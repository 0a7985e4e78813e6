//! Offload of flows: fills the flow cache of the XDP program from a worker.
//!
//! A flow can be offloaded if its packets need no queue and no copy, and pass no plugin instance without an
//! eBPF variant. The XDP program must also be able to send to their egress port (`plan`).
//!
//! The worker offers a flow to the flow cache with its second packet, and with decreasing frequency while the
//! flow has no entry (`offer`). Once the flow has an entry, the XDP program forwards its packets
//! ([`WorkerFlowCache`]). The worker treats upcalls like all packets, and renews the flow's entry.
//!
//! *Changes.* Each entry has a generation. It contains the generation of the change log, and a count of the
//! other changes that entries depend on: neighbours, routes of route numbers, schedulers. Each command
//! declares its [`Invalidation`], and the worker publishes the new generation before it carries out the
//! command. So once control gets the answer, no packet is treated by the old state. The worker carries over
//! entries that a change in the log does not affect ([`Carry`]). A change of a neighbour or route number that
//! no entry uses changes no generation ([`Uses`]).
//!
//! *Order.* The XDP program uses an entry only when the workers are done with all earlier packets of its flow
//! ([`Quiescence`]). That does not cover packets that wait for the processor or an instance, so the worker removes
//! the entry of their flow (`offer`). The next entry of the flow continues its counts of upcalls (`upcalls`).
//!
//! *Traces and captures.* The start of a trace or capture makes all entries outdated, and entries of observed
//! flows are not renewed until it ends. So the trace or capture sees all packets of these flows. Other flows
//! are offloaded again at once.
//!
//! *Records.* An offloaded flow keeps its flow record, and offloaded packets are added to it (`accounting`).
//! The entry is removed with the record. [`FlowStates`] holds for each record the offload state of its flow.

mod accounting;
mod budget;
mod cache;
mod carry;
mod entry;
mod eviction;
mod flow_state;
mod invalidation;
mod level;
mod offer;
mod plan;
mod quiesce;
mod rate;
mod recent_flows;
mod upcalls;
mod uses;

use std::time::Duration;

pub use budget::{BUDGET, EBPF_VARIANT_CALL, EBPF_VARIANT_LIMIT, FORWARD, TOKEN_BUCKET};
pub use cache::{OffloadPort, WorkerFlowCache};
pub(crate) use invalidation::Invalidation;
pub(crate) use level::Placements;
pub use level::{Level, Placement, StaysUp};
use millrace_classify::{ChangeLog, FlowIndex};
use millrace_forward::NeighbourKey;
use millrace_packet::{FlowKey, OffloadTotals, OffloadedFlow};
use millrace_plugin::Policer;
use millrace_port::Port;
use millrace_units::{Instant, PortId};
pub(crate) use offer::OffloadStage;
pub(crate) use plan::Planner;

use self::accounting::Sweep;
use self::carry::Carry;
use self::entry::{Entry, EntryPhase};
use self::eviction::Asking;
use self::flow_state::{FlowState, FlowStates};
use self::plan::Plan;
use self::quiesce::{DeviceSlots, Quiescence, WorkerState};
use self::uses::Uses;
use crate::handover::Handover;
use crate::ports::{DeviceId, PortTable};

/// Bit that is set in every published generation except [`SUSPENDED`].
const IN_FORCE: u64 = 1 << 63;
/// Generation published while no entry may be used.
const SUSPENDED: u64 = 1;
/// Time after the insertion of an entry during which the entry is not used, because an XDP program may still
/// treat a packet of the flow that it looked up before the insertion.
const SETTLING: Duration = Duration::from_micros(100);
/// Maximum number of entries that an iteration checks.
const ENTRIES_PER_ITERATION: usize = 128;
/// Maximum number of entries that an iteration inserts.
const INSERTS_PER_ITERATION: usize = 128;
/// Time without offloaded packets after which an entry is removed while the flow cache is full.
const IDLE_WHEN_FULL: Duration = Duration::from_secs(1);

/// Counts of offloaded flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OffloadedFlowCounts {
    /// Flows with an entry.
    pub flows: u64,
    /// Free slots.
    pub room: u64,
    /// Entries inserted so far.
    pub inserted: u64,
    /// Entries renewed after a change.
    pub renewed: u64,
    /// Entries removed because they were idle.
    pub idle: u64,
    /// Entries evicted in favour of heavier flows or placed flows.
    pub evicted: u64,
    /// Flows refused because the flow cache had no room; each flow counts once.
    pub refused: u64,
}

/// A worker's offloaded flows.
pub(crate) struct OffloadedFlows {
    cache: Box<dyn WorkerFlowCache>,
    /// Offload capabilities of the ports, by port number.
    ports: Vec<OffloadPort>,
    quiescence: Quiescence,
    placements: Placements,
    /// Entries, by slot in the flow cache.
    entries: Vec<Option<Entry>>,
    states: FlowStates,
    /// Slots of the entries that are settling.
    settling: Vec<u32>,
    /// Number of entries that this iteration may still insert.
    inserts: usize,
    asking: Asking,
    uses: Uses,
    carry: Carry,
    /// Published generation: the XDP program uses only entries of this generation.
    published: u64,
    /// Number of changes that entries depend on and that the change log does not contain.
    other_changes: u32,
    sweep: Sweep,
    counts: OffloadedFlowCounts,
}

impl std::fmt::Debug for OffloadedFlows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OffloadedFlows").field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl OffloadedFlows {
    /// Returns the offload state of a worker, without flows and ports.
    pub fn new(cache: Box<dyn WorkerFlowCache>) -> Self {
        Self {
            cache,
            ports: Vec::new(),
            quiescence: Quiescence::default(),
            placements: Placements::default(),
            entries: Vec::new(),
            states: FlowStates::default(),
            settling: Vec::new(),
            inserts: INSERTS_PER_ITERATION,
            asking: Asking::default(),
            uses: Uses::default(),
            carry: Carry::default(),
            published: SUSPENDED,
            other_changes: 0,
            sweep: Sweep::default(),
            counts: OffloadedFlowCounts::default(),
        }
    }

    /// Counts a change that entries depend on and that the change log does not contain.
    pub fn other_change(&mut self) {
        self.other_changes = self.other_changes.wrapping_add(1);
    }

    /// Sets the offload capabilities of a port.
    pub fn set_port(&mut self, port: PortId, capabilities: OffloadPort) {
        if self.ports.len() <= port.index() {
            self.ports.resize(port.index() + 1, OffloadPort::default());
            self.quiescence.add_port(port);
        }
        if let Some(known) = self.ports.get_mut(port.index()) {
            *known = capabilities;
        }
    }

    fn port(&self, port: PortId) -> OffloadPort {
        self.ports.get(port.index()).copied().unwrap_or_default()
    }

    /// Returns the entry of a slot.
    fn entry(&self, slot: u32) -> Option<&Entry> {
        self.entries.get(slot as usize)?.as_ref()
    }

    fn entry_mut(&mut self, slot: u32) -> Option<&mut Entry> {
        self.entries.get_mut(slot as usize)?.as_mut()
    }

    /// Returns the slot of a flow's entry.
    fn slot_of(&self, flow: FlowIndex, key: &FlowKey) -> Option<u32> {
        match self.states.get(flow) {
            FlowState::Entry(slot) => (self.entry(slot)?.key == *key).then_some(slot),
            FlowState::AtWorker | FlowState::Due | FlowState::KeptUp | FlowState::Refused => None,
        }
    }

    /// Returns whether a flow has a current entry, so that the XDP program treats its packets.
    pub fn has(&self, flow: FlowIndex, key: &FlowKey) -> bool {
        let entry = self.slot_of(flow, key).and_then(|slot| self.entry(slot));
        entry.is_some_and(|entry| entry.is_begun() && entry.generation == self.published)
    }

    /// Sets the placements of flows. The command has made all entries outdated, so the next packet of each
    /// flow is an upcall and applies the flow's placement.
    pub fn place(&mut self, placements: Vec<Placement>) {
        self.placements = Placements::new(placements);
    }

    /// Returns whether a placement matches a flow.
    pub fn is_placed(&self, key: &FlowKey) -> bool {
        self.placements.of(key).is_some()
    }

    /// Returns whether a flow stays at the worker because it had too many upcalls.
    pub fn keeps_up(&self, flow: FlowIndex, key: &FlowKey, now: Instant) -> bool {
        self.states.is_kept_up(flow, key, now)
    }

    /// Returns the contents of a flow cache entry for a plan; `None` if the flow cache has no room for the
    /// token bucket of `policer`.
    fn content(&mut self, plan: &Plan, policer: Option<&Policer>) -> Option<OffloadedFlow> {
        let policer = match policer {
            Some(policer) => Some(self.cache.police(policer)?),
            None => None,
        };
        Some(OffloadedFlow { action: plan.action, policer, variant: plan.steps.variant() })
    }

    /// Inserts the entry of a flow that has none. The XDP program does not use the entry until [`SETTLING`]
    /// is over and the entry has begun. If this iteration has reached its insertion limit, marks the flow as
    /// due instead.
    fn insert(&mut self, entry: Entry, content: &OffloadedFlow) {
        if self.inserts == 0 {
            self.states.set(entry.flow, FlowState::Due);
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
        let upcalls = self.states.begin_entry(entry.flow, &entry.key, slot).unwrap_or(entry.upcalls);
        if let Some(vacant) = self.entries.get_mut(place) {
            *vacant = Some(Entry { upcalls, ..entry });
        }
        self.settling.push(slot);
        self.counts.inserted += 1;
        self.counts.flows += 1;
    }

    /// Counts an upcall of a flow, unless the flow's entry is outdated. Returns whether the entry is current.
    fn count_upcall(&mut self, slot: u32) -> bool {
        let is_current = !self.is_outdated(slot);
        if is_current && let Some(entry) = self.entry_mut(slot).filter(|entry| entry.is_begun()) {
            entry.upcalls.count();
            self.quiescence.request();
        }
        is_current
    }

    /// Removes an entry. Returns the entry, and the counts of all packets that it has treated.
    fn remove(&mut self, slot: u32) -> Option<(Entry, OffloadTotals)> {
        let entry = self.entries.get_mut(slot as usize)?.take()?;
        self.uses.end(&entry.plan);
        let totals = self.cache.remove(&entry.key, slot);
        self.settling.retain(|settling| *settling != slot);
        self.counts.flows -= 1;
        Some((entry, totals))
    }

    /// Returns whether an entry has begun, and has an older generation than the published one.
    fn is_outdated(&self, slot: u32) -> bool {
        self.entry(slot).is_some_and(|entry| entry.generation != self.published && entry.is_begun())
    }

    /// Gives an outdated entry the flow's current plan and the published generation.
    fn renew(&mut self, slot: u32, (plan, content): (Plan, &OffloadedFlow), placed: bool, now: Instant) {
        let generation = self.published;
        let Some(entry) = self.entry_mut(slot) else { return };
        let before = entry.plan;
        (entry.plan, entry.generation, entry.placed, entry.last_used) = (plan, generation, placed, now);
        if before != plan {
            self.uses.begin(&plan);
            self.uses.end(&before);
        }
        self.cache.renew(slot, content, generation);
        self.quiescence.request();
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

    /// Begins the entries whose [`SETTLING`] time is over. If a change has outdated such an entry meanwhile,
    /// the flow's next packet renews the entry.
    fn begin(&mut self, now: Instant) {
        let Self { settling, entries, cache, quiescence, .. } = self;
        settling.retain(|slot| {
            let Some(entry) = entries.get_mut(*slot as usize).and_then(Option::as_mut) else { return false };
            match entry.phase {
                EntryPhase::Settling { until } if until > now => return true,
                EntryPhase::Settling { .. } | EntryPhase::Begun => {}
            }
            entry.phase = EntryPhase::Begun;
            cache.begin(*slot, entry.key.port, entry.generation);
            quiescence.request();
            false
        });
    }

    /// Returns the time of the offload's next task that doesn't wait for a packet; `None` if there is none.
    pub fn next_event(&self, now: Instant) -> Option<Instant> {
        let settled = (!self.settling.is_empty()).then(|| now + SETTLING);
        let sweep = (self.counts.flows > 0).then_some(self.sweep.due);
        let carried = self.carry.is_under_way().then_some(now);
        settled.into_iter().chain(sweep).chain(carried).min()
    }

    /// Returns the counts of offloaded flows.
    pub fn counts(&self) -> OffloadedFlowCounts {
        OffloadedFlowCounts { room: self.cache.room() as u64, ..self.counts }
    }

    /// Records that a neighbour's MAC address has changed. If some entry uses the neighbour, this invalidates
    /// the entries of all flows.
    pub fn neighbour_moved(&mut self, NeighbourKey { port, address }: NeighbourKey) {
        if self.uses.neighbour((port, address)) {
            self.other_change();
        }
    }

    /// Publishes the current generation to the flow cache. To be called at the end of an iteration, and after
    /// each change before the next command.
    pub fn publish_generation(&mut self, log: &ChangeLog) {
        let changes = u64::from(self.other_changes & 0x7fff_ffff) << 32;
        self.publish(IN_FORCE | changes | u64::from(log.current()));
    }

    /// Restarts the upcall counts of a device's ports after the device was opened.
    pub fn device_opened(&mut self, ports: &PortTable, id: DeviceId, device: &dyn Port) {
        let of_device = ports.iter().filter(|(_, entry)| entry.settings.device == id);
        of_device.for_each(|(port, _)| self.quiescence.open(port, device, &*self.cache));
    }

    /// Ends the overload of a device's ports when the device is closed.
    pub fn device_closed(&mut self, ports: &PortTable, id: DeviceId) {
        let of_device = ports.iter().filter(|(_, entry)| entry.settings.device == id);
        of_device.for_each(|(port, _)| self.quiescence.close(port, &*self.cache));
    }

    /// Begins the entries whose settling time is over, and advances the grace period after which entries may
    /// be used. `devices`: devices of the worker, by number.
    fn advance(
        &mut self,
        ports: &PortTable,
        devices: &mut DeviceSlots,
        handover: Option<&mut Handover>,
        now: Instant,
    ) {
        self.inserts = INSERTS_PER_ITERATION;
        self.begin(now);
        let Self { quiescence, cache, ports: capabilities, .. } = self;
        let mut worker = WorkerState { cache: &mut **cache, capabilities, ports, devices, handover };
        quiescence.advance(&mut worker, now);
    }
}
