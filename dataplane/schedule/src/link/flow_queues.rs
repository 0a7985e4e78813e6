//! Weighted deficit round robin with a queue per flow (*Router Plugins*, section 6.1; NPR, section 2.1).
//!
//! A flow gets a queue when its first packet arrives. It keeps the queue until all queues are in use. Then
//! the next flow without a queue gets an empty one, in the order in which the queues were assigned before. If
//! no queue is empty, flows share one queue. A flow uses the shared queue until its packets there have left,
//! so that its packets keep their order. So flows share only while as many other flows have waiting packets
//! as there are queues.
//!
//! Best-effort flows have one fixed quantum. A flow with a reserved rate r of the capacity C gets, in every
//! round, r / (C - all reserved rates) of the sum of the other flows' quanta. So its share of C is r, however
//! many other flows there are.

use millrace_units::Instant;

use super::discipline::PacketScheduler;
use super::round::{Entries, Place, Round};
use super::sharing::Sharing;
use super::weights::Weights;
use crate::aqm::Aqm;
use crate::arena::{Held, Load};
use crate::flow_table::FlowTable;
use crate::queue::{Queue, QueueSettings};
use crate::queue_manager::{Offer, QueueManager};
use crate::rate::Rate;
use crate::{DropCause, DropCounts, DropSink, FlowNumber, Item};

/// Settings of a leaf with a queue per flow.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FlowQueuesSettings {
    /// Maximum number of queues for flows, without the shared queue; 1 to 65,535.
    pub queues: u32,
    /// Quantum of flows without a reservation, in bytes on the wire per round, at least 1.
    pub quantum: u32,
    /// Settings of each queue.
    pub queue: QueueSettings,
    /// Rate that serves the node. Reserved rates are parts of it; `None` allows no reservations.
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

/// Maximum number of queues searched for an empty one when a flow needs a queue.
const SWEEP: usize = 64;
/// Maximum number of queues checked when the configured number of queues falls.
const SHED: usize = 4096;

/// Leaf with a queue per flow.
#[derive(Debug, Default)]
pub(crate) struct FlowQueues {
    pub settings: FlowQueuesSettings,
    pub(super) table: FlowTable,
    pub(super) round: Round,
    shared: u32,
    /// Flows that may have packets in the shared queue.
    sharing: Sharing,
    owned: Vec<u32>,
    /// Index in `owned` at which the next search for an empty queue starts.
    hand: usize,
    pub(super) weights: Weights,
    /// Whether any single flow has a quantum, a reservation or a threshold of its own.
    is_said: bool,
    /// Drops of all queues, including queues returned to the port.
    pub(super) drops: DropCounts,
}

/// Queues of the manager as entries of a round.
pub(super) struct Turn<'a, T> {
    pub queues: &'a mut QueueManager<T>,
    pub weights: &'a mut Weights,
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
        let table = FlowTable::new(settings.queues, settings.seed);
        let mut leaf = Self { settings, table, shared, ..Self::default() };
        leaf.set(settings);
        leaf
    }

    /// Changes the settings. When the number of queues falls, flows keep their queues until these are empty.
    pub fn set(&mut self, settings: FlowQueuesSettings) {
        if settings.queues > self.table.room() {
            self.table = self.table.with_room(settings.queues, settings.seed);
        }
        self.settings = settings;
        self.weights.set(settings.quantum, settings.capacity.unwrap_or_default());
    }

    /// Returns all queues to the port. The queues must be empty.
    pub fn close<T: Item>(&mut self, queues: &mut QueueManager<T>) {
        for queue in self.owned.drain(..) {
            queues.close(queue);
        }
        queues.close(self.shared);
    }

    #[inline]
    fn turn<'a, T>(&'a mut self, queues: &'a mut QueueManager<T>) -> (&'a mut Round, Turn<'a, T>) {
        (&mut self.round, Turn { queues, weights: &mut self.weights })
    }

    /// Returns the queue of a flow, and assigns one if it has none.
    #[inline]
    pub(super) fn queue_for<T: Item>(&mut self, queues: &mut QueueManager<T>, flow: FlowNumber) -> u32 {
        match self.table.get(flow) {
            Some(queue) => queue,
            None => self.give_queue(queues, flow),
        }
    }

    /// Returns the packets and bytes that wait before a new packet of a flow, and whether all of them belong
    /// to that flow.
    pub fn load_before<T: Item>(&self, queues: &QueueManager<T>, flow: FlowNumber) -> (bool, Load) {
        let queue = self.table.get(flow);
        let shared = queues.queue(self.shared).list.load;
        match queue {
            Some(queue) => (true, queues.queue(queue).list.load),
            None => (shared == Load::NOTHING, shared),
        }
    }

    #[cold]
    fn give_queue<T: Item>(&mut self, queues: &mut QueueManager<T>, flow: FlowNumber) -> u32 {
        let waiting = queues.queue(self.shared).list.packets();
        if self.sharing.may_wait(flow, waiting) {
            return self.shared;
        }
        if let Some(queue) = self.new_queue(queues).or_else(|| self.reuse(queues, SWEEP)) {
            return self.own(queues, queue, flow);
        }
        queues.is_short |= (self.owned.len() as u32) < self.settings.queues;
        self.shared
    }

    /// Assigns a queue to a flow.
    fn own<T: Item>(&mut self, queues: &mut QueueManager<T>, queue: u32, flow: FlowNumber) -> u32 {
        queues.queue_mut(queue).flow = flow.0;
        self.table.insert(flow, queue);
        queue
    }

    /// Opens a queue for a flow, if the number of queues allows one more.
    fn new_queue<T: Item>(&mut self, queues: &mut QueueManager<T>) -> Option<u32> {
        if self.owned.len() as u32 >= self.settings.queues {
            return None;
        }
        let queue = queues.open(&self.settings.queue)?;
        self.owned.push(queue);
        Some(queue)
    }

    /// Opens a queue in excess of the allowed number of queues.
    fn one_more<T: Item>(&mut self, queues: &mut QueueManager<T>) -> u32 {
        let queue = queues.open_anyway(&self.settings.queue);
        self.owned.push(queue);
        if self.owned.len() as u32 > self.table.room() {
            self.table = self.table.with_room(self.owned.len() as u32, self.settings.seed);
        }
        queue
    }

    /// Takes the next dispensable queue, among up to `most` queues, from its flow. Resets and returns it.
    fn reuse<T: Item>(&mut self, queues: &mut QueueManager<T>, most: usize) -> Option<u32> {
        for _ in 0..most.min(self.owned.len()) {
            if self.has_too_many() {
                self.give_back(queues, 1);
                continue;
            }
            let queue = *self.owned.get(self.hand).or_else(|| self.owned.first())?;
            self.hand = if self.hand + 1 < self.owned.len() { self.hand + 1 } else { 0 };
            if queues.is_dispensable(queue) {
                self.table.remove(FlowNumber(queues.queue(queue).flow));
                queues.renew(queue, &self.settings.queue);
                return Some(queue);
            }
        }
        None
    }

    /// Returns the flow's own queue. If the flow has none, assigns one and moves its packets there from the
    /// shared queue. Returns `None` when all queues hold packets or are kept for other flows; a `trusted`
    /// call opens one more queue instead.
    pub(super) fn own_queue_with_packets<T: Item>(
        &mut self,
        queues: &mut QueueManager<T>,
        flow: FlowNumber,
        trusted: bool,
    ) -> Option<u32> {
        if let Some(queue) = self.table.get(flow) {
            return Some(queue);
        }
        let free = self.new_queue(queues).or_else(|| self.reuse(queues, usize::MAX));
        let queue = free.or_else(|| trusted.then(|| self.one_more(queues)))?;
        self.own(queues, queue, flow);
        let moved = queues.separate(self.shared, queue, flow);
        self.sharing.taken(moved);
        if moved > 0 {
            self.join(queues, queue);
            if queues.queue(self.shared).list.is_empty() {
                self.taken(queues, self.shared, 0, false);
            }
        }
        Some(queue)
    }

    /// Whether there are more queues than the settings allow, because the allowed number fell.
    fn has_too_many(&self) -> bool {
        self.owned.len() > self.settings.queues as usize
    }

    /// Returns unused queues in excess of the allowed number to the port, among the first [`SHED`]. Later
    /// requests for queues return the others.
    pub fn shed<T: Item>(&mut self, queues: &mut QueueManager<T>) {
        for _ in 0..self.owned.len().min(SHED) {
            if !self.has_too_many() {
                return;
            }
            self.give_back(queues, 1);
        }
    }

    /// Checks up to `most` queues, and returns the unused ones to the port.
    pub fn give_back<T: Item>(&mut self, queues: &mut QueueManager<T>, most: usize) {
        for _ in 0..most.min(self.owned.len()) {
            if self.hand >= self.owned.len() {
                self.hand = 0;
            }
            let Some(&queue) = self.owned.get(self.hand) else { return };
            if queues.is_dispensable(queue) {
                self.table.remove(FlowNumber(queues.queue(queue).flow));
                queues.close(queue);
                // The last queue moved to this index, and is checked next.
                self.owned.swap_remove(self.hand);
            } else {
                self.hand += 1;
            }
        }
    }

    #[inline]
    pub(super) fn join<T: Item>(&mut self, queues: &mut QueueManager<T>, queue: u32) {
        self.weights.count(queues.queue(queue).quantum, true);
        let (round, mut turn) = self.turn(queues);
        round.join(&mut turn, queue);
    }

    /// Accounts for a packet of a flow that arrived at a queue.
    #[inline]
    pub(super) fn offered<T: Item>(
        &mut self,
        queues: &mut QueueManager<T>,
        queue: u32,
        flow: FlowNumber,
        offer: Offer,
    ) {
        if offer == Offer::First {
            self.join(queues, queue);
        }
        if queue == self.shared && offer != Offer::Refused {
            self.sharing.note(flow);
        }
    }

    /// Accounts for `bytes` taken from a queue of the round. An empty queue leaves the round.
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

    /// Iterates over the queues, the shared one first.
    pub fn queues(&self) -> impl Iterator<Item = u32> + '_ {
        std::iter::once(self.shared).chain(self.owned.iter().copied())
    }

    /// Whether any packet waits.
    #[inline]
    pub fn has_packets(&self) -> bool {
        self.round.len() > 0
    }

    #[inline]
    pub(super) fn counting<'a, S>(&'a mut self, sink: &'a mut S) -> Counting<'a, S> {
        Counting { drops: &mut self.drops, sink }
    }

    /// Updates whether any single flow has settings of its own.
    pub fn note_said<T: Item>(&mut self, queues: &QueueManager<T>) {
        let is_own =
            |queue: &u32| queues.queue(*queue).quantum != 0 || queues.own_threshold(*queue).is_some();
        self.is_said = self.owned.iter().any(is_own);
    }

    /// Whether packets may bypass the empty leaf: its queues have no active queue management, and no single
    /// flow has settings of its own. The queue of a flow with its own settings must count the packets sent.
    #[inline]
    pub fn is_passable(&self) -> bool {
        self.settings.queue.aqm == Aqm::TailDrop && !self.is_said
    }

    /// Returns the drop counters.
    pub fn drops(&self) -> &DropCounts {
        &self.drops
    }

    /// Returns the flow's own queue, if it has one.
    pub fn queue_of(&self, flow: FlowNumber) -> Option<u32> {
        self.table.get(flow)
    }

    /// Returns the quantum in force of a queue, and its reserved rate.
    pub fn quantum<T: Item>(&self, queues: &QueueManager<T>, queue: u32) -> (u32, Option<Rate>) {
        let own = queues.queue(queue).quantum;
        (self.weights.in_force(own), self.weights.rate(own))
    }

    #[inline]
    pub fn prefetch(&self, flow: FlowNumber) {
        self.table.prefetch(flow);
    }

    /// Prefetches a flow's queue. The caller prefetched the flow's table entry before.
    #[inline]
    pub fn prefetch_queue<T: Item>(&self, queues: &QueueManager<T>, flow: FlowNumber) {
        queues.prefetch(self.table.get(flow).unwrap_or(self.shared));
    }
}

/// Drop sink that counts drops and passes them on.
pub(super) struct Counting<'a, S> {
    pub drops: &'a mut DropCounts,
    pub sink: &'a mut S,
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
        let index = self.queue_for(queues, flow);
        let drops = &mut self.drops;
        let offer = queues.offer(index, flow, item, now, &mut Counting { drops, sink });
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
        let drops = &mut self.drops;
        let (held, more) = queues.take(index, now, &mut Counting { drops, sink });
        let sent = held.as_ref().map_or(0, |held| queues.wire_length(held.length));
        self.taken(queues, index, sent, more);
        (held, self.round.len() > 0)
    }

    fn head_length(&mut self, queues: &mut QueueManager<T>) -> Option<u32> {
        let (round, mut turn) = self.turn(queues);
        let index = round.choose(&mut turn)?;
        queues.arena.head_length(&queues.queue(index).list)
    }

    fn take_to_move(&mut self, queues: &mut QueueManager<T>, _now: Instant) -> Option<Held<T>> {
        let (round, mut turn) = self.turn(queues);
        let index = round.choose(&mut turn)?;
        let held = queues.take_to_move(index)?;
        let sent = queues.wire_length(held.length);
        let more = !queues.queue(index).list.is_empty();
        self.taken(queues, index, sent, more);
        Some(held)
    }

    fn put(&mut self, queues: &mut QueueManager<T>, held: Held<T>, _now: Instant) {
        let (index, flow) = (self.queue_for(queues, held.flow), held.flow);
        queues.put(index, held);
        let is_first = queues.queue(index).list.packets() == 1;
        self.offered(queues, index, flow, if is_first { Offer::First } else { Offer::Taken });
    }
}
