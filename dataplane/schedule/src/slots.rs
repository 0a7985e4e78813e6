//! Slots of a structure, by the numbers that its own links hold.

use std::ops::{Index, IndexMut};
use std::slice::SliceIndex;

/// Nodes, classes, queues or places of a scheduler, by number. A number comes from the structure itself: from a link that
/// it set, or from its list of free slots; a caller's number is looked up by [`find`](Self::find) first. No packet tells one.
#[derive(Clone, Debug)]
pub(crate) struct Slots<T>(Vec<T>);

impl<T> Slots<T> {
    /// No slots yet, and room for so many.
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

    /// The slot of a number, if there is one.
    #[inline(always)]
    pub fn find(&self, number: usize) -> Option<&T> {
        self.0.get(number)
    }

    /// The slot of a number to write, if there is one.
    #[inline(always)]
    pub fn find_mut(&mut self, number: usize) -> Option<&mut T> {
        self.0.get_mut(number)
    }

    #[inline]
    pub fn first(&self) -> Option<&T> {
        self.0.first()
    }

    /// Adds a slot behind the last.
    #[inline]
    pub fn push(&mut self, value: T) {
        self.0.push(value);
    }

    /// Takes memory for so many slots more.
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

    /// All slots at once.
    #[inline(always)]
    pub fn all(&self) -> &[T] {
        &self.0
    }

    /// All slots at once, for a loop that looks at many.
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
