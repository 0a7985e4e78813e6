//! Read access to a single node of a table, and search for the prefix that covers another prefix.

use super::{Node, PrefixBits, ROOT, RouteTable};

/// Prefixes of one node: the prefixes that share the octets on the path to the node, and end inside the next
/// octet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stride<'a>(&'a Node);

impl Stride<'_> {
    /// Returns the value of the node's longest prefix that matches `octet`.
    pub fn longest(self, octet: u8) -> Option<u32> {
        self.0.longest(octet).map(|place| self.0.value(place))
    }

    /// Iterates over the node's prefixes, shorter ones first. Each item holds the first octet that a prefix
    /// matches, the number of octets that it matches, and the value of the prefix.
    pub fn prefixes(self) -> impl Iterator<Item = (usize, usize, u32)> {
        self.0.prefixes.iter().zip(&self.0.values).map(|(place, value)| {
            let free = 8 - place.ilog2();
            (place << free & 0xff, 1 << free, *value)
        })
    }

    /// Iterates over the octets that have a child node with longer prefixes.
    pub fn octets_below(self) -> impl Iterator<Item = u8> {
        self.0.below.iter().map(|octet| octet as u8)
    }
}

impl<A: PrefixBits> RouteTable<A> {
    /// Returns the node at `depth` on the path of `address`, with prefixes of 8 * `depth` + 1 to 8 * `depth`
    /// + 8 bits. `None` if there are neither such prefixes nor longer ones.
    pub(crate) fn stride(&self, address: A, depth: u8) -> Option<Stride<'_>> {
        let mut at = ROOT;
        for above in 0..depth {
            at = self.nodes[at as usize].node_below(address.octet(above))?;
        }
        let node = &self.nodes[at as usize];
        (!node.is_empty()).then_some(Stride(node))
    }

    /// Returns length and value of the longest prefix that matches `address` and is shorter than `length`;
    /// `None` if there is none.
    pub(crate) fn covering(&self, address: A, length: u8) -> Option<(u8, u32)> {
        (0..length).rev().find_map(|shorter| Some((shorter, self.get(address, shorter)?)))
    }
}
