//! Arrival of packets at the leaves of a tree, one by one or in batches. For a batch, common values are
//! looked up once, and memory is prefetched. Both ways have the same result.

#[expect(clippy::indexing_slicing, reason = "nodes and queues by links of the same tree")]
mod plain;

use millrace_units::Instant;

use self::plain::{Pause, Tally, put_plain};
use super::leaves::Leaves;
use super::nodes::{Kind, Node};
use super::tree::Tree;
use crate::arena::{Load, NONE};
use crate::link::discipline::PacketScheduler;
use crate::link::fifo::Fifo;
use crate::{Arrival, DropSink, FlowNumber, Item, NodeId};

/// Enqueues a packet of a flow at a leaf. `sink` receives all dropped packets: this packet, or others that
/// make room for it. Returns whether this packet stays.
#[inline]
pub(super) fn enqueue<T: Item>(
    tree: &mut Tree<T>,
    node: NodeId,
    flow: FlowNumber,
    item: T,
    now: Instant,
    sink: &mut impl DropSink<T>,
) -> bool {
    if tree.leaves.queues.arena.is_tight(item.length()) {
        return enqueue_tightly(tree, node, flow, item, now, sink);
    }
    enqueue_at(tree, node, flow, item, now, sink)
}

/// Enqueues a packet while memory is short for those without a guarantee.
#[cold]
fn enqueue_tightly<T: Item>(
    tree: &mut Tree<T>,
    node: NodeId,
    flow: FlowNumber,
    item: T,
    now: Instant,
    sink: &mut impl DropSink<T>,
) -> bool {
    let is_within = tree.is_within_reserve(node, item.length());
    tree.leaves.queues.arena.entitle(is_within);
    let stays = enqueue_at(tree, node, flow, item, now, sink);
    tree.leaves.queues.arena.entitle(false);
    stays
}

#[inline]
fn enqueue_at<T: Item>(
    tree: &mut Tree<T>,
    node: NodeId,
    flow: FlowNumber,
    item: T,
    now: Instant,
    sink: &mut impl DropSink<T>,
) -> bool {
    let Some(&Node { kind, ready, parent, .. }) = tree.nodes.find(node.0) else {
        tree.other_drops.refuse(item, sink);
        return false;
    };
    let length = item.length();
    match kind {
        Kind::Fifo(Fifo(queue)) => {
            if !Fifo(queue).enqueue(&mut tree.leaves.queues, flow, item, now, sink) {
                return false;
            }
        }
        Kind::FlowQueues(index) => {
            let Leaves { queues, flow_queues, .. } = &mut tree.leaves;
            let stays = flow_queues[index].enqueue(queues, flow, item, now, sink);
            tree.leaves.take_back_if_short();
            if !stays {
                return false;
            }
            tree.nodes[node.0].totals.entered(Load::of_packet(length));
        }
        Kind::FqCodel(index) => return enqueue_fq_codel(tree, (node, index), flow, item, now, sink),
        Kind::Priority(_) | Kind::RoundRobin(_) | Kind::Hfsc { .. } | Kind::TokenBucket(_) | Kind::Vacant => {
            tree.other_drops.refuse(item, sink);
            return false;
        }
    }
    tree.nodes.entered(parent, Load::of_packet(length));
    if !ready {
        tree.rouse_leaf(node.0, now);
    }
    true
}

/// Enqueues a packet at an FQ-CoDel leaf, which may drop older packets to make room.
#[inline]
fn enqueue_fq_codel<T: Item>(
    tree: &mut Tree<T>,
    (node, index): (NodeId, u32),
    flow: FlowNumber,
    item: T,
    now: Instant,
    sink: &mut impl DropSink<T>,
) -> bool {
    let (before, length) = (tree.leaves.load(), item.length());
    let Leaves { queues, fq_codels, .. } = &mut tree.leaves;
    let stays = fq_codels[index].enqueue(queues, flow, item, now, sink);
    let mut came = Load::NOTHING;
    if stays {
        came = Load::of_packet(length);
        tree.nodes.entered(node.0, came);
    }
    // Even if the packet did not stay, the leaf may have dropped other packets for it.
    let dropped = before.plus(came).minus(tree.leaves.load());
    if dropped != Load::NOTHING {
        tree.count_lost(node.0, dropped);
    }
    let Node { ready, totals, .. } = &tree.nodes[node.0];
    if stays && !ready && totals.held != Load::NOTHING {
        tree.rouse_leaf(node.0, now);
    }
    stays
}

/// Enqueues the packets of `batch` in order, as [`enqueue`] does for each. `batch` is
/// empty afterwards.
#[inline]
pub(super) fn enqueue_batch<T: Item>(
    tree: &mut Tree<T>,
    batch: &mut Vec<Arrival<T>>,
    now: Instant,
    sink: &mut impl DropSink<T>,
) {
    let Some(leaf) = batch.first().map(|first| first.leaf) else { return };
    let bytes = bytes_for(leaf, batch).filter(|bytes| {
        let bytes = u32::try_from(*bytes).unwrap_or(u32::MAX);
        !tree.leaves.queues.arena.is_tight_for(batch.len(), bytes)
    });
    let before = tree.leaves.load();
    match (tree.nodes.kind(leaf.0), bytes) {
        (Some(Kind::Fifo(fifo)), Some(bytes)) => {
            tree.leaves.queues.offer_all(fifo.0, (batch, bytes), now, sink);
            let first = tree.nodes[leaf.0].parent;
            entered(tree, first, leaf, before, now);
        }
        // This path is only for a leaf at the root. A parent would read the length of the leaf's first packet
        // when that packet arrives, but later packets of the batch may change which packet comes first.
        (Some(Kind::FlowQueues(index)), Some(_)) if leaf.0 == tree.nodes.root => {
            let Leaves { queues, flow_queues, .. } = &mut tree.leaves;
            flow_queues[index].enqueue_batch(queues, batch, now, sink);
            tree.leaves.take_back_if_short();
            entered(tree, leaf.0, leaf, before, now);
        }
        (Some(Kind::FqCodel(index)), Some(_)) => {
            let flows = &tree.leaves.fq_codels[index];
            batch.iter().for_each(|arrival| flows.prefetch(arrival.flow));
            for Arrival { flow, item, .. } in batch.drain(..) {
                enqueue_fq_codel(tree, (leaf, index), flow, item, now, sink);
            }
        }
        _ => enqueue_mixed(tree, batch, now, sink),
    }
}

/// Returns the bytes of a batch whose packets are all for `leaf`; `None` if any packet is for another leaf.
#[inline]
fn bytes_for<T: Item>(leaf: NodeId, batch: &[Arrival<T>]) -> Option<u64> {
    let mut bytes = 0;
    for arrival in batch {
        if arrival.leaf != leaf {
            return None;
        }
        bytes += u64::from(arrival.item.length());
    }
    Some(bytes)
}

/// Counts packets that entered a leaf, at the node `first` and its ancestors. Activates the leaf if it was
/// not ready. `before`: the port's load before those packets.
#[inline]
fn entered<T: Item>(tree: &mut Tree<T>, first: u32, leaf: NodeId, before: Load, now: Instant) {
    let came = tree.leaves.load().minus(before);
    if came == Load::NOTHING {
        return;
    }
    tree.nodes.entered(first, came);
    if !tree.nodes[leaf.0].ready {
        tree.rouse_leaf(leaf.0, now);
    }
}

/// Enqueues a batch for several leaves, or for a leaf that has no faster method.
fn enqueue_mixed<T: Item>(
    tree: &mut Tree<T>,
    batch: &mut Vec<Arrival<T>>,
    now: Instant,
    sink: &mut impl DropSink<T>,
) {
    prefetch(tree, batch);
    let bytes = batch.iter().map(|arrival| u64::from(arrival.item.length())).sum();
    let arena = &tree.leaves.queues.arena;
    let is_roomy = Load::of(batch.len(), bytes).is_some_and(|load| arena.is_roomy(load));
    let (mut arrivals, mut tally) = (batch.drain(..), Tally::new(arena.load));
    loop {
        let pause = if is_roomy {
            put_plain(tree, &mut arrivals, now, &mut tally)
        } else {
            arrivals.next().map(Pause::Other)
        };
        match pause {
            None => break,
            Some(Pause::Rouse(leaf)) => {
                tree.rouse_leaf(leaf, now);
                tally.note_priority(&tree.nodes);
            }
            Some(Pause::Other(Arrival { leaf, flow, item })) => {
                tally.settle(tree.nodes.all_mut(), tree.leaves.load(), NONE);
                enqueue(tree, leaf, flow, item, now, sink);
                tally = Tally::new(tree.leaves.load());
            }
        }
    }
    tally.settle(tree.nodes.all_mut(), tree.leaves.load(), NONE);
}

/// Prefetches the memory that the packets touch first. FIFO queues need no prefetch: the CPU overlaps the
/// work for successive packets.
fn prefetch<T: Item>(tree: &Tree<T>, batch: &[Arrival<T>]) {
    let Tree { nodes, leaves, .. } = tree;
    if leaves.are_fifos() {
        return;
    }
    for arrival in batch {
        leaves.prefetch(nodes.kind(arrival.leaf.0).unwrap_or(Kind::Vacant), arrival.flow);
    }
    for arrival in batch {
        leaves.prefetch_queue(nodes.kind(arrival.leaf.0).unwrap_or(Kind::Vacant), arrival.flow);
    }
}
