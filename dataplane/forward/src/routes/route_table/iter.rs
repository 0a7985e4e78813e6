//! Iteration over the prefixes of a table, in order.

use super::{PrefixBits, ROOT, RouteTable};

/// Iterator over the prefixes of a table by address, shorter prefixes first. It visits the binary heap of
/// each node in pre-order, and the child node of an octet after that octet.
#[derive(Debug)]
pub struct Iter<'a, A> {
    table: &'a RouteTable<A>,
    todo: Vec<Place<A>>,
}

/// Position in a node. `above`: octets on the path to the node; `depth`: their number.
#[derive(Debug)]
struct Place<A> {
    node: u32,
    place: usize,
    above: A,
    depth: u8,
}

impl<'a, A: PrefixBits> Iter<'a, A> {
    pub(super) fn new(table: &'a RouteTable<A>) -> Self {
        Self { table, todo: vec![Place { node: ROOT, place: 1, above: A::default(), depth: 0 }] }
    }

    /// Pushes the successors of `at`: the two longer prefixes in the node, or the start of the child node.
    /// The last one pushed is visited next.
    fn descend(&mut self, at: &Place<A>) {
        let Place { node, place, above, depth } = *at;
        if place < 256 {
            self.todo.push(Place { node, place: 2 * place + 1, above, depth });
            self.todo.push(Place { node, place: 2 * place, above, depth });
        } else if let Some(below) = self.table.nodes[node as usize].node_below(place as u8) {
            let above = above.with_octet(depth, place as u8);
            self.todo.push(Place { node: below, place: 1, above, depth: depth + 1 });
        }
    }
}

impl<A: PrefixBits> Iterator for Iter<'_, A> {
    type Item = (A, u8, u32);

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(at) = self.todo.pop() {
            self.descend(&at);
            let node = &self.table.nodes[at.node as usize];
            if node.prefixes.contains(at.place) {
                let bits = at.place.ilog2() as u8;
                let octet = (at.place << (8 - bits)) as u8;
                let value = node.value(at.place);
                return Some((at.above.with_octet(at.depth, octet), 8 * at.depth + bits, value));
            }
        }
        None
    }
}
