//! What the levels of all kinds have in common: where they lead to, and what leads there.

use crate::prefix_match::NONE;

/// Where a way leads to: nowhere, to the only filter that is left, or to a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Target(u32);

const FILTER: u32 = 1 << 31;

/// A [`Target`] taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum To {
    /// No filter is left.
    Nothing,
    /// One filter is left, that of the slot.
    Filter(u32),
    /// More are left, and the node of the index knows them.
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

    /// In an edge that is not in use: the next that is not.
    pub fn unused(next: u32) -> Self {
        Self(next)
    }

    /// What [`unused`](Self::unused) was given.
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

/// An edge: one value, prefix or range that filters of the node ask for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub target: Target,
    /// How many of the node's filters ask for exactly this.
    pub filters: u32,
}

/// An edge of a node, as long as no other is added or removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EdgeId {
    /// The way of packets that suit no edge.
    Otherwise,
    /// By value.
    Value(u16),
    /// By index.
    Index(u32),
}

/// References to targets that came or went with a change of edges.
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
