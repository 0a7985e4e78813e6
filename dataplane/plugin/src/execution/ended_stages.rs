//! Stages of paths that have ended: their bindings were removed while packets were at them.

use millrace_units::Instant;

use crate::BindingTable;
use crate::execution::calls::Calls;
use crate::execution::waiting::{Place, Waiting};
use crate::execution::worker_plugins::WorkerPlugins;

/// Handle on the packets of stages that have ended at a worker.
pub struct EndedStages<'a, T> {
    plugins: &'a mut WorkerPlugins<T>,
}

impl<'a, T: BindingTable> EndedStages<'a, T> {
    /// Returns the handle on the stages of a worker.
    pub fn of(plugins: &'a mut WorkerPlugins<T>) -> Self {
        Self { plugins }
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
}
