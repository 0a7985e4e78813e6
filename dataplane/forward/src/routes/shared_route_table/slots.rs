//! Readers' view of a route table.
//!
//! An [`Entry`] is a value, a node, or empty. The root has an entry for each value of an address's first 24
//! bits. A node has an entry for each value of the next octet, but stores a run of neighbouring octets with
//! equal entries once. A bit set marks the first octet of each run. To find an octet's entry, a lookup counts
//! the bits up to that octet. A node also has a *default* for octets without their own entry: the value that
//! the node replaced.
//!
//! Words of a node, of 64 bits each:
//!
//! ```text
//! 0..4   bit 64 * word + n: a run begins at this octet (at octet 0 always)
//! 4      bytes 0 to 3: how many runs begin before word 0, 1, 2, 3; upper half: the default
//! 5..    the entries of the runs, two in a word, the first in the lower half
//! ```
//!
//! So a node of up to 6 runs takes one cache line. Nine in ten nodes have at most 6 runs.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use millrace_memory::{HugeSlice, MemoryError, prefetch, prefetch_slice_element};

/// Number of address bits that select a root entry.
pub(super) const ROOT_BITS: u8 = 24;
/// Number of address octets that the root covers, and so the depth of the nodes directly below the root.
pub(super) const ROOT_OCTETS: usize = 3;
/// Number of words in a line of 64 bytes; a node takes whole lines.
pub(super) const LINE: usize = 8;
/// Number of words at the start of a node, before its entries.
pub(super) const HEAD: usize = 5;
/// Maximum number of lines of a table: 1 GiB of address space. Unused parts take no memory.
const MOST_LINES: usize = 1 << 24;
/// Minimum number of lines with which a table is created.
const FEWEST_LINES: usize = 1 << 16;
/// Number of addresses whose lookups go down the nodes together.
const BATCH: usize = 128;
/// Number of addresses whose root entries are prefetched together, while the entries of the previous group
/// are read. It exceeds the number of lines that a processor fetches at once, so memory accesses never pause.
const GROUP: usize = 32;

/// Entry of the root or of a node: a value, a node, or empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry(u32);

impl Entry {
    /// Empty entry: neither a value nor a node.
    pub const NONE: Self = Self(0);
    const NODE: u32 = 1 << 31;

    /// Returns the entry of a value, which must be below 2³¹ - 1.
    pub fn value(value: u32) -> Self {
        debug_assert!(value < Self::NODE - 1);
        Self(value + 1)
    }

    pub fn of(value: Option<u32>) -> Self {
        value.map_or(Self::NONE, Self::value)
    }

    pub fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    pub fn bits(self) -> u32 {
        self.0
    }

    /// Returns the entry of the node that begins at `line`.
    pub fn node(line: u32) -> Self {
        Self(Self::NODE | line)
    }

    #[inline(always)]
    pub fn is_node(self) -> bool {
        self.0 >= Self::NODE
    }

    /// Returns the first line of the node that the entry leads to; 0 if the entry is no node, as line 0
    /// belongs to no node.
    #[inline(always)]
    pub fn line(self) -> usize {
        // All ones if the entry is a node, otherwise 0.
        let node = (self.0.cast_signed() >> 31).cast_unsigned();
        (self.0 & node & !Self::NODE) as usize
    }

    #[inline(always)]
    fn is_value(self) -> bool {
        self.0.cast_signed() > 0
    }

    #[inline(always)]
    pub fn to_value(self) -> Option<u32> {
        self.0.checked_sub(1)
    }

    /// Returns this entry if it is a value, otherwise `other`. Has no branch, because the processor could not
    /// predict it.
    #[inline(always)]
    fn value_or(self, other: Self) -> Self {
        let value = 0u32.wrapping_sub(u32::from(self.is_value()));
        Self(self.0 & value | other.0 & !value)
    }
}

/// Table of one address family: one thread writes it, any thread reads it.
#[derive(Debug)]
pub(super) struct Slots {
    /// Value of the prefix of length 0.
    pub fallback: AtomicU32,
    pub root: HugeSlice<AtomicU32>,
    pub words: HugeSlice<AtomicU64>,
}

impl Slots {
    /// Creates a table with as much room as the address space allows.
    pub fn new() -> Result<Self, MemoryError> {
        let mut lines = MOST_LINES;
        loop {
            match Self::with_lines(lines) {
                Err(_) if lines > FEWEST_LINES => lines /= 2,
                other => return other,
            }
        }
    }

    /// Creates a table with room for nodes of `lines` lines in total.
    pub fn with_lines(lines: usize) -> Result<Self, MemoryError> {
        let root = HugeSlice::new("the root of a route table", 1 << ROOT_BITS)?;
        let words = HugeSlice::new("the nodes of a route table", lines * LINE)?;
        Ok(Self { fallback: AtomicU32::new(0), root, words })
    }

    /// Returns the number of lines of the table.
    pub fn lines(&self) -> usize {
        self.words.len() / LINE
    }

    #[inline(always)]
    pub fn fallback(&self) -> Entry {
        Entry(self.fallback.load(Ordering::Relaxed))
    }

    #[inline(always)]
    pub fn root(&self, top: usize) -> Entry {
        load(&self.root[top])
    }

    /// Returns the default of the node at `line`, and its entry for `octet`.
    #[inline(always)]
    pub fn step(&self, line: usize, octet: u8) -> (Entry, Entry) {
        let node = &self.words[line * LINE..];
        let (index, counts) = index(node, octet);
        (default(counts), entry(node, index))
    }

    /// Returns the value of the longest prefix that matches an address.
    #[inline]
    pub fn lookup<const N: usize>(&self, octets: [u8; N]) -> Option<u32> {
        let mut entry = self.root(top(&octets));
        let mut best = self.fallback();
        for octet in &octets[ROOT_OCTETS..] {
            if !entry.is_node() {
                break;
            }
            let (default, next) = self.step(entry.line(), *octet);
            best = default.value_or(best);
            entry = next;
        }
        entry.value_or(best).to_value()
    }

    /// Looks up addresses together, up to the shorter of `addresses` and `out`. Prefetches root entries of
    /// the next group, and nodes of up to [`BATCH`] addresses at a time.
    #[inline]
    pub fn lookup_batch<const N: usize, T: Copy, V>(
        &self,
        addresses: &[T],
        octets: impl Fn(T) -> [u8; N],
        out: &mut [V],
        value: impl Fn(Option<u32>) -> V,
    ) {
        let root = &self.root[..1 << ROOT_BITS];
        let fetch_one = |address: &T| prefetch(&root[top(&octets(*address))]);
        let fetch = |addresses: &[T]| match <&[T; GROUP]>::try_from(addresses) {
            // In a full group, the number of addresses is known at compile time, so the loop can be unrolled.
            Ok(addresses) => addresses.iter().for_each(fetch_one),
            Err(_) => addresses.iter().for_each(fetch_one),
        };
        let fallback = self.fallback();
        let mut ahead = addresses.chunks(GROUP);
        fetch(ahead.next().unwrap_or_default());
        let mut under_way = [UnderWay::default(); BATCH];
        for (addresses, out) in addresses.chunks(BATCH).zip(out.chunks_mut(BATCH)) {
            let mut count = 0;
            for (first, (group, out)) in
                (0..).step_by(GROUP).zip(addresses.chunks(GROUP).zip(out.chunks_mut(GROUP)))
            {
                fetch(ahead.next().unwrap_or_default());
                for (at, (address, out)) in group.iter().zip(out).enumerate() {
                    let entry = load(&root[top(&octets(*address))]);
                    // Frequent case in IPv4: the root entry is the result.
                    if entry.is_value() {
                        *out = value(entry.to_value());
                        continue;
                    }
                    *out = value(fallback.to_value());
                    if entry.is_node() {
                        prefetch_slice_element(&self.words, entry.line() * LINE);
                        let which = first + at as u8;
                        if let Some(one) = under_way.get_mut(count) {
                            *one = UnderWay { which, best: fallback, at: entry.line() as u32 };
                        }
                        count += 1;
                    }
                }
            }
            self.descend(addresses, &octets, out, &value, &mut under_way[..count]);
        }
    }

    /// Continues the lookups that have left the root, down to their last entries.
    #[inline]
    fn descend<const N: usize, T: Copy, V>(
        &self,
        addresses: &[T],
        octets: impl Fn(T) -> [u8; N],
        out: &mut [V],
        value: impl Fn(Option<u32>) -> V,
        mut under_way: &mut [UnderWay],
    ) {
        for depth in ROOT_OCTETS..N {
            // In a large node, the entry is in another line than the head. So the entries of all lookups are
            // prefetched before the first one is read.
            for one in under_way.iter_mut() {
                let Some(address) = addresses.get(usize::from(one.which)) else { break };
                let node = one.at as usize * LINE;
                let (index, counts) = index(&self.words[node..], octets(*address)[depth]);
                one.best = default(counts).value_or(one.best);
                one.at = ((node + HEAD) * 2 + index) as u32;
                prefetch_slice_element(&self.words, one.at as usize / 2);
            }
            let mut left = 0;
            for at in 0..under_way.len() {
                let mut one = under_way[at];
                let word = self.words[one.at as usize / 2].load(Ordering::Acquire);
                let entry = half(word, one.at as usize);
                out[usize::from(one.which)] = value(entry.value_or(one.best).to_value());
                prefetch_slice_element(&self.words, entry.line() * LINE);
                one.at = entry.line() as u32;
                under_way[left] = one;
                left += usize::from(entry.is_node());
            }
            under_way = &mut under_way[..left];
        }
    }
}

/// Lookup that has left the root.
#[derive(Clone, Copy)]
struct UnderWay {
    /// Index of the address among the [`BATCH`] addresses.
    which: u8,
    /// Best value found so far.
    best: Entry,
    /// First line of the current node; later the location of its entry, counted in half words.
    at: u32,
}

impl Default for UnderWay {
    fn default() -> Self {
        Self { which: 0, best: Entry::NONE, at: 0 }
    }
}

#[inline(always)]
fn load(word: &AtomicU32) -> Entry {
    // Acquire: a reader that sees a node must see its contents.
    Entry(word.load(Ordering::Acquire))
}

/// Returns an address's first 24 bits.
#[inline(always)]
pub(super) fn top<const N: usize>(octets: &[u8; N]) -> usize {
    const { assert!(N > ROOT_OCTETS) };
    (u32::from_be_bytes([octets[0], octets[1], octets[2], octets[3]]) >> 8) as usize
}

/// Returns the index of an octet's run in a node, and the node's word 4 (run counts and default).
#[inline(always)]
pub(super) fn index(node: &[AtomicU64], octet: u8) -> (usize, u64) {
    let (word, bit) = (usize::from(octet >> 6), octet & 63);
    let begun = node[word].load(Ordering::Relaxed) & u64::MAX >> (63 - bit);
    let counts = node[4].load(Ordering::Relaxed);
    let before = counts >> (8 * word) & 0xff;
    (before as usize + begun.count_ones() as usize - 1, counts)
}

/// Returns the entry of a node's run, by the index of the run.
#[inline(always)]
pub(super) fn entry(node: &[AtomicU64], index: usize) -> Entry {
    half(node[HEAD + index / 2].load(Ordering::Acquire), index)
}

/// Returns the entry of run `index` from the word that contains it.
#[inline(always)]
fn half(word: u64, index: usize) -> Entry {
    Entry((word >> (32 * (index % 2))) as u32)
}

/// Returns the default of a node from its word 4.
#[inline(always)]
fn default(counts: u64) -> Entry {
    Entry((counts >> 32) as u32)
}
