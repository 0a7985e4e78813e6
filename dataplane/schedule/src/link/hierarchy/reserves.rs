//! Packet memory that is held back for nodes with a guaranteed rate.

use std::collections::BTreeMap;

use super::node::Share;
use super::tree::Tree;
use crate::arena::{Load, reserve_for};
use crate::link::hfsc::Curve;
use crate::{Item, NodeId};

/// Reserves of nodes with a real-time curve: each has a leaf, or leaves below it.
#[derive(Debug, Default)]
pub(super) struct Reserves(BTreeMap<u32, Load>);

/// Returns the bytes that a curve grants ahead of its second slope.
fn burst(curve: Curve) -> u64 {
    if curve.first > curve.then { curve.bytes_after(curve.duration) } else { 0 }
}

impl<T: Item> Tree<T> {
    /// Holds memory back for a node with this share of its parent, in place of an earlier reserve.
    pub fn hold_back(&mut self, node: NodeId, share: &Share) {
        let curve = match share {
            Share::Curves(curves) => curves.real_time,
            _ => None,
        };
        let reserve = curve.map(|curve| reserve_for(burst(curve)));
        let before = match reserve {
            Some(reserve) => self.reserves.0.insert(node.0, reserve),
            None => self.reserves.0.remove(&node.0),
        };
        let [before, after] = [before, reserve].map(Option::unwrap_or_default);
        self.leaves.queues.arena.change_reserve(before, after);
    }

    /// Whether a packet for a leaf is within the reserve of the leaf, or of a node above it.
    pub fn is_within_reserve(&self, leaf: NodeId, length: u32) -> bool {
        let arena = &self.leaves.queues.arena;
        self.nodes.path_up(leaf).any(|node| {
            let reserve = self.reserves.0.get(&node.0);
            reserve.is_some_and(|reserve| arena.is_within(*reserve, self.held_by(node.0), length))
        })
    }
}
