//! Slots of a linked structure, addressed by number.

use std::ops::{Index, IndexMut};

/// Slots for nodes, classes, queues, schedulers or entries of a scheduler, by number. The numbers come from
/// the links of the structure itself, and are valid. Callers look up numbers from elsewhere with
/// [`find`](Self::find). No number comes from packets.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    items: Vec<T>,
    /// Free slots. [`insert`](Self::insert) takes the last one first.
    free: Vec<u32>,
}

impl<T> Slots<T> {
    /// Creates an empty set of slots, with capacity for `count`.
    pub fn with_capacity(count: usize) -> Self {
        Self { items: Vec::with_capacity(count), free: Vec::with_capacity(count) }
    }

    /// Returns the number of slots, including free slots.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns the number of slots in use.
    pub fn in_use(&self) -> u32 {
        (self.items.len() - self.free.len()) as u32
    }

    /// Returns the slot of a number, if there is one.
    #[inline(always)]
    pub fn find(&self, number: u32) -> Option<&T> {
        self.items.get(number as usize)
    }

    /// Returns the slot of a number for writing, if there is one.
    #[inline(always)]
    pub fn find_mut(&mut self, number: u32) -> Option<&mut T> {
        self.items.get_mut(number as usize)
    }

    /// Appends a slot.
    #[inline]
    pub fn push(&mut self, value: T) {
        self.items.push(value);
    }

    /// Puts a value into a free slot, or into a new one. Returns the number of the slot.
    pub fn insert(&mut self, value: T) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self[number] = value;
                number
            }
            None => {
                self.items.push(value);
                self.items.len() as u32 - 1
            }
        }
    }

    /// Frees a slot. Its value stays until the slot is used again.
    pub fn release(&mut self, number: u32) {
        self.free.push(number);
    }

    /// Reserves memory for `more` further slots, and for their release.
    pub fn reserve(&mut self, more: usize) {
        self.items.reserve(more);
        self.free.reserve((self.items.len() + more).saturating_sub(self.free.len()));
    }

    /// Returns all slots.
    #[inline(always)]
    pub fn all(&self) -> &[T] {
        &self.items
    }

    /// Returns all slots for writing, for a loop over many of them.
    #[inline(always)]
    pub fn all_mut(&mut self) -> &mut [T] {
        &mut self.items
    }
}

impl<T: Default> Slots<T> {
    /// Frees a slot and returns its value. The slot holds a default value until it is used again.
    pub fn remove(&mut self, number: u32) -> T {
        self.release(number);
        std::mem::take(&mut self[number])
    }
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self::with_capacity(0)
    }
}

impl<T> Index<u32> for Slots<T> {
    type Output = T;

    #[inline(always)]
    fn index(&self, number: u32) -> &T {
        &self.items[number as usize]
    }
}

impl<T> IndexMut<u32> for Slots<T> {
    #[inline(always)]
    fn index_mut(&mut self, number: u32) -> &mut T {
        &mut self.items[number as usize]
    }
}
