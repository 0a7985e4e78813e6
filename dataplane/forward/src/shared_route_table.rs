//! Longest prefix match for one writer and any number of readers, who never wait for each other.
//!
//! A direct table of 2²⁴ entries for the first 24 bits of an address (Gupta, Lin and McKeown 1998), and below it nodes
//! for an octet each, whose equal entries are kept once (as in Degermark, Brodnik, Carlsson and Pink 1997); see
//! `slots.rs` for what readers see. Nothing is pushed down into nodes: a prefix stands in the entries of the one level
//! where it ends, and on the way down the last one found counts.
//!
//! The writer keeps the prefixes themselves in a [`RouteTable`], and changes what readers see by stores of single
//! words:
//!
//! - a prefix of up to 24 bits by one store for each of its 2^(24 - length) entries of the root; where there is a node,
//!   to its default. The prefix of length 0 has a word of its own;
//! - a longer one that was there, or that goes, by stores to the entries of one node;
//! - one that is new by a new node, put in the old one's place by one store.
//!
//! So for each prefix a reader sees the old value or the new one.

mod nodes;
mod slots;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millrace_memory::MemoryError;

use crate::retired::Epoch;
use crate::{PrefixBits, RouteTable};
use nodes::{Nodes, Octets, Place};
use slots::{Entry, ROOT_BITS, ROOT_OCTETS, Slots};

/// Octets of the longest address.
const MOST_OCTETS: usize = 16;
/// Marks an octet below which there is a node.
const BELOW: u16 = 1 << 15;

/// The route table has no room for another prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the route table is full")]
pub struct FibFull;

/// The writer's side of a table.
#[derive(Debug)]
pub(crate) struct SharedTable<A> {
    prefixes: RouteTable<A>,
    /// For each entry of the root the length of the prefix that it, or the node there as default, has its value from.
    lengths: Vec<u8>,
    nodes: Nodes,
    slots: Arc<Slots>,
}

/// The readers' side of a table, for addresses of `N` octets.
#[derive(Clone, Debug)]
pub(crate) struct TableReader<const N: usize>(Arc<Slots>);

impl<const N: usize> TableReader<N> {
    /// The value of the longest prefix of an address.
    #[inline]
    pub fn lookup(&self, octets: [u8; N]) -> Option<u32> {
        self.0.lookup(octets)
    }

    /// The same for many addresses.
    ///
    /// # Panics
    /// When `addresses` and `out` are not of one length.
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

/// The numbers of `bits` bits that begin with the first `length` bits of one of them: the first, and how many.
fn range(number: u32, length: u8, bits: u8) -> (usize, usize) {
    let free = bits - length;
    ((number >> free << free) as usize, 1 << free)
}

impl<A: PrefixBits> SharedTable<A> {
    /// Without prefixes. Takes no memory to speak of before there are some.
    pub fn new() -> Result<Self, MemoryError> {
        Ok(Self::over(Slots::new()?))
    }

    fn over(slots: Slots) -> Self {
        let slots = Arc::new(slots);
        let nodes = Nodes::new(slots.clone());
        Self { prefixes: RouteTable::new(), lengths: vec![0; 1 << ROOT_BITS], nodes, slots }
    }

    /// For a thread that looks up addresses of `N` octets.
    pub fn reader<const N: usize>(&self) -> TableReader<N> {
        const { assert!(N * 8 == A::WIDTH as usize) };
        TableReader(self.slots.clone())
    }

    /// The prefixes.
    pub fn prefixes(&self) -> &RouteTable<A> {
        &self.prefixes
    }

    /// Sets the value of a prefix, which is below 2³¹ - 1. Returns the one that it replaces.
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
        // The prefix of length 0 has its own word.
        let covering = self.prefixes.covering(address, length).filter(|(length, _)| *length > 0);
        let (left, entry) = covering.map_or((0, Entry::NONE), |(left, value)| (left, Entry::value(value)));
        self.paint_root(address, length, (left, entry));
        Some(value)
    }

    fn top(address: A) -> u32 {
        u32::from_be_bytes([0, address.octet(0), address.octet(1), address.octet(2)])
    }

    /// Gives an entry, and the length that it is of, to what belongs to a prefix or to shorter ones in its range.
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

    /// What leads to the nodes on the way to prefixes of `length` bits, as far as there are nodes.
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

    /// Where the entry stands that leads to `depth`.
    fn place(&self, way: &Way, address: A, depth: usize) -> Place<'_> {
        if depth == ROOT_OCTETS {
            return Place::Root(&self.slots.root[Self::top(address) as usize]);
        }
        self.nodes.place(way.entries[depth - 1], address.octet(depth as u8 - 1))
    }

    /// Makes readers see a prefix that is new: makes nodes from where it ends upwards, as far as nothing leads there
    /// yet, and then one entry lead to them.
    fn grow(&mut self, address: A, length: u8) -> Result<(), FibFull> {
        let way = self.way(address, length);
        // A value in a node may share its run with neighbours, so that node is made anew, too.
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
        // The nodes below it that the prefix covers have it as their default.
        self.repaint(address, length);
        Ok(())
    }

    /// A node of `depth` for what there is now. `old` is what stood there, a node or a value; `below` takes the place of
    /// what was below the octet of `address`.
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

    /// Makes readers not see a prefix any more that has gone. Needs no memory.
    fn shrink(&mut self, address: A, length: u8) {
        let way = self.way(address, length);
        let empty = (ROOT_OCTETS..=way.end).find(|at| self.prefixes.stride(address, *at as u8).is_none());
        let Some(empty) = empty else { return self.repaint(address, length) };
        let default = self.nodes.default(way.entries[empty]);
        self.place(&way, address, empty).store(default);
        way.entries[empty..=way.end].iter().for_each(|node| self.nodes.retire(*node));
    }

    /// Gives the octets of a prefix in its node, which is there, what they have now. What belongs to longer prefixes
    /// stays as it is.
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

    /// Begins another epoch, and returns the one that ends.
    pub fn close_epoch(&mut self) -> Epoch {
        self.nodes.close_epoch()
    }

    /// No reader looks any more at what was taken out of use in `epoch` or before.
    pub fn quiesced(&mut self, epoch: Epoch) {
        self.nodes.quiesced(epoch);
    }

    /// How many nodes are out of use and can't be used again yet.
    pub fn waiting(&self) -> usize {
        self.nodes.waiting()
    }

    /// Bytes that readers may touch: 64 MiB for a root that is in use everywhere, and the nodes.
    pub fn memory(&self) -> usize {
        size_of_val(&*self.slots.root) + self.nodes.memory()
    }

    /// Bytes that only the writer has.
    pub fn writer_memory(&self) -> usize {
        self.lengths.len() + self.prefixes.memory()
    }
}

/// Entries on the way down.
struct Way {
    /// By the depth that they lead to.
    entries: [Entry; MOST_OCTETS],
    /// The depth of the last.
    end: usize,
}

impl Way {
    fn last(&self) -> Entry {
        self.entries[self.end]
    }
}

/// How many octets lie above the node where prefixes of `length` bits end.
fn depth(length: u8) -> usize {
    usize::from((length - 1) / 8)
}
