//! Drops that no leaf of the tree counts: packets for unknown nodes, and drops of removed nodes.

use std::collections::HashMap;

use crate::{DropCause, DropCounts, DropSink, Item, NodeId};

/// Drops that no leaf of the tree counts: packets for unknown nodes, and drops of removed nodes.
#[derive(Debug, Default)]
pub(super) struct OtherDrops {
    /// Drop counters of removed nodes, by their former parent.
    of_removed: HashMap<NodeId, DropCounts>,
    /// Drops of packets for unknown nodes, and of packets that a removed node still held.
    lost: DropCounts,
}

impl OtherDrops {
    /// Returns the drops of packets for unknown nodes, and of packets that a removed node still held.
    pub fn lost(&self) -> &DropCounts {
        &self.lost
    }

    /// Drops a packet for a node that is no leaf.
    #[cold]
    pub fn refuse<T: Item>(&mut self, item: T, sink: &mut impl DropSink<T>) {
        self.lose(item, DropCause::NoQueue, sink);
    }

    /// Drops a packet that a removed node still held.
    pub fn drop_removed<T: Item>(&mut self, item: T, sink: &mut impl DropSink<T>) {
        self.lose(item, DropCause::Removed, sink);
    }

    fn lose<T: Item>(&mut self, item: T, cause: DropCause, sink: &mut impl DropSink<T>) {
        self.lost.add(cause, item.length());
        sink.dropped(item, cause);
    }

    /// Adds to `drops` the drops of a node's removed children.
    pub fn count_below(&self, node: NodeId, drops: &mut DropCounts) {
        if let Some(removed) = self.of_removed.get(&node) {
            drops.merge(removed);
        }
    }

    /// Counts the drops of a removed node at its former parent `above`.
    pub fn add(&mut self, above: NodeId, drops: &DropCounts) {
        if !drops.is_empty() {
            self.of_removed.entry(above).or_default().merge(drops);
        }
    }

    /// Replaces the drops counted at a node.
    pub fn set(&mut self, node: NodeId, drops: DropCounts) {
        if !drops.is_empty() {
            self.of_removed.insert(node, drops);
        }
    }

    /// Forgets the drops counted at a node.
    pub fn forget(&mut self, node: NodeId) {
        self.of_removed.remove(&node);
    }
}
