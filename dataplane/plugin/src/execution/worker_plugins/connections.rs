//! Instances of a worker whose state belongs to connections.

use super::WorkerPlugins;
use crate::connection_state::ConnectionEnd;
use crate::execution::calls::Calls;

/// Instances of a worker whose state belongs to connections.
pub struct ConnectionKeepers<'a> {
    calls: &'a mut Calls,
}

impl<'a> ConnectionKeepers<'a> {
    /// Returns the instances of a worker whose state belongs to connections.
    pub fn of<T>(plugins: &'a mut WorkerPlugins<T>) -> Self {
        Self { calls: &mut plugins.calls }
    }

    /// Returns whether such an instance has been bound or unbound since the last call, so that other packets than before
    /// pass untracked.
    pub fn take_change(&mut self) -> bool {
        self.calls.connections.take_change()
    }

    /// Notifies the instances that have seen a connection of its end.
    pub fn ended(&mut self, ended: &ConnectionEnd) {
        self.calls.connection_ended(ended);
    }
}
