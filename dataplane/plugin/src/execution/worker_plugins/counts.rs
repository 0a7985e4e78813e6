//! Counts of bindings and instances.

use super::{StageOfPath, WorkerPlugins};
use crate::execution::instances::Hosted;
use crate::flow_state::FlowStateCounts;
use crate::path::{Stage, Step};
use crate::{Action, BindingCounts, BindingCountsPage, BindingId, BindingTable};
use millrace_packet::DropReason;
use millrace_units::PathId;

impl<T: BindingTable> WorkerPlugins<T> {
    /// Returns the flow state usage.
    pub fn state_counts(&self) -> FlowStateCounts {
        self.states.counts()
    }

    /// Returns the counts of a binding; `None` if the binding doesn't exist.
    pub fn counts(&self, binding: BindingId) -> Option<BindingCounts> {
        Some(self.bindings.get(self.bindings.key(binding.0)?)?.counts)
    }

    /// Returns the counts of bindings in ascending order of ids, from `from` on. The page covers at most
    /// `most` ids.
    pub fn counts_from(&self, from: BindingId, most: usize) -> BindingCountsPage {
        let end = self.bindings.end().min(from.0.saturating_add(most as u32));
        let counts = |slot| Some((BindingId(slot), self.bindings.at(slot)?.1.counts));
        let next = (end < self.bindings.end()).then_some(BindingId(end));
        BindingCountsPage { counts: (from.0..end).filter_map(counts).collect(), next }
    }

    /// Resets the counts of bindings from `from` on, of at most `most` ids. Returns the first id after them,
    /// if any.
    pub fn clear_counts(&mut self, from: BindingId, most: usize) -> Option<BindingId> {
        let end = self.bindings.end().min(from.0.saturating_add(most as u32));
        for slot in from.0..end {
            let Some(binding) = self.bindings.key(slot).and_then(|key| self.bindings.get_mut(key)) else {
                continue;
            };
            let mut queues = binding.counts.queues;
            queues.clear();
            binding.counts = BindingCounts { queues, ..BindingCounts::default() };
        }
        (end < self.bindings.end()).then_some(BindingId(end))
    }

    /// Resets the drop counts and counters of all instances.
    pub fn clear_instances(&mut self) {
        self.instances.iter_mut().for_each(Hosted::clear_counts);
    }

    /// Returns the bindings of a path that may have dropped a packet for a reason: the first binding that
    /// refuses packets, or the instances.
    pub fn may_drop(&self, path: PathId, reason: DropReason) -> impl Iterator<Item = BindingId> + '_ {
        let by_filter = reason == DropReason::Filter;
        let by_policer = reason == DropReason::Policer;
        let by_instance = matches!(
            reason,
            DropReason::Plugin | DropReason::PluginBusy | DropReason::PluginFailed | DropReason::PluginLoop
        );
        let drops = move |stage: &&Stage| match stage.step {
            Step::Instance(_) => by_instance,
            Step::Refuse(_) => by_filter,
            Step::Count => {
                let action = self.bindings.get(stage.binding).map(|binding| &binding.action);
                by_filter && matches!(action, Some(Action::Drop | Action::Reject))
            }
            Step::Police => by_policer,
            Step::Queue(_) => false,
        };
        let stages = self.paths.stages(path).iter().filter(drops);
        stages.map(|stage| BindingId(stage.binding.slot)).take(if by_filter { 1 } else { usize::MAX })
    }

    /// Returns the stages of a path, without removed bindings.
    pub fn stages(&self, path: PathId) -> impl Iterator<Item = StageOfPath> + '_ {
        self.paths.stages(path).iter().filter_map(|stage| {
            let binding = self.bindings.get(stage.binding)?;
            let id = BindingId(stage.binding.slot);
            Some(StageOfPath { gate: binding.gate, binding: id, instance: binding.action.instance() })
        })
    }
}
