//! Notes on the packets of a batch, one for each.

use std::ops::{Index, IndexMut};
use std::slice::SliceIndex;

use millrace_packet::BATCH_SIZE;

/// A note on each packet of a batch, by the place of a packet in it. Its length is known when the stages are built, so an
/// index below that is not checked again.
///
/// Indices are places in a batch: they come from loops over a batch and from lists of its packets, never from a packet.
#[derive(Debug)]
pub struct Each<T>(Box<[T; BATCH_SIZE]>);

impl<T: Copy> Each<T> {
    /// The same note on each.
    pub(crate) fn new(note: T) -> Self {
        Self(Box::new([note; BATCH_SIZE]))
    }
}

impl<T> Each<T> {
    /// All notes, for a loop over a batch.
    #[inline(always)]
    pub(crate) fn all(&self) -> &[T; BATCH_SIZE] {
        &self.0
    }

    /// All notes to write, for a loop over a batch.
    #[inline(always)]
    pub(crate) fn all_mut(&mut self) -> &mut [T; BATCH_SIZE] {
        &mut self.0
    }
}

impl<T, I: SliceIndex<[T]>> Index<I> for Each<T> {
    type Output = I::Output;

    #[inline(always)]
    fn index(&self, index: I) -> &I::Output {
        &self.0[index]
    }
}

impl<T, I: SliceIndex<[T]>> IndexMut<I> for Each<T> {
    #[inline(always)]
    fn index_mut(&mut self, index: I) -> &mut I::Output {
        &mut self.0[index]
    }
}
