//! Memory for batches with packets that are traced.

use millrace_classify::NearKey;

use crate::work::{Fate, Work};

/// Memory for a batch with packets that are traced.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// What is left of a batch that is cut.
    pub rest: Work,
    /// One packet alone.
    pub alone: Work,
    /// Those that are traced.
    pub traced: Vec<Traced>,
}

/// A packet of a batch that is traced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traced {
    pub place: usize,
    pub turn: Turn,
    /// Its fate and its near key while it stands aside.
    pub fate: Fate,
    pub near: NearKey,
}

/// When a packet that is traced goes through the stages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// Before the others of its batch.
    First,
    /// Behind them.
    Last,
}
