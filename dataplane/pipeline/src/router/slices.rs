//! Slices of the processor: after the core work of an iteration, principals run the packets that wait for
//! them, in the order of the CPU scheduler.

use std::collections::{BTreeSet, HashSet};

use millrace_packet::DropReason;
use millrace_plugin::{
    Intake, Paid, PaidStage, PaidStages, PassedOn, Payers, Place, PrincipalMemory, Released, Waiting,
};
use millrace_schedule::cpu::CpuStage;
use millrace_units::{Cycles, Instant, PrincipalId, QueueId};

use crate::gates::Gates;
use crate::pending::Pending;
use crate::pending::core_time::Allowance;
use crate::pending::extracted::Extracted;
use crate::pending::for_processor::ForProcessor;
use crate::pending::known_principal::{Slice, StageCost};
use crate::router::Router;
use crate::tsc::cycles;
use crate::work::Work;

/// Cycles charged for a packet on processors without a time-stamp counter.
const NOMINAL: u64 = 1000;
/// Maximum number of flows that are set aside in a slice.
const MOST_SET_ASIDE: u32 = 32;
/// Maximum number of waiting packets that pass at once after a change of bindings. A port's queue has room for
/// 1,000 packets by default.
const MOST_AT_ONCE: usize = 256;

/// Core work of an iteration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CoreWork {
    /// Reading of the time-stamp counter at the start of the iteration.
    pub begun: Option<u64>,
    /// Whether the iteration received packets.
    pub received: bool,
    /// Whether no principal had work in the iteration. [`Router::run_principals`] finds out.
    pub is_alone: bool,
}

impl CoreWork {
    /// Ends the iteration at `now`: counts the time of core.
    #[inline]
    pub fn end(self, router: &mut Router, now: Instant) {
        match self.begun.zip(cycles()) {
            Some((begun, end)) => {
                router.pending.for_processor.end(end.saturating_sub(begun), self.is_alone, now);
            }
            None => router.pending.for_processor.end_unmeasured(),
        }
    }
}

impl Router {
    /// Gives the processor to principals with waiting packets, up to their allowance of this iteration. `arrivals`: whether
    /// frames wait in receive rings; `None` if not all devices can tell. Returns whether any principal ran.
    #[inline]
    pub(crate) fn run_principals(
        &mut self,
        core: &mut CoreWork,
        arrivals: &dyn Fn() -> Option<bool>,
        now: Instant,
    ) -> bool {
        if !self.pending.for_processor.exist() {
            return false;
        }
        let is_idle = self.pending.for_processor.active().is_none_or(|waiting| waiting.is_idle(now));
        core.is_alone = is_idle && !Paid::of(self.gates.plugins()).wants_processor();
        let must_run = !core.is_alone || self.pending.driver.is_due(now);
        must_run && Slices::of(self).run(*core, arrivals, now)
    }
}

/// Stage whose packets run in a slice.
#[derive(Clone, Copy, Debug)]
struct Turn {
    /// Place of the stage, and the instance there.
    entry: (Place, PassedOn),
    /// The stage; `None` if its binding was removed.
    stage: Option<PaidStage>,
    /// Maximum number of packets.
    most: u64,
    /// Arrival of the first packet.
    arrival: Instant,
}

/// Slice that has ended.
#[derive(Clone, Copy, Debug)]
struct Ran {
    /// Stage of the packets that left the queue.
    stage: Option<PaidStage>,
    /// Number of these packets.
    packets: u64,
    /// Earliest time at which one of the packets began to wait whose calls have ended.
    since: Option<Instant>,
}

/// Principals of a router, with the router whose packets they run.
pub(crate) struct Slices<'a> {
    router: &'a mut Router,
}

impl<'a> Slices<'a> {
    pub fn of(router: &'a mut Router) -> Self {
        Self { router }
    }

    #[inline(never)]
    fn run(&mut self, core: CoreWork, arrivals: &dyn Fn() -> Option<bool>, now: Instant) -> bool {
        let Some(mut waiting) = self.router.pending.for_processor.take() else { return false };
        // Before others begin to compete: time that nobody else wanted is free.
        self.charge_in_driver(&mut waiting, now);
        self.queue_for_processor(&mut waiting, now);
        self.look_aside(&mut waiting, now);
        let settings = *waiting.scheduler.settings();
        let start = cycles();
        let Cycles(in_line) = self.charge_in_line(&mut waiting, now);
        let used = core.begun.zip(start).map_or(0, |(begun, now)| now.saturating_sub(begun));
        let used = used.saturating_sub(in_line);
        let allowance = waiting.core.allowance(used, core.received, &settings);
        let (mut elapsed, mut ran, mut time) = (Cycles(0), false, now);
        while let Some(left) = self.left(allowance, arrivals, elapsed)
            && let Some(payer) = waiting.scheduler.next(time)
        {
            let paying = Paid::of(self.router.gates.plugins()).blocker_of(payer).unwrap_or(payer);
            let granted = settings.quantum.min(left);
            let Ran { stage, packets, since: arrival } =
                self.run_slice(&mut waiting, (paying, granted), time);
            let before = elapsed;
            elapsed = since(start, before, packets);
            time = now + elapsed.at(settings.frequency);
            let of_others = self.charge_in_line(&mut waiting, time);
            let used = Cycles((elapsed - before).0.saturating_sub(of_others.0));
            let is_unfinished = Paid::of(self.router.gates.plugins()).has_call_of(paying);
            let stage = stage.map(|stage| stage.binding);
            let slice = Slice { payer: paying, used, stage, packets, is_unfinished, since: arrival };
            if let Some(StageCost { binding, used, packets }) = waiting.charge(slice, time) {
                self.router.gates.plugins_mut().bindings.note_cost(binding, used, packets);
            }
            self.queue_for_processor(&mut waiting, time);
            for ran in [paying, payer] {
                if !waiting.is_ready(ran) && !Paid::of(self.router.gates.plugins()).has_call_of(ran) {
                    waiting.scheduler.sleep(ran, time);
                }
            }
            ran = true;
        }
        Payers::of(self.router.gates.plugins_mut()).keep_held_back(|payer| waiting.holds_back(*payer));
        waiting.core.count_principals(elapsed + Cycles(in_line));
        self.router.pending.for_processor.put(waiting);
        ran
    }

    /// Returns the time that is left of an allowance after `elapsed`; `None` if none is left, because a receive ring needs
    /// service, or the ring of another worker. Looks at the rings only when they decide.
    fn left(
        &self,
        allowance: Allowance,
        arrivals: &dyn Fn() -> Option<bool>,
        elapsed: Cycles,
    ) -> Option<Cycles> {
        let of_workers = || self.router.handover.as_ref().is_some_and(|handover| handover.has_arrivals());
        let arrived = || if of_workers() { Some(true) } else { arrivals() };
        let least = allowance.until(Some(true));
        let whole = if elapsed < least { least } else { allowance.until(arrived()) };
        (elapsed < whole).then(|| whole - elapsed)
    }

    /// Charges the calls in line since the last time to the principals that pay. Holds back those that are ahead of
    /// their share then. Returns the time of the calls.
    fn charge_in_line(&mut self, waiting: &mut ForProcessor, now: Instant) -> Cycles {
        let mut sum = Cycles(0);
        Payers::of(self.router.gates.plugins_mut()).settle_in_line(|charge| {
            sum += charge.used;
            waiting.charge_in_line(charge, now)
        });
        sum
    }

    /// Charges the time of eBPF variants to the principals that pay. Holds back those that are ahead of their share then.
    fn charge_in_driver(&mut self, waiting: &mut ForProcessor, now: Instant) {
        let Router { gates, pending, .. } = &mut *self.router;
        let (mut payers, Pending { driver, loads, .. }) = (Payers::of(gates.plugins_mut()), pending);
        if driver.is_due(now) {
            let settings = *waiting.scheduler.settings();
            driver.charge(&settings, now, |payer, used, end| {
                waiting.scheduler.charge(payer, used, end);
                loads.add_used(payer, used);
            });
            // The choice lets principals go on whose limit has let them wait meanwhile.
            let _ = waiting.scheduler.next(now);
            let ahead = driver.payers().filter(|payer| waiting.scheduler.is_ahead(*payer));
            ahead.for_each(|payer| payers.hold_back(payer));
            driver.forget_paid();
        }
        payers.take_in_driver().for_each(|charge| driver.add(charge, now));
    }

    /// Lets flows that were set aside go on.
    fn look_aside(&mut self, waiting: &mut ForProcessor, now: Instant) {
        waiting.charge_served(Payers::of(self.router.gates.plugins_mut()).take_served());
        let stages = PaidStages::of(self.router.gates.plugins());
        let intake = |first: &Waiting| self.intake(first, stages.at(first.place));
        waiting.look_aside((intake, |context: &_| stages.takes(context)), now);
    }

    /// Runs a slice of a principal: a suspended call, or packets of one flow.
    fn run_slice(
        &mut self,
        waiting: &mut ForProcessor,
        (payer, granted): (PrincipalId, Cycles),
        now: Instant,
    ) -> Ran {
        let resumes = Paid::of(self.router.gates.plugins()).has_call_of(payer);
        let turn = if resumes { None } else { self.next_turn(waiting, payer, now) };
        let mut payers = Payers::of(self.router.gates.plugins_mut());
        payers.set_running(Some(payer));
        payers.begin_turn(turn.map(|turn| (turn.entry.0, turn.arrival)), waiting.occupied(payer));
        let packets = match turn {
            Some(turn) => self.run_packets(waiting, (payer, granted), turn, now),
            None if resumes => {
                payers.grant(waiting.grant(payer, granted));
                self.router.resume_kept(now);
                0
            }
            None => 0,
        };
        // What the calls leave behind belongs to their turn.
        self.router.follow_up(now);
        if self.router.gate_run().take_made(Some(payer)) {
            self.router.follow_up(now);
        }
        let mut payers = Payers::of(self.router.gates.plugins_mut());
        let since = payers.end_turn();
        payers.set_running(None);
        let own = turn.filter(|turn| !turn.entry.1.is_passed());
        Ran { stage: own.and_then(|turn| turn.stage), packets, since }
    }

    /// Returns the stage whose packets run next. Sets flows aside whose port or instance does not take their
    /// packets, a limited number of them.
    fn next_turn(&mut self, waiting: &mut ForProcessor, payer: PrincipalId, now: Instant) -> Option<Turn> {
        for _ in 0..MOST_SET_ASIDE {
            let first = waiting.first(payer)?;
            let stage = PaidStages::of(self.router.gates.plugins()).at(first.place);
            let Intake { most, awaited } = self.intake(first, stage);
            let goes_on = awaited.map_or(most > 0, |context| waiting.takes_turn(context, payer, most > 0));
            if goes_on {
                let (entry, arrival) = waiting.next_entry(payer, now)?;
                return Some(Turn { entry, stage, most, arrival });
            }
            waiting.set_aside(payer);
        }
        None
    }

    /// Returns how many packets of a packet's flow may leave a stage now.
    fn intake(&self, first: &Waiting, stage: Option<PaidStage>) -> Intake {
        let mut intake = PaidStages::of(self.router.gates.plugins()).intake(first);
        intake.most = intake.most.min(self.pulls(first, stage));
        intake
    }

    /// Returns how many packets of a packet's flow the port takes: all, unless its scheduler pulls them.
    fn pulls(&self, first: &Waiting, stage: Option<PaidStage>) -> u64 {
        let Some(queue) = stage.and_then(|stage| stage.pulled_by) else { return u64::MAX };
        let port = self.router.ports.get(first.packet.out_port).filter(|port| port.is_here);
        let scheduler = port.and_then(|port| port.scheduler.as_ref());
        let queue = if first.packet.queue == QueueId(0) { queue } else { first.packet.queue };
        scheduler.map_or(u64::MAX, |scheduler| scheduler.pulls(&first.packet, queue).into())
    }

    /// Takes packets of one flow from the queue of a stage through their path, up to the next stage at which
    /// they wait. Returns their number.
    fn run_packets(
        &mut self,
        waiting: &mut ForProcessor,
        (payer, granted): (PrincipalId, Cycles),
        Turn { entry, stage, most, .. }: Turn,
        now: Instant,
    ) -> u64 {
        let cost = stage.and_then(|stage| stage.cost).filter(|_| self.router.observation.trace.is_none());
        let mut work = std::mem::take(&mut self.router.scratch.spare);
        work.begin();
        let packets = waiting.take((payer, entry), (cost, most), |packet| {
            self.router.gate_run().add_released(&mut work, Released::on(packet));
        });
        self.memory().set_queued(payer, waiting.waiting_bytes(payer));
        self.note_arrivals(&work);
        Payers::of(self.router.gates.plugins_mut()).grant(waiting.grant(payer, granted));
        self.resume_at((entry, stage.map_or(0, |stage| stage.order)), &mut work, now);
        self.router.scratch.spare = work;
        if stage.is_some_and(|stage| stage.in_line) {
            waiting.let_go(payer, packets);
        }
        packets
    }

    /// Records a batch for a report after a panic, in place of the batch received last.
    fn note_arrivals(&mut self, work: &Work) {
        let port = work.packets.first().and_then(|packet| self.router.ports.get(packet.port));
        self.router.arrivals.1 = port.map(|port| port.settings.device);
        self.router.arrivals.0.note(&work.packets);
    }

    /// Passes packets of one entry through the stages from there. `reached`: rank of the first gate that they have not
    /// passed; 0 if the entry tells it.
    fn resume_at(&mut self, (entry, reached): ((Place, PassedOn), u32), work: &mut Work, now: Instant) {
        Payers::of(self.router.gates.plugins_mut()).enter(Some(entry));
        self.router.resume_at((entry.0, reached), work, now);
        Payers::of(self.router.gates.plugins_mut()).enter(None);
    }

    /// Queues the packets that have begun to wait for the processor, and wakes the principals of calls.
    fn queue_for_processor(&mut self, waiting: &mut ForProcessor, now: Instant) {
        let mut arrived = std::mem::take(&mut waiting.arrived);
        Payers::of(self.router.gates.plugins_mut()).take_waiting(&mut arrived);
        let mut latest = None;
        for packet in arrived.drain(..) {
            let (payer, length) = (packet.payer.unwrap_or(PrincipalId::CORE), packet.packet.len() as u64);
            if !self.memory().admits(payer, length) {
                self.router.disposal().drop_waiting(packet, DropReason::PrincipalMemory);
                continue;
            }
            let stage = match latest {
                Some((place, stage)) if place == packet.place => stage,
                _ => self.stage_of(packet.place),
            };
            latest = Some((packet.place, stage));
            match waiting.push(packet, stage, now) {
                Ok(()) => self.memory().set_queued(payer, waiting.waiting_bytes(payer)),
                Err((refused, why)) => self.router.disposal().drop_waiting(refused, why),
            }
        }
        waiting.arrived = arrived;
        for payer in Paid::of(self.router.gates.plugins()).payers() {
            waiting.scheduler.wake(payer, now);
        }
    }

    #[inline]
    fn memory(&mut self) -> &mut PrincipalMemory {
        Payers::memory(self.router.gates.plugins_mut())
    }

    /// Returns a stage for the queues, and whether its calls can run in line.
    fn stage_of(&self, place: Place) -> (CpuStage, bool) {
        let stage = PaidStages::of(self.router.gates.plugins()).at(place);
        let of = |stage: PaidStage| (CpuStage { order: stage.order, weight: stage.weight }, stage.in_line);
        stage.map_or((CpuStage::ONLY, false), of)
    }

    /// Continues the waiting packets whose stage has ended in a change of bindings, or has another payer now, or none,
    /// and packets that instances of ended stages have `held`, each with the rank of its stage. All others keep their
    /// places.
    pub fn requeue(&mut self, held: Vec<(u32, Waiting)>, now: Instant) {
        let mut packets: Vec<Extracted> = held.into_iter().map(Extracted::held).collect();
        let Some(mut waiting) = self.router.pending.for_processor.take() else {
            return self.continue_each(packets, now);
        };
        let stages = PaidStages::of(self.router.gates.plugins());
        let must_leave = |packet: &Waiting| stages.payer_at(packet.place) != packet.payer;
        let leaving = self.extract(&mut waiting, must_leave, now);
        self.hold_back(&waiting, &leaving);
        packets.extend(leaving);
        packets.sort_by_key(Extracted::turn);
        self.continue_all(&mut waiting, packets, now);
        self.router.pending.for_processor.put(waiting);
    }

    /// Holds principals back whose packets wait, or leave their queues, before calls that can run in line from now on:
    /// later packets must not overtake them.
    fn hold_back(&mut self, waiting: &ForProcessor, leaving: &[Extracted]) {
        let stages = PaidStages::of(self.router.gates.plugins());
        let payer_in_line = |Extracted { waiting: Waiting { place, .. }, .. }: &Extracted| {
            stages.at(*place).filter(|stage| stage.in_line).and_then(|_| stages.payer_at(*place))
        };
        let leaving = leaving.iter().filter_map(payer_in_line);
        let payers: BTreeSet<PrincipalId> = leaving.chain(waiting.held_back()).collect();
        let mut all = Payers::of(self.router.gates.plugins_mut());
        payers.into_iter().for_each(|payer| all.hold_back(payer));
    }

    /// Drops the packets that wait for a principal.
    pub fn drop_waiting(&mut self, id: PrincipalId, now: Instant) {
        let Some(mut waiting) = self.router.pending.for_processor.take() else { return };
        for packet in self.extract(&mut waiting, |packet| packet.payer == Some(id), now) {
            self.router.disposal().drop_waiting(packet.waiting, DropReason::PrincipalReleased);
        }
        self.memory().set_queued(id, 0);
        self.router.pending.for_processor.put(waiting);
    }

    /// Removes a principal. Its waiting packets continue, as after a change of bindings.
    pub fn remove(&mut self, id: PrincipalId, now: Instant) {
        let Some(mut waiting) = self.router.pending.for_processor.take() else { return };
        let packets = self.extract(&mut waiting, |packet| packet.payer == Some(id), now);
        waiting.remove(id);
        Payers::of(self.router.gates.plugins_mut()).forget(id);
        self.memory().forget(id);
        self.router.pending.driver.forget(id);
        self.router.pending.from_plugins.forget(id);
        self.router.handover.as_mut().into_iter().for_each(|handover| handover.forget(id));
        self.continue_all(&mut waiting, packets, now);
        self.router.pending.for_processor.put(waiting);
    }

    /// Takes packets out of their queues, as [`ForProcessor::extract`] does.
    fn extract(
        &self,
        waiting: &mut ForProcessor,
        is_wanted: impl Fn(&Waiting) -> bool,
        now: Instant,
    ) -> Vec<Extracted> {
        let stages = PaidStages::of(self.router.gates.plugins());
        let is_in_line = |packet: &Waiting| stages.at(packet.place).is_some_and(|stage| stage.in_line);
        waiting.extract(is_wanted, is_in_line, now)
    }

    /// Continues packets as [`continue_each`](Self::continue_each) does, and queues those that wait again.
    fn continue_all(&mut self, waiting: &mut ForProcessor, packets: Vec<Extracted>, now: Instant) {
        let payers: BTreeSet<_> = packets.iter().filter_map(|packet| packet.waiting.payer).collect();
        payers.into_iter().for_each(|id| self.memory().set_queued(id, waiting.waiting_bytes(id)));
        self.continue_each(packets, now);
        self.queue_for_processor(waiting, now);
    }

    /// Continues packets that wait no longer at their stages, in this order, each in a batch of its own: they pass, or
    /// wait at a later stage. Of those from queues, at most [`MOST_AT_ONCE`] pass, because more would fill the queues of
    /// ports.
    fn continue_each(&mut self, packets: Vec<Extracted>, now: Instant) {
        let mut work = std::mem::take(&mut self.router.scratch.spare);
        let (mut passed, mut flows) = (0, HashSet::new());
        for Extracted { waiting: packet, order, is_held, .. } in packets {
            let (entry, flow) = (packet.entry(), packet.packet.hash);
            let waits = PaidStages::of(self.router.gates.plugins()).will_wait(entry.0);
            if !waits && !is_held && passed >= MOST_AT_ONCE && flows.contains(&flow) {
                self.router.disposal().drop_waiting(packet, DropReason::PrincipalQueueFull);
                continue;
            }
            let before = self.router.gates.plugins().waiting();
            work.begin();
            self.router.gate_run().add_released(&mut work, Released::on(packet));
            // Held packets have passed the gate of their stage.
            let reached = if is_held { 0 } else { order };
            self.resume_at((entry, reached), &mut work, now);
            if self.router.gates.plugins().waiting() == before {
                passed += 1;
                flows.insert(flow);
            }
        }
        self.router.scratch.spare = work;
    }
}

/// Returns a reading of the time-stamp counter without the time of calls in line, which principals pay for.
#[inline]
pub(crate) fn core_cycles(gates: &Gates) -> Option<u64> {
    Some(core_cycles_of(gates, cycles()?))
}

/// Returns a reading of the time-stamp counter without the time of calls in line.
#[inline]
pub(crate) fn core_cycles_of(gates: &Gates, reading: u64) -> u64 {
    reading.wrapping_sub(Paid::of(gates.plugins()).time_in_line())
}

/// Returns the cycles since `start`. Without a counter, adds the nominal cost of `packets` to `elapsed`.
fn since(start: Option<u64>, elapsed: Cycles, packets: u64) -> Cycles {
    match (start, cycles()) {
        (Some(start), Some(now)) => Cycles(now.saturating_sub(start).max(elapsed.0 + 1)),
        _ => elapsed + Cycles(NOMINAL * packets.max(1)),
    }
}
