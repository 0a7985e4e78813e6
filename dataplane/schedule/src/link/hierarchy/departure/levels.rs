//! Departure of packets of FIFOs below a strict priority scheduler, in batches.

use super::super::nodes::{Kind, Node};
use crate::Item;
use crate::arena::Load;
use crate::link::discipline::Discipline;
use crate::link::priority::Priority;
use crate::queue_manager::QueueManager;

/// Sends up to `most` packets of the FIFOs below a strict priority scheduler, while `goes` accepts the next
/// packet's length. Each FIFO sends until it is empty. Returns the load of the sent packets, and their bytes
/// on the wire.
#[inline(never)]
pub(super) fn send<T: Item>(
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
