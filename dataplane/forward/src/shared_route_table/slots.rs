//! What workers read of a table.
//!
//! An [`Entry`] is a value, nothing, or leads to a node. The root has an entry for each value of an address's first 24
//! bits. A node has one for each value of the next octet, but keeps equal neighbours once: a set of bits says where a
//! run of equal entries begins, and the entry of an octet is found by counting the bits up to its own. A node also has a
//! *default*, which is what its octets have that have nothing themselves: the value that stood where the node was put.
//!
//! Words of a node, of 64 bits:
//!
//! ```text
//! 0..4   bit 64 * word + n: a run begins at this octet (at octet 0 always)
//! 4      bytes 0 to 3: how many runs begin before word 0, 1, 2, 3; upper half: the default
//! 5..    the entries of the runs, two in a word, the first in the lower half
//! ```
//!
//! So a node of up to 6 runs, and that is nine in ten, takes one cache line.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use millrace_memory::{HugeSlice, MemoryError, prefetch, prefetch_slice_element};

/// Bits of an address that the root looks at.
pub(super) const ROOT_BITS: u8 = 24;
/// Octets above the first nodes.
pub(super) const ROOT_OCTETS: usize = 3;
/// Words of a line, which is what nodes consist of.
pub(super) const LINE: usize = 8;
/// Words of a node before its entries.
pub(super) const HEAD: usize = 5;
/// Most lines of a table: 1 GiB of address space, of which only what is used takes memory.
const MOST_LINES: usize = 1 << 24;
/// Fewest lines worth trying.
const FEWEST_LINES: usize = 1 << 16;
/// Addresses that go down below the root side by side.
const BATCH: usize = 128;
/// Addresses whose entries of the root are fetched side by side, while those fetched before are read: more than a
/// processor can fetch at once, so that it is never idle.
const GROUP: usize = 32;

/// What is found at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry(u32);

impl Entry {
    /// Neither a value nor a node.
    pub const NONE: Self = Self(0);
    const NODE: u32 = 1 << 31;

    /// A value, below 2³¹ - 1.
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

    /// The node that begins at `line`.
    pub fn node(line: u32) -> Self {
        Self(Self::NODE | line)
    }

    #[inline(always)]
    pub fn is_node(self) -> bool {
        self.0 >= Self::NODE
    }

    /// The line of the node that it leads to; something harmless when it leads to none.
    #[inline(always)]
    pub fn line(self) -> usize {
        // All bits set for a node.
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

    /// This one when it is a value, else `other`; without a branch, for nobody can foretell which.
    #[inline(always)]
    fn value_or(self, other: Self) -> Self {
        let value = 0u32.wrapping_sub(u32::from(self.is_value()));
        Self(self.0 & value | other.0 & !value)
    }
}

/// The tables of one family: written by one thread, read by any.
#[derive(Debug)]
pub(super) struct Slots {
    /// The value of the prefix of length 0.
    pub fallback: AtomicU32,
    pub root: HugeSlice<AtomicU32>,
    pub words: HugeSlice<AtomicU64>,
}

impl Slots {
    /// With as much room as the address space allows.
    pub fn new() -> Result<Self, MemoryError> {
        let mut lines = MOST_LINES;
        loop {
            match Self::with_lines(lines) {
                Err(_) if lines > FEWEST_LINES => lines /= 2,
                other => return other,
            }
        }
    }

    /// With room for nodes of that many lines together.
    pub fn with_lines(lines: usize) -> Result<Self, MemoryError> {
        let root = HugeSlice::new("the root of a route table", 1 << ROOT_BITS)?;
        let words = HugeSlice::new("the nodes of a route table", lines * LINE)?;
        Ok(Self { fallback: AtomicU32::new(0), root, words })
    }

    /// How many lines there is room for.
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

    /// The default of the node at `line`, and its entry for `octet`.
    #[inline(always)]
    pub fn step(&self, line: usize, octet: u8) -> (Entry, Entry) {
        let node = &self.words[line * LINE..];
        let (index, counts) = index(node, octet);
        (default(counts), entry(node, index))
    }

    /// The value of the longest prefix of an address.
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

    /// The values of the longest prefixes of addresses, as many of which as there are places for answers. What will be
    /// read is fetched for several addresses ahead, and below the root for up to [`BATCH`] of them at a time.
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
            // Of a number that is known when this is compiled.
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
                    // Most often so with IPv4.
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

    /// Takes lookups from the root down to where their prefixes end.
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
            // A large node's entry lies in another line than what leads to it, so all are fetched before one is read.
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

/// A lookup on its way down.
#[derive(Clone, Copy)]
struct UnderWay {
    /// Which address of the batch.
    which: u8,
    /// What it has found so far.
    best: Entry,
    /// The line of the node that it has come to, and then where its entry there is, in half words.
    at: u32,
}

impl Default for UnderWay {
    fn default() -> Self {
        Self { which: 0, best: Entry::NONE, at: 0 }
    }
}

#[inline(always)]
fn load(word: &AtomicU32) -> Entry {
    // Acquire: whoever sees a node must see what is in it.
    Entry(word.load(Ordering::Acquire))
}

/// An address's first 24 bits.
#[inline(always)]
pub(super) fn top<const N: usize>(octets: &[u8; N]) -> usize {
    const { assert!(N > ROOT_OCTETS) };
    (u32::from_be_bytes([octets[0], octets[1], octets[2], octets[3]]) >> 8) as usize
}

/// Which run of a node an octet belongs to, and the node's word of counts and default.
#[inline(always)]
pub(super) fn index(node: &[AtomicU64], octet: u8) -> (usize, u64) {
    let (word, bit) = (usize::from(octet >> 6), octet & 63);
    let begun = node[word].load(Ordering::Relaxed) & u64::MAX >> (63 - bit);
    let counts = node[4].load(Ordering::Relaxed);
    let before = counts >> (8 * word) & 0xff;
    (before as usize + begun.count_ones() as usize - 1, counts)
}

/// An entry of a node, by its run.
#[inline(always)]
pub(super) fn entry(node: &[AtomicU64], index: usize) -> Entry {
    half(node[HEAD + index / 2].load(Ordering::Acquire), index)
}

/// One of the two entries in a word.
#[inline(always)]
fn half(word: u64, index: usize) -> Entry {
    Entry((word >> (32 * (index % 2))) as u32)
}

/// The default in the word of a node that also has the counts.
#[inline(always)]
fn default(counts: u64) -> Entry {
    Entry((counts >> 32) as u32)
}
