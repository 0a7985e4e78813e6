//! Assignment of queues to flows: each flow has a queue of its own, or uses the shared queue.

use super::FlowQueuesSettings;
use super::sharing::Sharing;
use crate::arena::Load;
use crate::flow_table::FlowTable;
use crate::queue_manager::QueueManager;
use crate::{FlowNumber, Item};

/// Maximum number of queues that a new flow searches for an empty queue.
const SWEEP: usize = 64;
/// Maximum number of queues checked for release when the configured number of queues falls.
const SHED: usize = 4096;

/// Queues of a leaf, and the flows to which they are assigned.
#[derive(Debug, Default)]
pub(crate) struct Assignment {
    pub settings: FlowQueuesSettings,
    table: FlowTable,
    shared: u32,
    /// Flows that may have packets in the shared queue.
    sharing: Sharing,
    owned: Vec<u32>,
    /// Index in `owned` at which the next search for an empty queue starts.
    hand: usize,
}

impl Assignment {
    /// Creates an assignment without flows. `shared` is the queue of all flows without their own queue.
    pub fn new(settings: FlowQueuesSettings, shared: u32) -> Self {
        let table = FlowTable::new(settings.queues, settings.seed);
        Self { settings, table, shared, ..Self::default() }
    }

    /// Changes the settings. If the number of queues falls, a flow keeps its queue until the queue is empty.
    pub fn set(&mut self, settings: FlowQueuesSettings) {
        if settings.queues > self.table.room() {
            self.table = self.table.with_room(settings.queues, settings.seed);
        }
        self.settings = settings;
    }

    /// Returns all queues to the port. The queues must be empty.
    pub fn close<T: Item>(&mut self, queues: &mut QueueManager<T>) {
        for queue in self.owned.drain(..) {
            queues.close(queue);
        }
        queues.close(self.shared);
    }

    /// Iterates over the queues, the shared one first.
    pub fn queues(&self) -> impl Iterator<Item = u32> + '_ {
        std::iter::once(self.shared).chain(self.owned())
    }

    /// Returns the shared queue, which all flows without their own queue use.
    #[inline]
    pub fn shared(&self) -> u32 {
        self.shared
    }

    /// Iterates over the queues that belong to one flow each.
    pub fn owned(&self) -> impl Iterator<Item = u32> + '_ {
        self.owned.iter().copied()
    }

    /// Returns the flow's own queue, if it has one.
    #[inline]
    pub fn queue_of(&self, flow: FlowNumber) -> Option<u32> {
        self.table.get(flow)
    }

    /// Returns the queue of a flow, and assigns one if it has none.
    #[inline]
    pub fn queue_for<T: Item>(&mut self, queues: &mut QueueManager<T>, flow: FlowNumber) -> u32 {
        match self.table.get(flow) {
            Some(queue) => queue,
            None => self.give_queue(queues, flow),
        }
    }

    /// Returns the load that waits ahead of a new packet of a flow. The boolean is true if this load
    /// certainly consists of packets of the flow only.
    pub fn load_before<T: Item>(&self, queues: &QueueManager<T>, flow: FlowNumber) -> (bool, Load) {
        let queue = self.table.get(flow);
        let shared = queues.queue(self.shared).list.load;
        match queue {
            Some(queue) => (true, queues.queue(queue).list.load),
            None => (shared == Load::NOTHING, shared),
        }
    }

    /// Records that a packet of a flow entered a queue.
    #[inline]
    pub fn note(&mut self, queue: u32, flow: FlowNumber) {
        if queue == self.shared {
            self.sharing.note(flow);
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

    /// Opens a queue for a flow, if the settings allow another queue.
    fn new_queue<T: Item>(&mut self, queues: &mut QueueManager<T>) -> Option<u32> {
        if self.owned.len() as u32 >= self.settings.queues {
            return None;
        }
        let queue = queues.open(&self.settings.queue)?;
        self.owned.push(queue);
        Some(queue)
    }

    /// Opens a queue, even if the leaf then has more queues than its settings allow.
    fn one_more<T: Item>(&mut self, queues: &mut QueueManager<T>) -> u32 {
        let queue = queues.open_anyway(&self.settings.queue);
        self.owned.push(queue);
        if self.owned.len() as u32 > self.table.room() {
            self.table = self.table.with_room(self.owned.len() as u32, self.settings.seed);
        }
        queue
    }

    /// Checks up to `most` queues for one that is [dispensable](QueueManager::is_dispensable). Takes the
    /// first such queue from its flow, resets it and returns it.
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

    /// Returns the flow's own queue, and the number of packets moved into it from the shared queue. If the
    /// flow has no queue, assigns one and moves the flow's packets there. If all queues are in use, opens one
    /// more if `trusted` is set, and returns `None` otherwise.
    pub fn queue_with_packets<T: Item>(
        &mut self,
        queues: &mut QueueManager<T>,
        flow: FlowNumber,
        trusted: bool,
    ) -> Option<(u32, u32)> {
        if let Some(queue) = self.table.get(flow) {
            return Some((queue, 0));
        }
        let free = self.new_queue(queues).or_else(|| self.reuse(queues, usize::MAX));
        let queue = free.or_else(|| trusted.then(|| self.one_more(queues)))?;
        self.own(queues, queue, flow);
        let moved = queues.separate(self.shared, queue, flow);
        self.sharing.taken(moved);
        Some((queue, moved))
    }

    /// Whether the leaf has more queues than the settings allow, because the allowed number was lowered.
    fn has_too_many(&self) -> bool {
        self.owned.len() > self.settings.queues as usize
    }

    /// Reduces the queues to the number that the settings allow: checks up to [`SHED`] queues, and returns
    /// those that are [dispensable](QueueManager::is_dispensable) to the port. If too many queues remain,
    /// later searches for a queue return them.
    pub fn shed<T: Item>(&mut self, queues: &mut QueueManager<T>) {
        for _ in 0..self.owned.len().min(SHED) {
            if !self.has_too_many() {
                return;
            }
            self.give_back(queues, 1);
        }
    }

    /// Checks up to `most` queues, and returns those that are [dispensable](QueueManager::is_dispensable) to
    /// the port.
    pub fn give_back<T: Item>(&mut self, queues: &mut QueueManager<T>, most: usize) {
        for _ in 0..most.min(self.owned.len()) {
            if self.hand >= self.owned.len() {
                self.hand = 0;
            }
            let Some(&queue) = self.owned.get(self.hand) else { return };
            if queues.is_dispensable(queue) {
                self.table.remove(FlowNumber(queues.queue(queue).flow));
                queues.close(queue);
                // `swap_remove` moves the last queue to this index, so the next step checks that queue.
                self.owned.swap_remove(self.hand);
            } else {
                self.hand += 1;
            }
        }
    }

    /// Prefetches the table entry of a flow.
    #[inline]
    pub fn prefetch(&self, flow: FlowNumber) {
        self.table.prefetch(flow);
    }

    /// Prefetches a flow's queue. The caller has prefetched the flow's table entry.
    #[inline]
    pub fn prefetch_queue<T: Item>(&self, queues: &QueueManager<T>, flow: FlowNumber) {
        queues.prefetch(self.table.get(flow).unwrap_or(self.shared));
    }
}
