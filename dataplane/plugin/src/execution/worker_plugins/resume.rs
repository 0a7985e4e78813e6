//! Resumption of suspended calls of instances, and release of packets that wait for them.

use millrace_packet::{BATCH_SIZE, DropReason};
use millrace_plugin_abi::{Backlogs, Fault, Known, NoQueues, Packets, Position, Progress, Verdict};
use millrace_units::{InstanceId, Instant};

use super::WorkerPlugins;
use super::run::{Decision, Desk, Outcome, recheck_behind};
use crate::execution::instances::{Hosted, News};
use crate::execution::waiting::{Asked, Backlog, Call, End, Errand, Place, Released};
use crate::fault::{FaultKind, overrun};
use crate::flow_state::FlowStateBlocks;
use crate::path::{Part, Step};
use crate::{BindingCounts, BindingTable, CallLimits};

/// Maximum number of calls of an instance with waiting packets in one iteration.
const CALLS: usize = 16;

impl<T: BindingTable> WorkerPlugins<T> {
    /// Runs each suspended call for a slice, runs due timers of instances, and moves packets that wait no
    /// longer into `released`. `queues` reports queue backlogs.
    pub fn resume(&mut self, now: Instant, queues: &dyn Backlogs, released: &mut Vec<Released>) {
        self.restart_paused(now);
        while let Some(waiting) = self.waiting.due(now) {
            released.push(Released::on(waiting));
        }
        let mut number = 0;
        while let Some(mut backlog) = self.waiting.take_backlog(number) {
            if self.resume_backlog(&mut backlog, now, queues, released) {
                self.waiting.put_backlog(number, backlog);
                number += 1;
            }
        }
        self.run_timers(now);
    }

    /// Restarts instances whose pause is over, also those without packets.
    fn restart_paused(&mut self, now: Instant) {
        let paused = std::mem::take(&mut self.news.paused);
        for id in paused {
            let Some(hosted) = self.instances.key(id).and_then(|key| self.instances.get_mut(key)) else {
                continue;
            };
            // Instances that fail during the restart are already on the list again.
            if !hosted.is_well(now, &mut self.news) && hosted.is_pausing() && !self.news.paused.contains(&id)
            {
                self.news.paused.push(id);
            }
        }
    }

    /// Releases packets held for a removed instance or binding. Call this once after changes, before later
    /// packets pass without waiting, so that packets keep their order.
    pub fn release_orphans(&mut self) {
        let Self { waiting, instances, bindings, paths, .. } = self;
        waiting.let_go(|holder, place| {
            let stage = place.before().and_then(|held_at| {
                paths.stages_at(held_at.path, held_at.position).get(usize::from(held_at.stage))
            });
            let is_bound = stage.is_some_and(|stage| bindings.get(stage.binding).is_some());
            !is_bound || instances.key(InstanceId(holder as u16)).is_none()
        });
    }

    fn run_timers(&mut self, now: Instant) {
        let Self { instances, timed, waiting, news, .. } = self;
        timed.retain(|key| {
            let Some(hosted) = instances.get_mut(*key) else { return false };
            let is_due = hosted.instance.next_call().is_some_and(|next| next <= now);
            if is_due && !waiting.is_busy(*key) && hosted.is_well(now, news) {
                match hosted.call(|instance| instance.periodic(now)) {
                    Progress::Suspended => waiting.suspend_errand(*key, Errand::Own),
                    Progress::Done => _ = hosted.has_failed(now, news),
                }
            }
            true
        });
    }

    /// Resumes the call of an instance, and begins the calls that wait for its end. Returns whether any call
    /// is left.
    fn resume_backlog(
        &mut self,
        backlog: &mut Backlog,
        now: Instant,
        queues: &dyn Backlogs,
        released: &mut Vec<Released>,
    ) -> bool {
        for _ in 0..CALLS {
            if !backlog.call.is_under_way() && !self.begin(backlog, now) {
                return backlog.call.is_under_way();
            }
            let is_done = match backlog.call.place {
                None => self.resume_errand(backlog, now),
                Some(place) => self.resume_packets(place, backlog, (now, queues), released),
            };
            if !is_done {
                return true;
            }
        }
        true
    }

    /// Begins the next call, control messages first. Returns whether a call is running and needs a slice.
    fn begin(&mut self, backlog: &mut Backlog, now: Instant) -> bool {
        while let Some(asked) = backlog.asked.pop_front() {
            let (message, answer) = match asked {
                Asked::Message(message, answer) => (message, answer),
                Asked::Tell(bytes) => {
                    self.tell_from(backlog, &bytes, now);
                    if backlog.call.is_under_way() {
                        return false;
                    }
                    continue;
                }
                Asked::Succeed(successor, told) => {
                    backlog.instance = self.succeed_now(backlog.instance, successor, now, told);
                    continue;
                }
            };
            let Some(hosted) = self.instances.get_mut(backlog.instance) else {
                answer(None);
                continue;
            };
            match hosted.call(|instance| instance.begin_control(&message)) {
                Some(reply) => {
                    hosted.has_failed(now, &mut self.news);
                    answer(Some(reply));
                }
                None => {
                    (backlog.call.errand, backlog.call.slices) = (Errand::Control(answer), 1);
                    return false;
                }
            }
        }
        backlog.begin_call()
    }

    /// Gives an instance a waiting message; the call may be suspended afterwards.
    fn tell_from(&mut self, backlog: &mut Backlog, bytes: &[u8], now: Instant) {
        let Some(hosted) = self.instances.get_mut(backlog.instance) else { return };
        if !hosted.is_well(now, &mut self.news) {
            hosted.messages.lost += 1;
            return;
        }
        hosted.messages.heard += 1;
        match hosted.call(|instance| instance.message(bytes)) {
            Progress::Suspended => (backlog.call.errand, backlog.call.slices) = (Errand::Own, 1),
            Progress::Done => _ = hosted.has_failed(now, &mut self.news),
        }
    }

    /// Resumes a call without packets. Returns whether it is done.
    fn resume_errand(&mut self, backlog: &mut Backlog, now: Instant) -> bool {
        let reply = match self.instances.get_mut(backlog.instance) {
            None => None,
            Some(hosted) => {
                let known = Known { queues: &NoQueues, waiting: (0, 0) };
                let (states, call_limits) = ((&mut self.states, Part::default(), known), self.errands);
                let outcome =
                    slice(hosted, &mut backlog.call, &mut [], states, &call_limits, now, &mut self.news);
                if outcome == Outcome::Suspended {
                    return false;
                }
                hosted.instance.take_reply()
            }
        };
        if let Errand::Control(answer) = std::mem::take(&mut backlog.call.errand) {
            answer(reply);
        }
        backlog.call.slices = 0;
        true
    }

    /// Resumes a call with packets. Returns whether it is done.
    fn resume_packets(
        &mut self,
        place: Place,
        backlog: &mut Backlog,
        (now, queues): (Instant, &dyn Backlogs),
        released: &mut Vec<Released>,
    ) -> bool {
        let Self { paths, bindings, instances, waiting, states, news, ports, spare, verdicts, .. } = self;
        let Backlog { instance, call, behind, .. } = backlog;
        let Some(hosted) = instances.get_mut(*instance) else {
            // The instance is gone: its packets continue without it, unless it left them malformed.
            let written = call.written;
            call.finish(place.next(), |_, mut waiting| {
                let is_malformed = written
                    && recheck_behind(&mut waiting.packet, &waiting.key, Verdict::Pass, place.position)
                        .is_err();
                let end = is_malformed.then_some(End::Drop(DropReason::PluginFailed));
                released.push(Released { waiting, direction: None, end });
            });
            return true;
        };
        let stage = paths.stages_at(place.path, place.position).get(usize::from(place.stage));
        let own = stage.filter(|stage| stage.step == Step::Instance(*instance));
        let part = own.map_or(Part::default(), |stage| stage.part);
        let mut nobody = BindingCounts::default();
        let (counts, call_limits) = match stage.and_then(|stage| bindings.get_mut(stage.binding)) {
            Some(binding) => (&mut binding.counts, binding.call_limits),
            None => (&mut nobody, CallLimits::default()),
        };
        let known = Known { queues, waiting: behind.load() };
        let outcome = slice(hosted, call, verdicts, (states, part, known), &call_limits, now, news);
        if outcome == Outcome::Suspended {
            return false;
        }
        let (mut malformed, written) = (None, call.written);
        let mut desk = Desk { instances, waiting, states, news, ports, spare };
        call.finish(place, |number, mut waiting| {
            let verdict = match (outcome, verdicts.get_mut(number).map(std::mem::take)) {
                (Outcome::Failed, _) | (_, None) => Verdict::Fault,
                (_, Some(verdict)) => verdict,
            };
            // A successor may be in the slot: only the recorded flag tells whether this packet may be changed.
            if written
                && let Err(found) = recheck_behind(&mut waiting.packet, &waiting.key, verdict, place.position)
            {
                malformed = Some(found);
                let end = Some(End::Drop(DropReason::PluginFailed));
                counts.end(end);
                waiting.place = place.next();
                released.push(Released { waiting, direction: None, end });
                return;
            }
            let decision = desk.decide(
                verdict,
                (*instance, place.position),
                waiting.passed_on,
                call_limits.on_fault,
                now,
            );
            if let Decision::PassOn(target) = decision {
                waiting.passed_on += 1;
                if target == *instance {
                    behind.push(waiting);
                } else if let Err(waiting) = desk.waiting.wait_for(target, waiting) {
                    counts.drops += 1;
                    let end = Some(End::Drop(DropReason::PluginBusy));
                    released.push(Released { waiting, direction: None, end });
                }
                return;
            }
            (waiting.place, waiting.passed_on) = (place.next(), 0);
            let (direction, end) = match decision {
                Decision::Hold(until) => return desk.waiting.hold_packet(instance.slot, until, waiting),
                Decision::Direct(direction) => (Some(direction), None),
                Decision::Queue(queue) => {
                    waiting.packet.queue = queue;
                    (None, None)
                }
                Decision::End(end) => (None, Some(end)),
                Decision::Pass | Decision::PassOn(_) => (None, None),
            };
            counts.end(end);
            released.push(Released { waiting, direction, end });
        });
        if let Some(malformed) = malformed
            && let Some(hosted) = instances.get_mut(*instance)
        {
            hosted.fail_for(malformed, now, news);
        }
        true
    }

    /// Returns the time at which a waiting packet, a timer or a pause is due; `None` if nothing is pending.
    pub fn next_event(&self, now: Instant) -> Option<Instant> {
        let timers = self.timed.iter().filter_map(|key| self.instances.get(*key)?.next_call());
        let paused = self.news.paused.iter().filter_map(|id| {
            let hosted = self.instances.get(self.instances.key(*id)?)?;
            hosted.pause_ends()
        });
        timers.chain(paused).chain(self.waiting.next_event(now)).min()
    }

    /// Returns the number of waiting packets.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether no packet waits, and no instance has timers or a pause.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.timed.is_empty() && self.news.paused.is_empty()
    }
}

/// Starts a call with waiting packets, or resumes it, for one slice.
fn slice(
    hosted: &mut Hosted,
    call: &mut Call,
    verdicts: &mut [Verdict],
    (states, part, known): (&mut FlowStateBlocks, Part, Known<'_>),
    call_limits: &CallLimits,
    now: Instant,
    news: &mut News,
) -> Outcome {
    if !hosted.is_well(now, news) {
        return Outcome::Failed;
    }
    let members: [u16; BATCH_SIZE] = std::array::from_fn(|number| number as u16);
    let members = members.get(..call.packets.len()).unwrap_or(&members);
    call.find_states(states);
    let copies = call.place.is_some_and(|place| place.position == Position::Copy);
    let packets = Packets::new(&mut call.packets, &call.keys, members, verdicts);
    let mut packets = packets.with_known(known).as_copies(copies);
    if part.bytes > 0 {
        packets = packets.with_states(states, &call.numbers, part.offset.into(), part.bytes.into());
    }
    call.written |= hosted.writes;
    let progress = match call.slices {
        0 => hosted.call(|instance| instance.process(&mut packets, now)),
        _ => hosted.call(|instance| instance.resume(&mut packets, now)),
    };
    call.slices += 1;
    match progress {
        Progress::Done => {
            hosted.has_failed(now, news);
            Outcome::Decided
        }
        Progress::Suspended => {
            hosted.suspensions += 1;
            let most = hosted.record.patience(call_limits.slices(members.len(), hosted.limits.slice));
            if call.slices < most {
                return Outcome::Suspended;
            }
            hosted.instance.abort();
            // Discard the instance's own fault text; the text below is more precise.
            _ = hosted.instance.take_fault();
            let spent = overrun(members.len(), most, hosted.limits.slice);
            let text = format!("{spent}; `bind --budget` raises the budget");
            hosted.fail(Fault { kind: FaultKind::Overrun.name(), text }, now, news);
            Outcome::Failed
        }
    }
}
