//! Stages of paths at which packets wait for the processor, as the CPU scheduler sees them.

use millrace_plugin_abi::Position;
use millrace_units::{Cycles, GateId, PrincipalId};

use crate::execution::bindings::Binding;
use crate::execution::waiting::{Place, Ticket};
use crate::execution::worker_plugins::WorkerPlugins;
use crate::{BindingTable, CallLimits, GateOrder};

/// Stage at which packets wait for the processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PaidStage {
    /// Place of the stage's gate in the order of all gates: packets pass lower numbers first.
    pub order: u32,
    /// Weight among the stages of a flow.
    pub weight: u16,
    /// Moving average of the cycles of a packet, from this stage to its next wait; `None` before the first
    /// packet.
    pub cost: Option<Cycles>,
}

/// Wait of a packet for the processor, for display.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessorWait {
    /// Principal that pays for the stage.
    pub payer: PrincipalId,
    /// Gate of the stage if its binding has a queue of its own.
    pub queue: Option<GateId>,
}

impl CallLimits {
    /// Returns the wait of packets for the processor before a binding at `gate`; `None` without a payer.
    pub fn wait(&self, gate: GateId) -> Option<ProcessorWait> {
        Some(ProcessorWait { payer: self.principal?, queue: self.queue.map(|_| gate) })
    }
}

/// Returns the place of a gate in the order of all gates.
pub(crate) fn order(position: Position, GateOrder(order): GateOrder) -> u32 {
    (position as u32) << 16 | u32::from(order)
}

impl<T: BindingTable> WorkerPlugins<T> {
    /// Returns a stage at which packets wait; `None` if its binding was removed.
    #[inline]
    pub fn paid_stage(&self, place: Place) -> Option<PaidStage> {
        let binding = self.binding_at(place)?;
        let weight = binding.call_limits.queue.unwrap_or(1);
        let cost = (binding.cost != 0).then_some(Cycles(binding.cost));
        Some(PaidStage { order: binding.order, weight, cost })
    }

    /// Notes the cycles of `packets` packets that ran from a stage.
    #[inline]
    pub fn note_cost(&mut self, place: Place, Cycles(used): Cycles, packets: u64) {
        let Some(stage) = self.paths.stages_at(place.path, place.position).get(usize::from(place.stage))
        else {
            return;
        };
        if let Some(binding) = self.bindings.get_mut(stage.binding) {
            let cost = (used / packets.max(1)).max(1);
            binding.cost = match binding.cost {
                0 => cost,
                before => (before.saturating_mul(7).saturating_add(cost) / 8).max(1),
            };
        }
    }

    /// Returns the wait of a packet with this ticket; `None` if it doesn't wait for the processor.
    pub fn processor_wait(&self, ticket: Ticket) -> Option<ProcessorWait> {
        let binding = self.binding_at(self.calls.waiting.deferred(ticket)?)?;
        binding.call_limits.wait(binding.gate)
    }

    #[inline]
    fn binding_at(&self, place: Place) -> Option<&Binding> {
        let stages = self.paths.stages_at(place.path, place.position);
        self.bindings.get(stages.get(usize::from(place.stage))?.binding)
    }
}
