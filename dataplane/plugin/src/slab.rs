//! Slab: values in numbered slots. A key finds only the value for which it was made, not a later value in the
//! same slot.

use std::hash::{Hash, Hasher};

/// Slot number of a value, and its generation: the number of earlier values in the slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    pub slot: u32,
    generation: u32,
}

impl Key {
    /// Encodes the key as a number. All workers have the same bindings under the same keys, so the number is
    /// valid at every worker.
    pub fn to_word(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }

    /// Decodes a key from a number.
    pub fn from_word(word: u64) -> Self {
        Self { slot: word as u32, generation: (word >> 32) as u32 }
    }
}

impl Hash for Key {
    /// Hashes slot and generation as one number.
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.to_word());
    }
}

/// Values in slots whose numbers the caller chooses. The memory grows with the largest slot number.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    taken: usize,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), taken: 0 }
    }
}

impl<T> Slab<T> {
    /// Creates an empty slab with memory for `slots` slots. Unused slots take no physical memory. The slab
    /// doesn't move in memory while it has at most `slots` slots.
    pub fn with_room(slots: usize) -> Self {
        let mut slab = Self::default();
        // If the reservation fails, the slab allocates memory on demand.
        let _ = slab.slots.try_reserve_exact(slots);
        slab
    }
}

impl<T> Slab<T> {
    /// Puts a value into a slot and returns the previous value.
    pub fn put(&mut self, slot: u32, value: T) -> Option<T> {
        let index = slot as usize;
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, || Slot { generation: 0, value: None });
        }
        let before = self.take(slot);
        if let Some(slot) = self.slots.get_mut(index) {
            slot.value = Some(value);
            self.taken += 1;
        }
        before
    }

    /// Returns the number of slots: the largest slot number used so far, plus one.
    pub fn end(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Empties a slot and returns its value.
    pub fn take(&mut self, slot: u32) -> Option<T> {
        let slot = self.slots.get_mut(slot as usize)?;
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.taken -= 1;
        Some(value)
    }

    /// Returns the key of the slot's current value.
    pub fn key(&self, slot: u32) -> Option<Key> {
        let found = self.slots.get(slot as usize)?;
        found.value.as_ref().map(|_| Key { slot, generation: found.generation })
    }

    /// Returns the key that the next value of a slot gets.
    pub fn next_key(&self, slot: u32) -> Key {
        let found = self.slots.get(slot as usize);
        let generation = found.map_or(0, |slot| slot.generation.wrapping_add(slot.value.is_some().into()));
        Key { slot, generation }
    }

    /// Returns the key and the current value of a slot.
    #[inline]
    pub fn at(&self, slot: u32) -> Option<(Key, &T)> {
        let found = self.slots.get(slot as usize)?;
        Some((Key { slot, generation: found.generation }, found.value.as_ref()?))
    }

    #[inline]
    pub fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slots.get(key.slot as usize)?;
        if slot.generation == key.generation { slot.value.as_ref() } else { None }
    }

    #[inline]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.slot as usize)?;
        if slot.generation == key.generation { slot.value.as_mut() } else { None }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.taken == 0
    }

    /// Returns mutable references to all values.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|slot| slot.value.as_mut())
    }

    /// Gives the value of `key` a new key, and returns the new key. The old key becomes invalid. Returns
    /// `None` if no value has the old key.
    pub fn renew(&mut self, key: Key) -> Option<Key> {
        self.get(key)?;
        let value = self.take(key.slot)?;
        self.put(key.slot, value);
        self.key(key.slot)
    }

    /// Returns the occupied slots: number and value.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0u32..).zip(&self.slots).filter_map(|(index, slot)| Some((index, slot.value.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_never_finds_a_later_value_of_its_slot() {
        let mut slab = Slab::default();
        assert_eq!(slab.put(3, 'a'), None);
        let key = slab.key(3).unwrap();
        assert_eq!(slab.get(key), Some(&'a'));
        assert_eq!((slab.at(3), slab.at(2), slab.at(4)), (Some((key, &'a')), None, None));
        assert_eq!(slab.take(3), Some('a'));
        assert_eq!((slab.get(key), slab.key(3), slab.is_empty()), (None, None, true));
        let next = slab.next_key(3);
        slab.put(3, 'b');
        assert_eq!(slab.key(3), Some(next));
        assert_eq!((slab.next_key(3) == next, slab.next_key(9)), (false, Key { slot: 9, generation: 0 }));
        assert_eq!(slab.get_mut(key), None);
        assert_eq!(slab.put(3, 'c'), Some('b'));
        assert_eq!(slab.iter().collect::<Vec<_>>(), [(3, &'c')]);
        assert!(!slab.is_empty());
    }

    #[test]
    fn slots_that_never_were_are_empty() {
        let mut slab = Slab::<u8>::default();
        assert_eq!(slab.take(7), None);
        assert_eq!(slab.key(7), None);
    }
}
