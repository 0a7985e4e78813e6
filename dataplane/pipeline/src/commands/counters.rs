//! Commands to the counters of a worker.

use super::ReplyTo;
use crate::snapshot::Snapshot;

/// Command to the counters of a worker.
#[derive(Debug)]
pub enum CounterCommand {
    /// Asks for all counters.
    Snapshot(ReplyTo<Snapshot>),
    /// Asks for all counters except those of schedulers, EtherTypes and neighbours, which may be long lists.
    Summary(ReplyTo<Snapshot>),
    /// Sets all counters to zero, except those of routes and bindings, which may be long lists.
    Clear,
}
