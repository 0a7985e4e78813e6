//! Errors of refused changes of the tree, with the values concerned.

use std::fmt;

use super::NodeId;
use crate::{FlowNumber, Rate};

/// Refused change of the tree. The tree stays unchanged. `N` identifies a node: by its id, or by its name.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ScheduleError<N: fmt::Display + fmt::Debug = NodeId> {
    /// The id is in use.
    #[error("node {0}: id already in use; remove the node first, or use another id")]
    Duplicate(N),
    /// The id is out of range.
    #[error("node {0}: its id must be 0 to {most}", most = super::MOST_NODES - 1)]
    Id(N),
    /// No node has this id.
    #[error("node {0}: no such node; `scheduler show` lists the nodes")]
    Unknown(N),
    /// The requested parent is unknown.
    #[error("node {node}: its parent {parent} does not exist; add {parent} first")]
    UnknownParent {
        /// Node to add or move.
        node: N,
        /// Requested parent.
        parent: N,
    },
    /// The parent is a leaf.
    #[error("node {node}: its parent {parent} is a {kind}, a leaf that has no children; name another parent")]
    ParentIsLeaf {
        /// Node to add or move.
        node: N,
        /// Requested parent.
        parent: N,
        /// Kind of the parent.
        kind: &'static str,
    },
    /// The node would become its own ancestor.
    #[error("node {node}: below {parent} it would be its own ancestor: {} < {node}", chain(.path))]
    Cycle {
        /// Node to move.
        node: N,
        /// Requested parent.
        parent: N,
        /// Nodes from the parent up to the node itself, excluding the node.
        path: Vec<N>,
    },
    /// The resulting tree would be too deep.
    #[error("node {node}: the tree would have {depth} levels; the limit is {most}", most = super::MOST_DEPTH)]
    Depth {
        /// Node to add or move.
        node: N,
        /// Levels of the resulting tree.
        depth: usize,
    },
    /// The share does not match the parent's kind.
    #[error("node {node}: a child of a {parent} {needed}")]
    Share {
        /// Node to add or change.
        node: N,
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
        node: N,
        /// Requested level.
        level: u32,
        /// Node of the priority scheduler.
        parent: N,
        /// Child that has this level.
        other: N,
    },
    /// The token bucket has a child already.
    #[error(
        "node {node}: node {parent} is a token-bucket and already has its only child {other}; put a \
         scheduler between them"
    )]
    OnlyChild {
        /// Node to add or move.
        node: N,
        /// Node of the token bucket.
        parent: N,
        /// Existing child.
        other: N,
    },
    /// A value is out of its range.
    #[error("node {node}: {what} must be {least} to {most}, not {value}")]
    Range {
        /// Node with the value.
        node: N,
        /// Name of the value.
        what: &'static str,
        /// Refused value.
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
        node: N,
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
        node: N,
        /// Name of the curve.
        curve: &'static str,
        /// Slope of the curve.
        slope: Rate,
        /// Available rate.
        available: Rate,
    },
    /// The sum of the real-time curves exceeds a limit.
    #[error(
        "node {node}: real-time curves would promise {promised} bytes in the first {} ms ({long_run} in the \
         long run), but {limit} allows {available} bytes in that time ({rate}); lower a curve", *time as f64 / 1e6
    )]
    RealTimeSum {
        /// Node of the class.
        node: N,
        /// Sum of the real-time curves at `time`, in bytes.
        promised: u64,
        /// Time after the beginning of a backlog, in nanoseconds.
        time: u64,
        /// Sum of the second slopes of the real-time curves.
        long_run: Rate,
        /// Limit that the sum exceeds.
        limit: GuaranteeLimit<N>,
        /// Bytes that the limit allows by `time`.
        available: u64,
        /// Long-term rate of the limit.
        rate: Rate,
    },
    /// The sum of the reservations in a leaf would reach the leaf's capacity.
    #[error(
        "node {node}: {others} reserved by others + {wanted} = {sum}, which must stay below the capacity of \
         {capacity}"
    )]
    Reservations {
        /// Node of the leaf.
        node: N,
        /// Flow of the reservation.
        flow: FlowNumber,
        /// Sum of the reservations of other flows.
        others: Rate,
        /// Requested rate.
        wanted: Rate,
        /// Sum of `others` and `wanted`.
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
        node: N,
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
        node: N,
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
        node: N,
        /// Requested number of queues.
        queues: u32,
        /// Number of queues of the port.
        most: u32,
    },
    /// The target node can't take the packets of a removed node.
    #[error("node {node}: packets can't move to node {to}: {why}")]
    MoveTarget {
        /// Node whose packets were to move.
        node: N,
        /// Target node.
        to: N,
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
        node: N,
        /// Current kind.
        kind: &'static str,
        /// Requested kind.
        other: &'static str,
    },
    /// A limit of the port is out of range.
    #[error("port: {what} must be {least} to {most}, not {value}")]
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

/// Limit that the real-time curves of H-FSC classes would exceed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GuaranteeLimit<N = NodeId> {
    /// Upper limit of the class itself.
    OwnUpperLimit,
    /// Token bucket of the class itself.
    OwnTokenBucket,
    /// Upper limit of this ancestor class.
    UpperLimitOf(N),
    /// Link.
    Link,
    /// Rate of the link, which the hierarchies below this scheduler share.
    LinkAbove(N),
    /// Rate available to the H-FSC scheduler of the class.
    Available,
    /// Rate available to this ancestor.
    AvailableTo(N),
}

impl<N> GuaranteeLimit<N> {
    fn named<M>(self, name: impl Fn(N) -> M) -> GuaranteeLimit<M> {
        match self {
            Self::OwnUpperLimit => GuaranteeLimit::OwnUpperLimit,
            Self::OwnTokenBucket => GuaranteeLimit::OwnTokenBucket,
            Self::UpperLimitOf(node) => GuaranteeLimit::UpperLimitOf(name(node)),
            Self::Link => GuaranteeLimit::Link,
            Self::LinkAbove(node) => GuaranteeLimit::LinkAbove(name(node)),
            Self::Available => GuaranteeLimit::Available,
            Self::AvailableTo(node) => GuaranteeLimit::AvailableTo(name(node)),
        }
    }
}

impl<N: fmt::Display> fmt::Display for GuaranteeLimit<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OwnUpperLimit => f.write_str("its own upper limit"),
            Self::OwnTokenBucket => f.write_str("the rate of its own token bucket"),
            Self::UpperLimitOf(node) => write!(f, "the upper limit of node {node}"),
            Self::Link => f.write_str("the link"),
            Self::LinkAbove(node) => write!(f, "the link above node {node}"),
            Self::Available => f.write_str("the rate available to its H-FSC scheduler"),
            Self::AvailableTo(node) => write!(f, "the rate available to node {node}"),
        }
    }
}

fn chain<N: fmt::Display>(path: &[N]) -> String {
    path.iter().map(N::to_string).collect::<Vec<_>>().join(" < ")
}

impl ScheduleError {
    /// Returns the changed node; `None` for an error about the port.
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

/// Matches an error and applies `name` to its nodes. Each variant is given to the macro with its node fields,
/// a semicolon and its other fields.
macro_rules! named {
    ($error:expr, $name:expr, $($variant:ident { $($node:ident),*; $($field:ident),* })*) => {
        match $error {
            ScheduleError::Duplicate(node) => ScheduleError::Duplicate($name(node)),
            ScheduleError::Id(node) => ScheduleError::Id($name(node)),
            ScheduleError::Unknown(node) => ScheduleError::Unknown($name(node)),
            ScheduleError::Cycle { node, parent, path } => ScheduleError::Cycle {
                node: $name(node),
                parent: $name(parent),
                path: path.into_iter().map($name).collect(),
            },
            ScheduleError::RealTimeSum { node, promised, time, long_run, limit, available, rate } => {
                let (node, limit) = ($name(node), limit.named($name));
                ScheduleError::RealTimeSum { node, promised, time, long_run, limit, available, rate }
            }
            $(ScheduleError::$variant { $($node,)* $($field,)* } => {
                ScheduleError::$variant { $($node: $name($node),)* $($field,)* }
            })*
        }
    };
}

impl ScheduleError {
    /// Returns the error with the names of its nodes instead of their ids.
    pub fn named<N: fmt::Display + fmt::Debug>(self, name: impl Fn(NodeId) -> N) -> ScheduleError<N> {
        let name = &name;
        named! { self, name,
            UnknownParent { node, parent; }
            ParentIsLeaf { node, parent; kind }
            Depth { node; depth }
            Share { node; parent, needed }
            Level { node, parent, other; level }
            OnlyChild { node, parent, other; }
            Range { node; what, value, least, most }
            Settings { node; text }
            CurveAboveLink { node; curve, slope, available }
            Reservations { node; flow, others, wanted, sum, capacity }
            NoQueue { node; most }
            LeafFull { node; most }
            LeafQueues { node; queues, most }
            MoveTarget { node, to; why }
            Kind { node; kind, other }
            Port { ; what, value, least, most }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_ids_or_names() {
        let name = |node: NodeId| format!("\"n{node}\"");
        let error = ScheduleError::ParentIsLeaf { node: NodeId(2), parent: NodeId(1), kind: "fifo" };
        assert!(error.to_string().starts_with("node 2: its parent 1 is a fifo, "), "{error}");
        let named = error.named(name).to_string();
        assert!(named.starts_with("node \"n2\": its parent \"n1\" is a fifo, "), "{named}");
        let path = vec![NodeId(3), NodeId(2)];
        let circle = ScheduleError::Cycle { node: NodeId(1), parent: NodeId(3), path };
        assert!(circle.to_string().ends_with("below 3 it would be its own ancestor: 3 < 2 < 1"), "{circle}");
        let named = circle.named(name).to_string();
        assert!(named.ends_with(": \"n3\" < \"n2\" < \"n1\""), "{named}");
    }
}
