//! Queue accounting of bindings: selects the bindings that count a packet in the queues after their gates.
//!
//! A packet carries a path number ([`counts_for`](millrace_packet::Annotations::counts_for)). For a packet of
//! a flow, this path is the flow's path without the bindings at copy gates. For a copy, this path holds only
//! the binding that made the copy. Each binding of that path that still exists counts the queue events of the
//! packet.

use millrace_plugin_abi::Position;
use millrace_units::{Instant, PathId, QueueAccount};

use crate::execution::worker_plugins::WorkerPlugins;
use crate::path::{EMPTY_PATH, Part, Stage, Step};
use crate::slab::Key;
use crate::{Action, BindingTable};

impl<T: BindingTable> WorkerPlugins<T> {
    /// Frees some of the paths that nothing uses. Call this once in each iteration.
    #[inline]
    pub fn collect_paths(&mut self, now: Instant) {
        if self.paths.wants_collection(now) {
            self.paths.collect(now, self.waiting.paths());
        }
    }

    /// Returns the path of those stages of `path` that belong to gates at `position`. The path serves packets
    /// that pass no other position.
    pub fn part_at(&mut self, path: PathId, position: Position) -> PathId {
        let here = self.paths.stages_at(path, position);
        if here.len() == self.paths.stages(path).len() {
            return path;
        }
        let mut stages = std::mem::take(&mut self.found);
        stages.clear();
        stages.extend_from_slice(self.paths.stages_at(path, position));
        let part = self.paths.intern(&stages);
        self.found = stages;
        part
    }

    /// Applies `count` to the queue account of each binding of the path `account`.
    #[inline]
    pub fn count(&mut self, account: PathId, count: impl Fn(&mut QueueAccount)) {
        let Self { paths, bindings, .. } = self;
        for stage in paths.stages(account) {
            if let Some(binding) = bindings.get_mut(stage.binding) {
                count(&mut binding.counts.queues);
            }
        }
    }

    /// Returns the bindings of the path `account` as words, which are valid on every worker.
    pub fn bindings_of(&self, account: PathId) -> impl Iterator<Item = u64> + '_ {
        self.paths.stages(account).iter().map(|stage| stage.binding.to_word())
    }

    /// Returns the accounting path of the bindings with these words.
    pub fn account_of(&mut self, bindings: impl Iterator<Item = u64>) -> PathId {
        let mut stages = std::mem::take(&mut self.found);
        stages.clear();
        // No packet takes an accounting path, so the behaviour of its stages doesn't matter.
        stages.extend(bindings.map(|word| Stage {
            position: Position::Early,
            binding: Key::from_word(word),
            step: Step::Count,
            hears: false,
            part: Part::default(),
        }));
        let account = if stages.is_empty() { EMPTY_PATH } else { self.paths.intern(&stages) };
        self.found = stages;
        account
    }

    /// Returns the actions of a path's bindings at `position`, each with the word of its binding.
    pub fn actions_at(&self, path: PathId, position: Position) -> impl Iterator<Item = (u64, &Action)> + '_ {
        let stages = self.paths.stages_at(path, position).iter();
        stages.filter_map(|stage| Some((stage.binding.to_word(), &self.bindings.get(stage.binding)?.action)))
    }
}
