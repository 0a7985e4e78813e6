//! Scheduler tree of a port, with any kind at any node (*Router Plugins*, section 6: the hierarchical
//! scheduling framework that it plans).
//!
//! Leaves hold packets; other nodes choose among their children. A node is *ready* when it has something that
//! may be sent now, and only ready nodes are visible to their parent. A heap of timers holds the nodes that
//! must wait, such as a token bucket or an H-FSC at its limits. To send, the scheduler follows the choices
//! from the root to a leaf. Then it notifies each node on the path back of the packet sent and of the next
//! packet.

mod backlog;
mod batch;
mod change;
mod check;
mod dequeue;
mod enqueue;
mod error;
mod flows;
#[expect(clippy::indexing_slicing, reason = "notes on nodes, of which one is made for each node")]
mod levels;
mod move_to;
mod node;
mod other_kind;
mod parameters;
mod pass;
#[expect(clippy::indexing_slicing, reason = "nodes and queues by links of the same tree")]
mod plain;
mod readiness;
mod remove;
mod share;
#[expect(clippy::indexing_slicing, reason = "views of nodes, of which one is made for each node")]
mod view;

pub use backlog::LeafBacklog;
pub use error::ScheduleError;
pub use node::{NodeKind, Share};
pub use remove::Leftover;
pub use view::{NodeView, in_tree};

use std::collections::HashMap;

use millrace_units::Instant;

use super::deficit_round_robin::DeficitRoundRobin;
use super::flow_queues::FlowQueues;
use super::fq_codel::FqCodel;
use super::heap::Heap;
use super::hfsc::Hfsc;
use super::priority::Priority;
use super::token_bucket::TokenBucket;
use crate::arena::NONE;
use crate::queue_manager::{BufferLimits, MOST_QUEUES, QueueManager};
use crate::rate::Credit;
use crate::slots::Slots;
use crate::{DropCounts, Item, LinkOverhead, NodeId, Rate};
use node::{Kind, Node, Table};

/// Upper bound of node ids, exclusive.
pub const MOST_NODES: u32 = 1 << 17;
/// Maximum number of nodes from root to leaf.
pub const MOST_DEPTH: usize = 16;

/// Rate at which a port sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkRate {
    /// Bits per second on the wire; `None` for no limit: each call may send.
    pub rate: Option<Rate>,
    /// Bytes that may leave ahead of the rate, to make up for late calls: up to 10^9. With 0 no packet begins
    /// before the end of the packet before it. With the length of the largest packet, at most two leave at
    /// once.
    pub slack: u32,
}

/// Queues and schedulers of one port. The result depends only on the inputs: packets, changes and times,
/// which must not go back.
///
/// Dropping the scheduler drops the packets in it.
#[derive(Debug)]
pub struct LinkScheduler<T> {
    queues: QueueManager<T>,
    nodes: Slots<Node>,
    root: u32,
    link: LinkRate,
    pace: Option<Credit>,
    /// Nodes that wait, by the time at which they will be ready.
    timers: Heap,
    timer_places: Vec<u32>,
    flow_queues: Table<FlowQueues>,
    fq_codels: Table<FqCodel>,
    priorities: Table<Priority>,
    round_robins: Table<DeficitRoundRobin>,
    hierarchies: Table<Hfsc>,
    token_buckets: Table<TokenBucket>,
    limits: BufferLimits,
    /// Whether the caller checked the changes before; see [`trust`](Self::trust).
    trusting: bool,
    /// Whether guarantees are checked later; see [`defer_promises`](Self::defer_promises).
    deferring: bool,
    /// Drops of removed nodes, by the node above them.
    gone: HashMap<NodeId, DropCounts>,
    /// Drops of packets for unknown nodes, and of packets dropped with their node.
    lost: DropCounts,
}

/// Calls the discipline of an inner node.
macro_rules! with_discipline {
    ($self:ident, $kind:expr, $discipline:ident => $call:expr, else $other:expr) => {
        match $kind {
            Kind::Priority(index) => {
                let $discipline = $self.priorities.get_mut(index);
                $call
            }
            Kind::RoundRobin(index) => {
                let $discipline = $self.round_robins.get_mut(index);
                $call
            }
            Kind::Hfsc { hierarchy, .. } => {
                let $discipline = $self.hierarchies.get_mut(hierarchy);
                $call
            }
            Kind::TokenBucket(index) => {
                let $discipline = $self.token_buckets.get_mut(index);
                $call
            }
            _ => $other,
        }
    };
}

/// Calls the scheduler of a leaf.
macro_rules! with_leaf {
    ($self:ident, $kind:expr, $leaf:ident => $call:expr, else $other:expr) => {
        match $kind {
            Kind::Fifo(mut fifo) => {
                let $leaf = &mut fifo;
                $call
            }
            Kind::FlowQueues(index) => {
                let $leaf = $self.flow_queues.get_mut(index);
                $call
            }
            Kind::FqCodel(index) => {
                let $leaf = $self.fq_codels.get_mut(index);
                $call
            }
            _ => $other,
        }
    };
}

pub(crate) use {with_discipline, with_leaf};

impl<T: Item> LinkScheduler<T> {
    /// Creates a port without any node, which drops all packets.
    ///
    /// # Errors
    /// [`ScheduleError::Port`] when a limit is out of its range.
    pub fn new(link: LinkRate, overhead: LinkOverhead, limits: BufferLimits) -> Result<Self, ScheduleError> {
        in_range("queues", limits.queues.into(), 1, MOST_QUEUES.into())?;
        in_range("packets", limits.packets.into(), 1, 1 << 24)?;
        in_range("bytes", limits.bytes.into(), 1 << 16, u32::MAX.into())?;
        let mut scheduler = Self {
            queues: QueueManager::new(limits, overhead),
            nodes: Slots::default(),
            root: NONE,
            link: LinkRate::default(),
            pace: None,
            timers: Heap::default(),
            timer_places: Vec::new(),
            flow_queues: Table::default(),
            fq_codels: Table::default(),
            priorities: Table::default(),
            round_robins: Table::default(),
            hierarchies: Table::default(),
            token_buckets: Table::default(),
            limits,
            trusting: false,
            deferring: false,
            gone: HashMap::new(),
            lost: DropCounts::default(),
        };
        scheduler.set_link(link, Instant::ZERO)?;
        Ok(scheduler)
    }

    /// Sets whether to trust the coming changes: the caller has checked their common result, on a tree
    /// without packets with the same nodes and flows. The tree then accepts changes that become valid only
    /// with later changes or departures. It does not add up guarantees, and two nodes may exchange their
    /// levels. A node, or a flow with its own settings, gets its queue even if all queues are in use.
    pub fn trust(&mut self, trusting: bool) {
        self.trusting = trusting;
    }

    /// Sets whether guarantees are added up later, by [`set_link`](Self::set_link) for instance, instead of
    /// after each change. So the time to build a large tree grows with its nodes, not with their square.
    pub fn defer_promises(&mut self, deferring: bool) {
        self.deferring = deferring;
    }

    /// Returns the rate of the port.
    pub fn link(&self) -> LinkRate {
        self.link
    }

    /// Returns the link overhead of each packet.
    pub fn overhead(&self) -> LinkOverhead {
        self.queues.overhead
    }

    /// Returns the limits of all queues together.
    pub fn limits(&self) -> BufferLimits {
        self.limits
    }

    /// Returns the number of packets in all queues.
    #[inline]
    pub fn held_packets(&self) -> u32 {
        self.queues.arena.load.packets()
    }

    /// Returns the number of bytes in all queues.
    #[inline]
    pub fn held_bytes(&self) -> u32 {
        self.queues.arena.load.bytes()
    }

    /// Returns the drops of packets for unknown nodes, and of packets dropped with their node.
    pub fn lost(&self) -> &DropCounts {
        &self.lost
    }

    /// Returns the root, if there is a node at all.
    pub fn root(&self) -> Option<NodeId> {
        (self.root != NONE).then_some(NodeId(self.root))
    }

    /// Returns the bytes of memory of queues and nodes, without packets.
    pub fn memory(&self) -> usize {
        self.queues.memory()
            + self.nodes.len() * size_of::<Node>()
            + self.timer_places.len() * size_of::<u32>()
    }

    /// Whether a node has that id.
    pub fn contains(&self, id: NodeId) -> bool {
        self.node(id).is_some()
    }

    #[inline]
    fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.find(id.0 as usize).filter(|node| node.kind != Kind::Vacant)
    }

    fn known(&self, id: NodeId) -> Result<&Node, ScheduleError> {
        self.node(id).ok_or(ScheduleError::Unknown(id))
    }

    /// Whether a node has children, without a look at other nodes.
    fn has_children(&self, id: NodeId) -> bool {
        match self.node(id).map(|node| node.kind) {
            Some(Kind::Priority(index)) => self.priorities.get(index).first().is_some(),
            Some(Kind::RoundRobin(index)) => !self.round_robins.get(index).is_empty(),
            Some(Kind::TokenBucket(index)) => self.token_buckets.get(index).only_child().is_some(),
            Some(Kind::Hfsc { hierarchy, class }) => self.hierarchies.get(hierarchy).has_children(class),
            _ => false,
        }
    }

    fn children(&self, id: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let nodes = self.nodes.iter().enumerate();
        nodes
            .filter(move |(_, node)| node.parent == id.0 && node.kind != Kind::Vacant)
            .map(|(index, _)| NodeId(index as u32))
    }
}

fn in_range(what: &'static str, value: u64, least: u64, most: u64) -> Result<(), ScheduleError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(ScheduleError::Port { what, value, least, most })
}
