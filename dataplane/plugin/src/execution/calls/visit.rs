//! Calls of instances with the packets of a batch.

use millrace_packet::DropReason;
use millrace_plugin_abi::{Known, PacketConnection, Packets, PayerBacklog, Position, Progress, Verdict};
use millrace_units::{Instant, PrincipalId};

use super::decision::Decision;
use super::group::Group;
use super::{Calls, Outcome};
use crate::OnFault;
use crate::connection_state::{ConnectionStateTables, ConnectionStates, HEADER};
use crate::execution::bindings::Binding;
use crate::execution::instances::{ContextKey, Hosted, News, context_of};
use crate::execution::waiting::{Call, CallTimes, End, PassedOn, Place, Taken};
use crate::flow_state::FlowStateBlocks;
use crate::path::Part;
use crate::slab::Key;

/// Call of an instance at a stage of a path.
#[derive(Clone, Copy)]
pub(crate) struct Visit {
    pub place: Place,
    pub instance: Key,
    pub part: Part,
    /// Whether the state of the instance belongs to connections.
    pub tracks: bool,
    /// Principal that pays for the call; `None` while no CPU scheduler divides the processor.
    pub payer: Option<PrincipalId>,
    /// Principal in whose memory held packets count, and whose queues verdicts may name: the payer, also of a call in
    /// line.
    pub holder: Option<PrincipalId>,
    /// Instances that have passed these packets on to another one.
    pub passed_on: PassedOn,
}

impl Calls {
    /// Calls an instance with the members of a group. Returns `true` if all members stay in the group and
    /// none may have been changed.
    #[inline]
    pub(crate) fn visit(
        &mut self,
        visit: Visit,
        binding: &mut Binding,
        group: &mut Group<'_>,
        now: Instant,
    ) -> bool {
        match self.instances.contexts(visit.instance) {
            0 => self.visit_successor(visit, binding, group, now),
            1 => self.visit_context((visit, 0), binding, group, now),
            contexts => self.visit_contexts((visit, contexts), binding, group, now),
        }
    }

    /// Calls the instance to which another one has passed the members of a group on. Returns whether there is one. The
    /// stage has counted the members already. If the instance was removed, they continue at the next stage.
    #[inline]
    pub(crate) fn visit_passed_on(
        &mut self,
        (place, payer): (Place, Option<PrincipalId>),
        binding: &mut Binding,
        group: &mut Group<'_>,
        now: Instant,
    ) -> bool {
        let passed_on = self.passed_on(place);
        let Some(to) = passed_on.to else { return false };
        if let Some(instance) = self.instances.added_with(to) {
            let (part, tracks) = (Part::default(), false);
            let visit = Visit { place, instance, part, tracks, payer, holder: payer, passed_on };
            self.visit(visit, binding, group, now);
            *group.bytes = None;
        }
        true
    }

    /// Calls the successor of an instance with packets that found their path before the upgrade. Their flow state has
    /// another format, so the successor gets none. Returns the same as [`visit`](Self::visit).
    #[cold]
    fn visit_successor(
        &mut self,
        visit: Visit,
        binding: &mut Binding,
        group: &mut Group<'_>,
        now: Instant,
    ) -> bool {
        // The binding may have moved to another worker meanwhile.
        let moved = || self.instances.key(binding.action.instance()?);
        match binding.instance().or_else(moved) {
            Some(instance) if instance != visit.instance => self.visit(
                Visit { instance, part: Part::default(), tracks: false, ..visit },
                binding,
                group,
                now,
            ),
            _ => true,
        }
    }

    /// Calls each context of an instance with the members whose flows belong to it. Returns the same as
    /// [`visit`](Self::visit).
    #[cold]
    fn visit_contexts(
        &mut self,
        (visit, contexts): (Visit, u8),
        binding: &mut Binding,
        group: &mut Group<'_>,
        now: Instant,
    ) -> bool {
        let keys = group.keys;
        let of_member = |member: &u16| context_of(&keys[usize::from(*member)], contexts);
        let Some(first) = group.members.first().map(of_member) else { return true };
        if group.members.iter().all(|member| of_member(member) == first) {
            return self.visit_context((visit, first), binding, group, now);
        }
        let (mut all, mut passed) = (self.spare_list(), self.spare_list());
        std::mem::swap(group.members, &mut all);
        let mut is_untouched = true;
        for number in 0..contexts {
            group.members.clear();
            group.members.extend(all.iter().filter(|member| of_member(member) == number));
            if !group.members.is_empty() {
                is_untouched &= self.visit_context((visit, number), binding, group, now);
                passed.append(group.members);
            }
        }
        passed.sort_unstable();
        std::mem::swap(group.members, &mut passed);
        self.scratch.spare.extend([all, passed]);
        is_untouched
    }

    /// Calls a context of an instance with the members of a group. Returns the same as
    /// [`visit`](Self::visit).
    #[inline]
    fn visit_context(
        &mut self,
        (visit, number): (Visit, u8),
        binding: &mut Binding,
        group: &mut Group<'_>,
        now: Instant,
    ) -> bool {
        let Visit { place, instance, part, tracks, payer, holder, passed_on } = visit;
        let context = ContextKey { instance, number };
        let Some((hosted, news)) = self.instances.get_mut(context) else { return true };
        if self.waiting.is_busy(context) {
            group.take_all(Taken::Keep(self.waiting.queue(context, (place, passed_on), payer)));
            return false;
        }
        let most = hosted.most_in_call(payer);
        let is_whole = group.members.len() <= most;
        let behind = match is_whole {
            true => (0, 0),
            false => {
                group.take_beyond(most, Taken::Keep(self.waiting.queue(context, (place, passed_on), payer)))
            }
        };
        let payer_backlog = payer.map(|_| self.meter.payer_backlog());
        let kept = KeptState::of((part, tracks), instance, (&mut self.states, &mut self.connections));
        let (what, begun) = ((place.position, (behind, payer_backlog), holder), self.meter.read());
        let outcome = call(hosted, what, (kept, &mut self.scratch.numbers), group, now, news);
        let cycles = self.meter.charge_part(begun, &mut hosted.counts.cycles);
        hosted.counts.call(outcome.is_complete(), cycles, group.members.len());
        match outcome {
            Outcome::Untouched => return is_whole,
            Outcome::Suspended | Outcome::Awaited => {
                let times = CallTimes::begun(cycles, (outcome == Outcome::Awaited).then_some(now));
                let call = Call::begun((payer, payer_backlog), (hosted.writes, binding.call_limits), times);
                group.take_all(Taken::Keep(self.waiting.suspend(context, (place, passed_on), call)));
            }
            Outcome::Failed if binding.call_limits.on_fault == OnFault::Bypass => {
                if !hosted.writes {
                    return is_whole;
                }
                // The instance may have failed while it wrote to a packet.
                group.members.iter().for_each(|member| group.verdicts[usize::from(*member)] = Verdict::Pass);
                if let Some(malformed) = group.drop_malformed(place.position, &mut binding.counts) {
                    hosted.fail_for(malformed, now, news);
                }
            }
            Outcome::Failed => {
                binding.counts.drops += group.members.len() as u64;
                group.take_all(Taken::End(End::Drop(DropReason::PluginFailed)));
            }
            Outcome::Decided { .. } => {
                if hosted.writes
                    && let Some(malformed) = group.drop_malformed(place.position, &mut binding.counts)
                {
                    hosted.fail_for(malformed, now, news);
                }
                self.part((visit, number), binding, group, now);
            }
        }
        false
    }

    /// Carries out the verdicts of a call. Removes the members that don't pass. If the instance passed
    /// members on to other instances, calls those instances.
    #[inline]
    fn part(
        &mut self,
        (visit, number): (Visit, u8),
        binding: &mut Binding,
        group: &mut Group<'_>,
        now: Instant,
    ) {
        let context = ContextKey { instance: visit.instance, number };
        let mut onward: Vec<(Key, Vec<u16>)> = Vec::new();
        let Group { packets, verdicts, members, taken, directed, .. } = group;
        members.retain(|member| {
            let verdict = std::mem::take(&mut verdicts[usize::from(*member)]);
            if verdict == Verdict::Pass {
                return true;
            }
            let who = (context, visit.place.position, visit.holder);
            let why =
                match self.decide(verdict, who, visit.passed_on.times, binding.call_limits.on_fault, now) {
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
                    Decision::Hold(until) => {
                        Taken::Keep(self.waiting.hold(visit.instance, until, visit.place, visit.holder))
                    }
                    Decision::End(end) => {
                        binding.counts.end(Some(end));
                        Taken::End(end)
                    }
                };
            taken.push((*member, why));
            false
        });
        for (instance, part) in onward {
            let passed_on = visit.passed_on.next(self.instances.origin(instance));
            let next = Visit { instance, part: Part::default(), tracks: false, passed_on, ..visit };
            match visit.payer.filter(|_| self.is_awaited(instance)) {
                Some(payer) => {
                    let ticket = self.waiting.defer(payer, (visit.place, passed_on));
                    group.taken.extend(part.iter().map(|member| (*member, Taken::Keep(ticket))));
                    self.scratch.spare.push(part);
                }
                None => self.hand_on(next, part, binding, group, now),
            }
        }
    }

    #[cold]
    fn send_on(&mut self, member: u16, target: Key, onward: &mut Vec<(Key, Vec<u16>)>) {
        match onward.iter_mut().find(|(key, _)| *key == target) {
            Some((_, members)) => members.push(member),
            None => {
                let mut members = self.spare_list();
                members.push(member);
                onward.push((target, members));
            }
        }
    }

    /// Returns an empty list of members.
    fn spare_list(&mut self) -> Vec<u16> {
        let mut members = self.scratch.spare.pop().unwrap_or_default();
        members.clear();
        members
    }

    /// Calls an instance with the packets `part`, which another instance has passed on to this one. Packets
    /// that pass become members of the group again.
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
        self.scratch.spare.push(part);
    }
}

/// State that an instance keeps for the packets of a call.
pub(super) struct KeptState<'a> {
    /// States of flows.
    pub flows: &'a mut FlowStateBlocks,
    /// Part of a flow's state that belongs to the instance.
    pub part: Part,
    /// Whether the state of the instance belongs to connections.
    pub tracks: bool,
    /// States of connections; `None` if the instance keeps none.
    pub connections: Option<&'a mut ConnectionStates>,
}

impl<'a> KeptState<'a> {
    /// Returns the state that an instance keeps: its part of a flow's state, or its states of connections.
    pub fn of(
        (part, tracks): (Part, bool),
        instance: Key,
        (flows, connections): (&'a mut FlowStateBlocks, &'a mut ConnectionStateTables),
    ) -> Self {
        let connections = connections.get_mut(instance.slot).filter(|_| tracks);
        Self { flows, part, tracks, connections }
    }

    /// Finds the states of a call's packets.
    pub fn find(&mut self, call: &mut Call) {
        match &mut self.connections {
            Some(states) => call.find_connections(states),
            None => call.find_states(self.flows),
        }
    }

    /// Adds the states and connections to the packets of a call. `numbers` has the block numbers of the states.
    #[inline]
    pub fn add_to(
        self,
        packets: Packets<'a>,
        numbers: &'a [u32],
        connections: &'a [PacketConnection],
    ) -> Packets<'a> {
        let Self { flows, part, tracks, connections: own } = self;
        let packets = if tracks { packets.with_connections(connections) } else { packets };
        match own {
            Some(own) => {
                let bytes = own.bytes();
                packets.with_states(own, numbers, HEADER, bytes)
            }
            None if part.bytes > 0 => {
                packets.with_states(flows, numbers, part.offset.into(), part.bytes.into())
            }
            None => packets,
        }
    }
}

/// Position of a call, what waits at its instance and for its payer, and the principal whose packets they are.
type Circumstances = (Position, ((u32, u64), Option<PayerBacklog>), Option<PrincipalId>);

/// Calls a context that has no running call.
#[inline]
fn call(
    hosted: &mut Hosted,
    (position, (waiting, payer), holder): Circumstances,
    (mut kept, numbers): (KeptState<'_>, &mut [u32]),
    group: &mut Group<'_>,
    now: Instant,
    news: &mut News,
) -> Outcome {
    news.payer = holder;
    if !hosted.is_well(now, news) {
        return Outcome::Failed;
    }
    if hosted.needs_linear {
        group.gather();
    }
    hosted.show_shadow((&*group.packets, group.keys), group.members, holder);
    let known = Known { queues: group.queues, waiting, payer };
    let connections = group.tracking.as_ref().map_or(&[][..], |tracking| &*tracking.connections);
    let numbers = match &mut kept.connections {
        None => group.states,
        Some(states) => {
            for member in group.members.iter().map(|member| usize::from(*member)) {
                let (packet, connection) = (&group.packets[member], connections.get(member));
                let connection = connection.copied().unwrap_or_default();
                numbers[member] = states.enter(connection, packet.port, packet.len());
            }
            numbers
        }
    };
    let packets = Packets::new(group.packets, group.keys, group.members, group.verdicts)
        .with_known(known)
        .as_copies(position == Position::Copy);
    let mut packets = kept.add_to(packets, numbers, connections);
    let outcome = match hosted.call(|instance| instance.process(&mut packets, now)) {
        Progress::Suspended => {
            hosted.counts.suspensions += 1;
            return Outcome::Suspended;
        }
        Progress::Awaited => return Outcome::Awaited,
        Progress::Done if packets.is_untouched() => {
            hosted.take_outputs(news);
            Outcome::Untouched
        }
        Progress::Done => {
            // The verdicts of undecided packets already report the fault.
            Outcome::Decided { failed: hosted.has_failed(now, news) }
        }
    };
    hosted.run_shadow(group.packets, group.members, group.verdicts, now);
    outcome
}
