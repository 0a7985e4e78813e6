//! The tree of schedulers of a port: any kind at any node (*Router Plugins*, section 6: the hierarchical scheduling
//! framework that it plans).
//!
//! Leaves hold packets, other nodes choose among their children. A node is *ready* when it has something that may be sent
//! now, and its parent sees it only then; a node that must wait (a token bucket, an H-FSC at its limits) has its time
//! in a heap of timers. To send is to go from the root along the choices to a leaf, and to tell each node on the
//! way back what was sent and what comes next.

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

/// Ids of nodes are below this.
pub const MOST_NODES: u32 = 1 << 17;
/// Nodes from root to leaf at most.
pub const MOST_DEPTH: usize = 16;

/// How fast a port sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkRate {
    /// Bits per second on the wire; `None` sends whenever asked.
    pub rate: Option<Rate>,
    /// Bytes that may go ahead of the rate, to make up for a caller that comes late: up to 10^9. With 0 no packet begins
    /// before the one before it has ended; with the largest packet's length, two go at once at most.
    pub slack: u32,
}

/// The queues and schedulers of one port. A pure function of what it is told: packets, changes and moments, which must
/// not go back.
///
/// What it holds is dropped with it.
#[derive(Debug)]
pub struct LinkScheduler<T> {
    queues: QueueManager<T>,
    nodes: Slots<Node>,
    root: u32,
    link: LinkRate,
    pace: Option<Credit>,
    /// Nodes that wait, by when they will be ready.
    timers: Heap,
    timer_places: Vec<u32>,
    flow_queues: Table<FlowQueues>,
    fq_codels: Table<FqCodel>,
    priorities: Table<Priority>,
    round_robins: Table<DeficitRoundRobin>,
    hierarchies: Table<Hfsc>,
    token_buckets: Table<TokenBucket>,
    limits: BufferLimits,
    /// Whether the outcome of changes was checked before they are made; see [`trust`](Self::trust).
    trusting: bool,
    /// Whether what is promised is added up later.
    deferring: bool,
    /// What nodes dropped that were removed from below a node.
    gone: HashMap<NodeId, DropCounts>,
    /// Packets for nodes that don't exist, and those that were dropped with their class.
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
    /// A port without any node: what is sent to it is dropped.
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

    /// Whether the caller has checked where changes lead, on a tree without packets, with the same nodes and flows. Then nothing
    /// is refused that would be right once all of them are made, or once packets have gone: what is promised is not added up
    /// after each change, two nodes may change their levels, and a queue that a node, or a flow of which something is said,
    /// needs is there, be all others full.
    pub fn trust(&mut self, trusting: bool) {
        self.trusting = trusting;
    }

    /// Whether what is promised is added up later, by [`set_link`](Self::set_link) for instance, rather than after each change: a large tree is
    /// built in a time that grows with its nodes, not with their square.
    pub fn defer_promises(&mut self, deferring: bool) {
        self.deferring = deferring;
    }

    /// How fast the port sends.
    pub fn link(&self) -> LinkRate {
        self.link
    }

    /// What the link adds to each packet.
    pub fn overhead(&self) -> LinkOverhead {
        self.queues.overhead
    }

    /// How much all queues may hold together.
    pub fn limits(&self) -> BufferLimits {
        self.limits
    }

    /// Packets in all queues.
    #[inline]
    pub fn held_packets(&self) -> u32 {
        self.queues.arena.load.packets()
    }

    /// Their bytes.
    #[inline]
    pub fn held_bytes(&self) -> u32 {
        self.queues.arena.load.bytes()
    }

    /// Packets for nodes that don't exist, and those that were dropped with their class.
    pub fn lost(&self) -> &DropCounts {
        &self.lost
    }

    /// The root, if there is a node at all.
    pub fn root(&self) -> Option<NodeId> {
        (self.root != NONE).then_some(NodeId(self.root))
    }

    /// Bytes of memory that queues and nodes take, without packets.
    pub fn memory(&self) -> usize {
        self.queues.memory()
            + self.nodes.len() * size_of::<Node>()
            + self.timer_places.len() * size_of::<u32>()
    }

    /// Whether there is a node of that id.
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

    /// Whether there are nodes below one. None other is looked at.
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
