//! Packets that arrive at nodes of a link scheduler.

use std::fmt;

use crate::FlowNumber;

/// Number of a node, chosen by the builder of the tree, from 0 to [`MOST_NODES`](crate::MOST_NODES) - 1.
/// Large gaps waste memory, because a port takes 64 bytes for each number up to the largest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct NodeId(pub u32);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Packet that arrives at a leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival<T> {
    /// Leaf that takes the packet.
    pub leaf: NodeId,
    /// Flow of the packet.
    pub flow: FlowNumber,
    /// Packet.
    pub item: T,
}
