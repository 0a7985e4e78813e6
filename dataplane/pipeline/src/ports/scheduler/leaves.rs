//! Leaves that packets enter, by their queue numbers.

use std::collections::BTreeSet;

use millrace_units::QueueId;

/// Leaf of each queue number.
#[derive(Debug, Default)]
pub(super) struct Leaves {
    /// Leaf for packets whose queue number has none.
    pub default: QueueId,
    /// Leaf for each queue number: the leaf with this number, or the leaf that it shares. If that leaf was
    /// removed, the leaf that received its packets. 0 if there is none.
    of: Vec<QueueId>,
    /// Removed leaves and shared queues whose packets enter another leaf. Each pair holds that leaf's number and
    /// their own number.
    heirs: BTreeSet<(QueueId, QueueId)>,
    /// Queues whose packets enter the leaf of another number until a change.
    shared: BTreeSet<QueueId>,
    /// Lower bound of the leaves' numbers: no leaf has a number below it.
    lowest: usize,
}

impl Leaves {
    /// Adds a leaf. The first leaf is the default leaf.
    pub fn add(&mut self, node: QueueId) {
        self.set(node, node);
        self.lowest = self.lowest.min(node.index());
        if self.default == QueueId(0) {
            self.default = node;
        }
    }

    /// Lets the packets of a queue enter a leaf. `None`: they enter the default leaf, as soon as the leaf that
    /// they share has been empty once.
    ///
    /// # Errors
    /// The number, if it is no leaf.
    pub fn share(&mut self, queue: QueueId, leaf: Option<QueueId>) -> Result<(), QueueId> {
        let Some(leaf) = leaf else {
            self.shared.remove(&queue);
            return Ok(());
        };
        if !self.is_leaf(leaf) {
            return Err(leaf);
        }
        self.set(queue, leaf);
        self.heirs.insert((leaf, queue));
        self.shared.insert(queue);
        Ok(())
    }

    /// Sets the leaf of a queue number, in place of an earlier one.
    fn set(&mut self, queue: QueueId, leaf: QueueId) {
        let index = queue.index();
        self.of.resize(self.of.len().max(index + 1), QueueId(0));
        if let Some(slot) = self.of.get_mut(index) {
            let before = std::mem::replace(slot, leaf);
            self.heirs.remove(&(before, queue));
            self.shared.remove(&queue);
        }
    }

    /// Removes the leaves among the nodes `gone`. Packets for their queue numbers then enter leaf `to`, until
    /// that leaf has been empty once. So they don't overtake the packets that were moved there. `None`: the
    /// packets of the removed leaves were dropped.
    pub fn forget(&mut self, gone: impl Iterator<Item = QueueId>, to: Option<QueueId>) {
        for node in gone {
            if self.is_leaf(node) {
                self.forget_leaf(node, to.unwrap_or_default());
            }
        }
        if !self.is_leaf(self.default) {
            self.default = to.unwrap_or_else(|| self.first());
        }
    }

    /// Removes one leaf. Visits only the queue numbers whose packets enter this leaf.
    fn forget_leaf(&mut self, node: QueueId, to: QueueId) {
        let sent_there = self.heirs.range((node, QueueId(0))..=(node, QueueId(u16::MAX)));
        let numbers: Vec<QueueId> = sent_there.map(|(_, number)| *number).chain([node]).collect();
        for number in numbers {
            self.heirs.remove(&(node, number));
            self.shared.remove(&number);
            if let Some(leaf) = self.of.get_mut(number.index()) {
                *leaf = to;
            }
            if to != QueueId(0) {
                self.heirs.insert((to, number));
            }
        }
    }

    /// Returns the leaf with the lowest number, searched from `lowest` on; 0 if there is none.
    fn first(&mut self) -> QueueId {
        let mut own = (self.lowest..self.of.len()).map(|index| QueueId(index as u16));
        let first = own.find(|node| self.is_leaf(*node));
        self.lowest = first.map_or(self.of.len(), QueueId::index);
        first.unwrap_or_default()
    }

    /// Whether a leaf has this number.
    pub fn is_leaf(&self, node: QueueId) -> bool {
        node != QueueId(0) && self.of.get(node.index()) == Some(&node)
    }

    /// Returns the leaf that packets for a queue enter. `waits`: whether packets wait in a leaf.
    #[inline]
    pub fn find(&self, queue: QueueId, waits: impl Fn(QueueId) -> bool) -> QueueId {
        match self.of.get(queue.index()) {
            None | Some(QueueId(0)) => self.default,
            Some(leaf) if *leaf == queue || self.shared.contains(&queue) || waits(*leaf) => *leaf,
            Some(_) => self.default,
        }
    }

    /// Notes that a packet for a queue enters `leaf`. If this is no longer the leaf that received the packets of
    /// a removed one, later packets enter the default leaf, as after a restart.
    #[inline]
    pub fn note_entry(&mut self, queue: QueueId, leaf: QueueId) {
        if leaf != queue
            && let Some(heir) = self.of.get_mut(queue.index()).filter(|heir| **heir != leaf)
        {
            let heir = std::mem::take(heir);
            self.heirs.remove(&(heir, queue));
        }
    }
}
