//! The usual case: packets that FIFOs without active queue management take, below their thresholds, while the port holds
//! little; and FIFOs behind strict priority that send. What a batch needs of the tree is looked at once here; all else
//! is left to the general way.

use millrace_units::Instant;

use super::LinkScheduler;
use super::node::{Kind, Node, Table};
use crate::arena::{Load, NONE, Opened};
use crate::link::discipline::Discipline;
use crate::link::priority::Priority;
use crate::queue::Queue;
use crate::queue_manager::QueueManager;
use crate::{Arrival, Item};

/// What comes in below one parent is counted there, and above, at once.
#[derive(Debug)]
pub(super) struct Tally {
    above: u32,
    /// What the port held when all that had come was counted.
    counted: Load,
    /// The parent's scheduler, where that is strict priority and is known to have something to send.
    priority: u32,
}

impl Tally {
    pub fn new(held: Load) -> Self {
        Self { above: NONE, counted: held, priority: NONE }
    }

    /// Counts what came until the port held so much, from the parent upwards. What comes next has the parent `above`.
    pub fn settle(&mut self, nodes: &mut [Node], held: Load, above: u32) {
        let came = held.minus(self.counted);
        let before = std::mem::replace(self, Self { above, ..Self::new(held) });
        let mut index = before.above;
        while let Some(node) = nodes.get_mut(index as usize) {
            node.totals.entered(came);
            index = node.parent;
        }
    }
}

/// Why the usual case ends.
pub(super) enum Pause<T> {
    /// This one needs more to be looked at.
    Other(Arrival<T>),
    /// This leaf has taken a packet, and those above have to be told.
    Rouse(u32),
}

impl<T: Item> LinkScheduler<T> {
    /// Puts packets into FIFOs, until something else is to be done. The port must have room for all of them.
    #[inline(never)]
    pub(super) fn put_plain(
        &mut self,
        arrivals: &mut impl Iterator<Item = Arrival<T>>,
        now: Instant,
        tally: &mut Tally,
    ) -> Option<Pause<T>> {
        let (queues, mut slots) = self.queues.open_all();
        let pause =
            put_plain((self.nodes.all_mut(), queues, &mut self.priorities), &mut slots, arrivals, now, tally);
        slots.close();
        pause
    }

    /// Tells those above a leaf that it has something to send, and notes whether they are to be told of others so.
    pub(super) fn rouse_counted(&mut self, leaf: u32, now: Instant, tally: &mut Tally) {
        self.rouse_leaf(leaf, now);
        if let Some(&Node { kind: Kind::Priority(index), ready: true, .. }) =
            self.nodes.find(tally.above as usize)
        {
            tally.priority = index;
        }
    }
}

#[inline(always)]
fn put_plain<T: Item>(
    (nodes, queues, priorities): (&mut [Node], &mut [Queue], &mut Table<Priority>),
    slots: &mut Opened<'_, T>,
    arrivals: &mut impl Iterator<Item = Arrival<T>>,
    now: Instant,
    tally: &mut Tally,
) -> Option<Pause<T>> {
    let mut priority = priorities.find_mut(tally.priority);
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

/// FIFOs behind strict priority send, each as long as it has packets, `most` in all, and as `goes` says so of each one's length.
/// Returns what they sent and what that takes on the wire.
#[inline(never)]
pub(super) fn send_levels<T: Item>(
    (nodes, queues, priority): (&mut [Node], &mut QueueManager<T>, &mut Priority),
    most: usize,
    mut goes: impl FnMut(u32) -> bool,
    out: &mut impl FnMut(T),
) -> (Load, u64) {
    let (overhead, mut wire, mut left) = (queues.overhead, 0, most);
    let (queues, mut slots) = queues.open_all();
    let before = slots.load();
    let mut next = priority.first_backlogged();
    while left > 0
        && let Some(level) = next
    {
        let node = &mut nodes[priority.child(level) as usize];
        let Kind::Fifo(fifo) = node.kind else { break };
        let queue = &mut queues[fifo.0 as usize];
        if queue.is_managed() {
            break;
        }
        queue.note_peak();
        let mut own = 0;
        let wanted = |length| {
            let goes = goes(length);
            own += if goes { overhead.wire_bytes(length) } else { 0 };
            goes
        };
        let gone = slots.pop_while(&mut queue.list, left, wanted, &mut *out);
        queue.sent(gone);
        node.totals.sent_wire_bytes += own;
        wire += own;
        left -= gone.packets() as usize;
        if !queue.list.is_empty() {
            break;
        }
        node.ready = false;
        next = priority.next_without(level);
    }
    let sent = before.minus(slots.load());
    slots.close();
    (sent, wire)
}
