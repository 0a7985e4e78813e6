//! Longest prefix match: a tree bitmap (Eatherton, Varghese and Dittia 2004) with a stride of 8 bits.
//!
//! A node belongs to the octets on the path to it. It holds the prefixes that end inside the next octet, with
//! 1 to 8 bits of it (the root also the prefix of length 0). Inside a node, a prefix is a position in a
//! binary heap. Position 1 is the empty prefix; `2n` and `2n + 1` extend `n`. So the 256 full octets are the
//! positions 256 to 511, and halving a position gives its shorter prefixes.
//!
//! One bit set marks the positions with a value, another marks the octets with a child node. Values and child
//! nodes are in dense arrays, in the order of their bits. So an update changes one node and copies no prefix
//! into nodes below. Its cost, a walk down and a short move in an array, does not depend on the prefixes
//! below.

mod bits;
mod iter;
#[cfg(test)]
pub(crate) mod linear_oracle;
mod stride;
#[cfg(test)]
mod tests;

use bits::BitSet;
pub use iter::Iter;

/// Address as a number: `u32` for IPv4, `u128` for IPv6.
pub trait PrefixBits: Copy + Eq + Ord + Default + std::fmt::Debug {
    /// Number of bits of an address.
    const WIDTH: u8;
    /// Returns the octet at `depth`; 0 is the most significant.
    fn octet(self, depth: u8) -> u8;
    /// Returns the address with its octet at `depth` set to `octet`. That octet must be 0 before.
    #[must_use]
    fn with_octet(self, depth: u8, octet: u8) -> Self;
    /// Returns the first `length` bits of the address, followed by zeros.
    #[must_use]
    fn masked(self, length: u8) -> Self;
}

macro_rules! prefix_bits {
    ($int:ty) => {
        impl PrefixBits for $int {
            const WIDTH: u8 = <$int>::BITS as u8;

            #[inline]
            fn octet(self, depth: u8) -> u8 {
                (self >> (Self::WIDTH - 8 - 8 * depth)) as u8
            }

            #[inline]
            fn with_octet(self, depth: u8, octet: u8) -> Self {
                self | Self::from(octet) << (Self::WIDTH - 8 - 8 * depth)
            }

            #[inline]
            fn masked(self, length: u8) -> Self {
                let host_bits = u32::from(Self::WIDTH.saturating_sub(length));
                self & <$int>::MAX.checked_shl(host_bits).unwrap_or(0)
            }
        }
    };
}
prefix_bits!(u32);
prefix_bits!(u128);

const ROOT: u32 = 0;
/// Number of octets of the longest address.
const MAX_DEPTH: usize = 16;

/// Node of three cache lines. A walk down reads only the first line of each node; the node with the result
/// needs the other two as well.
#[derive(Clone, Debug, Default)]
#[repr(C, align(64))]
struct Node {
    below: BitSet<4>,
    nodes: Vec<u32>,
    prefixes: BitSet<8>,
    values: Vec<u32>,
}

/// For each position from 32 to 63: a word in which the bits of the position and of all its shorter prefixes
/// (repeated halves) are set.
const UPWARDS: [u64; 32] = {
    let mut sets = [0; 32];
    let mut at = 0;
    while at < 32 {
        let mut place = 32 + at;
        while place > 0 {
            sets[at] |= 1 << place;
            place >>= 1;
        }
        at += 1;
    }
    sets
};

impl Node {
    /// Returns the position of the longest prefix of `octet` in this node. Has few branches that depend on
    /// the contents: it checks the three greatest lengths together, and the shorter ones in one word.
    #[inline]
    fn longest(&self, octet: u8) -> Option<usize> {
        let full = 256 | usize::from(octet);
        let bit = |halvings: usize| usize::from(self.prefixes.contains(full >> halvings)) << (2 - halvings);
        let long = bit(0) | bit(1) | bit(2);
        if long != 0 {
            return Some(full >> (2 - long.ilog2()));
        }
        let short = self.prefixes.first_word() & UPWARDS[(full >> 3) - 32];
        short.checked_ilog2().map(|place| place as usize)
    }

    #[inline]
    fn value(&self, place: usize) -> u32 {
        self.values[self.prefixes.rank(place)]
    }

    #[inline]
    fn node_below(&self, octet: u8) -> Option<u32> {
        self.below.contains(octet.into()).then(|| self.nodes[self.below.rank(octet.into())])
    }

    fn set(&mut self, place: usize, value: u32) -> Option<u32> {
        let rank = self.prefixes.rank(place);
        if self.prefixes.contains(place) {
            return Some(std::mem::replace(&mut self.values[rank], value));
        }
        self.prefixes.insert(place);
        self.values.insert(rank, value);
        None
    }

    fn unset(&mut self, place: usize) -> Option<u32> {
        if !self.prefixes.contains(place) {
            return None;
        }
        self.prefixes.remove(place);
        Some(self.values.remove(self.prefixes.rank(place)))
    }

    fn is_empty(&self) -> bool {
        self.values.is_empty() && self.nodes.is_empty()
    }
}

/// Map from prefixes to small integers with longest prefix match, in little memory. It is the writer's copy
/// of the routes. An empty table takes a few hundred bytes; a million IPv4 prefixes take about 30 MiB.
#[derive(Clone, Debug)]
pub struct RouteTable<A> {
    nodes: Vec<Node>,
    free: Vec<u32>,
    len: usize,
    _address: std::marker::PhantomData<A>,
}

impl<A: PrefixBits> Default for RouteTable<A> {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the depth of the node that holds prefixes of `length` bits, and the prefix's position in that
/// node. The depth is the number of octets on the path to the node.
#[inline]
fn locate<A: PrefixBits>(address: A, length: u8) -> (u8, usize) {
    if length == 0 {
        return (0, 1);
    }
    let depth = (length - 1) / 8;
    let bits = length - 8 * depth;
    (depth, 1 << bits | usize::from(address.octet(depth)) >> (8 - bits))
}

impl<A: PrefixBits> RouteTable<A> {
    /// Creates an empty table.
    pub fn new() -> Self {
        Self { nodes: vec![Node::default()], free: Vec::new(), len: 0, _address: std::marker::PhantomData }
    }

    /// Sets the value of a prefix of `length` bits; bits of `address` beyond them are ignored. Returns the
    /// replaced value.
    ///
    /// # Panics
    /// When `length` is above [`PrefixBits::WIDTH`].
    pub fn insert(&mut self, address: A, length: u8, value: u32) -> Option<u32> {
        assert!(length <= A::WIDTH, "a prefix of {length} bits in addresses of {}", A::WIDTH);
        let (depth, place) = locate(address, length);
        let mut at = ROOT;
        for above in 0..depth {
            at = self.node_below_or_new(at, address.octet(above));
        }
        let old = self.nodes[at as usize].set(place, value);
        self.len += usize::from(old.is_none());
        old
    }

    fn node_below_or_new(&mut self, at: u32, octet: u8) -> u32 {
        if let Some(below) = self.nodes[at as usize].node_below(octet) {
            return below;
        }
        let new = self.free.pop().unwrap_or_else(|| {
            self.nodes.push(Node::default());
            self.nodes.len() as u32 - 1
        });
        let node = &mut self.nodes[at as usize];
        let rank = node.below.rank(octet.into());
        node.below.insert(octet.into());
        node.nodes.insert(rank, new);
        new
    }

    /// Removes a prefix and returns its value. Nodes that become empty are reused.
    pub fn remove(&mut self, address: A, length: u8) -> Option<u32> {
        if length > A::WIDTH {
            return None;
        }
        let (depth, place) = locate(address, length);
        let mut path = [ROOT; MAX_DEPTH];
        for above in 0..usize::from(depth) {
            path[above + 1] = self.nodes[path[above] as usize].node_below(address.octet(above as u8))?;
        }
        let value = self.nodes[path[usize::from(depth)] as usize].unset(place)?;
        self.len -= 1;
        self.prune(&path[..=usize::from(depth)], address);
        Some(value)
    }

    /// Removes empty nodes from the tree, from the end of `path` upwards.
    fn prune(&mut self, path: &[u32], address: A) {
        for above in (1..path.len()).rev() {
            let at = path[above];
            if !self.nodes[at as usize].is_empty() {
                return;
            }
            // Frees the arrays of the empty node.
            self.nodes[at as usize] = Node::default();
            self.free.push(at);
            let octet = usize::from(address.octet(above as u8 - 1));
            let parent = &mut self.nodes[path[above - 1] as usize];
            parent.below.remove(octet);
            parent.nodes.remove(parent.below.rank(octet));
        }
    }

    /// Returns the value of exactly this prefix; `None` if the table does not contain it.
    pub fn get(&self, address: A, length: u8) -> Option<u32> {
        if length > A::WIDTH {
            return None;
        }
        let (depth, place) = locate(address, length);
        let mut at = ROOT;
        for above in 0..depth {
            at = self.nodes[at as usize].node_below(address.octet(above))?;
        }
        let node = &self.nodes[at as usize];
        node.prefixes.contains(place).then(|| node.value(place))
    }

    /// Returns the value of the longest prefix that matches `address`; `None` if no prefix does.
    #[inline]
    pub fn lookup(&self, address: A) -> Option<u32> {
        let (at, _, place) = self.longest(address)?;
        Some(self.nodes[at as usize].value(place))
    }

    /// Returns the longest prefix that matches `address`, with its length and value.
    pub fn lookup_prefix(&self, address: A) -> Option<(A, u8, u32)> {
        let (at, depth, place) = self.longest(address)?;
        let length = 8 * depth + place.ilog2() as u8;
        Some((address.masked(length), length, self.nodes[at as usize].value(place)))
    }

    /// Returns node, depth and position of the longest matching prefix. The search goes down to the last
    /// node, then up to the first node with a matching prefix.
    #[inline]
    fn longest(&self, address: A) -> Option<(u32, u8, usize)> {
        let mut path = [ROOT; MAX_DEPTH];
        let mut depth = 0;
        while depth + 1 < A::WIDTH / 8 {
            let node = &self.nodes[path[usize::from(depth)] as usize];
            let Some(below) = node.node_below(address.octet(depth)) else { break };
            depth += 1;
            path[usize::from(depth)] = below;
        }
        loop {
            let at = path[usize::from(depth)];
            if let Some(place) = self.nodes[at as usize].longest(address.octet(depth)) {
                return Some((at, depth, place));
            }
            depth = depth.checked_sub(1)?;
        }
    }

    /// Iterates over all prefixes with length and value, by address, and for equal addresses shorter prefixes
    /// first.
    pub fn iter(&self) -> Iter<'_, A> {
        Iter::new(self)
    }

    /// Returns the number of prefixes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there is no prefix.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes of memory of the table.
    pub fn memory(&self) -> usize {
        let arrays = |node: &Node| (node.values.capacity() + node.nodes.capacity()) * size_of::<u32>();
        let nodes = self.nodes.capacity() * size_of::<Node>();
        nodes + self.free.capacity() * size_of::<u32>() + self.nodes.iter().map(arrays).sum::<usize>()
    }
}
