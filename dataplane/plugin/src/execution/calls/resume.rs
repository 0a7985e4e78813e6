//! Resumes suspended calls of instances, and releases the packets that wait for them.

use std::cmp::Reverse;
use std::time::Duration;

use millrace_packet::DropReason;
use millrace_plugin_abi::{Backlogs, Known, NoQueues, Progress, Verdict};
use millrace_units::{Cycles, Instant, PrincipalId};

use super::decision::Decision;
use super::slice::slice;
use super::visit::KeptState;
use super::{Calls, InLineCharge, Outcome};
use crate::execution::bindings::Bindings;
use crate::execution::instances::{Awaited, ContextKey};
use crate::execution::recheck::{Malformed, recheck_behind};
use crate::execution::waiting::{
    Asked, AwaitedContext, Backlog, Behind, Call, CallTimes, End, Errand, PassedOn, Place, Released, Served,
    Waiting, earliest,
};
use crate::path::{Part, Paths, Stage, Step};
use crate::slab::Key;
use crate::{BindingCounts, BindingTable, Direction, OnFault};

/// Maximum number of calls of an instance that the worker resumes, or begins with waiting packets, in one
/// iteration.
const CALLS: usize = 16;

/// Time between two looks for the answers of another process, while the principal that pays is ahead of its share.
const LATER: Duration = Duration::from_millis(1);

/// Data for resuming all suspended calls, once in an iteration of the worker.
pub(crate) struct Resumption<'a, T> {
    pub calls: &'a mut Calls,
    pub paths: &'a Paths,
    pub bindings: &'a mut Bindings<T>,
    pub queues: &'a dyn Backlogs,
    pub released: &'a mut Vec<Released>,
    pub now: Instant,
}

impl<T: BindingTable> Resumption<'_, T> {
    /// Runs each suspended call for a slice, calls instances whose timer is due, and releases packets whose
    /// wait is over.
    pub fn run(&mut self) {
        let running = self.calls.running;
        if running.is_none() {
            self.calls.instances.restart_paused(self.now);
            let Calls { waiting: room, memory, .. } = &mut *self.calls;
            while let Some(waiting) = room.held.due(self.now, memory) {
                self.released.push(Released::on(waiting));
            }
        }
        let mut number = 0;
        while let Some(mut backlog) = self.calls.waiting.take_backlog(number) {
            if backlog.payer() != running || self.is_held_back(&backlog) || self.resume(&mut backlog) {
                self.calls.waiting.put_backlog(number, backlog);
                number += 1;
            }
        }
        if running.is_none() {
            self.calls.run_timers(self.now);
            self.look_at_shadows();
        }
        if !self.calls.waiting.followers.is_empty() {
            self.release_followers();
        }
        self.keep_order();
    }

    /// Releases the packets behind calls of ended stages whose flows have left these calls.
    #[cold]
    fn release_followers(&mut self) {
        let (paths, bindings) = (self.paths, &*self.bindings);
        let (waiting, released) = (&mut self.calls.waiting, &mut *self.released);
        // Packets leave a call only with others that are released.
        if !released.is_empty() {
            waiting.find_followed(|at| bindings.rank_of_ended(stage_at(paths, at)?));
            waiting.followers.release(|order, packet| {
                released.push(Released { reached: order + 1, ..Released::on(packet) });
            });
        }
    }

    /// Puts packets behind a later gate in front of packets behind an earlier one. Of the packets of a flow, those
    /// behind a later gate arrived first, and their instance may have become free meanwhile. Paths of a flow from before
    /// and after a change of bindings number their stages differently.
    fn keep_order(&mut self) {
        let paths = self.paths;
        let behind = |released: &Released| {
            let Place { path, position, stage } = released.waiting.place;
            let known = released.reached.checked_sub(1);
            Reverse(known.unwrap_or_else(|| paths.order_before(path, position, stage)))
        };
        if !self.released.is_sorted_by_key(behind) {
            self.released.sort_by_key(behind);
        }
    }

    /// Resumes the current call of a context, then begins the calls for which packets or requests wait.
    /// Returns whether a call or a request is left for the next iteration.
    fn resume(&mut self, backlog: &mut Backlog) -> bool {
        for _ in 0..CALLS {
            if !backlog.call.is_under_way() && !self.begin(backlog) {
                return backlog.has_work();
            }
            if !self.charge_answers(backlog, Self::resume_call) {
                return true;
            }
            if backlog.payer().is_some_and(|payer| self.calls.running != Some(payer)) {
                return true;
            }
        }
        true
    }

    /// Whether the worker leaves the answers of another process for later, because the principal that pays for them is
    /// ahead of its share.
    fn is_held_back(&self, backlog: &Backlog) -> bool {
        backlog.call.times.awaited.is_some_and(|awaited| {
            self.now.since(awaited.seen) < LATER
                && self.payer_of_answers(backlog).is_some_and(|payer| self.calls.in_line.holds_back(payer))
        })
    }

    /// Looks for the answers of the processes that run calls of shadows. The principals that pay for these calls are
    /// charged, and held back, as for other answers.
    fn look_at_shadows(&mut self) {
        let (Calls { instances, in_line, meter, .. }, now) = (&mut *self.calls, self.now);
        instances.each_shadowed(|hosted| {
            let awaited = hosted.shadow.as_ref().and_then(|shadow| shadow.awaited());
            let Some((payer, seen)) = awaited else { return };
            if now.since(seen) < LATER && payer.is_some_and(|payer| in_line.holds_back(payer)) {
                return;
            }
            let begun = payer.and_then(|_| meter.now());
            hosted.look_at_shadow(now);
            if let (Some(payer), Some(begun), Some(end)) = (payer, begun, meter.now()) {
                in_line.add(InLineCharge { payer, used: Cycles(end.saturating_sub(begun)), packets: 0 });
            }
        });
    }

    /// Resumes the current call of a context. Returns whether the call has ended.
    fn resume_call(&mut self, backlog: &mut Backlog) -> bool {
        match backlog.call.place {
            None => self.resume_errand(backlog),
            Some(place) => self.resume_packets(place, backlog),
        }
    }

    /// Does `work`. If it handles answers of another process, charges the time: no slice measures it.
    fn charge_answers<R>(
        &mut self,
        backlog: &mut Backlog,
        work: impl FnOnce(&mut Self, &mut Backlog) -> R,
    ) -> R {
        let payer = self.payer_of_answers(backlog);
        let begun = payer.and_then(|_| self.calls.meter.now());
        let result = work(self, backlog);
        if let (Some(payer), Some(begun), Some(end)) = (payer, begun, self.calls.meter.now()) {
            let used = Cycles(end.saturating_sub(begun));
            self.calls.in_line.add(InLineCharge { payer, used, packets: 0 });
        }
        result
    }

    /// Returns the principal that pays for the answers of another process outside of slices: the payer of the call. For a
    /// call without packets, the principal that pays for all bindings of the instance, if there is one.
    fn payer_of_answers(&self, backlog: &Backlog) -> Option<PrincipalId> {
        let contexts = self.calls.instances.get(backlog.context.instance)?;
        if self.calls.running.is_some() || !contexts.first().paces.is_awaited() {
            return None;
        }
        backlog.call.place.map_or_else(|| contexts.payer(), |_| backlog.call.payer)
    }

    /// Begins the next call, control messages first. Returns whether a call is running and needs a slice. Begins
    /// none while the context waits for an upgrade of its instance.
    fn begin(&mut self, backlog: &mut Backlog) -> bool {
        while let Some(asked) = backlog.asked.pop_front() {
            let suspended = match asked {
                Asked::Message(message, answer) => {
                    self.calls.begin_control(backlog.context, &message, self.now, answer)
                }
                Asked::Tell(bytes) => {
                    let progress = self.calls.tell(backlog.context, &bytes, self.now);
                    (progress != Progress::Done).then_some(Errand::Own)
                }
                Asked::Succeed if self.charge_answers(backlog, Self::succeed) => None,
                Asked::Succeed => {
                    backlog.asked.push_front(Asked::Succeed);
                    return false;
                }
            };
            if let Some(errand) = suspended {
                (backlog.call.errand, backlog.call.slices) = (errand, 1);
                return false;
            }
        }
        if !self.tell_ends(backlog) {
            return false;
        }
        let hosted = self.calls.instances.context(backlog.context);
        let payer = backlog.payer();
        if payer.is_some() && payer != self.calls.running {
            return false;
        }
        backlog.begin_call(hosted.map_or(usize::MAX, |hosted| hosted.most_in_call(payer)))
    }

    /// Tells a successor of up to [`CALLS`] flows that ended before it began. Returns whether it knows all.
    fn tell_ends(&mut self, backlog: &mut Backlog) -> bool {
        for _ in 0..CALLS {
            let Some((flow, state)) = backlog.ends.pop_front() else { return true };
            if self.calls.flow_ended(backlog.context, &flow, &state) != Progress::Done {
                (backlog.call.errand, backlog.call.slices) = (Errand::Own, 1);
                return false;
            }
        }
        backlog.ends.is_empty()
    }

    /// Carries out the upgrade for which a context waits. Returns whether it has ended.
    fn succeed(&mut self, backlog: &mut Backlog) -> bool {
        self.calls.succeed_waiting(backlog, self.bindings, self.now)
    }

    /// Resumes a call without packets. Returns whether the call has ended.
    fn resume_errand(&mut self, backlog: &mut Backlog) -> bool {
        let Calls { instances, states, errands, .. } = &mut *self.calls;
        let reply = match instances.get_mut(backlog.context) {
            None => None,
            Some((hosted, news)) => {
                let known = Known { queues: &NoQueues, waiting: (0, 0), payer: None };
                let part = Part::default();
                let kept = KeptState { flows: states, part, tracks: false, connections: None };
                let kept = (kept, known);
                let outcome = slice(hosted, &mut backlog.call, &mut [], kept, errands, self.now, news);
                if outcome == Outcome::Suspended {
                    return false;
                }
                hosted.instance.take_reply()
            }
        };
        if let Errand::Control(answer) = std::mem::take(&mut backlog.call.errand) {
            answer(reply);
        }
        (backlog.call.slices, backlog.call.times) = (0, CallTimes::default());
        true
    }

    /// Resumes a call with packets. Returns whether the call has ended.
    fn resume_packets(&mut self, place: Place, backlog: &mut Backlog) -> bool {
        let Backlog { context, call, behind, .. } = backlog;
        let Calls { instances, states, connections, scratch, meter, memory, running, waiting, .. } =
            &mut *self.calls;
        let Some((hosted, news)) = instances.get_mut(*context) else {
            memory.resume(call.payer, call.load());
            release(call, place, self.released);
            return true;
        };
        let stage = stage_at(self.paths, place);
        let own = stage.filter(|stage| stage.step == Step::Instance(context.instance)).map(Stage::kept);
        let kept = KeptState::of(own.unwrap_or_default(), context.instance, (states, connections));
        let mut nobody = BindingCounts::default();
        let is_first = call.slices == 0;
        let counts = counts_of(stage, self.bindings, (&mut call.times, is_first));
        let (is_ended, counts) = (counts.is_none(), counts.unwrap_or(&mut nobody));
        let (limits, begun) = (call.times.limits, meter.read());
        if running.is_some() {
            call.payer_backlog = Some(meter.payer_backlog());
        }
        let known = Known { queues: self.queues, waiting: behind.load(), payer: call.payer_backlog };
        let outcome = slice(hosted, call, &mut scratch.verdicts, (kept, known), &limits, self.now, news);
        call.times.add(is_first, meter.charge_part(begun, &mut hosted.counts.cycles));
        let is_suspended = outcome == Outcome::Suspended;
        if running.is_some() {
            waiting.since = earliest(waiting.since, call.times.end_wait(is_suspended));
        }
        if is_suspended {
            return false;
        }
        hosted.counts.call(outcome.is_complete(), call.times.cycles, call.packets.len());
        memory.resume(call.payer, call.load());
        if let (Some(Awaited { began, .. }), Some(payer)) = (call.times.awaited, call.payer)
            && let Some(context) = AwaitedContext::of(*context, instances)
        {
            waiting.served.push(Served { context, payer, took: self.now.since(began) });
        }
        let (calls, released) = (&mut *self.calls, &mut *self.released);
        let (context, on_fault, now, written) = (*context, limits.on_fault, self.now, call.written);
        let mut finished = Finished {
            calls,
            behind,
            counts,
            released,
            context,
            place,
            on_fault,
            now,
            is_ended,
            written,
            malformed: None,
        };
        call.finish(place, |number, waiting| finished.take(number, outcome, waiting));
        if let Some(malformed) = finished.malformed
            && let Some((hosted, news)) = self.calls.instances.get_mut(context)
        {
            hosted.fail_for(malformed, now, news);
        }
        true
    }
}

/// Returns the stage at a place.
fn stage_at(paths: &Paths, at: Place) -> Option<&Stage> {
    paths.stages_at(at.path, at.position).get(usize::from(at.stage))
}

/// Returns the counts of a stage's binding, whose limits the call gets at its begin; `None` if the binding has ended.
fn counts_of<'b, T: BindingTable>(
    stage: Option<&Stage>,
    bindings: &'b mut Bindings<T>,
    (times, is_first): (&mut CallTimes, bool),
) -> Option<&'b mut BindingCounts> {
    let binding = bindings.get_mut(stage?.binding)?;
    if is_first {
        times.limits = binding.call_limits;
    }
    Some(&mut binding.counts)
}

/// Releases the packets of a call whose instance has been removed. The packets continue at the next stage.
/// Packets that the instance left malformed are dropped.
fn release(call: &mut Call, place: Place, released: &mut Vec<Released>) {
    let written = call.written;
    call.finish(place.next(), |_, mut waiting| {
        let is_malformed = written
            && recheck_behind(&mut waiting.packet, &waiting.key, Verdict::Pass, place.position).is_err();
        let end = is_malformed.then_some(End::Drop(DropReason::PluginFailed));
        released.push(Released { end, ..Released::on(waiting) });
    });
}

/// Ended call with packets, while the worker carries out the verdicts of the call.
struct Finished<'a> {
    calls: &'a mut Calls,
    /// Packets that arrived during the call and wait for its end.
    behind: &'a mut Behind,
    /// Counts of the binding.
    counts: &'a mut BindingCounts,
    released: &'a mut Vec<Released>,
    context: ContextKey,
    place: Place,
    on_fault: OnFault,
    now: Instant,
    /// Whether the binding has ended. Its packets are neither held nor queued any more.
    is_ended: bool,
    /// Whether the call may have written to the packets. The answer is stored, because an upgrade may replace
    /// the instance before the end of the call.
    written: bool,
    /// Violation of the last packet that the call left malformed.
    malformed: Option<Malformed>,
}

impl Finished<'_> {
    /// Carries out the verdict about packet `number` of the call.
    fn take(&mut self, number: usize, outcome: Outcome, mut waiting: Waiting) {
        let verdict = match (outcome, self.calls.scratch.verdicts.get_mut(number).map(std::mem::take)) {
            (Outcome::Failed, _) | (_, None) => Verdict::Fault,
            (_, Some(verdict)) => verdict,
        };
        let position = self.place.position;
        if self.written
            && let Err(found) = recheck_behind(&mut waiting.packet, &waiting.key, verdict, position)
        {
            self.malformed = Some(found);
            waiting.place = self.place.next();
            return self.release(waiting, None, Some(End::Drop(DropReason::PluginFailed)));
        }
        let who = (self.context, position, waiting.payer);
        let decision = self.calls.decide(verdict, who, waiting.passed_on.times, self.on_fault, self.now);
        if let Decision::PassOn(target) = decision
            && !(self.is_ended && waiting.payer.is_some() && self.calls.is_awaited(target))
        {
            return self.pass_on(target, waiting);
        }
        (waiting.place, waiting.passed_on) = (self.place.next(), PassedOn::default());
        match decision {
            Decision::Hold(until) if !self.is_ended => self.hold(until, waiting),
            Decision::Direct(direction) => self.release(waiting, Some(direction), None),
            Decision::Queue(queue) => {
                waiting.packet.queue = queue;
                self.release(waiting, None, None);
            }
            Decision::End(end) => self.release(waiting, None, Some(end)),
            Decision::Pass | Decision::PassOn(_) | Decision::Hold(_) => self.release(waiting, None, None),
        }
    }

    /// Whether the instance in a slot may keep one more packet, beside those that wait for the end of this call.
    fn has_room(&self, slot: u32) -> bool {
        self.calls.waiting.has_room(Some(slot), (self.context.instance.slot, self.behind.places()))
    }

    /// Holds a packet until a time. Drops it if the instance keeps too many, or if its payer has no memory left.
    fn hold(&mut self, until: Instant, waiting: Waiting) {
        let slot = self.context.instance.slot;
        if !self.has_room(slot) {
            return self.release(waiting, None, Some(End::Drop(DropReason::PluginBusy)));
        }
        let Calls { waiting: room, memory, .. } = &mut *self.calls;
        if let Err(waiting) = room.held.push(slot, until, waiting, memory) {
            self.release(waiting, None, Some(End::Drop(DropReason::PrincipalMemory)));
        }
    }

    /// Passes a packet on to the instance `target`, which may be the instance that gave the verdict. If another process
    /// runs its calls, the packet waits for the turn of its payer. Drops the packet if that instance keeps too many.
    fn pass_on(&mut self, target: Key, mut waiting: Waiting) {
        waiting.passed_on = waiting.passed_on.next(self.calls.instances.origin(target));
        waiting.since = self.calls.waiting.since.or(Some(self.now));
        if waiting.payer.is_some() && self.calls.is_awaited(target) {
            return self.calls.waiting.for_processor.push(waiting);
        }
        let target = self.calls.instances.context_of(target, &waiting.key);
        let has_room = target == self.context || self.has_room(target.instance.slot);
        let Calls { waiting: room, memory, .. } = &mut *self.calls;
        if target == self.context {
            memory.suspend(waiting.payer, (1, waiting.packet.len() as u64));
            self.behind.push(waiting);
        } else if !has_room {
            self.release(waiting, None, Some(End::Drop(DropReason::PluginBusy)));
        } else if let Err(waiting) = room.wait_for(target, waiting, memory) {
            self.release(waiting, None, Some(End::Drop(DropReason::PluginBusy)));
        }
    }

    /// Returns a packet to the pipeline. `end` is set if the call dropped or consumed the packet; the binding
    /// then counts the drop or consumption.
    fn release(&mut self, waiting: Waiting, direction: Option<Direction>, end: Option<End>) {
        self.counts.end(end);
        self.released.push(Released { direction, end, ..Released::on(waiting) });
    }
}
