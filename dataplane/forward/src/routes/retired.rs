//! Objects out of use that workers may still see.

use std::collections::VecDeque;

/// Epoch: a span of changes. Objects taken out of use in it may be reused once every worker has passed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(pub(crate) u64);

/// Objects out of use, by the epoch in which they were taken out of use.
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
    /// Returns the current epoch.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub fn push(&mut self, thing: T) {
        self.things.push_back((self.epoch, thing));
    }

    /// Starts the next epoch, and returns the ended one.
    pub fn close(&mut self) -> Epoch {
        let closed = self.epoch;
        self.epoch.0 += 1;
        closed
    }

    /// Removes and returns the next object that was taken out of use in `epoch` or before.
    pub fn pop_upto(&mut self, epoch: Epoch) -> Option<(Epoch, T)> {
        self.things.pop_front_if(|(retired, _)| *retired <= epoch)
    }

    /// Returns the number of objects that can't be reused yet.
    pub fn len(&self) -> usize {
        self.things.len()
    }
}
