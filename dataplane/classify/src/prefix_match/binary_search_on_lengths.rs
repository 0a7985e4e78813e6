//! Binary search on prefix lengths (Waldvogel, Varghese, Turner and Plattner 1997).
//!
//! The lengths in use are searched by halving: a hash probe for the address's first bits says whether to go on among
//! longer or shorter ones. For a prefix to be found, *markers* of it lie at the shorter lengths that the search for it
//! visits. Each entry, marker or prefix, knows the longest prefix that covers it, so that a search misled by a marker
//! needs no way back. Of an entry under which nothing longer lies, the search is over.
//!
//! One hash table holds all lengths, the length being part of the key. Probes are at most log2 (lengths in use + 1),
//! rounded up: 1 where all prefixes are hosts, 5 up to 31 lengths, 7 up to 127.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use super::lengths::Lengths;
use super::{AddressBits, Count, NONE, Patricia, Prefix, PrefixMatch};

/// Prefixes in a hash table by length, with markers.
///
/// Insertion and removal take time in proportion to what lies directly below the prefix; the first of a length, and the
/// removal of the last of one, in proportion to all.
#[derive(Clone, Debug)]
pub struct BinarySearchOnLengths<A> {
    entries: HashMap<Prefix<A>, Entry, FixedState>,
    lengths: Lengths,
    /// The prefixes in the order of addresses, for changes.
    known: Patricia<A>,
}

/// What is found at the first bits of an address.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Value of the longest prefix that covers it, or [`NONE`].
    best: u32,
    /// Length of that prefix; 0 where there is none.
    best_length: u8,
    /// How many longer prefixes have a marker here.
    markers: u32,
}

impl<A> Default for BinarySearchOnLengths<A> {
    fn default() -> Self {
        Self { entries: HashMap::default(), lengths: Lengths::default(), known: Patricia::default() }
    }
}

impl<A: AddressBits> BinarySearchOnLengths<A> {
    /// Where the markers of a prefix lie: at the shorter lengths that the search for it visits.
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

    /// The entry that stands for the longest of the known prefixes that cover `at`.
    fn best_at(&self, at: Prefix<A>) -> Entry {
        let covering = self.known.covering(at, true);
        let (length, best) = covering.map_or((0, NONE), |(prefix, value)| (prefix.length(), value));
        Entry { best, best_length: length, markers: 0 }
    }

    /// Enters a known prefix and its markers.
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

    /// Corrects the markers below a prefix that came, went or has another value: those of what lies directly below it,
    /// as far as they are longer. Markers further down know a longer prefix.
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

    /// Takes a prefix and its markers out, when it is no longer known.
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
            // At most 129 bytes, of which halving reads one cache line, or two.
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
                    // Where the map looked is not told.
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
        // A slot of the table, and a byte of its control bytes.
        let slot = size_of::<(Prefix<A>, Entry)>() + 1;
        // Of the slots, seven in eight may be in use.
        self.entries.capacity() * 8 / 7 * slot + self.lengths.heap() + self.known.heap()
    }
}
