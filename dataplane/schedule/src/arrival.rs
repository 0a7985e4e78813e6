//! Packets that come to nodes of a link scheduler.

use std::fmt;

use crate::FlowNumber;

/// A node, numbered by who builds the tree: from 0 to [`MOST_NODES`](crate::MOST_NODES) - 1, best without large gaps,
/// because a port has 64 bytes for each number up to the largest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct NodeId(pub u32);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A packet that comes to a leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival<T> {
    /// The leaf.
    pub leaf: NodeId,
    /// Its flow.
    pub flow: FlowNumber,
    /// The packet.
    pub item: T,
}
