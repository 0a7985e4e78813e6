//! Shared maps: one instance writes a map, other instances read it, on any worker.
//!
//! A map has a copy for each worker, which only the writing instance at that worker changes. A reader looks
//! into the copy of its own worker first, then into the other copies. Neither readers nor writers wait.
//!
//! A key is in one of two buckets of eight slots, chosen by a keyed hash, and stays in its slot. A slot has
//! room for two values, of which one is current. The slot's first word selects it and changes with every
//! write, so that a reader detects a concurrent write and reads again. All memory is allocated when the map
//! is created.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use foldhash::quality::FixedState;

/// Maximum number of entries in each copy of a map.
pub const MOST_MAP_ENTRIES: u32 = 65_536;
/// Maximum memory of a map's copy in bytes.
pub const MOST_MAP_MEMORY: usize = 16 << 20;
/// Maximum number of maps of a plugin.
pub const MOST_MAPS: usize = 8;

/// Number of slots in a bucket.
const BUCKET: usize = 8;
/// Maximum number of attempts to read a slot that is being written. The limit keeps a permanent writer from
/// blocking a reader.
const ATTEMPTS: usize = 100;

/// Lowest bit of a slot's first word: the slot is in use. The bits above [`SECOND`] count the slot's changes.
const OCCUPIED: u64 = 1;
const SECOND: u64 = 2;
const CHANGE: u64 = 4;

/// Name and sizes of a shared map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapShape {
    /// Name of the map.
    pub name: String,
    /// Length of each key in bytes, 1 to [`MOST_MAP_KEY`](crate::MOST_MAP_KEY).
    pub key: u16,
    /// Length of each value in bytes, 1 to [`MOST_MAP_VALUE`](crate::MOST_MAP_VALUE).
    pub value: u16,
    /// Maximum number of entries at each worker, 1 to [`MOST_MAP_ENTRIES`].
    pub entries: u32,
}

impl MapShape {
    /// Returns the number of buckets. Together they have at least twice as many slots as the map may have
    /// entries.
    fn buckets(&self) -> usize {
        (self.entries as usize * 2).div_ceil(BUCKET).next_power_of_two().max(2)
    }

    /// Returns the number of words of a slot: state word, key, and two values.
    fn stride(&self) -> usize {
        1 + words(self.key) + 2 * words(self.value)
    }

    /// Returns the memory of a copy in bytes.
    pub fn memory(&self) -> usize {
        self.buckets() * BUCKET * self.stride() * 8
    }
}

fn words(bytes: u16) -> usize {
    usize::from(bytes).div_ceil(8)
}

/// Usage of a worker's copy of a shared map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapCounts {
    /// Number of entries.
    pub entries: u32,
    /// Number of new keys that found no room so far.
    pub refused: u64,
}

/// Shared map, with a copy for each worker.
#[derive(Debug)]
pub struct SharedMap {
    shape: MapShape,
    copies: Box<[Table]>,
}

impl SharedMap {
    /// Creates an empty map with a copy for each of `workers` workers.
    pub fn new(shape: MapShape, workers: usize) -> Arc<Self> {
        // The seed is random, so that nobody can choose keys that fall into the same buckets.
        let seed = RandomState::new().hash_one(0);
        let copies = (0..workers.max(1)).map(|_| Table::new(&shape, seed)).collect();
        Arc::new(Self { shape, copies })
    }

    /// Returns the shape of the map.
    pub fn shape(&self) -> &MapShape {
        &self.shape
    }

    /// Returns the usage of each worker's copy.
    pub fn counts(&self) -> Vec<MapCounts> {
        let counts = |table: &Table| MapCounts {
            entries: table.entries.load(Ordering::Relaxed),
            refused: table.refused.load(Ordering::Relaxed),
        };
        self.copies.iter().map(counts).collect()
    }

    /// Returns up to `most` entries of a worker's copy, in no particular order. Each returned entry was in
    /// the map at some time during the call.
    pub fn entries(&self, worker: usize, most: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
        let MapShape { key, value, .. } = self.shape;
        let exact = |(mut name, mut content): (Vec<u8>, Vec<u8>)| {
            name.truncate(key.into());
            content.truncate(value.into());
            (name, content)
        };
        self.copies.get(worker).map_or_else(Vec::new, |table| table.all().take(most).map(exact).collect())
    }

    /// Returns a handle by which an instance at a worker accesses the map. `writes`: whether the instance may
    /// also write.
    pub fn handle(self: &Arc<Self>, worker: usize, writes: bool) -> MapHandle {
        MapHandle { map: self.clone(), worker: worker.min(self.copies.len() - 1), writes }
    }
}

/// Error of a map operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapProblem {
    /// The map does not contain the key.
    Absent,
    /// The map has no room for another key.
    Full,
    /// The key or value has another size than the map declares, or the handle may not write.
    Refused,
}

/// Handle by which one instance accesses a shared map.
///
/// At most one instance uses a writing handle of a copy at any time: an instance and its successor at a
/// worker never run at once.
#[derive(Debug)]
pub struct MapHandle {
    map: Arc<SharedMap>,
    worker: usize,
    writes: bool,
}

impl MapHandle {
    /// Returns the shape of the map.
    pub fn shape(&self) -> &MapShape {
        self.map.shape()
    }

    /// Reads the value of a key into `value`: from the copy of this worker, or else from another copy.
    ///
    /// # Errors
    /// [`Absent`](MapProblem::Absent) or [`Refused`](MapProblem::Refused).
    pub fn get(&self, key: &[u8], value: &mut [u8]) -> Result<(), MapProblem> {
        self.fits(key, value.len())?;
        let copies = &self.map.copies;
        let others = copies.iter().enumerate().filter(|(worker, _)| *worker != self.worker);
        let mut all = std::iter::once(&copies[self.worker]).chain(others.map(|(_, table)| table));
        if all.any(|table| table.get(key, value)) { Ok(()) } else { Err(MapProblem::Absent) }
    }

    /// Sets the value of a key in the copy of this worker.
    ///
    /// # Errors
    /// [`Full`](MapProblem::Full) or [`Refused`](MapProblem::Refused).
    pub fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), MapProblem> {
        self.fits(key, value.len())?;
        self.own()?.set(key, value, self.shape().entries)
    }

    /// Removes a key from the copy of this worker.
    ///
    /// # Errors
    /// [`Absent`](MapProblem::Absent) or [`Refused`](MapProblem::Refused).
    pub fn remove(&mut self, key: &[u8]) -> Result<(), MapProblem> {
        self.fits(key, self.shape().value.into())?;
        self.own()?.remove(key)
    }

    fn own(&self) -> Result<&Table, MapProblem> {
        if self.writes { Ok(&self.map.copies[self.worker]) } else { Err(MapProblem::Refused) }
    }

    fn fits(&self, key: &[u8], value: usize) -> Result<(), MapProblem> {
        let shape = self.shape();
        let fits = key.len() == usize::from(shape.key) && value == usize::from(shape.value);
        if fits { Ok(()) } else { Err(MapProblem::Refused) }
    }
}

/// Copy of a shared map, written by one worker.
#[derive(Debug)]
struct Table {
    words: Box<[AtomicU64]>,
    stride: usize,
    key: usize,
    value: usize,
    hasher: FixedState,
    entries: AtomicU32,
    refused: AtomicU64,
}

/// Returns 1 to 8 bytes of a key or value as a word, padded with zeros.
fn word(bytes: &[u8]) -> u64 {
    let mut whole = [0; 8];
    whole[..bytes.len()].copy_from_slice(bytes);
    u64::from_ne_bytes(whole)
}

impl Table {
    fn new(shape: &MapShape, seed: u64) -> Self {
        let slots = shape.buckets() * BUCKET;
        Self {
            words: (0..slots * shape.stride()).map(|_| AtomicU64::new(0)).collect(),
            stride: shape.stride(),
            key: words(shape.key),
            value: words(shape.value),
            hasher: FixedState::with_seed(seed),
            entries: AtomicU32::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// Returns the two buckets of a key, each as the index of its first word.
    fn buckets(&self, key: &[u8]) -> [usize; 2] {
        let hash = self.hasher.hash_one(key);
        let buckets = self.words.len() / self.stride / BUCKET;
        let first = hash as usize & (buckets - 1);
        let second = (hash >> 32) as usize & (buckets - 1);
        let second = if second == first { first ^ 1 } else { second };
        [first, second].map(|bucket| bucket * BUCKET * self.stride)
    }

    fn slots(&self, key: &[u8]) -> impl Iterator<Item = usize> + use<> {
        let stride = self.stride;
        self.buckets(key)
            .into_iter()
            .flat_map(move |start| (0..BUCKET).map(move |slot| start + slot * stride))
    }

    fn has_key(&self, slot: usize, key: &[u8]) -> bool {
        let own = &self.words[slot + 1..][..self.key];
        own.iter().zip(key.chunks(8)).all(|(own, bytes)| own.load(Ordering::Relaxed) == word(bytes))
    }

    /// Returns the words of a slot's first value, or of its `second` value.
    fn value_at(&self, slot: usize, second: bool) -> &[AtomicU64] {
        let start = slot + 1 + self.key + if second { self.value } else { 0 };
        &self.words[start..start + self.value]
    }

    /// Calls `look` with the state word of a slot, and returns its result if the slot was not written
    /// meanwhile; otherwise tries again. Returns `None` for an empty slot, or after [`ATTEMPTS`] attempts.
    fn read<R>(&self, slot: usize, mut look: impl FnMut(u64) -> R) -> Option<R> {
        for _ in 0..ATTEMPTS {
            let state = self.words[slot].load(Ordering::Acquire);
            if state & OCCUPIED == 0 {
                return None;
            }
            let seen = look(state);
            // The fence orders the reads of `look` before the second read of the state word. If they saw a
            // later write, the state word has changed.
            fence(Ordering::Acquire);
            if self.words[slot].load(Ordering::Relaxed) == state {
                return Some(seen);
            }
        }
        None
    }

    fn get(&self, key: &[u8], value: &mut [u8]) -> bool {
        self.slots(key).any(|slot| {
            let look = |state: u64| {
                let is_it = self.has_key(slot, key);
                if is_it {
                    load(self.value_at(slot, state & SECOND != 0), value);
                }
                is_it
            };
            self.read(slot, look) == Some(true)
        })
    }

    /// Returns the slot of a key; `None` if the copy does not contain it. Only for the writer.
    fn find(&self, key: &[u8]) -> Option<usize> {
        self.slots(key).find(|slot| self.is_occupied(*slot) && self.has_key(*slot, key))
    }

    fn is_occupied(&self, slot: usize) -> bool {
        self.words[slot].load(Ordering::Relaxed) & OCCUPIED != 0
    }

    fn set(&self, key: &[u8], value: &[u8], most: u32) -> Result<(), MapProblem> {
        let (slot, is_new) = match self.find(key) {
            Some(slot) => (slot, false),
            None => (self.vacancy(key, most)?, true),
        };
        let state = self.words[slot].load(Ordering::Relaxed);
        // With this fence, a reader that sees any of the following writes also sees the present state word of
        // this slot, or a later one.
        fence(Ordering::Release);
        if is_new {
            store(&self.words[slot + 1..][..self.key], key);
            self.entries.fetch_add(1, Ordering::Relaxed);
        }
        let second = state & SECOND == 0;
        store(self.value_at(slot, second), value);
        let flags = OCCUPIED | if second { SECOND } else { 0 };
        self.words[slot]
            .store((state & !(OCCUPIED | SECOND)).wrapping_add(CHANGE) | flags, Ordering::Release);
        Ok(())
    }

    /// Returns a free slot for a new key. Of the key's two buckets, chooses the bucket with more free slots.
    /// `most`: maximum number of entries.
    fn vacancy(&self, key: &[u8], most: u32) -> Result<usize, MapProblem> {
        let vacant = |start: usize| {
            let slots = move || (0..BUCKET).map(move |slot| start + slot * self.stride);
            let free = slots().filter(|slot| !self.is_occupied(*slot)).count();
            Some((free, slots().find(|slot| !self.is_occupied(*slot))?))
        };
        let room = self.entries.load(Ordering::Relaxed) < most;
        let best = self.buckets(key).into_iter().filter_map(vacant).max_by_key(|(free, _)| *free);
        best.filter(|_| room).map(|(_, slot)| slot).ok_or_else(|| {
            self.refused.fetch_add(1, Ordering::Relaxed);
            MapProblem::Full
        })
    }

    fn remove(&self, key: &[u8]) -> Result<(), MapProblem> {
        let slot = self.find(key).ok_or(MapProblem::Absent)?;
        let state = self.words[slot].load(Ordering::Relaxed);
        self.words[slot].store((state & !OCCUPIED).wrapping_add(CHANGE), Ordering::Release);
        self.entries.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    fn all(&self) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> + '_ {
        (0..self.words.len()).step_by(self.stride).filter_map(|slot| {
            self.read(slot, |state| {
                let (mut key, mut value) = (vec![0; self.key * 8], vec![0; self.value * 8]);
                load(&self.words[slot + 1..][..self.key], &mut key);
                load(self.value_at(slot, state & SECOND != 0), &mut value);
                (key, value)
            })
        })
    }
}

fn load(from: &[AtomicU64], to: &mut [u8]) {
    for (bytes, word) in to.chunks_mut(8).zip(from) {
        bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes()[..bytes.len()]);
    }
}

fn store(to: &[AtomicU64], from: &[u8]) {
    for (bytes, to) in from.chunks(8).zip(to) {
        to.store(word(bytes), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn shape(key: u16, value: u16, entries: u32) -> MapShape {
        MapShape { name: "m".into(), key, value, entries }
    }

    fn bytes(number: u32, length: u16) -> Vec<u8> {
        number.to_le_bytes().into_iter().cycle().take(length.into()).collect()
    }

    proptest! {
        /// Runs random operations on a map and on a `HashMap` per worker with the same capacity; results must
        /// be equal.
        #[test]
        fn a_map_is_a_map(
            (key, value, entries, workers) in (2..20u16, 1..30u16, 1..60u32, 1..4usize),
            steps in prop::collection::vec((0..8u8, 0..90u32, any::<u32>(), 0..4usize), 1..400),
        ) {
            let map = SharedMap::new(shape(key, value, entries), workers);
            let mut handles: Vec<_> = (0..workers).map(|worker| map.handle(worker, true)).collect();
            let mut oracles = vec![HashMap::<Vec<u8>, Vec<u8>>::new(); workers];
            for (what, number, content, worker) in steps {
                let worker = worker % workers;
                let (name, content) = (bytes(number, key), bytes(content, value));
                let oracle = &mut oracles[worker];
                match what {
                    0..4 => {
                        let full = oracle.len() as u32 == entries && !oracle.contains_key(&name);
                        let expected = if full { Err(MapProblem::Full) } else { Ok(()) };
                        prop_assert_eq!(handles[worker].set(&name, &content), expected);
                        if !full {
                            oracle.insert(name.clone(), content);
                        }
                    }
                    4..6 => {
                        let expected = oracle.remove(&name).map(drop).ok_or(MapProblem::Absent);
                        prop_assert_eq!(handles[worker].remove(&name), expected);
                    }
                    _ => {}
                }
                let mut found = vec![0; value.into()];
                let is_there = map.handle(worker, false).get(&name, &mut found).is_ok();
                let own = oracles[worker].get(&name);
                let expected = own.or_else(|| oracles.iter().find_map(|oracle| oracle.get(&name)));
                prop_assert_eq!(is_there.then_some(&found), expected);
            }
            for (worker, oracle) in oracles.iter().enumerate() {
                let all: HashMap<_, _> = map.entries(worker, usize::MAX).into_iter().collect();
                prop_assert_eq!(&all, oracle);
                prop_assert_eq!(map.counts()[worker].entries as usize, oracle.len());
            }
        }
    }

    #[test]
    fn map_holds_its_declared_number_of_keys() {
        for entries in [1, 2, 7, 1000, MOST_MAP_ENTRIES] {
            let map = SharedMap::new(shape(4, 1, entries), 1);
            let mut handle = map.handle(0, true);
            assert!((0..entries).all(|key| handle.set(&key.to_le_bytes(), &[1]) == Ok(())), "{entries}");
            assert_eq!(handle.set(&entries.to_le_bytes(), &[1]), Err(MapProblem::Full));
            assert_eq!(map.counts(), [MapCounts { entries, refused: 1 }]);
        }
    }

    #[test]
    fn other_sizes_and_maps_of_others_are_refused() {
        let map = SharedMap::new(shape(4, 8, 10), 1);
        let (mut own, mut other) = (map.handle(0, true), map.handle(0, false));
        assert_eq!(own.set(&[0; 3], &[0; 8]), Err(MapProblem::Refused));
        assert_eq!(own.set(&[0; 4], &[0; 9]), Err(MapProblem::Refused));
        assert_eq!(other.set(&[0; 4], &[0; 8]), Err(MapProblem::Refused));
        assert_eq!(other.remove(&[0; 4]), Err(MapProblem::Refused));
        assert_eq!(own.get(&[0; 5], &mut [0; 8]), Err(MapProblem::Refused));
        assert_eq!(own.get(&[0; 4], &mut [0; 8]), Err(MapProblem::Absent));
    }

    /// A reader sees a complete value or none, while the writer changes, removes and inserts it.
    #[test]
    fn readers_see_no_partial_value() {
        const KEYS: u64 = 8;
        let map = SharedMap::new(shape(8, 256, 8), 2);
        let mut writer = map.handle(0, true);
        let readers: Vec<_> = (0..2)
            .map(|worker| {
                let reader = map.handle(worker, false);
                std::thread::spawn(move || {
                    let (mut value, mut found) = ([0; 256], 0_u64);
                    for round in 0..60_000_u64 {
                        if reader.get(&(round % KEYS).to_le_bytes(), &mut value).is_ok() {
                            let first = value[0];
                            assert!(value.iter().all(|byte| *byte == first), "{value:?}");
                            // The writer stores the key in the lowest bits of the value.
                            assert_eq!(u64::from(first) % KEYS, round % KEYS);
                            found += 1;
                        }
                    }
                    found
                })
            })
            .collect();
        let mut round = 0_u64;
        while readers.iter().any(|reader| !reader.is_finished()) {
            let key = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 61;
            let byte = (key | (round << 3)) as u8;
            writer.set(&key.to_le_bytes(), &[byte; 256]).unwrap();
            if round.is_multiple_of(3) {
                writer.remove(&key.to_le_bytes()).unwrap();
            }
            round += 1;
        }
        assert!(readers.into_iter().all(|reader| reader.join().unwrap() > 0));
    }
}
