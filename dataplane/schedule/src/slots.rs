//! Slots of a structure, addressed by numbers that its own links hold.

use std::ops::{Index, IndexMut};
use std::slice::SliceIndex;

/// Nodes, classes, queues or entries of a scheduler, by number. The structure itself supplies the numbers, in
/// its links and its list of free slots. A caller's number is checked by [`find`](Self::find) first. Packets
/// contain no slot numbers.
#[derive(Clone, Debug)]
pub(crate) struct Slots<T>(Vec<T>);

impl<T> Slots<T> {
    /// Creates an empty set of slots, with capacity for `count`.
    pub fn with_capacity(count: usize) -> Self {
        Self(Vec::with_capacity(count))
    }

    #[inline(always)]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the slot of a number, if there is one.
    #[inline(always)]
    pub fn find(&self, number: usize) -> Option<&T> {
        self.0.get(number)
    }

    /// Returns the slot of a number for writing, if there is one.
    #[inline(always)]
    pub fn find_mut(&mut self, number: usize) -> Option<&mut T> {
        self.0.get_mut(number)
    }

    #[inline]
    pub fn first(&self) -> Option<&T> {
        self.0.first()
    }

    /// Appends a slot.
    #[inline]
    pub fn push(&mut self, value: T) {
        self.0.push(value);
    }

    /// Reserves memory for `more` additional slots.
    pub fn reserve(&mut self, more: usize) {
        self.0.reserve(more);
    }

    #[inline(always)]
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.0.iter()
    }

    #[inline(always)]
    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.0.iter_mut()
    }

    /// Returns all slots.
    #[inline(always)]
    pub fn all(&self) -> &[T] {
        &self.0
    }

    /// Returns all slots for writing, for a loop over many of them.
    #[inline(always)]
    pub fn all_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T, I: SliceIndex<[T]>> Index<I> for Slots<T> {
    type Output = I::Output;

    #[inline(always)]
    fn index(&self, index: I) -> &I::Output {
        &self.0[index]
    }
}

impl<T, I: SliceIndex<[T]>> IndexMut<I> for Slots<T> {
    #[inline(always)]
    fn index_mut(&mut self, index: I) -> &mut I::Output {
        &mut self.0[index]
    }
}
