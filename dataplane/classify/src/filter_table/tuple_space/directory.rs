//! A hash table from keys to groups of filters, in which a lookup that finds nothing reads 16 bytes.

use millrace_memory::prefetch_slice_element;

/// Fingerprints in a bucket.
const WAYS: usize = 7;
/// Behind the fingerprints of a bucket stands how many keys found it full and went on to the next.
const PASSED: usize = WAYS;
/// Keys per bucket above which the table grows.
const LOAD: usize = 4;

/// The buckets. A key is known by 32 bits of hash: two keys of equal hash are taken for one, so whoever asks must
/// compare what the group holds with what he looks for.
#[derive(Clone, Debug)]
pub(super) struct Directory {
    /// 16 bits of each key, never 0; 0 where there is none. Searched first and alone.
    fingerprints: Vec<[u16; WAYS + 1]>,
    keys: Vec<[Slot; WAYS]>,
    length: usize,
}

#[derive(Clone, Copy, Default, Debug)]
struct Slot {
    hash: u32,
    group: u32,
}

/// A place in the directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    bucket: usize,
    way: usize,
}

impl Default for Directory {
    fn default() -> Self {
        Self::with_buckets(1)
    }
}

/// The 16 bits of `hash` that are compared first.
#[inline(always)]
fn fingerprint(hash: u32) -> u16 {
    (hash >> 16) as u16 | 1
}

/// The ways of a bucket that hold `wanted`, as bits.
#[inline(always)]
fn ways_of(bucket: &[u16; WAYS + 1], wanted: u16) -> u32 {
    let mut ways = 0;
    for (way, fingerprint) in bucket.iter().enumerate() {
        ways |= u32::from(*fingerprint == wanted) << way;
    }
    ways & ((1 << WAYS) - 1)
}

impl Directory {
    fn with_buckets(buckets: usize) -> Self {
        Self {
            fingerprints: vec![[0; WAYS + 1]; buckets],
            keys: vec![[Slot::default(); WAYS]; buckets],
            length: 0,
        }
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.length
    }

    #[inline(always)]
    fn home(&self, hash: u32) -> usize {
        hash as usize & (self.fingerprints.len() - 1)
    }

    /// Has the first bucket of a key fetched.
    #[inline(always)]
    pub fn prefetch(&self, hash: u32) {
        prefetch_slice_element(&self.fingerprints, self.home(hash));
    }

    /// Calls `visit` with the group of each key that may be `hash`, until it says that it has seen enough.
    #[inline(always)]
    pub fn find(&self, hash: u32, mut visit: impl FnMut(u32) -> bool) {
        let wanted = fingerprint(hash);
        let mut bucket = self.home(hash);
        loop {
            let fingerprints = &self.fingerprints[bucket];
            let mut ways = ways_of(fingerprints, wanted);
            while ways != 0 {
                if visit(self.keys[bucket][ways.trailing_zeros() as usize].group) {
                    return;
                }
                ways &= ways - 1;
            }
            if fingerprints[PASSED] == 0 {
                return;
            }
            bucket = (bucket + 1) & (self.fingerprints.len() - 1);
        }
    }

    /// Where a key is.
    pub fn place(&self, hash: u32) -> Option<Place> {
        let mut bucket = self.home(hash);
        loop {
            let mut ways = ways_of(&self.fingerprints[bucket], fingerprint(hash));
            while ways != 0 {
                let way = ways.trailing_zeros() as usize;
                if self.keys[bucket][way].hash == hash {
                    return Some(Place { bucket, way });
                }
                ways &= ways - 1;
            }
            if self.fingerprints[bucket][PASSED] == 0 {
                return None;
            }
            bucket = (bucket + 1) & (self.fingerprints.len() - 1);
        }
    }

    /// The group at a place.
    pub fn group(&self, place: Place) -> u32 {
        self.keys[place.bucket][place.way].group
    }

    /// Changes the group at a place.
    pub fn set_group(&mut self, place: Place, group: u32) {
        self.keys[place.bucket][place.way].group = group;
    }

    /// Adds a key that isn't there.
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
        while !self.fingerprints[bucket][..WAYS].contains(&0) {
            // It can't wrap: at most `LOAD` keys per bucket, and far fewer buckets than keys that pass one of them.
            self.fingerprints[bucket][PASSED] += 1;
            bucket = (bucket + 1) & (self.fingerprints.len() - 1);
        }
        let way = ways_of(&self.fingerprints[bucket], 0).trailing_zeros() as usize;
        self.fingerprints[bucket][way] = fingerprint(slot.hash);
        self.keys[bucket][way] = slot;
        self.length += 1;
    }

    /// Takes out the key at a place.
    pub fn remove(&mut self, place: Place) {
        let hash = self.keys[place.bucket][place.way].hash;
        let mut bucket = self.home(hash);
        while bucket != place.bucket {
            self.fingerprints[bucket][PASSED] -= 1;
            bucket = (bucket + 1) & (self.fingerprints.len() - 1);
        }
        self.fingerprints[place.bucket][place.way] = 0;
        self.length -= 1;
    }

    fn slots(&self) -> impl Iterator<Item = Slot> {
        let ways = |bucket: &[u16; WAYS + 1]| *bucket;
        self.fingerprints.iter().map(ways).zip(&self.keys).flat_map(|(fingerprints, keys)| {
            keys.iter().enumerate().filter(move |(way, _)| fingerprints[*way] != 0).map(|(_, slot)| *slot)
        })
    }

    /// All groups.
    pub fn groups(&self) -> impl Iterator<Item = u32> {
        self.slots().map(|slot| slot.group)
    }

    /// Bytes behind the pointers.
    pub fn memory(&self) -> usize {
        size_of_val(self.fingerprints.as_slice()) + size_of_val(self.keys.as_slice())
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
                    let mut found = false;
                    directory.find(*hash, |seen| { found |= seen == *group; found });
                    prop_assert!(found);
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
