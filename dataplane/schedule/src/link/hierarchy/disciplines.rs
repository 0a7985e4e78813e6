//! Schedulers of inner nodes, which choose among children.

use millrace_units::Instant;

use super::node::{NodeKind, Share};
use super::nodes::Kind;
use super::table::Table;
use crate::arena::NONE;
use crate::link::deficit_round_robin::DeficitRoundRobin;
use crate::link::discipline::Discipline;
use crate::link::hfsc::{Child, HIERARCHY_ROOT, Hfsc};
use crate::link::priority::Priority;
use crate::link::token_bucket::TokenBucket;

/// Schedulers of inner nodes, by kind.
#[derive(Debug, Default)]
pub(super) struct Disciplines {
    priorities: Table<Priority>,
    round_robins: Table<DeficitRoundRobin>,
    hierarchies: Table<Hfsc>,
    token_buckets: Table<TokenBucket>,
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
            Kind::Fifo(_) | Kind::FlowQueues(_) | Kind::FqCodel(_) | Kind::Vacant => $other,
        }
    };
}

impl Disciplines {
    /// Builds the scheduler of an inner node; [`Kind::Vacant`] for a leaf.
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
            Kind::Hfsc { .. } | Kind::Fifo(_) | Kind::FlowQueues(_) | Kind::FqCodel(_) | Kind::Vacant => {}
        }
    }

    /// Returns the settings of an inner node; `None` for a leaf.
    pub fn settings(&self, kind: Kind) -> Option<NodeKind> {
        match kind {
            Kind::Priority(_) => Some(NodeKind::Priority),
            Kind::RoundRobin(_) => Some(NodeKind::DeficitRoundRobin),
            Kind::Hfsc { .. } => Some(NodeKind::Hfsc),
            Kind::TokenBucket(index) => {
                let (rate, burst) = self.token_buckets.get(index).settings();
                Some(NodeKind::TokenBucket { rate, burst })
            }
            Kind::Fifo(_) | Kind::FlowQueues(_) | Kind::FqCodel(_) | Kind::Vacant => None,
        }
    }

    /// Whether a node has children.
    pub fn has_children(&self, kind: Kind) -> bool {
        match kind {
            Kind::Priority(index) => self.priorities.get(index).first().is_some(),
            Kind::RoundRobin(index) => !self.round_robins.get(index).is_empty(),
            Kind::TokenBucket(index) => self.token_buckets.get(index).only_child().is_some(),
            Kind::Hfsc { hierarchy, class } => self.hierarchies.get(hierarchy).has_children(class),
            Kind::Fifo(_) | Kind::FlowQueues(_) | Kind::FqCodel(_) | Kind::Vacant => false,
        }
    }

    /// Adds a child with a share that suits the parent's kind. Returns its slot.
    pub fn attach(&mut self, parent: Kind, share: &Share, child: Child, is_inner_class: bool) -> u32 {
        match (parent, share) {
            (Kind::Priority(index), Share::Level(level)) => {
                self.priorities.get_mut(index).insert(*level, child.node);
                *level
            }
            (Kind::RoundRobin(index), Share::Quantum(quantum)) => {
                self.round_robins.get_mut(index).insert(child.node, *quantum)
            }
            (Kind::TokenBucket(index), _) => {
                self.token_buckets.get_mut(index).set_child(child.node);
                0
            }
            (Kind::Hfsc { hierarchy, class }, Share::Curves(curves)) => {
                self.hierarchies.get_mut(hierarchy).insert(class, child, curves, is_inner_class)
            }
            _ => 0,
        }
    }

    /// Removes the child in a slot.
    pub fn detach(&mut self, parent: Kind, slot: u32) {
        match parent {
            Kind::Priority(index) => self.priorities.get_mut(index).remove(slot),
            Kind::RoundRobin(index) => self.round_robins.get_mut(index).remove(slot),
            Kind::TokenBucket(index) => self.token_buckets.get_mut(index).set_child(NONE),
            Kind::Hfsc { hierarchy, .. } => self.hierarchies.get_mut(hierarchy).remove(slot),
            Kind::Fifo(_) | Kind::FlowQueues(_) | Kind::FqCodel(_) | Kind::Vacant => {}
        }
    }

    /// Returns the share of the child in a slot.
    pub fn share(&self, parent: Kind, slot: u32) -> Share {
        match parent {
            Kind::Priority(_) => Share::Level(slot),
            Kind::RoundRobin(index) => Share::Quantum(self.round_robins.get(index).quantum(slot)),
            Kind::Hfsc { hierarchy, .. } => Share::Curves(self.hierarchies.get(hierarchy).curves(slot)),
            Kind::TokenBucket(_) | Kind::Fifo(_) | Kind::FlowQueues(_) | Kind::FqCodel(_) | Kind::Vacant => {
                Share::Only
            }
        }
    }

    /// Activates the child in a slot; its first packet takes `length` bytes on the wire.
    #[inline]
    pub fn activate(&mut self, parent: Kind, slot: u32, length: u32, now: Instant) {
        with_discipline!(self, parent, discipline => discipline.activate(slot, length, now), else ());
    }

    /// Activates the child at a level of a strict priority scheduler.
    #[inline]
    pub fn activate_level(&mut self, priority: u32, level: u32, now: Instant) {
        self.priorities.get_mut(priority).activate(level, 1, now);
    }

    /// Deactivates the child in a slot.
    #[inline]
    pub fn deactivate(&mut self, parent: Kind, slot: u32, now: Instant) {
        with_discipline!(self, parent, discipline => discipline.deactivate(slot, now), else ());
    }

    /// Returns the child that an inner node chooses; `None` if no child may send now.
    #[inline]
    pub fn choose(&mut self, kind: Kind, now: Instant) -> Option<u32> {
        with_discipline!(self, kind, discipline => {
            let slot = discipline.choose(now)?;
            Some(discipline.child(slot))
        }, else None)
    }

    /// Notes that the chosen child sent `bytes`, and that its next packet takes `next` bytes. If the child
    /// `is_inside` the hierarchy of its parent, as an inner class of H-FSC, there is nothing to note. Returns
    /// the time from which on a child may send.
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

    /// Returns the time from which on an inner node has something to send.
    #[inline]
    pub fn next_ready(&mut self, kind: Kind) -> Instant {
        with_discipline!(self, kind, discipline => discipline.next_ready(), else Instant::FOREVER)
    }

    /// Returns the child that a strict priority scheduler chooses.
    #[inline]
    pub fn choose_level(&self, priority: u32) -> Option<u32> {
        let priority = self.priorities.get(priority);
        Some(priority.child(priority.first_backlogged()?))
    }

    #[inline]
    pub fn priority(&self, index: u32) -> &Priority {
        self.priorities.get(index)
    }

    #[inline]
    pub fn priority_mut(&mut self, index: u32) -> &mut Priority {
        self.priorities.get_mut(index)
    }

    /// Returns a strict priority scheduler, if there ever was one of this number.
    #[inline]
    pub fn find_priority(&mut self, index: u32) -> Option<&mut Priority> {
        self.priorities.find_mut(index)
    }

    #[inline]
    pub fn round_robin(&self, index: u32) -> &DeficitRoundRobin {
        self.round_robins.get(index)
    }

    pub fn round_robin_mut(&mut self, index: u32) -> &mut DeficitRoundRobin {
        self.round_robins.get_mut(index)
    }

    #[inline]
    pub fn hierarchy(&self, index: u32) -> &Hfsc {
        self.hierarchies.get(index)
    }

    pub fn hierarchy_mut(&mut self, index: u32) -> &mut Hfsc {
        self.hierarchies.get_mut(index)
    }

    pub fn token_bucket(&self, index: u32) -> &TokenBucket {
        self.token_buckets.get(index)
    }

    #[inline]
    pub fn token_bucket_mut(&mut self, index: u32) -> &mut TokenBucket {
        self.token_buckets.get_mut(index)
    }
}
