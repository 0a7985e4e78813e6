//! Usual case of an arrival: a FIFO without active queue management takes packets below its threshold, while
//! the port has much room. This module handles a batch with one view of the tree. The general path handles
//! all other cases.

use millrace_units::Instant;

use super::super::disciplines::Disciplines;
use super::super::nodes::{Kind, Node, Nodes, count_entered};
use super::super::tree::Tree;
use crate::arena::{Load, NONE, Opened};
use crate::link::discipline::Discipline;
use crate::queue::Queue;
use crate::{Arrival, Item};

/// Tally of the packets that entered below one parent, to count them at the parent and its ancestors in one
/// step.
#[derive(Debug)]
pub(super) struct Tally {
    above: u32,
    /// Load of the port when packets were last counted at the parent.
    counted: Load,
    /// Strict priority scheduler of the parent, once the parent is ready. [`NONE`] before that, and for a
    /// parent of another kind.
    priority: u32,
}

impl Tally {
    pub fn new(held: Load) -> Self {
        Self { above: NONE, counted: held, priority: NONE }
    }

    /// Counts the packets of this tally at the parent and its ancestors, and starts an empty tally for the
    /// parent `above`. `held`: the port's load now.
    pub fn settle(&mut self, nodes: &mut [Node], held: Load, above: u32) {
        count_entered(nodes, self.above, held.minus(self.counted));
        *self = Self { above, ..Self::new(held) };
    }

    /// Records the parent's strict priority scheduler, if the parent is ready. Then further leaves below this
    /// parent need activation only in this scheduler.
    pub fn note_priority(&mut self, nodes: &Nodes) {
        if let Some(&Node { kind: Kind::Priority(index), ready: true, .. }) = nodes.find(self.above) {
            self.priority = index;
        }
    }
}

/// Reason to leave the usual case.
pub(super) enum Pause<T> {
    /// Packet that needs the general path.
    Other(Arrival<T>),
    /// Leaf that took its first packet, so that its ancestors may need activation.
    Rouse(u32),
}

/// Puts packets into FIFOs until a packet or leaf needs other work. The port must have room for all packets.
#[inline(never)]
pub(super) fn put_plain<T: Item>(
    tree: &mut Tree<T>,
    arrivals: &mut impl Iterator<Item = Arrival<T>>,
    now: Instant,
    tally: &mut Tally,
) -> Option<Pause<T>> {
    let (queues, mut slots) = tree.leaves.queues.open_all();
    let pause =
        put_below((tree.nodes.all_mut(), queues, &mut tree.disciplines), &mut slots, arrivals, now, tally);
    slots.close();
    pause
}

#[inline(always)]
fn put_below<T: Item>(
    (nodes, queues, disciplines): (&mut [Node], &mut [Queue], &mut Disciplines),
    slots: &mut Opened<'_, T>,
    arrivals: &mut impl Iterator<Item = Arrival<T>>,
    now: Instant,
    tally: &mut Tally,
) -> Option<Pause<T>> {
    let mut priority = disciplines.priorities.find_mut(tally.priority);
    for arrival in arrivals {
        let Some(node) = nodes.get_mut(arrival.leaf.0 as usize) else { return Some(Pause::Other(arrival)) };
        let Kind::Fifo(fifo) = node.kind else { return Some(Pause::Other(arrival)) };
        let (parent, ready, length) = (node.parent, node.ready, arrival.item.length());
        let Some(queue) = queues.get_mut(fifo.0 as usize) else { return Some(Pause::Other(arrival)) };
        if !queue.is_plain() {
            return Some(Pause::Other(arrival));
        }
        if parent != tally.above {
            tally.settle(nodes, slots.load(), parent);
            priority = None;
        }
        if let Err(item) = slots.push(&mut queue.list, (arrival.item, length, arrival.flow), now) {
            return Some(Pause::Other(Arrival { item, ..arrival }));
        }
        if !ready {
            let Some(priority) = &mut priority else { return Some(Pause::Rouse(arrival.leaf.0)) };
            let node = &mut nodes[arrival.leaf.0 as usize];
            node.ready = true;
            priority.activate(node.slot, 1, now);
        }
    }
    None
}
