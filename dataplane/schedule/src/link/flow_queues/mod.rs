//! Weighted deficit round robin with a queue per flow (*Router Plugins*, section 6.1; NPR, section 2.1).
//!
//! A flow gets a queue when its first packet arrives, and keeps it until all queues are assigned. Then a new
//! flow takes over an empty queue, in the order of assignment. If none of the next 64 queues is empty, the
//! flow uses the shared queue. The flow stays there until all its packets have left the shared queue, so its
//! packets keep their order.
//!
//! Flows without a reservation (best-effort flows) have one common quantum. Let q be the sum of the quanta of
//! all backlogged flows without a reservation, and C the capacity. Then a flow with the reserved rate r gets
//! the quantum q * r / (C - all reserved rates). So the flow gets the rate r, however many other flows there
//! are.

mod assignment;
mod service;
#[expect(clippy::indexing_slicing, reason = "words of marks by a hash below their count")]
mod sharing;
mod weights;

use millrace_units::Instant;

use super::discipline::PacketScheduler;
use super::round::{Entries, Place, Round};
use crate::aqm::Aqm;
use crate::arena::{Held, Load, NONE};
use crate::queue::{Queue, QueueSettings};
use crate::queue_manager::{Offer, QueueManager};
use crate::rate::Rate;
use crate::{Arrival, DropCause, DropCounts, DropSink, FlowNumber, Item};
use assignment::Assignment;
use service::Service;
use weights::Weights;

/// Settings of a leaf with a queue per flow.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FlowQueuesSettings {
    /// Maximum number of queues for flows, without the shared queue; 1 to 65,535.
    pub queues: u32,
    /// Quantum of flows without a reservation, in bytes on the wire per round, at least 1.
    pub quantum: u32,
    /// Settings of each queue.
    pub queue: QueueSettings,
    /// Rate that serves the leaf. The sum of all reserved rates must stay below this rate. `None` allows no
    /// reservations.
    pub capacity: Option<Rate>,
    /// Seed of the flow table's hash.
    pub seed: u64,
}

impl Default for FlowQueuesSettings {
    /// Returns 4,096 queues, 1,538 bytes per round, and no capacity.
    fn default() -> Self {
        Self { queues: 4096, quantum: 1538, queue: QueueSettings::default(), capacity: None, seed: 0 }
    }
}

/// Leaf with a queue per flow.
#[derive(Debug, Default)]
pub(crate) struct FlowQueues {
    pub assignment: Assignment,
    round: Round,
    weights: Weights,
    /// Whether at least one flow has a quantum, a reservation or a threshold of its own.
    has_own_settings: bool,
    /// Drops of all queues, including queues returned to the port.
    drops: DropCounts,
}

/// Adapter that makes the leaf's queues the entries of a [`Round`].
struct Turn<'a, T> {
    queues: &'a mut QueueManager<T>,
    weights: &'a mut Weights,
}

impl<T: Item> Entries for Turn<'_, T> {
    #[inline]
    fn credit(&mut self, entry: u32, rounds: u32) -> u32 {
        self.weights.credit(self.queues.queue(entry).quantum, rounds)
    }

    #[inline]
    fn rounds(&self, entry: u32, bytes: u32) -> u32 {
        self.weights.rounds(self.queues.queue(entry).quantum, bytes)
    }

    #[inline]
    fn head(&self, entry: u32) -> u32 {
        let list = &self.queues.queue(entry).list;
        self.queues.wire_length(self.queues.arena.head_length(list).unwrap_or(0))
    }

    #[inline]
    fn place(&mut self, entry: u32) -> Place<'_> {
        let Queue { deficit, next, .. } = self.queues.queue_mut(entry);
        Place { deficit, next }
    }

    #[inline]
    fn visit(&mut self, entry: u32, grant: bool) -> bool {
        let queue = self.queues.queue(entry);
        let credit = if grant { self.weights.credit(queue.quantum, 1) } else { 0 };
        let head = self.queues.arena.head_length(&queue.list).unwrap_or(0);
        let head = self.queues.wire_length(head);
        self.place(entry).grant(credit, head)
    }
}

impl FlowQueues {
    /// Creates a leaf without flows. `shared` is the queue of all flows without their own queue.
    pub fn new(settings: FlowQueuesSettings, shared: u32) -> Self {
        let mut leaf = Self { assignment: Assignment::new(settings, shared), ..Self::default() };
        leaf.set(settings);
        leaf
    }

    /// Returns the settings.
    #[inline]
    pub fn settings(&self) -> &FlowQueuesSettings {
        &self.assignment.settings
    }

    /// Changes the settings.
    pub fn set(&mut self, settings: FlowQueuesSettings) {
        self.assignment.set(settings);
        self.weights.set(settings.quantum, settings.capacity.unwrap_or_default());
    }

    #[inline]
    fn turn<'a, T>(&'a mut self, queues: &'a mut QueueManager<T>) -> (&'a mut Round, Turn<'a, T>) {
        (&mut self.round, Turn { queues, weights: &mut self.weights })
    }

    #[inline]
    fn join<T: Item>(&mut self, queues: &mut QueueManager<T>, queue: u32) {
        self.weights.count(queues.queue(queue).quantum, true);
        let (round, mut turn) = self.turn(queues);
        round.join(&mut turn, queue);
    }

    /// Updates the round and the weights after a packet of `flow` arrived at `queue`.
    #[inline]
    fn offered<T: Item>(&mut self, queues: &mut QueueManager<T>, queue: u32, flow: FlowNumber, offer: Offer) {
        if offer == Offer::First {
            self.join(queues, queue);
        }
        if offer != Offer::Refused {
            self.assignment.note(queue, flow);
        }
    }

    /// Updates the round and the weights after `bytes` left a queue. A queue that became empty leaves the
    /// round.
    #[inline]
    fn taken<T: Item>(&mut self, queues: &mut QueueManager<T>, queue: u32, bytes: u32, more: bool) {
        if more {
            let deficit = &mut queues.queue_mut(queue).deficit;
            *deficit = deficit.saturating_sub_unsigned(bytes);
            return;
        }
        let (round, mut turn) = self.turn(queues);
        round.leave(&mut turn, queue);
        self.weights.count(queues.queue(queue).quantum, false);
    }

    /// Whether any packet waits.
    #[inline]
    pub fn has_packets(&self) -> bool {
        self.round.len() > 0
    }

    #[inline]
    fn counting<'a, S>(&'a mut self, sink: &'a mut S) -> Counting<'a, S> {
        Counting { drops: &mut self.drops, sink }
    }

    /// Whether packets may bypass the leaf while it is empty. This requires that no queue has active queue
    /// management, and that no flow has settings of its own: the queue of such a flow must count the packets
    /// that it sends.
    #[inline]
    pub fn is_passable(&self) -> bool {
        self.settings().queue.aqm == Aqm::TailDrop && !self.has_own_settings
    }

    /// Returns the drop counters.
    pub fn drops(&self) -> &DropCounts {
        &self.drops
    }

    /// Returns a queue's quantum in bytes per round, and its reserved rate if it has one.
    pub fn quantum<T: Item>(&self, queues: &QueueManager<T>, queue: u32) -> (u32, Option<Rate>) {
        let own = queues.queue(queue).quantum;
        (self.weights.in_force(own), self.weights.rate(own))
    }

    /// Gives a flow its own queue with a quantum or threshold. The quantum is in bytes, 1 to 2^30; 0 restores
    /// the common quantum and ends a reservation. `Some(None)` restores the common threshold. `None` leaves a
    /// value unchanged. The leaf never gives a queue with its own quantum or threshold to another flow.
    /// Returns `false` if no queue was free.
    pub fn set_flow<T: Item>(
        &mut self,
        queues: &mut QueueManager<T>,
        flow: FlowNumber,
        quantum: Option<u32>,
        threshold: Option<Option<u32>>,
        trusted: bool,
    ) -> bool {
        let Some(queue) = self.own_queue(queues, flow, trusted) else { return false };
        if let Some(threshold) = threshold {
            queues.set_own_threshold(queue, threshold, self.settings().queue.threshold);
        }
        if let Some(quantum) = quantum {
            self.weights.release(queues, queue);
            self.weights.set_quantum(queues, queue, quantum);
        }
        self.note_own_settings(queues);
        true
    }

    /// Reserves a rate for a flow, in place of an earlier reservation. The sum of all reservations must stay
    /// below the capacity. Returns `false` if no queue was free.
    pub fn reserve<T: Item>(
        &mut self,
        queues: &mut QueueManager<T>,
        flow: FlowNumber,
        rate: Rate,
        trusted: bool,
    ) -> bool {
        let Some(queue) = self.own_queue(queues, flow, trusted) else { return false };
        self.weights.reserve(queues, queue, rate);
        self.note_own_settings(queues);
        true
    }

    /// Removes a flow's own quantum, threshold and reservation. Returns whether the flow had any of them.
    pub fn forget<T: Item>(&mut self, queues: &mut QueueManager<T>, flow: FlowNumber) -> bool {
        let Some(queue) = self.assignment.queue_of(flow) else { return false };
        let has_own_settings = !queues.has_common_settings(queue);
        self.weights.release(queues, queue);
        queues.set_own_threshold(queue, None, self.settings().queue.threshold);
        self.weights.set_quantum(queues, queue, 0);
        self.note_own_settings(queues);
        has_own_settings
    }

    /// Returns the flow's own queue, after moving the flow's packets there from the shared queue; see
    /// [`Assignment::queue_with_packets`].
    fn own_queue<T: Item>(
        &mut self,
        queues: &mut QueueManager<T>,
        flow: FlowNumber,
        trusted: bool,
    ) -> Option<u32> {
        let (queue, moved) = self.assignment.queue_with_packets(queues, flow, trusted)?;
        if moved > 0 {
            self.join(queues, queue);
            let shared = self.assignment.shared();
            if queues.queue(shared).list.is_empty() {
                self.taken(queues, shared, 0, false);
            }
        }
        Some(queue)
    }

    fn note_own_settings<T: Item>(&mut self, queues: &QueueManager<T>) {
        self.has_own_settings = self.assignment.owned().any(|queue| !queues.has_common_settings(queue));
    }

    /// Returns the sum of the reserved rates of all flows except `flow`.
    pub fn reserved_by_others<T: Item>(&self, queues: &QueueManager<T>, flow: FlowNumber) -> Rate {
        let queue = self.assignment.queue_of(flow);
        let own = queue.and_then(|queue| self.weights.rate(queues.queue(queue).quantum));
        Rate(self.weights.reserved().0 - own.unwrap_or_default().0)
    }

    /// Returns the objection to a new capacity, which must be above the sum of the reserved rates; `None` if
    /// the capacity is valid.
    pub fn capacity_objection(&self, capacity: Option<Rate>) -> Option<String> {
        let (flows, reserved) = (self.weights.reservations(), self.weights.reserved());
        if reserved == Rate(0) || capacity.is_some_and(|capacity| capacity > reserved) {
            return None;
        }
        let rate = capacity.map_or("a missing rate".to_owned(), |capacity| format!("a rate of {capacity}"));
        Some(format!(
            "{rate} is not above the {reserved} reserved for {flows} of its flows: remove reservations first"
        ))
    }

    /// Enqueues the packets of a batch in order. `batch` is empty afterwards.
    #[inline]
    pub fn enqueue_batch<T: Item>(
        &mut self,
        queues: &mut QueueManager<T>,
        batch: &mut Vec<Arrival<T>>,
        now: Instant,
        sink: &mut impl DropSink<T>,
    ) {
        let mut found = [NONE; AHEAD];
        for arrival in batch.iter() {
            self.assignment.prefetch(arrival.flow);
        }
        for (arrival, found) in batch.iter().zip(&mut found) {
            *found = self.assignment.queue_of(arrival.flow).unwrap_or(NONE);
            queues.prefetch(*found);
        }
        let mut found = found.into_iter();
        let mut is_known = true;
        for Arrival { flow, item, .. } in batch.drain(..) {
            let mut index = found.next().unwrap_or(NONE);
            if index == NONE || !is_known {
                // The queue may have belonged to another flow until now, so later entries of `found` may be
                // wrong.
                is_known = false;
                index = self.assignment.queue_for(queues, flow);
            }
            let offer = queues.offer(index, flow, item, now, &mut self.counting(sink));
            self.offered(queues, index, flow, offer);
        }
    }

    /// Sends up to `most` packets to `out`. Returns the packets and bytes sent, and their bytes on the wire.
    #[inline]
    pub fn dequeue_batch<T: Item>(
        &mut self,
        queues: &mut QueueManager<T>,
        most: usize,
        now: Instant,
        sink: &mut impl DropSink<T>,
        out: &mut impl FnMut(T),
    ) -> (Load, u64) {
        let Self { round, weights, drops, .. } = self;
        let turn = Turn { queues, weights };
        let mut service = Service::new(turn, Counting { drops, sink }, out, now);
        round.serve(&mut service, most);
        service.sent()
    }
}

/// Number of packets whose queues are looked up before the first packet is enqueued.
const AHEAD: usize = 32;

/// Drop sink that counts drops and forwards them to another sink.
struct Counting<'a, S> {
    drops: &'a mut DropCounts,
    sink: &'a mut S,
}

impl<T: Item, S: DropSink<T>> DropSink<T> for Counting<'_, S> {
    fn dropped(&mut self, item: T, cause: DropCause) {
        self.drops.add(cause, item.length());
        self.sink.dropped(item, cause);
    }

    fn marked(&mut self) {
        self.drops.mark();
        self.sink.marked();
    }
}

impl<T: Item> PacketScheduler<T> for FlowQueues {
    #[inline]
    fn enqueue(
        &mut self,
        queues: &mut QueueManager<T>,
        flow: FlowNumber,
        item: T,
        now: Instant,
        sink: &mut impl DropSink<T>,
    ) -> bool {
        let index = self.assignment.queue_for(queues, flow);
        let offer = queues.offer(index, flow, item, now, &mut self.counting(sink));
        self.offered(queues, index, flow, offer);
        offer != Offer::Refused
    }

    #[inline]
    fn dequeue(
        &mut self,
        queues: &mut QueueManager<T>,
        now: Instant,
        sink: &mut impl DropSink<T>,
    ) -> (Option<Held<T>>, bool) {
        let (round, mut turn) = self.turn(queues);
        let Some(index) = round.choose(&mut turn) else { return (None, false) };
        let second = queues.queue(queues.queue(index).next);
        queues.arena.prefetch(&second.list);
        queues.prefetch(second.next);
        let (held, more) = queues.take(index, now, &mut self.counting(sink));
        let sent = held.as_ref().map_or(0, |held| queues.wire_length(held.length));
        self.taken(queues, index, sent, more);
        (held, self.round.len() > 0)
    }

    fn head_length(&mut self, queues: &mut QueueManager<T>) -> Option<u32> {
        let (round, mut turn) = self.turn(queues);
        let index = round.choose(&mut turn)?;
        queues.arena.head_length(&queues.queue(index).list)
    }

    fn take_to_move(&mut self, queues: &mut QueueManager<T>) -> Option<Held<T>> {
        let (round, mut turn) = self.turn(queues);
        let index = round.choose(&mut turn)?;
        let held = queues.take_to_move(index)?;
        let sent = queues.wire_length(held.length);
        let more = !queues.queue(index).list.is_empty();
        self.taken(queues, index, sent, more);
        Some(held)
    }

    fn put(&mut self, queues: &mut QueueManager<T>, held: Held<T>) {
        let (index, flow) = (self.assignment.queue_for(queues, held.flow), held.flow);
        queues.put(index, held);
        let is_first = queues.queue(index).list.packets() == 1;
        self.offered(queues, index, flow, if is_first { Offer::First } else { Offer::Taken });
    }
}
