//! Binary search on prefix lengths (Waldvogel, Varghese, Turner and Plattner 1997).
//!
//! The search halves the list of prefix lengths in use. A hash probe for the address's leading bits decides
//! between longer and shorter lengths. A prefix has a *marker* at each shorter length that the search for the
//! prefix visits. A marker makes the search continue with longer lengths. Each entry, marker or prefix,
//! stores the longest prefix that covers it. Therefore a search needs no backtracking if a marker has led it
//! to longer lengths without a match. A search ends at an entry without longer prefixes below it.
//!
//! One hash table holds all lengths; the length is part of the key. The maximum number of probes is log2
//! (lengths in use + 1), rounded up: 1 if all prefixes are hosts, 5 for up to 31 lengths, 7 for up to 127.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use super::lengths::Lengths;
use super::{AddressBits, Count, NONE, Patricia, Prefix, PrefixMatch};

/// Set of prefixes in a hash table, with markers.
///
/// Adding or removing a prefix takes time proportional to the number of prefixes directly below it. Adding
/// the first prefix of a length, or removing the last, takes time proportional to the number of all prefixes.
#[derive(Clone, Debug)]
pub struct BinarySearchOnLengths<A> {
    entries: HashMap<Prefix<A>, Entry, FixedState>,
    lengths: Lengths,
    /// The prefixes of the set in a trie, which finds the prefixes above and below a changed prefix.
    known: Patricia<A>,
}

/// Entry of the hash table: a prefix of the set, a marker, or both at once.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Value of the longest prefix that covers the entry, or [`NONE`].
    best: u32,
    /// Length of the longest prefix that covers the entry; 0 without one.
    best_length: u8,
    /// Number of longer prefixes that have a marker here.
    markers: u32,
}

impl<A> Default for BinarySearchOnLengths<A> {
    fn default() -> Self {
        Self { entries: HashMap::default(), lengths: Lengths::default(), known: Patricia::default() }
    }
}

impl<A: AddressBits> BinarySearchOnLengths<A> {
    /// Returns the markers of a prefix: its leading bits at the shorter lengths that its search visits.
    fn markers_of(&self, prefix: Prefix<A>) -> impl Iterator<Item = Prefix<A>> + use<A> {
        let lengths = self.lengths.as_slice();
        let (mut low, mut high, mut visited) = (0, lengths.len(), [0; 8]);
        let mut shorter = 0;
        while low < high {
            let middle = (low + high) / 2;
            if lengths[middle] >= prefix.length() {
                high = middle;
            } else {
                visited[shorter] = lengths[middle];
                shorter += 1;
                low = middle + 1;
            }
        }
        visited.into_iter().take(shorter).map(move |length| Prefix::new(prefix.bits(), length))
    }

    /// Returns an entry with the longest prefix of the set that covers `at`.
    fn best_at(&self, at: Prefix<A>) -> Entry {
        let covering = self.known.covering(at, true);
        let (length, best) = covering.map_or((0, NONE), |(prefix, value)| (prefix.length(), value));
        Entry { best, best_length: length, markers: 0 }
    }

    /// Adds a prefix of the set, and its markers, to the hash table.
    fn enter(&mut self, prefix: Prefix<A>) {
        let own = self.best_at(prefix);
        self.entries
            .entry(prefix)
            .and_modify(|entry| *entry = Entry { markers: entry.markers, ..own })
            .or_insert(own);
        for marker in self.markers_of(prefix) {
            let best = self.best_at(marker);
            self.entries.entry(marker).or_insert(best).markers += 1;
        }
    }

    fn enter_all_anew(&mut self) {
        let mut all = Vec::with_capacity(self.known.len());
        self.known.within(Prefix::default(), &mut |prefix, _| all.push(prefix));
        self.entries = HashMap::default();
        all.into_iter().for_each(|prefix| self.enter(prefix));
    }

    /// Corrects markers after `prefix` was added, removed or changed. These are the markers longer than
    /// `prefix` that belong to prefixes directly below it. All other markers are covered by a longer prefix
    /// of the set, so they don't depend on `prefix`.
    fn correct_below(&mut self, prefix: Prefix<A>) {
        let mut below = Vec::new();
        self.known.next_below(prefix, &mut |next| below.push(next));
        if below.is_empty() {
            return;
        }
        let best = match self.known.get(prefix) {
            Some(value) => Entry { best: value, best_length: prefix.length(), markers: 0 },
            None => self.best_at(prefix),
        };
        for next in below {
            for marker in self.markers_of(next).filter(|marker| marker.length() > prefix.length()) {
                if let Some(entry) = self.entries.get_mut(&marker) {
                    *entry = Entry { markers: entry.markers, ..best };
                }
            }
        }
    }

    /// Removes a prefix that the set no longer has, and its markers, from the hash table.
    fn leave(&mut self, prefix: Prefix<A>) {
        let best = self.best_at(prefix);
        if let Some(entry) = self.entries.get_mut(&prefix) {
            *entry = Entry { markers: entry.markers, ..best };
            if entry.markers == 0 {
                self.entries.remove(&prefix);
            }
        }
        for marker in self.markers_of(prefix) {
            let Some(entry) = self.entries.get_mut(&marker) else { continue };
            entry.markers -= 1;
            let is_prefix = entry.best != NONE && entry.best_length == marker.length();
            if entry.markers == 0 && !is_prefix {
                self.entries.remove(&marker);
            }
        }
    }
}

impl<A: AddressBits> PrefixMatch<A> for BinarySearchOnLengths<A> {
    fn insert(&mut self, prefix: Prefix<A>, value: u32) -> Option<u32> {
        let old = self.known.insert(prefix, value);
        if old.is_some() {
            let own = self.best_at(prefix);
            self.entries.entry(prefix).and_modify(|entry| *entry = Entry { markers: entry.markers, ..own });
            self.correct_below(prefix);
            return old;
        }
        if self.lengths.add(prefix.length()) {
            self.enter_all_anew();
        } else {
            self.enter(prefix);
            self.correct_below(prefix);
        }
        None
    }

    fn remove(&mut self, prefix: Prefix<A>) -> Option<u32> {
        let old = self.known.remove(prefix)?;
        if self.lengths.remove(prefix.length()) {
            self.enter_all_anew();
        } else {
            self.leave(prefix);
            self.correct_below(prefix);
        }
        Some(old)
    }

    fn get(&self, prefix: Prefix<A>) -> Option<u32> {
        self.known.get(prefix)
    }

    #[inline]
    fn lookup(&self, address: A, count: &mut impl Count) -> Option<u32> {
        let lengths = self.lengths.as_slice();
        let (mut best, mut low, mut high) = (NONE, 0, lengths.len());
        if self.lengths.are_many() {
            // A binary search in at most 129 bytes reads one or two cache lines.
            count.read(lengths);
        }
        while low < high {
            let middle = (low + high) / 2;
            match self.entries.get(&Prefix::new(address, lengths[middle])) {
                Some(entry) => {
                    count.read(entry);
                    best = entry.best;
                    if entry.markers == 0 {
                        break;
                    }
                    low = middle + 1;
                }
                None => {
                    // The hash map doesn't reveal which address it accesses.
                    count.access(1);
                    high = middle;
                }
            }
        }
        (best != NONE).then_some(best)
    }

    fn above(&self, prefix: Prefix<A>) -> Option<u32> {
        self.known.above(prefix)
    }

    fn within(&self, prefix: Prefix<A>, found: &mut dyn FnMut(Prefix<A>, u32)) {
        self.known.within(prefix, found);
    }

    fn len(&self) -> usize {
        self.known.len()
    }

    fn heap(&self) -> usize {
        // Slot of the hash map, with its control byte.
        let slot = size_of::<(Prefix<A>, Entry)>() + 1;
        // A hash map keeps one slot in eight free.
        self.entries.capacity() * 8 / 7 * slot + self.lengths.heap() + self.known.heap()
    }
}
