//! Directory: hash table from keys to groups of filters. A search without a match usually reads only 16
//! bytes.

use millrace_memory::{equal_shorts, prefetch_slice_element};

use crate::prefix_match::Count;

/// Number of ways of a bucket: slots that hold one key each, with a fingerprint of the key.
const WAYS: usize = 7;
const ALL_WAYS: u32 = (1 << WAYS) - 1;
/// Average number of keys in a bucket above which the table grows.
const LOAD: usize = 4;

/// Buckets of keys. The directory distinguishes keys only by their 32-bit hashes, and keys with equal hashes
/// share a group. So the caller must compare the group's filters with the packet.
#[derive(Clone, Debug)]
pub(super) struct Directory {
    /// Fingerprints of each bucket. A search reads them first, and usually reads nothing else.
    fingerprints: Vec<Fingerprints>,
    keys: Vec<Keys>,
    length: usize,
}

#[derive(Clone, Copy, Default, Debug)]
struct Slot {
    hash: u32,
    group: u32,
}

/// Keys and groups of a bucket: a cache line.
#[derive(Clone, Copy, Default, Debug)]
#[repr(align(64))]
struct Keys([Slot; WAYS]);

/// Place of a key: bucket and way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    bucket: usize,
    way: usize,
}

/// State of a search: its current bucket, and the bucket's ways that the search still has to compare.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Cursor {
    bucket: u32,
    ways: u32,
}

impl Cursor {
    /// Whether no way of this bucket is left. The next bucket may still have the key.
    #[inline(always)]
    pub fn is_empty(self) -> bool {
        self.ways == 0
    }
}

impl Default for Directory {
    fn default() -> Self {
        Self::with_buckets(1)
    }
}

impl Directory {
    fn with_buckets(buckets: usize) -> Self {
        Self {
            fingerprints: vec![Fingerprints::default(); buckets],
            keys: vec![Keys::default(); buckets],
            length: 0,
        }
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.length
    }

    #[inline(always)]
    fn home(&self, hash: u32) -> usize {
        hash as usize & (self.fingerprints.len() - 1)
    }

    /// Prefetches the first bucket of a key.
    #[inline(always)]
    pub fn prefetch(&self, hash: u32) {
        prefetch_slice_element(&self.fingerprints, self.home(hash));
    }

    /// Starts a search for a key.
    #[inline(always)]
    pub fn start(&self, hash: u32) -> Cursor {
        let bucket = self.home(hash);
        Cursor { bucket: bucket as u32, ways: self.fingerprints[bucket].ways(fingerprint(hash)) }
    }

    /// Whether the search must continue in the next bucket.
    #[inline(always)]
    pub fn has_more(&self, cursor: Cursor) -> bool {
        self.fingerprints[cursor.bucket as usize].passed() > 0
    }

    /// Returns the next place that may have the key; `None` at the end of the search.
    #[inline(always)]
    pub fn next(&self, hash: u32, cursor: &mut Cursor) -> Option<Place> {
        loop {
            if cursor.ways != 0 {
                let way = cursor.ways.trailing_zeros() as usize;
                cursor.ways &= cursor.ways - 1;
                return Some(Place { bucket: cursor.bucket as usize, way });
            }
            if !self.has_more(*cursor) {
                return None;
            }
            let bucket = (cursor.bucket as usize + 1) & (self.fingerprints.len() - 1);
            *cursor =
                Cursor { bucket: bucket as u32, ways: self.fingerprints[bucket].ways(fingerprint(hash)) };
        }
    }

    /// Counts the read of the fingerprints of the cursor's bucket.
    #[inline(always)]
    pub fn read_start(&self, cursor: Cursor, count: &mut impl Count) {
        count.read(&self.fingerprints[cursor.bucket as usize]);
    }

    /// Counts the read of the key at a place.
    #[inline(always)]
    pub fn read_keys(&self, place: Place, count: &mut impl Count) {
        count.read(&self.keys[place.bucket]);
    }

    /// Returns the place of a key; `None` for an unknown key.
    pub fn place(&self, hash: u32) -> Option<Place> {
        let mut cursor = self.start(hash);
        while let Some(place) = self.next(hash, &mut cursor) {
            if self.keys[place.bucket].0[place.way].hash == hash {
                return Some(place);
            }
        }
        None
    }

    /// Returns the group at a place.
    #[inline(always)]
    pub fn group(&self, place: Place) -> u32 {
        self.keys[place.bucket].0[place.way].group
    }

    /// Sets the group at a place.
    pub fn set_group(&mut self, place: Place, group: u32) {
        self.keys[place.bucket].0[place.way].group = group;
    }

    /// Adds a key that the directory lacks.
    pub fn insert(&mut self, hash: u32, group: u32) {
        if self.length >= LOAD * self.fingerprints.len() {
            let mut larger = Self::with_buckets(2 * self.fingerprints.len());
            for slot in self.slots() {
                larger.put(slot);
            }
            *self = larger;
        }
        self.put(Slot { hash, group });
    }

    fn put(&mut self, slot: Slot) {
        let mut bucket = self.home(slot.hash);
        let way = loop {
            let free = self.fingerprints[bucket].ways(0);
            if free != 0 {
                break free.trailing_zeros() as usize;
            }
            // The counter doesn't overflow. The hashes spread the keys, and the directory has more ways than
            // keys. So fewer than 65,536 keys continue beyond this bucket.
            self.fingerprints[bucket].0[WAYS] += 1;
            bucket = (bucket + 1) & (self.fingerprints.len() - 1);
        };
        self.fingerprints[bucket].0[way] = fingerprint(slot.hash);
        self.keys[bucket].0[way] = slot;
        self.length += 1;
    }

    /// Removes the key at a place.
    pub fn remove(&mut self, place: Place) {
        let mut bucket = self.home(self.keys[place.bucket].0[place.way].hash);
        while bucket != place.bucket {
            self.fingerprints[bucket].0[WAYS] -= 1;
            bucket = (bucket + 1) & (self.fingerprints.len() - 1);
        }
        self.fingerprints[place.bucket].0[place.way] = 0;
        self.length -= 1;
    }

    fn slots(&self) -> impl Iterator<Item = Slot> {
        self.fingerprints.iter().zip(&self.keys).flat_map(|(fingerprints, keys)| {
            let free = fingerprints.ways(0);
            keys.0.iter().enumerate().filter(move |(way, _)| free >> way & 1 == 0).map(|(_, slot)| *slot)
        })
    }

    /// Iterates over all groups.
    pub fn groups(&self) -> impl Iterator<Item = u32> {
        self.slots().map(|slot| slot.group)
    }

    /// Returns the heap memory in bytes.
    pub fn memory(&self) -> usize {
        size_of_val(self.fingerprints.as_slice()) + size_of_val(self.keys.as_slice())
    }
}

/// Fingerprints of a bucket, one for each way: 16 bits of the key's hash, never 0; 0 for a free way. The last
/// of the eight words is a counter of the keys that found the bucket full and continued to the next one.
#[derive(Clone, Copy, Default, Debug)]
#[repr(align(16))]
struct Fingerprints([u16; WAYS + 1]);

/// Returns the fingerprint of a hash, which a search compares first.
#[inline(always)]
fn fingerprint(hash: u32) -> u16 {
    (hash >> 16) as u16 | 1
}

impl Fingerprints {
    /// Returns the ways whose fingerprint is `wanted`, as a bit set.
    #[inline(always)]
    fn ways(&self, wanted: u16) -> u32 {
        equal_shorts(&self.0, wanted) & ALL_WAYS
    }

    #[inline(always)]
    fn passed(&self) -> u16 {
        self.0[WAYS]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_directory_is_a_map(
            changes in prop::collection::vec((0u32..40, 0u32..4, any::<bool>()), 0..400),
        ) {
            let (mut directory, mut map) = (Directory::default(), HashMap::new());
            for (number, (bucket, print, insert)) in changes.into_iter().enumerate() {
                let hash = (print << 29) | (bucket << 20) | (bucket % 4);
                match (insert, directory.place(hash)) {
                    (true, None) => {
                        directory.insert(hash, number as u32);
                        map.insert(hash, number as u32);
                    }
                    (true, Some(place)) => {
                        directory.set_group(place, number as u32);
                        map.insert(hash, number as u32);
                    }
                    (false, Some(place)) => {
                        prop_assert_eq!(map.remove(&hash), Some(directory.group(place)));
                        directory.remove(place);
                    }
                    (false, None) => prop_assert_eq!(map.get(&hash), None),
                }
                prop_assert_eq!(directory.len(), map.len());
                for (hash, group) in &map {
                    let place = directory.place(*hash);
                    prop_assert_eq!(place.map(|place| directory.group(place)), Some(*group));
                }
            }
            let mut groups: Vec<_> = directory.groups().collect();
            let mut expected: Vec<_> = map.into_values().collect();
            groups.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(groups, expected);
        }
    }
}
