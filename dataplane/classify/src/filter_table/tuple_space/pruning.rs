//! Pruning: selects the tables that can match a packet by its addresses alone.
//!
//! This is the *pruned tuple space* of Srinivasan, Suri and Varghese (SIGCOMM 1999, section 4), with hashed
//! maps of a few prefix lengths instead of a longest prefix match. Each map is for one address (source or
//! destination) and one prefix length. For each prefix of this length, the map lists the tables that have
//! filters inside the prefix. Tables that have a filter with a shorter prefix are in every list of the map. A
//! table can match a packet only if it is in the packet's lists of all maps.

use crate::filter_table::key::{Key, Tuple, V4};
use crate::prefix_match::Count;

/// Number of maps for a family.
pub(super) const MAPS: usize = 6;

/// Returns the prefix lengths of the maps for each address.
const fn lengths(words: usize) -> [u32; MAPS / 2] {
    if words == V4 { [16, 23, 28] } else { [32, 48, 64] }
}

/// Set of tables: bit n stands for the table at position n.
pub(super) type Tables = u64;

/// All maps of a family. Maps with even numbers are for sources, those with odd numbers for destinations.
#[derive(Clone, Debug)]
pub(super) struct Pruning<const W: usize> {
    maps: [Map; MAPS],
}

#[derive(Clone, Debug)]
struct Map {
    /// Mask of the prefix, in the word that holds the first address bits.
    mask: u64,
    length: u32,
    /// Tables with filters of shorter prefixes. Every entry includes them.
    always: Tables,
    /// Sets of tables, one for each hash value of a prefix. Their number is a power of two.
    entries: Vec<Tables>,
    /// 64 minus the binary logarithm of the number of entries.
    shift: u32,
    /// Number of entries with more tables than `always`.
    used: usize,
}

/// Returns the word with the first bits of the address that a map is for.
#[inline(always)]
fn word<const W: usize>(words: &[u64; W], map: usize) -> u64 {
    // IPv4 has both addresses in one word; IPv6 has two words for each address.
    words[map % 2 * (W - 1) / 2]
}

impl<const W: usize> Default for Pruning<W> {
    fn default() -> Self {
        let maps = std::array::from_fn(|map| {
            let length = lengths(W)[map / 2];
            let upper = u64::MAX << (64 - length);
            let mask = if W == V4 && map % 2 == 1 { upper >> 32 } else { upper };
            Map { mask, length, always: 0, entries: vec![0; 2], shift: 63, used: 0 }
        });
        Self { maps }
    }
}

impl<const W: usize> Pruning<W> {
    /// Returns the tables that can match a packet.
    #[inline(always)]
    pub fn tables(&self, key: &Key<W>, count: &mut impl Count) -> Tables {
        let entry = |(index, map): (usize, &Map)| {
            let entry = &map.entries[map.place(word(&key.words, index)) as usize];
            count.read(entry);
            *entry
        };
        self.maps.iter().enumerate().map(entry).fold(Tables::MAX, |tables, entry| tables & entry)
    }

    /// Adds a filter of the table at `position`. `example` is a key that matches the filter, and `tuple`
    /// holds the bits that the filter fixes. Returns `false` if a map has become too full; the caller must
    /// then rebuild all maps.
    pub fn add(&mut self, example: &Key<W>, tuple: &Tuple<W>, position: usize) -> bool {
        let (source, destination) = tuple.lengths();
        let mut roomy = true;
        for (index, map) in self.maps.iter_mut().enumerate() {
            let own = if index % 2 == 0 { source } else { destination };
            let place = (own >= map.length).then(|| map.place(word(&example.words, index)));
            map.add(place, 1 << position);
            roomy &= 2 * map.used <= map.entries.len();
        }
        roomy
    }

    /// Removes all filters, and reserves memory for `filters` filters.
    pub fn clear(&mut self, filters: usize) {
        for map in &mut self.maps {
            map.always = 0;
            map.set_entries(vec![0; (4 * filters).next_power_of_two().max(2)]);
        }
    }

    /// Frees unneeded memory after all filters were added.
    pub fn shrink(&mut self) {
        self.maps.iter_mut().for_each(Map::shrink);
    }

    /// Removes the table at `position`. The positions of later tables decrease by one.
    pub fn remove_table(&mut self, position: usize) {
        let below = (1 << position) - 1;
        self.change(|tables| (tables & below) | (tables >> 1 & !below));
    }

    /// Moves the table at `from` to `to`.
    pub fn move_table(&mut self, from: usize, to: usize) {
        let (out, into) = ((1 << from) - 1, (1 << to) - 1);
        self.change(|tables| {
            let rest = (tables & out) | (tables >> 1 & !out);
            (rest & into) | (rest & !into) << 1 | (tables >> from & 1) << to
        });
    }

    fn change(&mut self, change: impl Fn(Tables) -> Tables) {
        for map in &mut self.maps {
            map.always = change(map.always);
            for entry in &mut map.entries {
                *entry = change(*entry);
            }
        }
    }

    /// Returns the heap memory in bytes.
    pub fn memory(&self) -> usize {
        self.maps.iter().map(|map| size_of_val(map.entries.as_slice())).sum()
    }
}

impl Map {
    #[inline(always)]
    fn place(&self, word: u64) -> u32 {
        // Fibonacci hashing: the upper bits of the product.
        ((word & self.mask).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as u32
    }

    /// Adds a table to the entry at a place; with `None`, to all entries.
    fn add(&mut self, place: Option<u32>, table: Tables) {
        match place {
            Some(place) => {
                let entry = &mut self.entries[place as usize];
                self.used += usize::from(*entry == self.always && *entry & table == 0);
                *entry |= table;
            }
            None if self.always & table == 0 => {
                self.always |= table;
                self.entries.iter_mut().for_each(|entry| *entry |= table);
            }
            None => {}
        }
    }

    /// Replaces the entries. Their number must be a power of two greater than 1.
    fn set_entries(&mut self, entries: Vec<Tables>) {
        self.shift = 64 - entries.len().trailing_zeros();
        self.used = entries.iter().filter(|entry| **entry != self.always).count();
        self.entries = entries;
    }

    fn shrink(&mut self) {
        while self.entries.len() > 2 && 8 * self.used < self.entries.len() {
            self.set_entries(self.entries.chunks(2).map(|pair| pair[0] | pair[1]).collect());
        }
    }
}
