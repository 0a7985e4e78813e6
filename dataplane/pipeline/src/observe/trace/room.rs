//! Memory for batches with traced packets.

use millrace_classify::NearKey;

use crate::work::{Fate, Work};

/// Memory for a batch with traced packets.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Tail of a batch that is cut.
    pub rest: Work,
    /// Batch of a single packet.
    pub alone: Work,
    /// Traced packets of the batch.
    pub traced: Vec<Traced>,
}

/// Traced packet of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traced {
    pub place: usize,
    pub turn: Turn,
    /// Fate and compact flow key of the packet while it is set aside.
    pub fate: Fate,
    pub near: NearKey,
}

/// Time at which a traced packet passes the stages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// Before the other packets of the batch.
    First,
    /// After the other packets of the batch.
    Last,
}
