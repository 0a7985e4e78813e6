//! Schedulers of inner nodes, which choose among children.

use millrace_units::Instant;

use super::node::{NodeKind, Share};
use super::nodes::Kind;
use crate::arena::NONE;
use crate::link::deficit_round_robin::DeficitRoundRobin;
use crate::link::discipline::Discipline;
use crate::link::hfsc::{Child, HIERARCHY_ROOT, Hfsc};
use crate::link::priority::Priority;
use crate::link::token_bucket::TokenBucket;
use crate::slots::Slots;

/// Schedulers of inner nodes, by kind.
#[derive(Debug, Default)]
pub(super) struct Disciplines {
    pub priorities: Slots<Priority>,
    pub round_robins: Slots<DeficitRoundRobin>,
    pub hierarchies: Slots<Hfsc>,
    pub token_buckets: Slots<TokenBucket>,
}

/// Calls the discipline of an inner node.
macro_rules! with_discipline {
    ($self:ident, $kind:expr, $discipline:ident => $call:expr, else $other:expr) => {
        match $kind {
            Kind::Priority(index) => {
                let $discipline = &mut $self.priorities[index];
                $call
            }
            Kind::RoundRobin(index) => {
                let $discipline = &mut $self.round_robins[index];
                $call
            }
            Kind::Hfsc { hierarchy, .. } => {
                let $discipline = &mut $self.hierarchies[hierarchy];
                $call
            }
            Kind::TokenBucket(index) => {
                let $discipline = &mut $self.token_buckets[index];
                $call
            }
            Kind::Fifo(_) | Kind::FlowQueues(_) | Kind::FqCodel(_) | Kind::Vacant => $other,
        }
    };
}

impl Disciplines {
    /// Creates the scheduler of an inner node. Returns its kind; [`Kind::Vacant`] for a leaf.
    pub fn build(&mut self, node: u32, kind: &NodeKind) -> Kind {
        match kind {
            NodeKind::Fifo(_) | NodeKind::FlowQueues(_) | NodeKind::FqCodel(_) => Kind::Vacant,
            NodeKind::Priority => Kind::Priority(self.priorities.insert(Priority::default())),
            NodeKind::DeficitRoundRobin => {
                Kind::RoundRobin(self.round_robins.insert(DeficitRoundRobin::default()))
            }
            NodeKind::Hfsc => {
                Kind::Hfsc { hierarchy: self.hierarchies.insert(Hfsc::new(node)), class: HIERARCHY_ROOT }
            }
            NodeKind::TokenBucket { rate, burst } => {
                Kind::TokenBucket(self.token_buckets.insert(TokenBucket::new(*rate, *burst)))
            }
        }
    }

    /// Releases the scheduler of an inner node.
    pub fn close(&mut self, kind: Kind) {
        match kind {
            Kind::Priority(index) => drop(self.priorities.remove(index)),
            Kind::RoundRobin(index) => drop(self.round_robins.remove(index)),
            Kind::TokenBucket(index) => drop(self.token_buckets.remove(index)),
            Kind::Hfsc { hierarchy, class: HIERARCHY_ROOT } => drop(self.hierarchies.remove(hierarchy)),
            _ => {}
        }
    }

    /// Returns the settings of an inner node; `None` for a leaf.
    pub fn settings(&self, kind: Kind) -> Option<NodeKind> {
        match kind {
            Kind::Priority(_) => Some(NodeKind::Priority),
            Kind::RoundRobin(_) => Some(NodeKind::DeficitRoundRobin),
            Kind::Hfsc { .. } => Some(NodeKind::Hfsc),
            Kind::TokenBucket(index) => {
                let (rate, burst) = self.token_buckets[index].settings();
                Some(NodeKind::TokenBucket { rate, burst })
            }
            _ => None,
        }
    }

    /// Whether a node has children.
    pub fn has_children(&self, kind: Kind) -> bool {
        match kind {
            Kind::Priority(index) => self.priorities[index].first().is_some(),
            Kind::RoundRobin(index) => !self.round_robins[index].is_empty(),
            Kind::TokenBucket(index) => self.token_buckets[index].only_child().is_some(),
            Kind::Hfsc { hierarchy, class } => self.hierarchies[hierarchy].has_children(class),
            _ => false,
        }
    }

    /// Adds a child. Its share must match the parent's kind. Returns the child's slot.
    pub fn attach(&mut self, parent: Kind, share: &Share, child: Child, is_inner_class: bool) -> u32 {
        match (parent, share) {
            (Kind::Priority(index), Share::Level(level)) => {
                self.priorities[index].insert(*level, child.node);
                *level
            }
            (Kind::RoundRobin(index), Share::Quantum(quantum)) => {
                self.round_robins[index].insert(child.node, *quantum)
            }
            (Kind::TokenBucket(index), _) => {
                self.token_buckets[index].set_child(child.node);
                0
            }
            (Kind::Hfsc { hierarchy, class }, Share::Curves(curves)) => {
                self.hierarchies[hierarchy].insert(class, child, curves, is_inner_class)
            }
            _ => 0,
        }
    }

    /// Removes the child in a slot.
    pub fn detach(&mut self, parent: Kind, slot: u32) {
        match parent {
            Kind::Priority(index) => self.priorities[index].remove(slot),
            Kind::RoundRobin(index) => self.round_robins[index].remove(slot),
            Kind::TokenBucket(index) => self.token_buckets[index].set_child(NONE),
            Kind::Hfsc { hierarchy, .. } => self.hierarchies[hierarchy].remove(slot),
            _ => {}
        }
    }

    /// Returns the share of the child in a slot.
    pub fn share(&self, parent: Kind, slot: u32) -> Share {
        match parent {
            Kind::Priority(_) => Share::Level(slot),
            Kind::RoundRobin(index) => Share::Quantum(self.round_robins[index].quantum(slot)),
            Kind::Hfsc { hierarchy, .. } => Share::Curves(self.hierarchies[hierarchy].curves(slot)),
            _ => Share::Only,
        }
    }

    /// Activates the child in a slot; its first packet takes `length` bytes on the wire.
    #[inline]
    pub fn activate(&mut self, parent: Kind, slot: u32, length: u32, now: Instant) {
        with_discipline!(self, parent, discipline => discipline.activate(slot, length, now), else ());
    }

    /// Deactivates the child in a slot.
    #[inline]
    pub fn deactivate(&mut self, parent: Kind, slot: u32, now: Instant) {
        with_discipline!(self, parent, discipline => discipline.deactivate(slot, now), else ());
    }

    /// Returns the child that an inner node chooses to send; `None` if no child may send now.
    #[inline]
    pub fn choose(&mut self, kind: Kind, now: Instant) -> Option<u32> {
        with_discipline!(self, kind, discipline => {
            let slot = discipline.choose(now)?;
            Some(discipline.child(slot))
        }, else None)
    }

    /// Counts `bytes` sent by the chosen child, whose next packet takes `next` bytes. If `is_inside` is set,
    /// the child is an inner H-FSC class, and nothing is counted. Returns the earliest time at which a child
    /// may send.
    #[inline]
    pub fn served(
        &mut self,
        parent: Kind,
        (slot, is_inside): (u32, bool),
        bytes: u32,
        next: Option<u32>,
        now: Instant,
    ) -> Instant {
        with_discipline!(self, parent, discipline => {
            if !is_inside {
                discipline.served(slot, bytes, next, now);
            }
            discipline.next_ready()
        }, else Instant::ZERO)
    }

    /// Returns the earliest time at which a child of an inner node may send.
    #[inline]
    pub fn next_ready(&mut self, kind: Kind) -> Instant {
        with_discipline!(self, kind, discipline => discipline.next_ready(), else Instant::FOREVER)
    }
}
