//! Arrays with one item for each packet of a batch.

use std::ops::{Index, IndexMut};
use std::slice::SliceIndex;

use millrace_packet::BATCH_SIZE;

/// Array with one item for each packet of a batch, by the packet's index. The constant length lets the
/// compiler omit bounds checks.
///
/// Indices come from loops over a batch and from lists of its packets, never from the contents of a packet.
#[derive(Debug)]
pub struct Each<T>(Box<[T; BATCH_SIZE]>);

impl<T: Copy> Each<T> {
    /// Returns an array in which every item equals `note`.
    pub(crate) fn new(note: T) -> Self {
        Self(Box::new([note; BATCH_SIZE]))
    }
}

impl<T> Each<T> {
    /// Returns all items.
    #[inline(always)]
    pub(crate) fn all(&self) -> &[T; BATCH_SIZE] {
        &self.0
    }

    /// Returns all items, mutable.
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
