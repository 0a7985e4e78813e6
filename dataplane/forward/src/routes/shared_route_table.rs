//! Longest prefix match for one writer and any number of readers. Writer and readers never wait for each
//! other.
//!
//! The root is a direct table of 2²⁴ entries for the first 24 bits of an address (Gupta, Lin and McKeown
//! 1998). Below the root, each node stands for one octet, and stores runs of equal entries once (as in
//! Degermark, Brodnik, Carlsson and Pink 1997). `slots.rs` describes this view of the readers. A prefix is
//! only in the entries of the level where it ends, not in the nodes below. A lookup uses the last value found
//! on its path.
//!
//! The writer keeps the prefixes in a [`RouteTable`], and changes the readers' view by stores of single
//! words:
//!
//! - A prefix of up to 24 bits takes one store for each of its 2^(24 - length) root entries. If an entry
//!   leads to a node, the store goes to the node's default. The prefix of length 0 has its own word.
//! - A changed or removed longer prefix takes stores to the entries of one node.
//! - A new longer prefix takes a new node, which one store puts in place of the old one.
//!
//! So for each prefix a reader sees the old value or the new one.

mod nodes;
mod slots;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millrace_memory::MemoryError;

use crate::routes::retired::Epoch;
use crate::{PrefixBits, RouteTable};
use nodes::{Nodes, Octets, Place};
use slots::{Entry, ROOT_BITS, ROOT_OCTETS, Slots};

/// Number of octets of the longest address.
const MOST_OCTETS: usize = 16;
/// Flag in the mark of an octet that leads to a child node.
const BELOW: u16 = 1 << 15;

/// Error returned if a route table has no room for another prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the route table is full")]
pub struct FibFull;

/// Writer's view of a route table: the prefixes, and the nodes that readers search.
#[derive(Debug)]
pub(crate) struct SharedTable<A> {
    prefixes: RouteTable<A>,
    /// For each root entry, the length of a prefix: the prefix whose value is in the entry, or in the default
    /// of the node that the entry leads to.
    lengths: Vec<u8>,
    nodes: Nodes,
    slots: Arc<Slots>,
}

/// Reader's view of a route table, for addresses of `N` octets.
#[derive(Clone, Debug)]
pub(crate) struct TableReader<const N: usize>(Arc<Slots>);

impl<const N: usize> TableReader<N> {
    /// Returns the value of the longest prefix that matches an address.
    #[inline]
    pub fn lookup(&self, octets: [u8; N]) -> Option<u32> {
        self.0.lookup(octets)
    }

    /// Looks up many addresses together.
    ///
    /// # Panics
    /// When `addresses` and `out` differ in length.
    #[inline]
    pub fn lookup_batch<T: Copy, V>(
        &self,
        addresses: &[T],
        octets: impl Fn(T) -> [u8; N],
        out: &mut [V],
        value: impl Fn(Option<u32>) -> V,
    ) {
        assert_eq!(addresses.len(), out.len(), "a place for each answer");
        self.0.lookup_batch(addresses, octets, out, value);
    }
}

/// Returns the numbers of `bits` bits that share the first `length` bits of `number`, as the first number and
/// the count.
fn range(number: u32, length: u8, bits: u8) -> (usize, usize) {
    let free = bits - length;
    ((number >> free << free) as usize, 1 << free)
}

impl<A: PrefixBits> SharedTable<A> {
    /// Creates an empty table, which takes hardly any memory.
    pub fn new() -> Result<Self, MemoryError> {
        Ok(Self::over(Slots::new()?))
    }

    fn over(slots: Slots) -> Self {
        let slots = Arc::new(slots);
        let nodes = Nodes::new(slots.clone());
        Self { prefixes: RouteTable::new(), lengths: vec![0; 1 << ROOT_BITS], nodes, slots }
    }

    /// Returns a reader for addresses of `N` octets.
    pub fn reader<const N: usize>(&self) -> TableReader<N> {
        const { assert!(N * 8 == A::WIDTH as usize) };
        TableReader(self.slots.clone())
    }

    /// Returns the prefixes.
    pub fn prefixes(&self) -> &RouteTable<A> {
        &self.prefixes
    }

    /// Sets the value of a prefix, which must be below 2³¹ - 1. Returns the replaced value.
    pub fn insert(&mut self, address: A, length: u8, value: u32) -> Result<Option<u32>, FibFull> {
        let old = self.prefixes.insert(address, length, value);
        if length <= ROOT_BITS {
            self.paint_root(address, length, (length, Entry::value(value)));
        } else if old.is_some() {
            self.repaint(address, length);
        } else if let Err(full) = self.grow(address, length) {
            self.prefixes.remove(address, length);
            return Err(full);
        }
        Ok(old)
    }

    /// Removes a prefix and returns its value.
    pub fn remove(&mut self, address: A, length: u8) -> Option<u32> {
        let value = self.prefixes.remove(address, length)?;
        if length > ROOT_BITS {
            self.shrink(address, length);
            return Some(value);
        }
        // The prefix of length 0 does not count: it has its own word.
        let covering = self.prefixes.covering(address, length).filter(|(length, _)| *length > 0);
        let (left, entry) = covering.map_or((0, Entry::NONE), |(left, value)| (left, Entry::value(value)));
        self.paint_root(address, length, (left, entry));
        Some(value)
    }

    fn top(address: A) -> u32 {
        u32::from_be_bytes([0, address.octet(0), address.octet(1), address.octet(2)])
    }

    /// Stores an entry and its prefix length in all root entries of a prefix, except where a longer prefix
    /// applies.
    fn paint_root(&mut self, address: A, length: u8, (new_length, entry): (u8, Entry)) {
        if length == 0 {
            self.slots.fallback.store(entry.bits(), Ordering::Release);
            return;
        }
        let (first, count) = range(Self::top(address), length, ROOT_BITS);
        for top in first..first + count {
            if self.lengths[top] > length {
                continue;
            }
            self.lengths[top] = new_length;
            let old = self.slots.root(top);
            if old.is_node() {
                self.nodes.set_default(old, entry);
            } else {
                Place::Root(&self.slots.root[top]).store(entry);
            }
        }
    }

    /// Returns the entries on the path of `address` to the node for prefixes of `length` bits, as far as
    /// nodes exist.
    fn way(&self, address: A, length: u8) -> Way {
        let depth = depth(length);
        let mut way = Way { entries: [Entry::NONE; MOST_OCTETS], end: ROOT_OCTETS };
        way.entries[ROOT_OCTETS] = self.slots.root(Self::top(address) as usize);
        while way.end < depth && way.last().is_node() {
            let next = self.nodes.entry(way.last(), address.octet(way.end as u8));
            way.end += 1;
            way.entries[way.end] = next;
        }
        way
    }

    /// Returns the location of the entry on the path that leads to `depth`.
    fn place(&self, way: &Way, address: A, depth: usize) -> Place<'_> {
        if depth == ROOT_OCTETS {
            return Place::Root(&self.slots.root[Self::top(address) as usize]);
        }
        self.nodes.place(way.entries[depth - 1], address.octet(depth as u8 - 1))
    }

    /// Publishes a new prefix to readers: builds new nodes from the bottom upwards, then links them with one
    /// store.
    fn grow(&mut self, address: A, length: u8) -> Result<(), FibFull> {
        let way = self.way(address, length);
        // If the path ends at a value in a node, neighbouring octets may share that entry's run. So that node
        // is rebuilt as well.
        let shared = !way.last().is_node() && way.end > ROOT_OCTETS;
        let from = if shared { way.end - 1 } else { way.end };
        let mut made: [Option<Entry>; MOST_OCTETS] = [None; MOST_OCTETS];
        let mut below = None;
        for depth in (from..=depth(length)).rev() {
            match self.build(address, depth, way.entries[depth], below) {
                Ok(node) => (made[depth], below) = (Some(node), Some(node)),
                Err(full) => {
                    made.into_iter().flatten().for_each(|node| self.nodes.discard(node));
                    return Err(full);
                }
            }
        }
        let Some(node) = below else { return Ok(()) };
        self.place(&way, address, from).store(node);
        if way.entries[from].is_node() {
            self.nodes.retire(way.entries[from]);
        }
        // Child nodes whose octets the prefix covers get its value as default.
        self.repaint(address, length);
        Ok(())
    }

    /// Builds the node at `depth` on the path of `address` from the current prefixes. `old`: entry that the
    /// node replaces. `below`: new child node for the octet of `address`, if there is one.
    fn build(
        &mut self,
        address: A,
        depth: usize,
        old: Entry,
        below: Option<Entry>,
    ) -> Result<Entry, FibFull> {
        let mut octets: Octets = [(0, Entry::NONE); 256];
        if let Some(stride) = self.prefixes.stride(address, depth as u8) {
            for ((first, count, value), mark) in stride.prefixes().zip(1..) {
                octets[first..first + count].fill((mark, Entry::value(value)));
            }
            for octet in stride.octets_below() {
                let changed = below.filter(|_| octet == address.octet(depth as u8));
                let entry = changed.unwrap_or_else(|| self.nodes.entry(old, octet));
                octets[usize::from(octet)] = (BELOW | u16::from(octet), entry);
            }
        }
        let default = if old.is_node() { self.nodes.default(old) } else { old };
        self.nodes.add(&octets, default)
    }

    /// Withdraws a removed prefix from readers. Can't fail, because it allocates no nodes.
    fn shrink(&mut self, address: A, length: u8) {
        let way = self.way(address, length);
        let empty = (ROOT_OCTETS..=way.end).find(|at| self.prefixes.stride(address, *at as u8).is_none());
        let Some(empty) = empty else { return self.repaint(address, length) };
        let default = self.nodes.default(way.entries[empty]);
        self.place(&way, address, empty).store(default);
        way.entries[empty..=way.end].iter().for_each(|node| self.nodes.retire(*node));
    }

    /// Updates the entries of a prefix's octets in its node, which must exist. Entries with longer prefixes
    /// stay unchanged.
    fn repaint(&self, address: A, length: u8) {
        let way = self.way(address, length);
        let (node, depth) = (way.last(), way.end as u8);
        let stride = self.prefixes.stride(address, depth);
        let (first, count) = range(address.octet(depth).into(), length - 8 * depth, 8);
        for octet in (first..first + count).map(|octet| octet as u8) {
            if !self.nodes.begins(node, octet) {
                continue;
            }
            let entry = Entry::of(stride.and_then(|stride| stride.longest(octet)));
            let old = self.nodes.entry(node, octet);
            if old.is_node() {
                self.nodes.set_default(old, entry);
            } else if old != entry {
                self.nodes.place(node, octet).store(entry);
            }
        }
    }

    /// Ends the current epoch, and returns it.
    pub fn close_epoch(&mut self) -> Epoch {
        self.nodes.close_epoch()
    }

    /// Frees nodes that were retired in `epoch` or before. No reader may use them any more.
    pub fn quiesced(&mut self, epoch: Epoch) {
        self.nodes.quiesced(epoch);
    }

    /// Returns the number of retired nodes.
    pub fn waiting(&self) -> usize {
        self.nodes.waiting()
    }

    /// Returns the memory that readers may access, in bytes: 64 MiB of a fully used root, and the nodes.
    pub fn memory(&self) -> usize {
        size_of_val(&*self.slots.root) + self.nodes.memory()
    }

    /// Returns the memory of the writer's own tables, in bytes.
    pub fn writer_memory(&self) -> usize {
        self.lengths.len() + self.prefixes.memory()
    }
}

/// Entries on the path of an address.
struct Way {
    /// Entries on the path, by the depth that they lead to.
    entries: [Entry; MOST_OCTETS],
    /// Depth of the last entry.
    end: usize,
}

impl Way {
    fn last(&self) -> Entry {
        self.entries[self.end]
    }
}

/// Returns the depth of the node that holds prefixes of `length` bits: the number of octets on the path to
/// it.
fn depth(length: u8) -> usize {
    usize::from((length - 1) / 8)
}
