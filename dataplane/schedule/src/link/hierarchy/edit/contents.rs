//! Packets and counters of leaves that are removed or replaced.

use super::super::node::Share;
use super::super::nodes::{Kind, Node, Totals};
use super::place::Places;
use crate::arena::Load;
use crate::{DropSink, Item, NodeId};

/// Treatment of the packets of a removed node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leftover {
    /// Drops the packets: the sink receives them, with [`DropCause::Removed`](crate::DropCause::Removed).
    Drop,
    /// Appends the packets to another leaf, each flow in its order, regardless of that leaf's thresholds.
    MoveTo(NodeId),
}

/// Drops or moves all packets of a leaf. Returns their number.
pub(super) fn empty<T: Item>(
    places: &mut Places<'_, T>,
    node: NodeId,
    leftover: Leftover,
    sink: &mut impl DropSink<T>,
) -> u32 {
    let Places { tree, now } = places;
    let kind = tree.nodes[node.0].kind;
    let mut count = 0;
    while let Some(held) = tree.leaves.take_to_move(kind) {
        count += 1;
        tree.count_lost(node.0, Load::of_packet(held.length));
        match leftover {
            Leftover::Drop => tree.other_drops.drop_removed(held.item, sink),
            Leftover::MoveTo(to) => tree.put(to, held, *now),
        }
    }
    tree.pause(node.0, *now);
    count
}

/// Removes an empty node without children, and adds its drop counters to its parent.
pub(super) fn remove<T: Item>(places: &mut Places<'_, T>, node: NodeId) {
    let Node { parent, .. } = places.tree.nodes[node.0];
    if places.tree.nodes.find(parent).is_some() {
        let drops = places.tree.own_drops(node);
        places.tree.other_drops.add(NodeId(parent), &drops);
    }
    places.detach(node);
    places.discard(node);
}

/// Replaces the leaf at a node by the new leaf `built`, and moves the packets from the old leaf to the new
/// one.
pub(super) fn replace<T: Item>(places: &mut Places<'_, T>, node: NodeId, share: &Share, built: Kind) {
    carry_counters(places, node, built);
    let Node { parent, kind: old, .. } = places.tree.nodes[node.0];
    let was_root = places.tree.nodes.root == node.0;
    let held = places.tree.held_by(node.0);
    places.tree.nodes.left(parent, held);
    places.detach(node);
    let entry = &mut places.tree.nodes[node.0];
    (entry.kind, entry.totals.held, entry.ready) = (built, Load::NOTHING, false);
    places.attach(node, parent, share, false);
    let Places { tree, now } = places;
    if was_root {
        tree.nodes.root = node.0;
    }
    while let Some(held) = tree.leaves.take_to_move(old) {
        tree.put(node, held, *now);
    }
    tree.close(old);
}

/// Copies the counters of a leaf to its replacement: sent packets and bytes, the peaks of waiting packets and
/// bytes, and drops.
fn carry_counters<T: Item>(places: &mut Places<'_, T>, node: NodeId, built: Kind) {
    let tree = &mut *places.tree;
    tree.other_drops.set(node, tree.own_drops(node));
    let Node { kind, mut totals, .. } = tree.nodes[node.0];
    if let Kind::Fifo(fifo) = kind {
        let queue = tree.leaves.queues.view(fifo.0);
        totals = Totals {
            held: totals.held,
            sent_packets: queue.sent_packets,
            sent_bytes: queue.sent_bytes,
            sent_wire_bytes: totals.sent_wire_bytes,
            peak_bytes: queue.peak_bytes,
            peak_packets: queue.peak_packets,
        };
    }
    if let Kind::Fifo(fifo) = built {
        let (sent, peak) =
            ((totals.sent_packets, totals.sent_bytes), (totals.peak_bytes, totals.peak_packets));
        tree.leaves.queues.queue_mut(fifo.0).count_on(sent, peak);
    }
    tree.nodes[node.0].totals = totals;
}
