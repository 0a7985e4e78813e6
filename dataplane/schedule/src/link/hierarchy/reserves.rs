//! Packet memory that is held back for nodes with a guaranteed rate.

use std::collections::BTreeMap;

use super::node::Share;
use crate::NodeId;
use crate::arena::{Load, reserve_for};
use crate::link::hfsc::Curve;

/// Reserves of nodes with a real-time curve: each has a leaf, or leaves below it.
#[derive(Debug, Default)]
pub(super) struct Reserves(BTreeMap<u32, Load>);

/// Returns the bytes that a curve grants ahead of its second slope.
fn burst(curve: Curve) -> u64 {
    if curve.first > curve.then { curve.bytes_after(curve.duration) } else { 0 }
}

impl Reserves {
    /// Gives a node with this share of its parent its reserve. Returns the reserve before and after.
    pub fn set(&mut self, node: NodeId, share: &Share) -> (Load, Load) {
        let curve = match share {
            Share::Curves(curves) => curves.real_time,
            _ => None,
        };
        let reserve = curve.map(|curve| reserve_for(burst(curve)));
        let before = match reserve {
            Some(reserve) => self.0.insert(node.0, reserve),
            None => self.0.remove(&node.0),
        };
        (before.unwrap_or_default(), reserve.unwrap_or_default())
    }

    /// Returns the reserve of a node; `None` without a guaranteed rate.
    pub fn of(&self, node: NodeId) -> Option<Load> {
        self.0.get(&node.0).copied()
    }
}
