//! Weighted deficit round robin with a queue per flow (*Router Plugins*, section 6.1; NPR, section 2.1).
//!
//! A flow gets a queue when its first packet comes, and keeps it until all are in use: then an empty one is given to the
//! next flow that wants one, in the order in which they were given before. Where none is empty, flows share one queue, each
//! until its own packets there have gone, so that they don't overtake each other. So a flow shares only while as many others
//! have packets that wait as there are queues.
//!
//! Best-effort flows have one fixed quantum. A flow with a reserved rate r of the capacity C gets, in every round,
//! r / (C - all reserved rates) of what the others get together: with that its share of C is r, however many others
//! there are.

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

/// How queues per flow are kept.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FlowQueuesSettings {
    /// Queues for flows at most, beside the shared one; 1 to 65,535.
    pub queues: u32,
    /// Bytes on the wire per round for flows without a reservation, at least 1.
    pub quantum: u32,
    /// Each queue.
    pub queue: QueueSettings,
    /// What the node is served with. Reserved rates are parts of it: without it nothing can be reserved.
    pub capacity: Option<Rate>,
    /// Varies the table of flows.
    pub seed: u64,
}

impl Default for FlowQueuesSettings {
    /// 4,096 queues, 1,538 bytes per round, no capacity.
    fn default() -> Self {
        Self { queues: 4096, quantum: 1538, queue: QueueSettings::default(), capacity: None, seed: 0 }
    }
}

/// Queues looked at for an empty one, per flow that wants one.
const SWEEP: usize = 64;
/// Queues looked at when there are to be fewer.
const SHED: usize = 4096;

/// The leaf.
#[derive(Debug, Default)]
pub(crate) struct FlowQueues {
    pub settings: FlowQueuesSettings,
    pub(super) table: FlowTable,
    pub(super) round: Round,
    shared: u32,
    /// Who may have packets in the shared one.
    sharing: Sharing,
    owned: Vec<u32>,
    /// Where among those an empty one is looked for next.
    hand: usize,
    pub(super) weights: Weights,
    /// Whether anything is said of a single flow.
    is_said: bool,
    /// Drops of all queues, those given back included.
    pub(super) drops: DropCounts,
}

/// The queues of the manager as a round sees them.
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
    /// A leaf without flows, and the queue that flows share that have none of their own.
    pub fn new(settings: FlowQueuesSettings, shared: u32) -> Self {
        let table = FlowTable::new(settings.queues, settings.seed);
        let mut leaf = Self { settings, table, shared, ..Self::default() };
        leaf.set(settings);
        leaf
    }

    /// Other settings. With fewer queues than there are, flows keep what they have until it is empty.
    pub fn set(&mut self, settings: FlowQueuesSettings) {
        if settings.queues > self.table.room() {
            self.table = self.table.with_room(settings.queues, settings.seed);
        }
        self.settings = settings;
        self.weights.set(settings.quantum, settings.capacity.unwrap_or_default());
    }

    /// Gives all queues back; they must be empty.
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

    /// The queue of a flow, given now if it has none.
    #[inline]
    pub(super) fn queue_for<T: Item>(&mut self, queues: &mut QueueManager<T>, flow: FlowNumber) -> u32 {
        match self.table.get(flow) {
            Some(queue) => queue,
            None => self.give_queue(queues, flow),
        }
    }

    /// What waits where a packet of a flow would wait that came now, and whether only that flow's packets do.
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

    /// Makes a queue that of a flow.
    fn own<T: Item>(&mut self, queues: &mut QueueManager<T>, queue: u32, flow: FlowNumber) -> u32 {
        queues.queue_mut(queue).flow = flow.0;
        self.table.insert(flow, queue);
        queue
    }

    /// A queue that nobody had, if there may be one more.
    fn new_queue<T: Item>(&mut self, queues: &mut QueueManager<T>) -> Option<u32> {
        if self.owned.len() as u32 >= self.settings.queues {
            return None;
        }
        let queue = queues.open(&self.settings.queue)?;
        self.owned.push(queue);
        Some(queue)
    }

    /// A queue beyond those that there may be.
    fn one_more<T: Item>(&mut self, queues: &mut QueueManager<T>) -> u32 {
        let queue = queues.open_anyway(&self.settings.queue);
        self.owned.push(queue);
        if self.owned.len() as u32 > self.table.room() {
            self.table = self.table.with_room(self.owned.len() as u32, self.settings.seed);
        }
        queue
    }

    /// The next queue that its flow does without, as if it were new, among so many.
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

    /// The queue of a flow, one of its own: given now if it has none, with what it has in the shared one. `None` when all hold
    /// packets or are kept for other flows, unless that does not matter because the outcome is `trusted`.
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

    /// Whether there are more queues than there may be: fewer are wanted than there were.
    fn has_too_many(&self) -> bool {
        self.owned.len() > self.settings.queues as usize
    }

    /// Gives back what is beyond the queues that there may be, and not in use, of the first that are looked at. The rest goes as
    /// flows ask for queues.
    pub fn shed<T: Item>(&mut self, queues: &mut QueueManager<T>) {
        for _ in 0..self.owned.len().min(SHED) {
            if !self.has_too_many() {
                return;
            }
            self.give_back(queues, 1);
        }
    }

    /// Looks at up to `most` queues and gives those back to the port that their flows do without.
    pub fn give_back<T: Item>(&mut self, queues: &mut QueueManager<T>, most: usize) {
        for _ in 0..most.min(self.owned.len()) {
            if self.hand >= self.owned.len() {
                self.hand = 0;
            }
            let Some(&queue) = self.owned.get(self.hand) else { return };
            if queues.is_dispensable(queue) {
                self.table.remove(FlowNumber(queues.queue(queue).flow));
                queues.close(queue);
                // The last has its place, and is looked at next.
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

    /// Accounts for what was taken from a queue of the round, which leaves it when it is empty.
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

    /// The queues, the shared one first.
    pub fn queues(&self) -> impl Iterator<Item = u32> + '_ {
        std::iter::once(self.shared).chain(self.owned.iter().copied())
    }

    /// Whether anything waits.
    #[inline]
    pub fn has_packets(&self) -> bool {
        self.round.len() > 0
    }

    #[inline]
    pub(super) fn counting<'a, S>(&'a mut self, sink: &'a mut S) -> Counting<'a, S> {
        Counting { drops: &mut self.drops, sink }
    }

    /// Something was said of a flow, or no longer is.
    pub fn note_said<T: Item>(&mut self, queues: &QueueManager<T>) {
        let is_own =
            |queue: &u32| queues.queue(*queue).quantum != 0 || queues.own_threshold(*queue).is_some();
        self.is_said = self.owned.iter().any(is_own);
    }

    /// Whether packets may pass it by while nothing waits: no queue is managed actively, and nothing is said of single flows,
    /// whose queues are to show what was sent.
    #[inline]
    pub fn is_passable(&self) -> bool {
        self.settings.queue.aqm == Aqm::TailDrop && !self.is_said
    }

    /// What was dropped.
    pub fn drops(&self) -> &DropCounts {
        &self.drops
    }

    /// The queue of a flow, if it has one of its own.
    pub fn queue_of(&self, flow: FlowNumber) -> Option<u32> {
        self.table.get(flow)
    }

    /// Quantum in force of a queue, and reserved rate.
    pub fn quantum<T: Item>(&self, queues: &QueueManager<T>, queue: u32) -> (u32, Option<Rate>) {
        let own = queues.queue(queue).quantum;
        (self.weights.in_force(own), self.weights.rate(own))
    }

    #[inline]
    pub fn prefetch(&self, flow: FlowNumber) {
        self.table.prefetch(flow);
    }

    /// Asks for a flow's queue, whose place in the table should have come by now.
    #[inline]
    pub fn prefetch_queue<T: Item>(&self, queues: &QueueManager<T>, flow: FlowNumber) {
        queues.prefetch(self.table.get(flow).unwrap_or(self.shared));
    }
}

/// A sink that counts on the way.
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
