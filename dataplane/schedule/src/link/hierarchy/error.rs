//! Why a change of the tree is refused, with the arithmetic.

use super::NodeId;
use crate::{FlowNumber, Rate};

/// A change that would break a promise, or makes no sense. Nothing has changed.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ScheduleError {
    /// The id is taken.
    #[error("node {0}: there is one already; remove it first, or take another id")]
    Duplicate(NodeId),
    /// The id can't be a node's.
    #[error("node {0}: id out of range: 0 to {most}", most = super::MOST_NODES - 1)]
    Id(NodeId),
    /// No node has that id.
    #[error("node {0}: there is none; nodes are shown by `scheduler show`")]
    Unknown(NodeId),
    /// The parent is unknown.
    #[error("node {node}: its parent {parent} is unknown; add {parent} first")]
    UnknownParent {
        /// The node to add or move.
        node: NodeId,
        /// The parent it was to have.
        parent: NodeId,
    },
    /// The parent holds packets itself.
    #[error("node {node}: its parent {parent} is a {kind}, which has no children")]
    ParentIsLeaf {
        /// The node to add or move.
        node: NodeId,
        /// The parent it was to have.
        parent: NodeId,
        /// The parent's kind.
        kind: &'static str,
    },
    /// The node would be above itself.
    #[error("node {node}: below {parent} it would be its own ancestor: {path}")]
    Cycle {
        /// The node to move.
        node: NodeId,
        /// The parent it was to have.
        parent: NodeId,
        /// The way from the parent up to the node.
        path: String,
    },
    /// The tree would be too deep.
    #[error("node {node}: {depth} levels in all, but a packet passes at most {most}", most = super::MOST_DEPTH)]
    Depth {
        /// The node to add or move.
        node: NodeId,
        /// Levels that the tree would have.
        depth: usize,
    },
    /// The parent needs to know something else of its child.
    #[error("node {node}: its parent, a {parent}, needs {needed}")]
    Share {
        /// The node to add or change.
        node: NodeId,
        /// The parent's kind.
        parent: &'static str,
        /// What the parent needs.
        needed: &'static str,
    },
    /// Two children of a priority scheduler at one level.
    #[error(
        "node {node}: level {level} of node {parent} is taken by node {other}; levels go from 0 to 65535"
    )]
    Level {
        /// The node to add or change.
        node: NodeId,
        /// Its level.
        level: u32,
        /// The priority scheduler.
        parent: NodeId,
        /// Who is there.
        other: NodeId,
    },
    /// A second child below a token bucket.
    #[error(
        "node {node}: node {parent}, a token-bucket, has the child {other}; a scheduler between them can have several"
    )]
    OnlyChild {
        /// The node to add or move.
        node: NodeId,
        /// The token bucket.
        parent: NodeId,
        /// Its child.
        other: NodeId,
    },
    /// A number out of its range.
    #[error("node {node}: {what} {value} is out of range: {least} to {most}")]
    Range {
        /// The node.
        node: NodeId,
        /// What is out of range.
        what: &'static str,
        /// Its value.
        value: u64,
        /// The least that is allowed.
        least: u64,
        /// The most that is allowed.
        most: u64,
    },
    /// Settings that contradict themselves.
    #[error("node {node}: {text}")]
    Settings {
        /// The node.
        node: NodeId,
        /// What is wrong, and what would be right.
        text: String,
    },
    /// A curve is steeper than what the scheduler is served with.
    #[error(
        "node {node}: its {curve} curve has a slope of {slope}, but H-FSC here is served with {available}"
    )]
    CurveAboveLink {
        /// The class.
        node: NodeId,
        /// Which curve.
        curve: &'static str,
        /// Its slope.
        slope: Rate,
        /// What is there.
        available: Rate,
    },
    /// Guarantees that can't all be kept.
    #[error(
        "node {node}: with it, real-time curves promise {promised} bytes in the first {} ms ({long_run} in the \
         long run), but {limit} gives {available} bytes in that time ({rate})", *time as f64 / 1e6
    )]
    RealTimeSum {
        /// The class.
        node: NodeId,
        /// What they add up to at that time, in bytes.
        promised: u64,
        /// The time after a backlog begins, in nanoseconds.
        time: u64,
        /// The sum of their second slopes.
        long_run: Rate,
        /// Whose curve is exceeded.
        limit: String,
        /// What it gives by then, in bytes.
        available: u64,
        /// Its rate in the long run.
        rate: Rate,
    },
    /// More reserved for flows than the scheduler is served with.
    #[error(
        "node {node}: {others} reserved by others + {wanted} = {sum}, which must stay below the capacity of \
         {capacity}"
    )]
    Reservations {
        /// The scheduler.
        node: NodeId,
        /// The flow.
        flow: FlowNumber,
        /// What others have.
        others: Rate,
        /// What was asked for.
        wanted: Rate,
        /// Their sum.
        sum: Rate,
        /// What there is.
        capacity: Rate,
    },
    /// All queues of the port are in use.
    #[error(
        "node {node}: no free queue: all {most} queues of the port belong to other nodes, hold packets or are kept for a flow; \
         raise the scheduler's `queues` (at most {most_of_all})", most_of_all = crate::MOST_QUEUES
    )]
    NoQueue {
        /// The node.
        node: NodeId,
        /// Queues of the port.
        most: u32,
    },
    /// All queues of a leaf are in use.
    #[error("node {node}: no free queue: all {most} for flows hold packets or are kept for a flow")]
    LeafFull {
        /// The leaf.
        node: NodeId,
        /// Its queues.
        most: u32,
    },
    /// A leaf would have more queues than the port.
    #[error(
        "node {node}: {} for flows and one for all others are more than the {most} of the port; its \
         scheduler's `queues` goes up to {most_of_all}", millrace_units::count(.queues, "queue"), most_of_all = crate::MOST_QUEUES
    )]
    LeafQueues {
        /// The leaf.
        node: NodeId,
        /// What was asked for.
        queues: u32,
        /// Queues of the port.
        most: u32,
    },
    /// Packets were to be moved to where they can't be.
    #[error("node {node}: packets can't move to node {to}: {why}")]
    MoveTarget {
        /// Whose packets.
        node: NodeId,
        /// Where to.
        to: NodeId,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A change of kind.
    #[error(
        "node {node} is a {kind} and can't become a {other}: add one beside it, then remove it and move its packets"
    )]
    Kind {
        /// The node.
        node: NodeId,
        /// What it is.
        kind: &'static str,
        /// What it was to be.
        other: &'static str,
    },
    /// A limit of the port out of range.
    #[error("port: {what} {value} is out of range: {least} to {most}")]
    Port {
        /// What is out of range.
        what: &'static str,
        /// Its value.
        value: u64,
        /// The least that is allowed.
        least: u64,
        /// The most that is allowed.
        most: u64,
    },
}

impl ScheduleError {
    /// The node that was to be added or changed; none, where it is about the port.
    pub fn node(&self) -> Option<NodeId> {
        match *self {
            Self::Duplicate(node) | Self::Id(node) | Self::Unknown(node) => Some(node),
            Self::UnknownParent { node, .. }
            | Self::ParentIsLeaf { node, .. }
            | Self::Cycle { node, .. }
            | Self::Depth { node, .. }
            | Self::Share { node, .. }
            | Self::Level { node, .. }
            | Self::OnlyChild { node, .. }
            | Self::Range { node, .. }
            | Self::Settings { node, .. }
            | Self::CurveAboveLink { node, .. }
            | Self::RealTimeSum { node, .. }
            | Self::Reservations { node, .. }
            | Self::NoQueue { node, .. }
            | Self::LeafFull { node, .. }
            | Self::LeafQueues { node, .. }
            | Self::MoveTarget { node, .. }
            | Self::Kind { node, .. } => Some(node),
            Self::Port { .. } => None,
        }
    }
}
