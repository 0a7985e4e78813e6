//! Run of a batch's packets through the instances of their path.

use std::fmt;

use millrace_packet::{DropReason, FlowKey, Packet};
use millrace_plugin_abi::{Backlogs, Fault, Known, Packets, Position, Progress, Verdict};
use millrace_units::{GateId, InstanceId, Instant, PathId, QueueId};

use super::{Binding, WorkerPlugins};
use crate::execution::instances::{Hosted, Instances, News};
use crate::execution::recheck::{Malformed, recheck};
use crate::execution::waiting::{End, Kept, LONGEST_HOLD, Place, Taken, Ticket, WaitingRoom};
use crate::fault::FaultKind;
use crate::flow_state::FlowStateBlocks;
use crate::path::{Part, Refusal, Step};
use crate::slab::Key;
use crate::{Action, BindingId, BindingTable, Direction, OnFault, Policer};

/// Maximum number of consecutive instances that may pass a packet on to another instance.
pub(crate) const MOST_PASSED_ON: u8 = 8;

/// Stage of a path, for observers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stop {
    /// Gate of the stage.
    pub gate: GateId,
    /// Binding at the gate.
    pub binding: BindingId,
    /// Instance of the binding, if its action is one.
    pub instance: Option<InstanceId>,
}

/// Observer of packets at the stages of their path. Methods without an implementation cost nothing.
pub trait Watch {
    /// Called before the members of a group enter a stage.
    #[inline(always)]
    fn before(&mut self, group: &Group<'_>, at: Stop) {
        let _ = (group, at);
    }

    /// Called after a stage with the packets that continue, or with those that the stage refuses.
    #[inline(always)]
    fn after(&mut self, group: &Group<'_>, at: Stop, refusal: Option<Refusal>) {
        let _ = (group, at, refusal);
    }
}

/// Observer that does nothing.
impl Watch for () {}

/// Packets of a batch with the same path.
pub struct Group<'a> {
    /// Packets of the batch.
    pub packets: &'a mut [Packet],
    /// Flow keys, by the same indices.
    pub keys: &'a [FlowKey],
    /// State block numbers of the flows, by the same indices.
    pub states: &'a [u32],
    /// Verdicts, by the same indices: [`Verdict::Pass`] before and after the run.
    pub verdicts: &'a mut [Verdict],
    /// Indices of the packets on the path. Packets that don't pass are removed; the others keep their order.
    pub members: &'a mut Vec<u16>,
    /// Bytes of the members; `None` if the number may have changed.
    pub bytes: &'a mut Option<u64>,
    /// Receives the removed members with the reason for their removal.
    pub taken: &'a mut Vec<(u16, Taken)>,
    /// Receives the members for which an instance chose output ports; the latest entry of a packet counts.
    pub directed: &'a mut Vec<(u16, Direction)>,
    /// Source of queue backlogs.
    pub queues: &'a dyn Backlogs,
}

impl fmt::Debug for Group<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("members", &self.members).finish_non_exhaustive()
    }
}

/// Decision about a packet.
pub(crate) enum Decision {
    Pass,
    Direct(Direction),
    Queue(QueueId),
    PassOn(Key),
    Hold(Instant),
    End(End),
}

/// Result of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// Every packet passes, and none was read.
    Untouched,
    /// The verdicts are written.
    Decided,
    /// The call is suspended.
    Suspended,
    /// The instance failed now or earlier.
    Failed,
}

/// Data that calls need besides packets and bindings.
pub(crate) struct Desk<'a> {
    pub instances: &'a mut Instances,
    pub waiting: &'a mut WaitingRoom,
    pub states: &'a mut FlowStateBlocks,
    pub news: &'a mut News,
    pub ports: &'a [bool],
    pub spare: &'a mut Vec<Vec<u16>>,
}

/// Call of an instance.
#[derive(Clone, Copy)]
struct Visit {
    place: Place,
    instance: Key,
    part: Part,
    passed_on: u8,
}

impl<T: BindingTable> WorkerPlugins<T> {
    /// Whether the path has any stage at a position.
    #[inline]
    pub fn has_stages(&self, path: PathId, position: Position) -> bool {
        !self.paths.stages_at(path, position).is_empty()
    }

    /// Whether all stages of a path are at the positions `early` and `late`.
    #[inline]
    pub fn is_through(&self, path: PathId) -> bool {
        self.paths.is_through(path)
    }

    /// Whether any instance of the path may read packets.
    pub fn looks_at_packets(&self, path: PathId) -> bool {
        self.paths.stages(path).iter().any(|stage| match stage.step {
            Step::Instance(instance) => self.instances.get(instance).is_some_and(Hosted::looks_at_packets),
            _ => false,
        })
    }

    /// Runs packets through the stages of their path at a position, from a stage on. Each stage gets the
    /// packets that the previous one let pass. Returns the refusal if a filter refuses the remaining packets,
    /// which stay members of the group.
    #[inline]
    pub fn run(&mut self, from: Place, group: &mut Group<'_>, now: Instant) -> Option<Refusal> {
        self.run_watched(from, group, now, &mut ())
    }

    /// Runs packets like [`run`](Self::run), with an observer.
    #[inline]
    pub fn run_watched(
        &mut self,
        from: Place,
        group: &mut Group<'_>,
        now: Instant,
        watch: &mut impl Watch,
    ) -> Option<Refusal> {
        let Self { paths, bindings, instances, waiting, states, news, ports, spare, .. } = self;
        let mut desk = Desk { instances, waiting, states, news, ports, spare };
        let stages = paths.stages_at(from.path, from.position);
        for (number, stage) in (0..).zip(stages).skip(from.stage.into()) {
            if group.members.is_empty() {
                return None;
            }
            let Some(binding) = bindings.get_mut(stage.binding) else { continue };
            let instance = binding.action.instance();
            let at = Stop { gate: binding.gate, binding: BindingId(stage.binding.slot), instance };
            watch.before(group, at);
            binding.counts.packets += group.members.len() as u64;
            binding.counts.bytes += *group.bytes.get_or_insert_with(|| {
                let length = |member: &u16| group.packets[usize::from(*member)].len() as u64;
                group.members.iter().map(length).sum::<u64>()
            });
            match stage.step {
                Step::Instance(instance) => {
                    let place = Place { stage: number, ..from };
                    let visit = Visit { place, instance, part: stage.part, passed_on: 0 };
                    if !desk.visit(visit, binding, group, now) {
                        *group.bytes = None;
                    }
                }
                Step::Refuse(refusal) => {
                    binding.counts.drops += group.members.len() as u64;
                    watch.after(group, at, Some(refusal));
                    return Some(refusal);
                }
                Step::Queue(queue) => {
                    for member in &*group.members {
                        group.packets[usize::from(*member)].queue = queue;
                    }
                }
                Step::Police => {
                    if let Action::Police(policer) = &binding.action {
                        let dropped = police(policer, group, now);
                        binding.counts.drops += dropped;
                        if dropped > 0 {
                            *group.bytes = None;
                        }
                    }
                }
                // At the position `route`, the route of the filter drops the packets.
                Step::Count if matches!(binding.action, Action::Drop | Action::Reject) => {
                    binding.counts.drops += group.members.len() as u64;
                }
                Step::Count => {}
            }
            watch.after(group, at, None);
        }
        None
    }

    /// Takes a packet that was removed from its group in order to wait. At most `most` packets wait at the
    /// worker. An instance may keep at most as many packets as there are free places. Returns a packet
    /// without a place, to be dropped as [`DropReason::PluginBusy`].
    pub fn keep(&mut self, ticket: Ticket, most: usize, kept: Kept) -> Option<Packet> {
        self.waiting.keep(ticket, most, kept)
    }

    /// Ends a batch. Call this after all packets with tickets were passed to `keep`.
    pub fn end_of_batch(&mut self) {
        self.waiting.end_of_batch();
    }
}

impl Desk<'_> {
    /// Calls an instance with the members of a group. Returns whether all members are unchanged.
    #[inline]
    fn visit(&mut self, visit: Visit, binding: &mut Binding, group: &mut Group<'_>, now: Instant) -> bool {
        let Visit { place, instance, part, passed_on } = visit;
        let Some(hosted) = self.instances.get_mut(instance) else { return true };
        if self.waiting.is_busy(instance) {
            group.take_all(Taken::Keep(self.waiting.queue(instance, place, passed_on)));
            return false;
        }
        let what = (part, place.position);
        match call(hosted, what, self.states, group, now, self.news) {
            Outcome::Untouched => return true,
            Outcome::Suspended => {
                hosted.suspensions += 1;
                group.take_all(Taken::Keep(self.waiting.suspend(instance, place, passed_on, hosted.writes)));
            }
            Outcome::Failed if binding.call_limits.on_fault == OnFault::Bypass => {
                if !hosted.writes {
                    return true;
                }
                // The instance may have failed in the middle of writing a packet.
                group.members.iter().for_each(|member| group.verdicts[usize::from(*member)] = Verdict::Pass);
                drop_malformed(hosted, place.position, binding, group, now, self.news);
            }
            Outcome::Failed => {
                binding.counts.drops += group.members.len() as u64;
                group.take_all(Taken::End(End::Drop(DropReason::PluginFailed)));
            }
            Outcome::Decided => {
                if hosted.writes {
                    drop_malformed(hosted, place.position, binding, group, now, self.news);
                }
                self.part(visit, binding, group, now);
            }
        }
        false
    }

    /// Carries out the verdicts: removes members that don't pass, or passes them on to other instances.
    #[inline]
    fn part(&mut self, visit: Visit, binding: &mut Binding, group: &mut Group<'_>, now: Instant) {
        let mut onward: Vec<(Key, Vec<u16>)> = Vec::new();
        let Group { packets, verdicts, members, taken, directed, .. } = group;
        members.retain(|member| {
            let verdict = std::mem::take(&mut verdicts[usize::from(*member)]);
            if verdict == Verdict::Pass {
                return true;
            }
            let who = (visit.instance, visit.place.position);
            let why = match self.decide(verdict, who, visit.passed_on, binding.call_limits.on_fault, now) {
                Decision::Pass => return true,
                Decision::Direct(direction) => {
                    directed.push((*member, direction));
                    return true;
                }
                Decision::Queue(queue) => {
                    packets[usize::from(*member)].queue = queue;
                    return true;
                }
                Decision::PassOn(target) => {
                    self.send_on(*member, target, &mut onward);
                    return false;
                }
                Decision::Hold(until) => Taken::Keep(self.waiting.hold(visit.instance, until, visit.place)),
                Decision::End(end) => {
                    binding.counts.end(Some(end));
                    Taken::End(end)
                }
            };
            taken.push((*member, why));
            false
        });
        for (instance, part) in onward {
            let next = Visit { instance, part: Part::default(), passed_on: visit.passed_on + 1, ..visit };
            self.hand_on(next, part, binding, group, now);
        }
    }

    #[cold]
    fn send_on(&mut self, member: u16, target: Key, onward: &mut Vec<(Key, Vec<u16>)>) {
        match onward.iter_mut().find(|(key, _)| *key == target) {
            Some((_, members)) => members.push(member),
            None => {
                let mut members = self.spare.pop().unwrap_or_default();
                members.clear();
                members.push(member);
                onward.push((target, members));
            }
        }
    }

    /// Calls an instance with packets outside the group. Packets that pass become members.
    #[cold]
    fn hand_on(
        &mut self,
        visit: Visit,
        mut part: Vec<u16>,
        binding: &mut Binding,
        group: &mut Group<'_>,
        now: Instant,
    ) {
        std::mem::swap(group.members, &mut part);
        self.visit(visit, binding, group, now);
        std::mem::swap(group.members, &mut part);
        group.members.append(&mut part);
        group.members.sort_unstable();
        self.spare.push(part);
    }

    /// Converts a verdict of an instance at a position into a decision. An invalid verdict is a fault.
    pub(crate) fn decide(
        &mut self,
        verdict: Verdict,
        (instance, position): (Key, Position),
        passed_on: u8,
        on_fault: OnFault,
        now: Instant,
    ) -> Decision {
        let wrong = match verdict {
            Verdict::Pass => return Decision::Pass,
            Verdict::Drop(reason) => {
                if let Some(hosted) = self.instances.get_mut(instance)
                    && let Some(count) = hosted.drops.get_mut(usize::from(reason))
                {
                    *count += 1;
                }
                return Decision::End(End::Drop(DropReason::Plugin));
            }
            Verdict::Consume => return Decision::End(End::Consume),
            Verdict::Hold(until) if until <= now + LONGEST_HOLD => return Decision::Hold(until),
            Verdict::Hold(_) => Some(format!("it holds a packet for over {} s", LONGEST_HOLD.as_secs())),
            Verdict::Classify => return Decision::End(End::Classify),
            Verdict::Queue(queue) => return Decision::Queue(queue),
            Verdict::Fault => None,
            Verdict::Port(port) => match self.wrong_way(position, std::iter::once(port.0)) {
                None => return Decision::Direct(Direction::Port(port)),
                wrong => wrong,
            },
            Verdict::Ports(ports) => match self.wrong_way(position, ports_of(ports)) {
                None => return Decision::Direct(Direction::Ports(ports)),
                wrong => wrong,
            },
            Verdict::Instance(id) => match self.instances.key(id) {
                Some(_) if passed_on >= MOST_PASSED_ON => {
                    return Decision::End(End::Drop(DropReason::PluginLoop));
                }
                Some(target) => return Decision::PassOn(target),
                None => Some(format!("the instance names the unknown instance {id}")),
            },
        };
        if let Some(text) = wrong
            && let Some(hosted) = self.instances.get_mut(instance)
        {
            hosted.fail(Fault { kind: FaultKind::WrongVerdict.name(), text }, now, self.news);
        }
        match on_fault {
            OnFault::Drop => Decision::End(End::Drop(DropReason::PluginFailed)),
            OnFault::Bypass => Decision::Pass,
        }
    }

    /// Returns the fault of sending a packet by these ports from a gate at `position`, if it is one.
    fn wrong_way(&self, position: Position, mut ports: impl Iterator<Item = u16>) -> Option<String> {
        if position == Position::Queue {
            return Some("the instance names a port where the egress port is chosen already".to_owned());
        }
        let known = |port: u16| self.ports.get(usize::from(port)).copied().unwrap_or(false);
        let Some(first) = ports.next() else { return Some("the instance names no egress port".to_owned()) };
        let unknown = std::iter::once(first).chain(ports).find(|port| !known(*port))?;
        Some(format!("the instance names the unknown port {unknown}"))
    }
}

/// Checks members that an instance may have changed. Removes malformed ones; they are one fault per call.
fn drop_malformed(
    hosted: &mut Hosted,
    position: Position,
    binding: &mut Binding,
    group: &mut Group<'_>,
    now: Instant,
    news: &mut News,
) {
    let Group { packets, keys, verdicts, members, taken, .. } = group;
    let mut found = None;
    members.retain(|member| {
        let index = usize::from(*member);
        let Err(malformed) = recheck_behind(&mut packets[index], &keys[index], verdicts[index], position)
        else {
            return true;
        };
        found = Some(malformed);
        verdicts[index] = Verdict::Pass;
        binding.counts.drops += 1;
        taken.push((*member, Taken::End(End::Drop(DropReason::PluginFailed))));
        false
    });
    if let Some(malformed) = found {
        hosted.fail_for(malformed, now, news);
    }
}

/// Checks a packet that an instance may have changed, if the packet continues with this verdict.
///
/// # Errors
/// The first rule that the packet violates.
pub(crate) fn recheck_behind(
    packet: &mut Packet,
    key: &FlowKey,
    verdict: Verdict,
    position: Position,
) -> Result<(), Malformed> {
    match verdict {
        Verdict::Drop(_) | Verdict::Consume => Ok(()),
        // The packet gets another flow key.
        Verdict::Classify => recheck(packet, None, position),
        _ => recheck(packet, Some(key.family()), position),
    }
}

/// Returns the ports whose bits are set.
pub(crate) fn ports_of(bits: u64) -> impl Iterator<Item = u16> {
    (0..64).filter(move |port| bits >> port & 1 == 1)
}

/// Removes the members that don't conform to a token bucket. Returns their number.
fn police(policer: &Policer, group: &mut Group<'_>, now: Instant) -> u64 {
    let Group { packets, members, taken, .. } = group;
    let before = members.len();
    members.retain(|member| {
        let fits = policer.takes(packets[usize::from(*member)].len() as u32, now);
        if !fits {
            taken.push((*member, Taken::End(End::Drop(DropReason::Policer))));
        }
        fits
    });
    (before - members.len()) as u64
}

/// Calls an instance with the members of a group.
#[inline]
fn call(
    hosted: &mut Hosted,
    (part, position): (Part, Position),
    states: &mut FlowStateBlocks,
    group: &mut Group<'_>,
    now: Instant,
    news: &mut News,
) -> Outcome {
    if !hosted.is_well(now, news) {
        return Outcome::Failed;
    }
    if let Some(shadow) = &mut hosted.shadow {
        shadow.watch(group.packets, group.keys, group.members);
    }
    // No packets wait: a packet that waits for the instance has found it busy, and then this function isn't
    // called.
    let known = Known { queues: group.queues, waiting: (0, 0) };
    let mut packets = Packets::new(group.packets, group.keys, group.members, group.verdicts)
        .with_known(known)
        .as_copies(position == Position::Copy);
    if part.bytes > 0 {
        packets = packets.with_states(states, group.states, part.offset.into(), part.bytes.into());
    }
    let outcome = match hosted.call(|instance| instance.process(&mut packets, now)) {
        Progress::Suspended => return Outcome::Suspended,
        Progress::Done if packets.is_untouched() => {
            hosted.take_outputs(news);
            Outcome::Untouched
        }
        Progress::Done => {
            // The verdicts of undecided packets already report the fault.
            hosted.has_failed(now, news);
            Outcome::Decided
        }
    };
    if let Some(shadow) = &mut hosted.shadow {
        hosted.pulse.begin(hosted.id);
        let goes_on =
            shadow.compare(group.packets, group.members, group.verdicts, (now, hosted.limits.slice));
        hosted.pulse.end();
        if !goes_on {
            hosted.shadow = None;
        }
    }
    outcome
}

impl Group<'_> {
    /// Removes all members.
    fn take_all(&mut self, why: Taken) {
        for member in self.members.drain(..) {
            self.verdicts[usize::from(member)] = Verdict::Pass;
            self.taken.push((member, why));
        }
    }
}
