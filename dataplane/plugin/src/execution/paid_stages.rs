//! Stages of paths at which packets wait for the processor, as the CPU scheduler sees them.

use millrace_plugin_abi::Position;
use millrace_units::{Cycles, PathId, PrincipalId, QueueId};

use crate::execution::bindings::Binding;
use crate::execution::waiting::{Place, Ticket};
use crate::execution::worker_plugins::WorkerPlugins;
use crate::path::{Stage, Step};
use crate::{BindingTable, ProcessorWait};

/// Stage at which packets wait for the processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PaidStage {
    /// Key of the binding, as a number.
    pub binding: u64,
    /// Place of the stage's gate in the order of all gates: packets pass lower numbers first.
    pub order: u32,
    /// Weight among the stages of a flow.
    pub weight: u16,
    /// Queue of the port whose scheduler pulls packets from the queue of the stage: they wait until the
    /// scheduler needs them. So it is for a stage with a queue behind forwarding; `None` for others. The number
    /// is for packets without a queue of the port yet; 0 is the default queue.
    pub pulled_by: Option<QueueId>,
    /// Moving average of the cycles of a packet, from this stage to its next wait; `None` before the first
    /// packet.
    pub cost: Option<Cycles>,
}

/// Questions about the stages at which packets wait for the processor.
pub struct PaidStages<'a, T> {
    plugins: &'a WorkerPlugins<T>,
}

impl<'a, T: BindingTable> PaidStages<'a, T> {
    /// Returns the handle on the stages of a worker.
    #[inline]
    pub fn of(plugins: &'a WorkerPlugins<T>) -> Self {
        Self { plugins }
    }

    /// Returns a stage; `None` if its binding was removed.
    #[inline]
    pub fn at(&self, place: Place) -> Option<PaidStage> {
        let (stage, binding) = self.binding_at(place)?;
        let weight = binding.call_limits.queue.unwrap_or(1);
        let is_pulled = binding.call_limits.queue.is_some() && place.position == Position::Queue;
        let pulled_by = is_pulled.then_some(binding.call_limits.link_queue);
        let cost = (binding.cost != 0).then_some(Cycles(binding.cost));
        let (binding, order) = (stage.binding.to_word(), binding.order);
        Some(PaidStage { binding, order, weight, pulled_by, cost })
    }

    /// Returns the principals that pay for the stages of a path, except the stages of copies. Without paid stages,
    /// returns the principal that a filter gives to the path.
    pub fn owners(&self, path: PathId) -> impl Iterator<Item = PrincipalId> + use<'a, T> {
        let WorkerPlugins { paths, bindings, .. } = self.plugins;
        let positions = Position::ALL.into_iter().filter(|position| *position != Position::Copy);
        let stages = positions.flat_map(move |position| paths.stages_at(path, position));
        let mut paid = stages.filter_map(|stage| bindings.payer(stage)).peekable();
        let given = |stage: &Stage| match stage.step {
            Step::Principal(_) => bindings.get(stage.binding)?.call_limits.principal,
            _ => None,
        };
        let given = match paid.peek() {
            None => paths.stages(path).iter().rev().find_map(given),
            Some(_) => None,
        };
        paid.chain(given)
    }

    /// Returns the principals that pay for stages of a path, once for each stage.
    pub fn payers(&self, path: PathId) -> impl Iterator<Item = PrincipalId> {
        let stages = self.plugins.paths.stages(path).iter();
        stages.filter_map(|stage| self.plugins.bindings.payer(stage))
    }

    /// Returns the wait of a packet with this ticket; `None` if it doesn't wait for the processor.
    pub fn wait_of(&self, ticket: Ticket) -> Option<ProcessorWait> {
        let (stage, binding) = self.binding_at(self.plugins.calls.waiting.deferred(ticket)?)?;
        binding.call_limits.wait(self.plugins.bindings.payer(stage), binding.gate)
    }

    #[inline]
    fn binding_at(&self, place: Place) -> Option<(&'a Stage, &'a Binding)> {
        let stages = self.plugins.paths.stages_at(place.path, place.position);
        let stage = stages.get(usize::from(place.stage))?;
        Some((stage, self.plugins.bindings.get(stage.binding)?))
    }
}
