//! Removal of nodes with packets in them, which move to another leaf or are dropped.

use std::collections::HashMap;

use millrace_units::Instant;

use super::node::{Kind, Node};
use super::{LinkScheduler, NodeId, ScheduleError, with_leaf};
use crate::arena::{Held, Load, NONE};
use crate::link::discipline::PacketScheduler;
use crate::{DropCause, DropSink, Item};

/// Treatment of the packets of a removed node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leftover {
    /// Drops the packets: the sink receives them, with [`DropCause::Removed`].
    Drop,
    /// Appends the packets to another leaf, each flow in its order, regardless of that leaf's thresholds.
    MoveTo(NodeId),
}

impl<T: Item> LinkScheduler<T> {
    /// Removes a node and all nodes below it. Returns the number of packets moved or dropped. The cost grows
    /// with the removed nodes and packets. A node with children adds one pass over all nodes of the port.
    ///
    /// # Errors
    /// [`ScheduleError`] when the node is unknown, or the target is no leaf or is removed as well; nothing
    /// has changed then.
    pub fn remove(
        &mut self,
        node: NodeId,
        leftover: Leftover,
        now: Instant,
        sink: &mut impl DropSink<T>,
    ) -> Result<u32, ScheduleError> {
        self.known(node)?;
        if let Leftover::MoveTo(to) = leftover {
            self.check_target(node, to)?;
        }
        let mut count = 0;
        // Children come after their parents in the list, so the last node never has children.
        for gone in self.with_all_below(node).into_iter().rev() {
            count += self.empty(gone, leftover, now, sink);
            self.keep_drops(gone);
            self.detach(gone, now);
            self.discard(gone);
        }
        Ok(count)
    }

    /// Returns a node and all nodes below it, each after its parent. If the node has children, this looks at
    /// each node of the port once.
    pub fn with_all_below(&self, node: NodeId) -> Vec<NodeId> {
        if !self.has_children(node) {
            return vec![node];
        }
        let mut children: HashMap<u32, Vec<NodeId>> = HashMap::new();
        for (index, Node { parent, .. }) in self.nodes.iter().enumerate() {
            if *parent != NONE {
                children.entry(*parent).or_default().push(NodeId(index as u32));
            }
        }
        let (mut all, mut next) = (vec![node], 0);
        while let Some(above) = all.get(next) {
            all.extend(children.remove(&above.0).unwrap_or_default());
            next += 1;
        }
        all
    }

    /// Adds the drops of a removed node to the node above it permanently.
    fn keep_drops(&mut self, node: NodeId) {
        let parent = self.nodes[node.0 as usize].parent;
        let mut drops = self.gone.remove(&node).unwrap_or_default();
        self.count_drops(node, &mut drops);
        if parent != NONE && !drops.is_empty() {
            self.gone.entry(NodeId(parent)).or_default().merge(&drops);
        }
    }

    fn check_target(&self, node: NodeId, to: NodeId) -> Result<(), ScheduleError> {
        let refuse = |why| Err(ScheduleError::MoveTarget { node, to, why });
        match self.node(to).map(|entry| entry.kind) {
            None => refuse("no such node"),
            Some(Kind::Fifo(_) | Kind::FlowQueues(_) | Kind::FqCodel(_)) => {
                if self.path_up(to).any(|id| id == node) {
                    refuse("it is the same node, or below it")
                } else {
                    Ok(())
                }
            }
            Some(_) => refuse("it is not a leaf; name a leaf"),
        }
    }

    /// Moves all packets of one leaf to another, each flow in its order. Returns their number.
    ///
    /// # Errors
    /// [`ScheduleError`] when a node is unknown, or the target is no leaf, or is `from` or below it.
    pub fn move_packets(&mut self, from: NodeId, to: NodeId, now: Instant) -> Result<u32, ScheduleError> {
        self.known(from)?;
        self.check_target(from, to)?;
        Ok(self.empty(from, Leftover::MoveTo(to), now, &mut |_: T, _: DropCause| {}))
    }

    /// Takes all packets out of a leaf.
    fn empty(&mut self, node: NodeId, leftover: Leftover, now: Instant, sink: &mut impl DropSink<T>) -> u32 {
        let kind = self.nodes[node.0 as usize].kind;
        let mut count = 0;
        loop {
            let queues = &mut self.queues;
            let Some(held) = with_leaf!(self, kind, leaf => leaf.take_to_move(queues, now), else None) else {
                break;
            };
            count += 1;
            self.count_lost(node.0, Load::of_packet(held.length));
            match leftover {
                Leftover::Drop => {
                    self.lost.add(DropCause::Removed, held.length);
                    sink.dropped(held.item, DropCause::Removed);
                }
                Leftover::MoveTo(to) => self.put(to, held, now),
            }
        }
        if self.nodes[node.0 as usize].ready {
            self.suspend(node.0, now);
        }
        count
    }

    /// Puts a packet that was taken from another leaf into a leaf.
    pub(super) fn put(&mut self, to: NodeId, held: Held<T>, now: Instant) {
        let (length, kind, queues) = (held.length, self.nodes[to.0 as usize].kind, &mut self.queues);
        with_leaf!(self, kind, leaf => leaf.put(queues, held, now), else ());
        if !matches!(kind, Kind::Fifo(_)) {
            self.nodes[to.0 as usize].totals.entered(Load::of_packet(length));
        }
        self.count_above(self.nodes[to.0 as usize].parent, length);
        if !self.nodes[to.0 as usize].ready {
            self.rouse(to.0, now);
        }
    }

    /// Subtracts a node's load from the nodes above it.
    pub(super) fn leave_totals(&mut self, node: NodeId, load: Load) {
        let mut index = self.nodes[node.0 as usize].parent;
        while let Some(above) = self.nodes.find_mut(index as usize) {
            above.totals.left(load);
            index = above.parent;
        }
    }

    /// Adds a node's load to the nodes above it.
    pub(super) fn join_totals(&mut self, node: NodeId, load: Load) {
        let mut index = self.nodes[node.0 as usize].parent;
        while let Some(above) = self.nodes.find_mut(index as usize) {
            above.totals.entered(load);
            index = above.parent;
        }
    }
}
