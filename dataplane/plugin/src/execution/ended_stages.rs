//! Stages of paths that have ended: their bindings were removed while packets were at them.

use millrace_packet::FlowKey;
use millrace_units::Instant;

use crate::execution::calls::{Calls, Group, Watch};
use crate::execution::waiting::{Place, Taken, Ticket, Waiting};
use crate::execution::worker_plugins::WorkerPlugins;
use crate::path::Refusal;
use crate::{BindingTable, GateOrder};

/// Handle on the packets of stages that have ended at a worker.
///
/// While a packet is in a call of an ended stage, the gate of the stage is a *barrier* for its flow: later packets of
/// the flow wait there, whatever path they have.
pub struct EndedStages<'a, T> {
    plugins: &'a mut WorkerPlugins<T>,
}

impl<'a, T: BindingTable> EndedStages<'a, T> {
    /// Returns the handle on the stages of a worker.
    #[inline]
    pub fn of(plugins: &'a mut WorkerPlugins<T>) -> Self {
        Self { plugins }
    }

    /// Whether packets may have to wait at barriers.
    #[inline]
    pub fn has_barriers(plugins: &WorkerPlugins<T>) -> bool {
        !plugins.calls.waiting.followers.is_empty()
    }

    /// Takes the packets that were held for a removed instance or binding, in their order, each with the rank of its
    /// stage. To be called after changes and before the next batch.
    pub fn take_held(&mut self) -> Vec<(u32, Waiting)> {
        self.plugins.release_orphans();
        let WorkerPlugins { paths, calls: Calls { waiting, memory, .. }, .. } = &mut *self.plugins;
        // Only orphans have waited until the beginning of time.
        let held = std::iter::from_fn(|| waiting.held.due(Instant::ZERO, memory));
        let ranked = held.map(|held| {
            let Place { path, position, stage } = held.place;
            (paths.order_before(path, position, stage), held)
        });
        ranked.collect()
    }

    /// Makes barriers of the gates whose stages have ended during calls. To be called after changes and before any
    /// packet continues.
    pub fn raise_barriers(&mut self) {
        let WorkerPlugins { paths, bindings, calls: Calls { waiting, .. }, .. } = &mut *self.plugins;
        waiting.find_followed(|at| {
            let stages = paths.stages_at(at.path, at.position);
            bindings.rank_of_ended(stages.get(usize::from(at.stage))?)
        });
    }

    /// Notes that the packets of the next batch have passed all gates before the rank `reached`; 0 if their place tells
    /// how far they are, or after the batch.
    #[inline]
    pub fn reach(&mut self, reached: u32) {
        self.plugins.calls.waiting.followers.reached = reached;
    }

    /// Returns a ticket for a packet without stages at the position of `place` if it has to wait at a barrier there.
    pub fn stop(&mut self, place: Place, key: &FlowKey) -> Option<Ticket> {
        let reached = self.reached(place);
        let waiting = &mut self.plugins.calls.waiting;
        let order = waiting.followers.first_of(key, place.position, reached)?;
        Some(waiting.follow(order, place))
    }

    /// Passes a group through stages like [`WorkerPlugins::run_watched`]. Packets wait at the barriers on their way.
    #[cold]
    #[inline(never)]
    pub fn run_watched(
        &mut self,
        from: Place,
        group: &mut Group<'_>,
        now: Instant,
        watch: &mut impl Watch,
    ) -> Option<Refusal> {
        let (mut at, mut reached) = (from, self.reached(from));
        while let Some(order) = self.plugins.calls.waiting.followers.next_at(at.position, reached) {
            let stages = self.plugins.paths.stages_at(at.path, at.position);
            let end = (stages.partition_point(|stage| stage.order < order) as u16).max(at.stage);
            if end > at.stage
                && let Some(refusal) = self.plugins.run_until((at, Some(end)), group, now, watch)
            {
                return Some(refusal);
            }
            at.stage = end;
            if let Some(ticket) = self.defer(at, order) {
                group.take_all(Taken::Keep(ticket));
                return None;
            }
            self.stop_members((at, order), group);
            reached = order + 1;
        }
        self.plugins.run_until((at, None), group, now, watch)
    }

    /// Returns the rank of the first gate that packets have not passed which continue at a place.
    fn reached(&self, Place { path, position, stage }: Place) -> u32 {
        let WorkerPlugins { paths, calls, .. } = &*self.plugins;
        let here = match stage {
            0 => GateOrder(0).among_all(position),
            _ => paths.order_before(path, position, stage) + 1,
        };
        here.max(calls.waiting.followers.reached)
    }

    /// Returns a ticket for packets at a place if the stage there is bound at the gate of rank `order`, and they wait
    /// for the processor before it. In the queue they keep their order, too: no packet leaves it while the barrier
    /// holds its flow.
    fn defer(&mut self, at: Place, order: u32) -> Option<Ticket> {
        let WorkerPlugins { paths, bindings, calls, .. } = &mut *self.plugins;
        let stage = paths.stages_at(at.path, at.position).get(usize::from(at.stage))?;
        let binding = bindings.get(stage.binding).filter(|_| stage.order == order)?;
        let payer = calls.payer(stage, binding, bindings.payer_of_path(stage));
        calls.defer(payer, binding, at)
    }

    /// Lets the members of a group wait whose flows the barrier of rank `order` holds. They continue at `at`.
    fn stop_members(&mut self, (at, order): (Place, u32), group: &mut Group<'_>) {
        let waiting = &mut self.plugins.calls.waiting;
        let ticket = waiting.follow(order, at);
        let Group { keys, members, bytes, taken, .. } = group;
        members.retain(|member| {
            let key = keys.get(usize::from(*member));
            let stops = key.is_some_and(|key| waiting.followers.holds(order, key));
            if stops {
                taken.push((*member, Taken::Keep(ticket)));
                **bytes = None;
            }
            !stops
        });
    }
}
