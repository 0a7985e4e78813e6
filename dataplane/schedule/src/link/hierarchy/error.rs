//! Errors of refused changes of the tree, with the figures.

use super::NodeId;
use crate::{FlowNumber, Rate};

/// Refused change of the tree. The tree stays unchanged.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ScheduleError {
    /// The id is in use.
    #[error("node {0}: id already in use; remove the node first, or use another id")]
    Duplicate(NodeId),
    /// The id is out of range.
    #[error("node {0}: id out of range: 0 to {most}", most = super::MOST_NODES - 1)]
    Id(NodeId),
    /// No node has this id.
    #[error("node {0}: no such node; `scheduler show` lists the nodes")]
    Unknown(NodeId),
    /// The requested parent is unknown.
    #[error("node {node}: its parent {parent} does not exist; add {parent} first")]
    UnknownParent {
        /// Node to add or move.
        node: NodeId,
        /// Requested parent.
        parent: NodeId,
    },
    /// The parent is a leaf.
    #[error("node {node}: its parent {parent} is a {kind}, a leaf that has no children; name another parent")]
    ParentIsLeaf {
        /// Node to add or move.
        node: NodeId,
        /// Requested parent.
        parent: NodeId,
        /// Kind of the parent.
        kind: &'static str,
    },
    /// The node would become its own ancestor.
    #[error("node {node}: below {parent} it would be its own ancestor: {path}")]
    Cycle {
        /// Node to move.
        node: NodeId,
        /// Requested parent.
        parent: NodeId,
        /// Path from the parent up to the node.
        path: String,
    },
    /// The resulting tree would be too deep.
    #[error("node {node}: the tree would have {depth} levels; the limit is {most}", most = super::MOST_DEPTH)]
    Depth {
        /// Node to add or move.
        node: NodeId,
        /// Levels of the resulting tree.
        depth: usize,
    },
    /// The share does not match the parent's kind.
    #[error("node {node}: a child of a {parent} {needed}")]
    Share {
        /// Node to add or change.
        node: NodeId,
        /// Kind of the parent.
        parent: &'static str,
        /// Share that the parent needs.
        needed: &'static str,
    },
    /// The level of a priority scheduler has a child already.
    #[error(
        "node {node}: level {level} of node {parent} is taken by node {other}; use another level from 0 to \
         65535"
    )]
    Level {
        /// Node to add or change.
        node: NodeId,
        /// Requested level.
        level: u32,
        /// Node of the priority scheduler.
        parent: NodeId,
        /// Child that has this level.
        other: NodeId,
    },
    /// The token bucket has a child already.
    #[error(
        "node {node}: node {parent} is a token-bucket and already has its only child {other}; put a \
         scheduler between them"
    )]
    OnlyChild {
        /// Node to add or move.
        node: NodeId,
        /// Node of the token bucket.
        parent: NodeId,
        /// Existing child.
        other: NodeId,
    },
    /// A number is out of its range.
    #[error("node {node}: {what} {value} is out of range: {least} to {most}")]
    Range {
        /// Node with the number.
        node: NodeId,
        /// Name of the number.
        what: &'static str,
        /// Value of the number.
        value: u64,
        /// Least allowed value.
        least: u64,
        /// Greatest allowed value.
        most: u64,
    },
    /// The settings contradict each other.
    #[error("node {node}: {text}")]
    Settings {
        /// Node with the settings.
        node: NodeId,
        /// Contradiction, and its remedy.
        text: String,
    },
    /// A curve is steeper than the rate that serves the scheduler.
    #[error(
        "node {node}: slope {slope} of its {curve} curve exceeds the rate available to its H-FSC scheduler, \
         {available}"
    )]
    CurveAboveLink {
        /// Node of the class.
        node: NodeId,
        /// Name of the curve.
        curve: &'static str,
        /// Slope of the curve.
        slope: Rate,
        /// Available rate.
        available: Rate,
    },
    /// Guarantees exceed a limit.
    #[error(
        "node {node}: real-time curves would promise {promised} bytes in the first {} ms ({long_run} in the \
         long run), but {limit} allows {available} bytes in that time ({rate}); lower a curve", *time as f64 / 1e6
    )]
    RealTimeSum {
        /// Node of the class.
        node: NodeId,
        /// Sum of the guarantees at that time, in bytes.
        promised: u64,
        /// Time after the beginning of a backlog, in nanoseconds.
        time: u64,
        /// Sum of the second slopes of the guarantees.
        long_run: Rate,
        /// Name of the exceeded limit.
        limit: String,
        /// Bytes that the limit allows by that time.
        available: u64,
        /// Rate of the limit in the long run.
        rate: Rate,
    },
    /// The reservations of a leaf's flows would reach the leaf's capacity.
    #[error(
        "node {node}: {others} reserved by others + {wanted} = {sum}, which must stay below the capacity of \
         {capacity}"
    )]
    Reservations {
        /// Node of the leaf.
        node: NodeId,
        /// Flow of the reservation.
        flow: FlowNumber,
        /// Sum of the reservations of other flows.
        others: Rate,
        /// Requested rate.
        wanted: Rate,
        /// Sum of both.
        sum: Rate,
        /// Capacity of the leaf.
        capacity: Rate,
    },
    /// All queues of the port are in use.
    #[error(
        "node {node}: no free queue: all {most} queues of the port belong to other nodes, hold packets or are kept for a flow; \
         raise the scheduler's `queues` (at most {most_of_all})", most_of_all = crate::MOST_QUEUES
    )]
    NoQueue {
        /// Node that needs a queue.
        node: NodeId,
        /// Number of queues of the port.
        most: u32,
    },
    /// All queues of a leaf are in use.
    #[error(
        "node {node}: no free queue: all {most} for flows hold packets or are kept for a flow; raise the \
         node's `queues`"
    )]
    LeafFull {
        /// Node of the leaf.
        node: NodeId,
        /// Number of queues of the leaf.
        most: u32,
    },
    /// A leaf would have more queues than the port.
    #[error(
        "node {node}: {} for flows and one shared queue are more than the {most} of the port; raise `queues` \
         of the port's scheduler (at most {most_of_all})", millrace_units::count(.queues, "queue"), most_of_all = crate::MOST_QUEUES
    )]
    LeafQueues {
        /// Node of the leaf.
        node: NodeId,
        /// Requested number of queues.
        queues: u32,
        /// Number of queues of the port.
        most: u32,
    },
    /// Target node that cannot take the packets.
    #[error("node {node}: packets can't move to node {to}: {why}")]
    MoveTarget {
        /// Node whose packets were to move.
        node: NodeId,
        /// Target node.
        to: NodeId,
        /// Reason why the target cannot take packets.
        why: &'static str,
    },
    /// The change would alter the kind of a node.
    #[error(
        "node {node} is a {kind} and can't become a {other}: add a {other} node, then remove node {node} and \
         move its packets there"
    )]
    Kind {
        /// Node to change.
        node: NodeId,
        /// Current kind.
        kind: &'static str,
        /// Requested kind.
        other: &'static str,
    },
    /// A limit of the port is out of range.
    #[error("port: {what} {value} is out of range: {least} to {most}")]
    Port {
        /// Name of the limit.
        what: &'static str,
        /// Value of the limit.
        value: u64,
        /// Least allowed value.
        least: u64,
        /// Greatest allowed value.
        most: u64,
    },
}

impl ScheduleError {
    /// Returns the node of the change; `None` for an error about the port.
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
