//! What is out of use but may still be seen by workers.

use std::collections::VecDeque;

/// A span of changes. What is taken out of use in it may be used again once every worker has gone on from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(pub(crate) u64);

/// Things out of use, by the epoch in which they became so.
#[derive(Debug)]
pub(crate) struct Retired<T> {
    epoch: Epoch,
    things: VecDeque<(Epoch, T)>,
}

impl<T> Default for Retired<T> {
    fn default() -> Self {
        Self { epoch: Epoch::default(), things: VecDeque::new() }
    }
}

impl<T> Retired<T> {
    /// The epoch in which things are taken out of use now.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub fn push(&mut self, thing: T) {
        self.things.push_back((self.epoch, thing));
    }

    /// Begins another epoch, and returns the one that ends.
    pub fn close(&mut self) -> Epoch {
        let closed = self.epoch;
        self.epoch.0 += 1;
        closed
    }

    /// The next thing that was taken out of use in `epoch` or before.
    pub fn pop_upto(&mut self, epoch: Epoch) -> Option<(Epoch, T)> {
        self.things.pop_front_if(|(retired, _)| *retired <= epoch)
    }

    /// How many things wait.
    pub fn len(&self) -> usize {
        self.things.len()
    }
}
