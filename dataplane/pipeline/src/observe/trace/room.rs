//! Scratch memory for batches with traced packets.

use millrace_classify::NearKey;

use crate::work::{Fate, Work};

/// Scratch memory for a batch with traced packets.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Second part of a batch that was cut; it passes the stages after the first part.
    pub rest: Work,
    /// Batch that holds a single traced packet.
    pub alone: Work,
    /// Traced packets of the batch.
    pub traced: Vec<Traced>,
}

/// Traced packet of a batch, by its index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traced {
    pub place: usize,
    pub turn: Turn,
    /// Fate and compact flow key of the packet, stored while it is [aside](Work::aside).
    pub fate: Fate,
    pub near: NearKey,
}

/// Order in which a traced packet passes the stages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// Before the other packets of the batch.
    First,
    /// After the other packets of the batch.
    Last,
}
