//! View of one node of a table, and the prefix that covers another one.

use super::{Node, PrefixBits, ROOT, RouteTable};

/// Prefixes that end inside one octet, below given octets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stride<'a>(&'a Node);

impl Stride<'_> {
    /// Returns the value of the longest of these prefixes that contains `octet`.
    pub fn longest(self, octet: u8) -> Option<u32> {
        self.0.longest(octet).map(|place| self.0.value(place))
    }

    /// Iterates over the prefixes, shorter ones first: the first octet, the number of octets, and the value.
    pub fn prefixes(self) -> impl Iterator<Item = (usize, usize, u32)> {
        self.0.prefixes.iter().zip(&self.0.values).map(|(place, value)| {
            let free = 8 - place.ilog2();
            (place << free & 0xff, 1 << free, *value)
        })
    }

    /// Iterates over the octets with longer prefixes below them.
    pub fn octets_below(self) -> impl Iterator<Item = u8> {
        self.0.below.iter().map(|octet| octet as u8)
    }
}

impl<A: PrefixBits> RouteTable<A> {
    /// Returns the prefixes of 8 * `depth` + 1 to 8 * `depth` + 8 bits that begin as `address` does. `None`
    /// when there is neither such a prefix nor a longer one.
    pub(crate) fn stride(&self, address: A, depth: u8) -> Option<Stride<'_>> {
        let mut at = ROOT;
        for above in 0..depth {
            at = self.nodes[at as usize].node_below(address.octet(above))?;
        }
        let node = &self.nodes[at as usize];
        (!node.is_empty()).then_some(Stride(node))
    }

    /// Returns length and value of the longest prefix of `address` that is shorter than `length`, if any.
    pub(crate) fn covering(&self, address: A, length: u8) -> Option<(u8, u32)> {
        (0..length).rev().find_map(|shorter| Some((shorter, self.get(address, shorter)?)))
    }
}
