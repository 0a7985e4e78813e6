//! Passage of a group of packets through the stages of its path.

use millrace_packet::{DropReason, Packet};
use millrace_units::{Instant, PathId};

use super::WorkerPlugins;
use crate::execution::calls::{Group, Stop, Visit, Watch};
use crate::execution::instances::Contexts;
use crate::execution::waiting::{Kept, PassedOn, Place, Taken, Ticket};
use crate::path::{Refusal, Step};
use crate::{Action, BindingTable};

impl<T: BindingTable> WorkerPlugins<T> {
    /// Whether any instance of the path may read packets.
    pub fn looks_at_packets(&self, path: PathId) -> bool {
        self.paths.stages(path).iter().any(|stage| match stage.step {
            Step::Instance(_) if stage.tracks => true,
            Step::Instance(instance) => {
                self.calls.instances.get(instance).is_some_and(Contexts::looks_at_packets)
            }
            _ => false,
        })
    }

    /// Passes a group through the stages of its path at a position, beginning with the stage `from`.
    ///
    /// Each stage gets the packets that the previous stage let pass. If a filter refuses the remaining
    /// packets, returns the refusal; these packets stay members of the group.
    #[inline]
    pub fn run(&mut self, from: Place, group: &mut Group<'_>, now: Instant) -> Option<Refusal> {
        self.run_watched(from, group, now, &mut ())
    }

    /// Passes a group through stages like [`run`](Self::run), and calls an observer before and after each
    /// stage. While barriers stand, call [`EndedStages::run_watched`](crate::EndedStages::run_watched) instead.
    #[inline]
    pub fn run_watched(
        &mut self,
        from: Place,
        group: &mut Group<'_>,
        now: Instant,
        watch: &mut impl Watch,
    ) -> Option<Refusal> {
        self.run_until((from, None), group, now, watch)
    }

    /// Passes a group through stages like [`run_watched`](Self::run_watched), up to the stage number `end`, which the
    /// group does not enter.
    #[inline(always)]
    pub(crate) fn run_until(
        &mut self,
        (from, end): (Place, Option<u16>),
        group: &mut Group<'_>,
        now: Instant,
        watch: &mut impl Watch,
    ) -> Option<Refusal> {
        let Self { paths, bindings, calls, .. } = self;
        for (number, stage) in (0..).zip(paths.stages_at(from.path, from.position)).skip(from.stage.into()) {
            if group.members.is_empty() || end == Some(number) {
                return None;
            }
            let of_path = bindings.payer_of_path(stage);
            let Some(binding) = bindings.get_mut(stage.binding) else { continue };
            let payer = calls.payer(stage, binding, of_path);
            let place = Place { stage: number, ..from };
            if let Some(ticket) = calls.defer(payer, binding, place) {
                group.take_all(Taken::Keep(ticket));
                return None;
            }
            if calls.visit_passed_on((place, payer), binding, group, now) {
                continue;
            }
            let at = Stop::of(stage, binding, calls.charged(payer, binding));
            watch.before(group, at);
            binding.counts.packets += group.members.len() as u64;
            binding.counts.bytes += group.total_bytes();
            match stage.step {
                Step::Instance(instance) => {
                    group.enter_queue(binding.call_limits.link_queue);
                    let (part, tracks, passed_on) = (stage.part, stage.tracks, PassedOn::NONE);
                    let visit = Visit { place, instance, part, tracks, payer, holder: payer, passed_on };
                    if !calls.visit_or_charge((visit, at.charged), binding, group, now) {
                        *group.bytes = None;
                    }
                }
                Step::Refuse(refusal) => {
                    binding.counts.drops += group.members.len() as u64;
                    watch.after(group, at, Some(refusal));
                    return Some(refusal);
                }
                Step::Queue(queue) => group.set_queue(queue),
                Step::Principal(queue) => group.enter_queue(queue),
                Step::Police => {
                    if let Action::Police(policer) = &binding.action {
                        let dropped = group.police(policer, now);
                        binding.counts.drops += dropped;
                        group.bytes.take_if(|_| dropped > 0);
                    }
                }
                // At the position `route`, the forward stage drops the packets of these actions.
                Step::Count if matches!(binding.action, Action::Drop | Action::Reject) => {
                    binding.counts.drops += group.members.len() as u64;
                }
                Step::Count | Step::HandOver(_) => {}
            }
            watch.after(group, at, None);
        }
        None
    }

    /// Takes over a packet that left its group to wait.
    ///
    /// At most `most` packets wait at the worker. An instance gets no further packet once its waiting packets
    /// are as many as the free places. The memory of the principal that pays limits the packets that its instances
    /// hold.
    ///
    /// # Errors
    /// A packet that may not wait, with the reason to drop it.
    pub fn keep(&mut self, ticket: Ticket, most: usize, kept: Kept) -> Result<(), (Packet, DropReason)> {
        self.calls.waiting.keep(ticket, most, kept, &self.calls.memory)
    }

    /// Ends a batch and invalidates its tickets. Call this after all packets with tickets were passed to
    /// `keep`.
    pub fn end_of_batch(&mut self) {
        self.calls.waiting.end_of_batch();
    }
}
