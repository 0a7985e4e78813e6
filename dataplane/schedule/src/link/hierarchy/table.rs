//! Table of schedulers of one kind.

use crate::slots::Slots;

/// Table of items by number. Numbers are reused.
#[derive(Debug)]
pub(super) struct Table<T> {
    items: Slots<T>,
    free: Vec<u32>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { items: Slots::default(), free: Vec::new() }
    }
}

impl<T: Default> Table<T> {
    pub fn insert(&mut self, item: T) -> u32 {
        match self.free.pop() {
            Some(index) => {
                self.items[index as usize] = item;
                index
            }
            None => {
                self.items.push(item);
                self.items.len() as u32 - 1
            }
        }
    }

    pub fn remove(&mut self, index: u32) -> T {
        self.free.push(index);
        std::mem::take(&mut self.items[index as usize])
    }

    /// Iterates over all items; a removed item is a default one.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.items.iter_mut()
    }

    /// Whether the table never had an item.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    #[inline]
    pub fn get(&self, index: u32) -> &T {
        &self.items[index as usize]
    }

    /// Returns the item of a number, if the number was ever in use.
    #[inline]
    pub fn find_mut(&mut self, index: u32) -> Option<&mut T> {
        self.items.find_mut(index as usize)
    }

    #[inline]
    pub fn get_mut(&mut self, index: u32) -> &mut T {
        &mut self.items[index as usize]
    }
}
