//! Retired objects: out of use, but readers may still use them.

use std::collections::VecDeque;

/// Epoch of changes. An object that was retired in an epoch may be reused once every worker has passed that
/// epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(pub(crate) u64);

/// Retired objects, by the epoch in which they were retired.
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

    /// Ends the current epoch, and returns it.
    pub fn close(&mut self) -> Epoch {
        let closed = self.epoch;
        self.epoch.0 += 1;
        closed
    }

    /// Removes and returns the next object that was retired in `epoch` or before, with its epoch.
    pub fn pop_upto(&mut self, epoch: Epoch) -> Option<(Epoch, T)> {
        self.things.pop_front_if(|(retired, _)| *retired <= epoch)
    }

    /// Returns the number of retired objects.
    pub fn len(&self) -> usize {
        self.things.len()
    }
}
