//! Nodes of the tree: kind, place and counters.

use crate::arena::{Load, NONE};
use crate::link::fifo::Fifo;
use crate::link::flow_queues::FlowQueuesSettings;
use crate::link::fq_codel::FqCodelSettings;
use crate::link::hfsc::Curves;
use crate::slots::Slots;
use crate::{QueueSettings, Rate};

/// Kind of a node, with its settings.
#[derive(Clone, PartialEq, Debug)]
pub enum NodeKind {
    /// One queue.
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
    /// Token bucket: one child, sent at a rate.
    TokenBucket {
        /// Bits per second on the wire, above 0.
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

    /// Whether a new node takes a queue of the port.
    pub(super) const fn needs_queue(&self) -> bool {
        matches!(self, Self::Fifo(_) | Self::FlowQueues(_))
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

/// Scheduler of a node: its indices in the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Vacant,
    Fifo(Fifo),
    FlowQueues(u32),
    FqCodel(u32),
    Priority(u32),
    RoundRobin(u32),
    Hfsc { hierarchy: u32, class: u32 },
    TokenBucket(u32),
}

/// Counters of a node. A FIFO's counters are in its queue, except `sent_wire_bytes`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub held: Load,
    pub sent_packets: u64,
    pub sent_bytes: u64,
    /// Bytes sent on the wire; counted here for a FIFO as well.
    pub sent_wire_bytes: u64,
    pub peak_bytes: u32,
    pub peak_packets: u32,
}

impl Totals {
    #[inline]
    pub fn entered(&mut self, load: Load) {
        self.held = self.held.plus(load);
        self.peak_bytes = self.peak_bytes.max(self.held.bytes());
        self.peak_packets = self.peak_packets.max(self.held.packets());
    }

    #[inline]
    pub fn left(&mut self, load: Load) {
        self.held = self.held.minus(load);
    }

    #[inline]
    pub fn sent_all(&mut self, load: Load, wire: u64) {
        self.sent_packets += u64::from(load.packets());
        self.sent_bytes += u64::from(load.bytes());
        self.sent_wire_bytes += wire;
    }

    #[inline]
    pub fn sent(&mut self, length: u32, wire: u32) {
        self.sent_packets += 1;
        self.sent_bytes += u64::from(length);
        self.sent_wire_bytes += u64::from(wire);
    }
}

/// Node of the tree: one cache line.
#[repr(C, align(64))]
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub kind: Kind,
    pub parent: u32,
    /// Slot among the parent's children.
    pub slot: u32,
    /// Whether the node has something to send now, and its parent knows it.
    pub ready: bool,
    pub totals: Totals,
}

const _: () = assert!(size_of::<Node>() == 64);

impl Node {
    pub const VACANT: Self = Self {
        kind: Kind::Vacant,
        parent: NONE,
        slot: 0,
        ready: false,
        totals: Totals {
            held: Load::NOTHING,
            sent_packets: 0,
            sent_bytes: 0,
            sent_wire_bytes: 0,
            peak_bytes: 0,
            peak_packets: 0,
        },
    };
}

/// Table of items by number. Numbers are reused.
#[derive(Debug)]
pub(crate) struct Table<T> {
    items: Slots<T>,
    free: Vec<u32>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { items: Slots::default(), free: Vec::new() }
    }
}

impl<T: Default> Table<T> {
    pub fn insert(&mut self, item: T) -> u32 {
        match self.free.pop() {
            Some(index) => {
                self.items[index as usize] = item;
                index
            }
            None => {
                self.items.push(item);
                self.items.len() as u32 - 1
            }
        }
    }

    pub fn remove(&mut self, index: u32) -> T {
        self.free.push(index);
        std::mem::take(&mut self.items[index as usize])
    }

    /// Whether the table never had an item.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    #[inline]
    pub fn get(&self, index: u32) -> &T {
        &self.items[index as usize]
    }

    /// Returns the item of a number, if the number was ever in use.
    #[inline]
    pub fn find_mut(&mut self, index: u32) -> Option<&mut T> {
        self.items.find_mut(index as usize)
    }

    #[inline]
    pub fn get_mut(&mut self, index: u32) -> &mut T {
        &mut self.items[index as usize]
    }
}
