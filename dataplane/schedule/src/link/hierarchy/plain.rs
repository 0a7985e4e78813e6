//! Usual cases: FIFOs without active queue management take packets below their thresholds while the port has
//! much room, and FIFOs below strict priority send. This module looks at the tree once per batch. The general
//! path handles all other cases.

use millrace_units::Instant;

use super::LinkScheduler;
use super::node::{Kind, Node, Table};
use crate::arena::{Load, NONE, Opened};
use crate::link::discipline::Discipline;
use crate::link::priority::Priority;
use crate::queue::Queue;
use crate::queue_manager::QueueManager;
use crate::{Arrival, Item};

/// Tally of the packets that entered below one parent, counted at the parent and above in one step.
#[derive(Debug)]
pub(super) struct Tally {
    above: u32,
    /// Load of the port at the last count.
    counted: Load,
    /// Strict priority scheduler of the parent, if it is known to be ready; [`NONE`] otherwise.
    priority: u32,
}

impl Tally {
    pub fn new(held: Load) -> Self {
        Self { above: NONE, counted: held, priority: NONE }
    }

    /// Counts the packets that entered until the port held `held`, from the parent upwards. The next packets
    /// have the parent `above`.
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

/// Reason for the end of the usual case.
pub(super) enum Pause<T> {
    /// Packet that needs the general path.
    Other(Arrival<T>),
    /// Leaf that took its first packet; the nodes above must be notified.
    Rouse(u32),
}

impl<T: Item> LinkScheduler<T> {
    /// Puts packets into FIFOs until a packet or leaf needs other work. The port must have room for all
    /// packets.
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

    /// Notifies the nodes above a leaf that it has something to send. Notes whether later leaves below the
    /// same parent may skip most of that.
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

/// Sends packets of FIFOs below strict priority: each FIFO as long as it has packets, `most` packets in all,
/// while `goes` accepts the length of the next one. Returns their load and their bytes on the wire.
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
