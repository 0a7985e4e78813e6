//! Common parts of all levels: edges, their targets, and changes of the targets' reference counts.

use crate::prefix_match::NONE;

/// Target of an edge: nothing, a single filter, or a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Target(u32);

const FILTER: u32 = 1 << 31;

/// Decoded [`Target`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum To {
    /// No filter can match.
    Nothing,
    /// Only this filter can match, by slot.
    Filter(u32),
    /// Several filters can match, in the node at this index.
    Node(u32),
}

impl Target {
    pub const NOTHING: Self = Self(NONE);

    pub fn filter(slot: u32) -> Self {
        Self(slot | FILTER)
    }

    pub fn node(index: u32) -> Self {
        Self(index)
    }

    /// Creates the target of an unused edge: a link to the next unused edge.
    pub fn unused(next: u32) -> Self {
        Self(next)
    }

    /// Returns the next unused edge, as given to [`unused`](Self::unused).
    pub fn next_unused(self) -> u32 {
        self.0
    }

    #[inline]
    pub fn to(self) -> To {
        match self.0 {
            NONE => To::Nothing,
            filter if filter & FILTER != 0 => To::Filter(filter & !FILTER),
            node => To::Node(node),
        }
    }
}

/// Edge for a value, prefix or range that is the condition of filters of the node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub target: Target,
    /// Number of the node's filters with exactly this condition.
    pub filters: u32,
}

/// Id of a node's edge. It becomes invalid when an edge is added or removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EdgeId {
    /// Default edge, for packets that match no other edge.
    Otherwise,
    /// Edge for a value.
    Value(u16),
    /// Edge at an index of the level's list.
    Index(u32),
}

/// References to targets that a change of edges has added or removed.
#[derive(Default, Debug)]
pub(super) struct References {
    pub more: Vec<Target>,
    pub fewer: Vec<Target>,
}

impl References {
    pub fn one_more(target: Target) -> Self {
        Self { more: vec![target], fewer: Vec::new() }
    }

    pub fn one_fewer(target: Target) -> Self {
        Self { more: Vec::new(), fewer: vec![target] }
    }
}
