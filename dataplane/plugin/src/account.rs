//! Which bindings a packet counts with in the queues behind their gates.
//!
//! A packet bears the number of a path ([`counts_for`](millrace_packet::Annotations::counts_for)): that of its flow, without
//! the bindings at gates for copies; a copy bears that of the binding that made it. What happens to it in a queue is counted at
//! each binding of that path which is still there.

use millrace_plugin_abi::Position;
use millrace_units::{PathId, QueueAccount};

use crate::path::{EMPTY_PATH, Part, Stage, Step};
use crate::slab::Key;
use crate::worker_plugins::WorkerPlugins;
use crate::{Action, BindingTable};

impl<T: BindingTable> WorkerPlugins<T> {
    /// The path whose bindings count the packets of a path.
    #[inline]
    pub fn account(&self, path: PathId) -> PathId {
        self.paths.account(path)
    }

    /// The path whose bindings count copies of a path's packets that instances at gates for copies send.
    #[inline]
    pub fn account_of_copies(&self, path: PathId) -> PathId {
        self.paths.account_of_copies(path)
    }

    /// The path of those stages of a path that stand at a position: that of packets which come no other way.
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

    /// Counts something at each binding of such a path.
    #[inline]
    pub fn count(&mut self, account: PathId, count: impl Fn(&mut QueueAccount)) {
        let Self { paths, bindings, .. } = self;
        for stage in paths.stages(account) {
            if let Some(binding) = bindings.get_mut(stage.binding) {
                count(&mut binding.counts.queues);
            }
        }
    }

    /// The bindings of such a path as words, by which other workers know them too.
    pub fn bindings_of(&self, account: PathId) -> impl Iterator<Item = u64> + '_ {
        self.paths.stages(account).iter().map(|stage| stage.binding.to_word())
    }

    /// A path to count with, of bindings by their words.
    pub fn account_of(&mut self, bindings: impl Iterator<Item = u64>) -> PathId {
        let mut stages = std::mem::take(&mut self.found);
        stages.clear();
        // No packet takes such a path, so what its stages do doesn't matter.
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

    /// The actions of a path's bindings at a position, each with the word of its binding.
    pub fn actions_at(&self, path: PathId, position: Position) -> impl Iterator<Item = (u64, &Action)> + '_ {
        let stages = self.paths.stages_at(path, position).iter();
        stages.filter_map(|stage| Some((stage.binding.to_word(), &self.bindings.get(stage.binding)?.action)))
    }
}
