//! Packets that wait for the processor, and the principals that pay for it.

use std::sync::Arc;
use std::time::Duration;

use millrace_packet::{DropReason, FRAME_SIZE};
use millrace_plugin::{
    AwaitedContext, Grant, InLineCharge, Intake, PassedOn, Place, PrincipalMemory, Served, Waiting,
};
use millrace_schedule::cpu::{
    CpuDrop, CpuFlowAccount, CpuPrincipal, CpuQueueLimits, CpuQueues, CpuScheduleError, CpuScheduler,
    CpuSchedulerSettings, CpuShare, CpuStage,
};
use millrace_units::{Cycles, Instant, PathId, PrincipalId, QueueId};

use crate::pending::control_work::ControlWork;
use crate::pending::core_time::{self, CoreTime};
use crate::pending::extracted::Extracted;
use crate::pending::grants::Grants;
use crate::pending::known_principal::{Known, Slice, StageCost, flow_number};
use crate::pending::loads::PrincipalLoads;
use crate::pending::principal_counts::{DeadlineCounts, PrincipalCounts, PrincipalDrops};

/// Limits of all packets of a worker that wait for the processor.
const LIMITS: CpuQueueLimits = CpuQueueLimits { packets: 1 << 14, bytes: 1 << 25, flows: 1 << 13 };
/// Maximum number of packets in a slice.
const MOST_IN_SLICE: u64 = 64;
/// Time until flows that were set aside are looked at again.
const LOOK: Duration = Duration::from_micros(200);
/// Time after a packet of a principal for which the receive rings must have room for its next packets.
const ACTIVE: Duration = Duration::from_secs(1);

/// Settings of a principal at a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrincipalSettings {
    /// Share of the processor.
    pub cpu: CpuPrincipal,
    /// Maximum number of bytes that wait in a flow queue.
    pub queue: u32,
    /// Queue at ports; 0 for none.
    pub link_queue: QueueId,
}

/// Principals of a worker: their shares of the processor, and the packets that wait for it.
#[derive(Debug)]
pub(crate) struct ForProcessor {
    pub core: CoreTime,
    pub control: ControlWork,
    pub scheduler: CpuScheduler,
    loads: Arc<PrincipalLoads>,
    queues: CpuQueues<Waiting>,
    /// Principals in ascending order of ids.
    principals: Vec<Known>,
    /// Time of the last packet that a principal pays for.
    latest: Option<Instant>,
    /// Packets that have begun to wait. Scratch memory.
    pub arrived: Vec<Waiting>,
    grants: Grants,
}

impl ForProcessor {
    /// Creates queues without principals. `loads`: where control reads their work; `frames`: packet memory of the
    /// worker, of which half may wait; `seed` keys the hash of flows.
    pub fn new(
        settings: CpuSchedulerSettings,
        loads: Arc<PrincipalLoads>,
        (frames, seed): (u32, u64),
    ) -> Self {
        let packets = LIMITS.packets.min(frames / 2).max(1);
        let (bytes, flows) = (LIMITS.bytes.min(packets * FRAME_SIZE as u32), LIMITS.flows);
        Self {
            loads,
            core: CoreTime::default(),
            control: ControlWork::new(),
            queues: CpuQueues::new(CpuQueueLimits { packets, bytes, flows }, settings.quantum, seed),
            scheduler: CpuScheduler::new(settings),
            principals: Vec::new(),
            latest: None,
            arrived: Vec::new(),
            grants: Grants::default(),
        }
    }

    /// Adds a principal, or changes its settings.
    ///
    /// # Errors
    /// When a setting is invalid, or the absolute shares exceed the capacity.
    pub fn set(
        &mut self,
        id: PrincipalId,
        settings: PrincipalSettings,
        now: Instant,
    ) -> Result<(), CpuScheduleError> {
        self.loads.reserve(id);
        match self.principals.binary_search_by_key(&id, |known| known.id) {
            Ok(place) => {
                self.scheduler.change(id, settings.cpu, now)?;
                if let Some(known) = self.principals.get_mut(place) {
                    known.settings = settings.cpu;
                }
            }
            Err(place) => {
                self.scheduler.add(id, settings.cpu)?;
                self.principals.insert(place, Known::new(id, settings.cpu));
            }
        }
        self.queues.set(id, settings.queue);
        Ok(())
    }

    /// Changes this worker's part of the share of a principal, if that is possible. Others may have to leave
    /// their part first.
    pub fn share(&mut self, id: PrincipalId, cpu: CpuPrincipal, now: Instant) {
        // A part that does not fit yet comes again in the next round.
        let _ = self.scheduler.change(id, cpu, now);
    }

    /// Removes a principal. None of its packets may wait.
    pub fn remove(&mut self, id: PrincipalId) {
        self.queues.remove(id, |_, _, _| {});
        // Unknown principals have nothing to remove.
        let _ = self.scheduler.remove(id);
        self.grants.forget(id);
        self.principals.retain(|known| known.id != id);
    }

    /// Takes the packets that `is_wanted` accepts out of their queues, and returns them in the order in which they may
    /// continue: in a flow, packets of late stages come first. `is_in_line`: whether the calls of a packet's stage can run
    /// in line. Flows that were set aside go on if their principal has lost packets.
    pub fn extract(
        &mut self,
        is_wanted: impl Fn(&Waiting) -> bool,
        is_in_line: impl Fn(&Waiting) -> bool,
        now: Instant,
    ) -> Vec<Extracted> {
        let mut extracted = Vec::new();
        if self.queues.iter().any(&is_wanted) {
            self.queues.extract(
                |_, waiting| is_wanted(waiting),
                |order, arrival, waiting| extracted.push(Extracted::queued(order, arrival, waiting)),
            );
            extracted.sort_by_key(Extracted::turn);
            for known in &self.principals {
                self.loads.set_waiting(known.id, self.queues.load(known.id).0);
                if self.queues.is_ready(known.id) {
                    self.scheduler.wake(known.id, now);
                }
            }
        }
        self.principals.iter_mut().for_each(|known| known.held_back = 0);
        for waiting in self.queues.iter().filter(|waiting| is_in_line(waiting)) {
            let known = waiting.payer.and_then(|payer| known_mut(&mut self.principals, payer));
            known.into_iter().for_each(|known| known.held_back += 1);
        }
        extracted
    }

    /// Queues a packet at a stage, whose calls may be such as can run `in_line`. Its principal has work from now on.
    ///
    /// # Errors
    /// The packet with the reason to drop it, if too many wait, or it has no known principal.
    #[expect(clippy::result_large_err, reason = "the packet comes by value, and goes back by value")]
    pub fn push(
        &mut self,
        waiting: Waiting,
        (stage, in_line): (CpuStage, bool),
        now: Instant,
    ) -> Result<(), (Waiting, DropReason)> {
        let Some(payer) = waiting.payer else { return Err((waiting, DropReason::PrincipalQueueFull)) };
        let flow = flow_number(waiting.packet.hash, payer);
        let length = waiting.packet.len() as u32;
        self.queues.push(payer, (flow, stage), (waiting, length), now).map_err(
            |(waiting, why)| match why {
                CpuDrop::Part => (waiting, DropReason::PrincipalPart),
                CpuDrop::Threshold | CpuDrop::Principal => (waiting, DropReason::PrincipalQueueFull),
            },
        )?;
        self.loads.set_waiting(payer, self.queues.load(payer).0);
        if in_line {
            self.known_mut(payer).into_iter().for_each(|known| known.held_back += 1);
        }
        self.latest = Some(now);
        // A flow that is set aside has no work.
        if self.queues.is_ready(payer) {
            self.scheduler.wake(payer, now);
        }
        Ok(())
    }

    /// Returns the stage whose packets run in the principal's next slice, and the instance there, with the arrival of
    /// the first packet. Their flow is the running one from now on.
    #[inline]
    pub fn next_entry(&mut self, id: PrincipalId, now: Instant) -> Option<((Place, PassedOn), Instant)> {
        let first = self.queues.first(id)?;
        let (entry, flow, arrival) =
            (first.entry(), flow_number(first.packet.hash, id), self.queues.first_arrival(id)?);
        if let Some(known) = self.known_mut(id) {
            known.flow = flow;
            if let Some(deadline) = known.settings.deadline {
                let count = if now.since(arrival) <= deadline { &mut known.met } else { &mut known.missed };
                *count += 1;
            }
        }
        Some((entry, arrival))
    }

    /// Returns the stages at which packets of the principal's running flow wait, by their order.
    #[inline]
    pub fn occupied(&self, id: PrincipalId) -> impl Iterator<Item = u32> {
        let flow = self.known(id).map(|known| known.flow);
        flow.into_iter().flat_map(move |flow| self.queues.occupied(id, flow))
    }

    /// Returns the first packet of the principal's flow whose turn it is; `None` if no packet can go on.
    #[inline]
    pub fn first(&self, id: PrincipalId) -> Option<&Waiting> {
        self.queues.first(id)
    }

    /// Sets the flow whose turn it is aside, because its port or its instance doesn't take its packets yet.
    pub fn set_aside(&mut self, id: PrincipalId) {
        self.queues.set_aside(id);
    }

    /// Charges the ended calls of other processes to their principals.
    pub fn charge_served(&mut self, served: impl Iterator<Item = Served>) {
        served.for_each(|call| self.grants.charge(call));
    }

    /// Charges calls in line to the principal that pays. Returns whether it is ahead of its share then.
    pub fn charge_in_line(&mut self, charge: InLineCharge, now: Instant) -> bool {
        let InLineCharge { payer, used, packets } = charge;
        self.scheduler.charge(payer, used, now);
        self.loads.add_used(payer, used);
        self.known_mut(payer).into_iter().for_each(|known| known.packets += packets);
        self.latest = Some(now);
        self.scheduler.is_ahead(payer)
    }

    /// Notes that packets have left the queue of a stage whose calls can run in line.
    pub fn let_go(&mut self, payer: PrincipalId, packets: u64) {
        let known = self.known_mut(payer).into_iter();
        known.for_each(|known| known.held_back = known.held_back.saturating_sub(packets as u32));
    }

    /// Returns the principals whose packets wait at stages whose calls can run in line.
    pub fn held_back(&self) -> impl Iterator<Item = PrincipalId> {
        self.principals.iter().filter(|known| known.held_back > 0).map(|known| known.id)
    }

    /// Whether a principal that is held back stays so: it is ahead of its share, or packets wait that later ones must not
    /// overtake.
    pub fn holds_back(&self, payer: PrincipalId) -> bool {
        self.known(payer).is_some_and(|known| known.held_back > 0) || self.scheduler.is_ahead(payer)
    }

    /// Lets flows that were set aside go on as [`Grants::look_aside`] does.
    pub fn look_aside(
        &mut self,
        looks: (impl Fn(&Waiting) -> Intake, impl Fn(&AwaitedContext) -> Option<bool>),
        now: Instant,
    ) {
        let Self { scheduler, grants, queues, .. } = self;
        let woken = grants.look_aside(queues, looks, scheduler, now);
        woken.for_each(|payer| scheduler.wake(payer, now));
    }

    /// Whether packets of a principal go on to a context now: the context `takes` packets, and it is the turn of the
    /// principal.
    pub fn takes_turn(&mut self, context: AwaitedContext, payer: PrincipalId, takes: bool) -> bool {
        self.grants.takes_turn(context, payer, takes, &self.scheduler)
    }

    /// Takes packets of one flow at a stage for a slice of the principal, and gives them to `out`. Returns
    /// their number. `cost`: cycles of a packet; `None` takes one packet. `most`: maximum number of packets.
    pub fn take(
        &mut self,
        (id, entry): (PrincipalId, (Place, PassedOn)),
        (cost, most): (Option<Cycles>, u64),
        mut out: impl FnMut(Waiting),
    ) -> u64 {
        let Cycles(quantum) = self.scheduler.settings().quantum;
        let in_slice = cost.map_or(1, |Cycles(cost)| (quantum / cost.max(1)).clamp(1, MOST_IN_SLICE));
        let most = most.min(in_slice);
        let taken = std::cell::Cell::new(0);
        self.queues.take(
            id,
            |next| taken.get() < most && next.entry() == entry,
            |waiting| {
                taken.set(taken.get() + 1);
                out(waiting);
            },
        );
        taken.get()
    }

    /// Charges a slice to its principal, and to the flow and the stage whose turn it was. Their turn lasts until the end
    /// of the call that it began. Returns the cost of the packets of a call that has ended.
    pub fn charge(&mut self, slice: Slice, now: Instant) -> Option<StageCost> {
        let Slice { payer, used, is_unfinished, .. } = slice;
        self.scheduler.charge(payer, used, now);
        self.loads.add_used(payer, used);
        self.loads.set_waiting(payer, self.queues.load(payer).0);
        let (owed, cost) = self.known_mut(payer).map_or((used, None), |known| known.note(&slice, now));
        if !is_unfinished {
            self.queues.charge(payer, owed);
        }
        self.queues.prefetch(self.scheduler.prefetch_upcoming());
        cost
    }

    /// Whether no packet waits, and no principal has a call or an event that is due.
    #[inline]
    pub fn is_idle(&self, now: Instant) -> bool {
        self.queues.is_empty() && (self.scheduler.is_quiet() || self.has_nothing_due(now))
    }

    /// Whether no principal has a call or an event that is due. Outlined, so that iterations without principals in
    /// the scheduler save no registers for it.
    #[inline(never)]
    fn has_nothing_due(&self, now: Instant) -> bool {
        !self.scheduler.has_work() && self.scheduler.next_event().is_none_or(|event| event > now)
    }

    /// Ends an iteration at `now` that took `elapsed` cycles: charges control and core. `is_alone`: whether no principal
    /// had work. Returns whether the principals are at rest from now on.
    #[inline(never)]
    pub fn end(&mut self, elapsed: u64, is_alone: bool, now: Instant) -> bool {
        self.end_control(elapsed);
        if !is_alone {
            self.core.end(elapsed, self.scheduler.has_work(), self.scheduler.settings());
            return false;
        }
        self.core.end_alone(elapsed);
        self.latest = self.latest.filter(|latest| now.since(*latest) < ACTIVE);
        let nobody_waits = self.arrived.is_empty() && self.queues.is_empty() && self.control.is_at_rest();
        nobody_waits && self.latest.is_none() && self.scheduler.is_quiet() && self.core.is_at_rest()
    }

    /// Ends an iteration that took `elapsed` cycles for control, and leaves the rest to core.
    fn end_control(&mut self, elapsed: u64) {
        let settings = self.scheduler.settings();
        let share = (core_time::share(settings).unsigned_abs(), settings.quantum);
        let work = self.control.work();
        let used = self.control.end(elapsed, self.scheduler.has_work(), share);
        self.core.count_control(used, work);
    }

    /// Notes that a device or worker had a full batch, as [`CoreTime::note_full`] does. Without packets of
    /// principals, there is nothing to protect.
    #[inline]
    pub fn note_full(&mut self, is_full: bool) {
        self.control.note_full();
        if self.latest.is_some() {
            self.core.note_full(is_full);
        }
    }

    /// Ends the reception of an iteration.
    #[inline]
    pub fn end_reception(&mut self, now: Instant) {
        if self.core.has_full_batches() {
            self.end_full_batches(now);
        }
    }

    #[cold]
    fn end_full_batches(&mut self, now: Instant) {
        let is_active = self.latest.is_some_and(|latest| now.since(latest) < ACTIVE);
        if !is_active {
            self.latest = None;
        }
        self.core.end_reception(is_active, now);
    }

    /// Whether an overloaded worker sheds packets that a principal pays for.
    #[inline]
    pub fn sheds(&self, payer: PrincipalId) -> bool {
        match self.known(payer).map(|known| known.settings.share) {
            Some(CpuShare::Weight(weight)) => self.core.sheds_weight(weight),
            Some(CpuShare::Absolute(_)) | None => false,
        }
    }

    /// Counts a shed packet for the principal that pays for a stage of its path.
    pub fn note_shed(&mut self, payer: PrincipalId) {
        self.known_mut(payer).into_iter().for_each(|known| known.shed += 1);
    }

    /// Returns the account of a flow's queue under a principal; `None` if the flow has no queue of its own.
    /// `hash`: the hash by which queues know the flow.
    pub fn account(&self, id: PrincipalId, hash: u32) -> Option<CpuFlowAccount> {
        self.queues.account(id, flow_number(hash, id))
    }

    /// Whether packets of the principal can go on once it has the processor.
    pub fn is_ready(&self, id: PrincipalId) -> bool {
        self.queues.is_ready(id)
    }

    /// Returns the bytes of the packets that wait for a principal.
    #[inline]
    pub fn waiting_bytes(&self, id: PrincipalId) -> u64 {
        self.queues.load(id).1
    }

    /// Returns a grant of processor time to a principal, with its packets that wait now.
    #[inline]
    pub fn grant(&self, id: PrincipalId, time: Cycles) -> Grant {
        let (packets, bytes, _) = self.queues.load(id);
        Grant { packets, bytes, time, frequency: self.scheduler.settings().frequency }
    }

    /// Returns the number of waiting packets.
    pub fn len(&self) -> usize {
        self.queues.len() + self.arrived.len() + self.control.len()
    }

    /// Returns the paths of the waiting packets: of their stages, and of the bindings that count them.
    pub fn paths(&self) -> impl Iterator<Item = PathId> {
        self.queues.iter().flat_map(|waiting| [waiting.place.path, waiting.packet.counts_for])
    }

    /// Returns the counters of each principal, of core and of control, at `now`.
    pub fn counts(
        &self,
        memory: &PrincipalMemory,
        now: Instant,
    ) -> impl Iterator<Item = (PrincipalId, PrincipalCounts)> {
        let principals = self.principals.iter().map(move |known| {
            let (waiting, waiting_bytes, dropped) = self.queues.load(known.id);
            let memory = memory.account(known.id);
            let account = self.scheduler.account(known.id, now).unwrap_or_default();
            let counts = PrincipalCounts {
                used: account.used,
                backlogged: account.backlogged,
                backlogged_sum: account.backlogged,
                periods: account.periods,
                throttled: account.throttled,
                packets: known.packets,
                waiting: waiting + memory.suspended_packets as u32,
                waiting_bytes: waiting_bytes + memory.suspended,
                handover_bytes: 0,
                state_bytes: memory.state,
                plugin_bytes: memory.plugin,
                memory_refusals: memory.refused,
                drops: PrincipalDrops {
                    queue: dropped,
                    memory: memory.dropped,
                    core_ceiling: known.shed,
                    handover: 0,
                },
                deadlines: DeadlineCounts { met: known.met, missed: known.missed },
                longest_wait: known.longest_wait,
            };
            (known.id, counts)
        });
        principals.chain([
            (PrincipalId::CORE, self.core.principal_counts()),
            (PrincipalId::CONTROL, self.control.counts()),
        ])
    }

    /// Returns the time at which a principal next gets the processor: `now` if one has work.
    #[inline]
    pub fn next_event(&self, now: Instant) -> Option<Instant> {
        // Flows that were set aside have no event of their own.
        let is_quiet = self.scheduler.is_quiet();
        if self.control.len() > 0 {
            return Some(now);
        }
        if is_quiet && !self.queues.are_set_aside() {
            return None;
        }
        let look = self.queues.are_set_aside().then(|| now + LOOK);
        if is_quiet {
            return look;
        }
        match self.scheduler.has_work() {
            true => Some(now),
            false => self.scheduler.next_event().into_iter().chain(look).min(),
        }
    }

    fn known(&self, id: PrincipalId) -> Option<&Known> {
        self.principals.get(self.principals.binary_search_by_key(&id, |known| known.id).ok()?)
    }

    fn known_mut(&mut self, id: PrincipalId) -> Option<&mut Known> {
        known_mut(&mut self.principals, id)
    }
}

fn known_mut(principals: &mut [Known], id: PrincipalId) -> Option<&mut Known> {
    let place = principals.binary_search_by_key(&id, |known| known.id).ok()?;
    principals.get_mut(place)
}
