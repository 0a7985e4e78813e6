//! Kinds of nodes with their settings, and shares of nodes in their parents.

use crate::link::flow_queues::FlowQueuesSettings;
use crate::link::fq_codel::FqCodelSettings;
use crate::link::hfsc::Curves;
use crate::{QueueSettings, Rate};

/// Kind of a node, with its settings.
#[derive(Clone, PartialEq, Debug)]
pub enum NodeKind {
    /// FIFO: one queue.
    Fifo(QueueSettings),
    /// Weighted deficit round robin over a queue per flow.
    FlowQueues(FlowQueuesSettings),
    /// FQ-CoDel.
    FqCodel(FqCodelSettings),
    /// Strict priority: children by level, the lowest first.
    Priority,
    /// Weighted deficit round robin over children.
    DeficitRoundRobin,
    /// H-FSC over children; below another `Hfsc`, an inner class of its hierarchy.
    Hfsc,
    /// Token bucket: limits one child to a rate and a burst.
    TokenBucket {
        /// Rate in bits per second on the wire, above 0.
        rate: Rate,
        /// Burst in bytes on the wire, 1 to 10^9.
        burst: u32,
    },
}

impl NodeKind {
    /// Returns the name in configurations and documents.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Fifo(_) => "fifo",
            Self::FlowQueues(_) => "flow-queues",
            Self::FqCodel(_) => "fq-codel",
            Self::Priority => "priority",
            Self::DeficitRoundRobin => "deficit-round-robin",
            Self::Hfsc => "hfsc",
            Self::TokenBucket { .. } => "token-bucket",
        }
    }

    /// Whether nodes of this kind are leaves, which hold packets.
    pub const fn is_leaf(&self) -> bool {
        matches!(self, Self::Fifo(_) | Self::FlowQueues(_) | Self::FqCodel(_))
    }
}

/// Share of a node in its parent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Share {
    /// No value: the node has no parent, or its parent is a token bucket.
    #[default]
    Only,
    /// Level below `Priority`, 0 to 65,535; no two children have the same level.
    Level(u32),
    /// Quantum below `DeficitRoundRobin`, in bytes on the wire per round, 1 to 2^30.
    Quantum(u32),
    /// Curves below `Hfsc`.
    Curves(Curves),
}
