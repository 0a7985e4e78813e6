//! Queues of a port: up to 65,536 over one packet memory (NPR, section 2.1).

use millrace_units::Instant;

use crate::aqm::{Aqm, AqmState, CodelQueue, RedVerdict};
use crate::arena::{Arena, Held, Load, NONE, Opened, reserve_for};
use crate::queue::{Cold, Queue, QueueSettings, QueueView};
use crate::slots::Slots;
use crate::{Arrival, DropCause, DropSink, FlowNumber, Item, LinkOverhead};

/// Maximum number of queues of a port.
pub const MOST_QUEUES: u32 = 65_536;

/// Limits of a port's queues. A queue, or an FQ-CoDel leaf, refuses packets while it holds more than the free
/// space of the port. So a single queue gets at most half of the memory. A part of it is held back for leaves below an
/// H-FSC with a real-time curve, and for flows with a reserved rate: for each its burst, but at least a jumbo frame, and
/// a jumbo frame more; half of the memory at most. While such a leaf or flow holds less, its packets find room, whatever
/// the others hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BufferLimits {
    /// Number of queues, 1 to 65,536; 8,192 by default. Each takes 64 bytes once it is used.
    pub queues: u32,
    /// Number of packets, 1 to 2^24; 65,536 by default. Each takes 32 bytes in addition to its own memory.
    pub packets: u32,
    /// Number of packet bytes, at least 65,536; 128 MiB by default.
    pub bytes: u32,
}

impl Default for BufferLimits {
    fn default() -> Self {
        Self { queues: 8192, packets: 65_536, bytes: 128 << 20 }
    }
}

/// Result of an arrival at a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Offer {
    Refused,
    /// The packet stays, and is the only one in the queue.
    First,
    /// The packet stays, after other packets.
    Taken,
}

/// Queues by number, and their packets.
#[derive(Debug)]
pub(crate) struct QueueManager<T> {
    pub arena: Arena<T>,
    queues: Slots<Queue>,
    cold: Slots<Cold>,
    limit: u32,
    /// Whether a flow could not get a queue that its leaf allows, because the port had no free queue. Cleared
    /// when dispensable queues are released.
    pub is_short: bool,
    /// Overhead of the link.
    pub overhead: LinkOverhead,
}

impl<T: Item> QueueManager<T> {
    pub fn new(limits: BufferLimits, overhead: LinkOverhead) -> Self {
        Self {
            arena: Arena::new(limits.packets, limits.bytes),
            queues: Slots::with_capacity(limits.queues as usize),
            cold: Slots::default(),
            limit: limits.queues,
            is_short: false,
            overhead,
        }
    }

    /// Returns the bytes that a packet of `length` bytes takes on the wire.
    #[inline]
    pub fn wire_length(&self, length: u32) -> u32 {
        self.overhead.wire_length(length)
    }

    /// Returns the number of open queues.
    pub fn in_use(&self) -> u32 {
        self.queues.in_use()
    }

    /// Returns the number of queues that can still be opened.
    pub fn available(&self) -> u32 {
        self.limit.saturating_sub(self.in_use())
    }

    /// Changes the maximum number of queues; open queues stay.
    pub fn set_limit(&mut self, limit: u32) {
        let more = (limit as usize).saturating_sub(self.queues.len());
        self.queues.reserve(more);
        self.limit = limit;
    }

    /// Opens a queue, if the limit allows one more.
    pub fn open(&mut self, settings: &QueueSettings) -> Option<u32> {
        (self.available() > 0).then(|| self.open_anyway(settings))
    }

    /// Opens a queue, even in excess of the limit.
    pub fn open_anyway(&mut self, settings: &QueueSettings) -> u32 {
        let index = self.queues.insert(Queue::new(settings.threshold));
        self.set(index, settings);
        index
    }

    /// Whether a queue is empty and has no own quantum, reservation or threshold.
    #[inline]
    pub fn is_dispensable(&self, index: u32) -> bool {
        self.queue(index).list.is_empty() && self.has_common_settings(index)
    }

    /// Whether a queue has no own quantum, reservation or threshold.
    #[inline]
    pub fn has_common_settings(&self, index: u32) -> bool {
        self.queue(index).quantum == 0 && self.own_threshold(index).is_none()
    }

    /// Resets an empty queue to the state of a new queue.
    pub fn renew(&mut self, index: u32, settings: &QueueSettings) {
        self.forget_cold(index);
        self.queues[index] = Queue::new(settings.threshold);
        self.set(index, settings);
    }

    /// Closes an empty queue and forgets its counters.
    pub fn close(&mut self, index: u32) {
        self.forget_cold(index);
        if self.queue(index).is_reserved() {
            self.arena.change_reserve(reserve_for(0), Load::NOTHING);
        }
        self.queues.release(index);
    }

    fn forget_cold(&mut self, index: u32) {
        let cold = std::mem::replace(&mut self.queues[index].cold, NONE);
        if cold != NONE {
            self.cold.remove(cold);
        }
    }

    /// Changes the settings of a queue. Packets stay, and the AQM state stays unless the kind of AQM changes.
    pub fn set(&mut self, index: u32, settings: &QueueSettings) {
        self.queues[index].threshold = settings.threshold;
        let has_cold = self.queues[index].cold != NONE;
        if has_cold || settings.aqm != Aqm::TailDrop {
            self.cold_mut(index).aqm.set(&settings.aqm, index);
        }
    }

    /// Changes the settings of a queue, but keeps its own threshold.
    pub fn set_common(&mut self, index: u32, settings: &QueueSettings) {
        let own = self.own_threshold(index);
        self.set(index, &QueueSettings { threshold: own.unwrap_or(settings.threshold), ..*settings });
    }

    /// Gives a queue a threshold of its own. With `None`, gives it the threshold `common` again.
    pub fn set_own_threshold(&mut self, index: u32, own: Option<u32>, common: u32) {
        self.queues[index].threshold = own.unwrap_or(common);
        if own.is_some() || self.own_threshold(index).is_some() {
            self.cold_mut(index).has_own_threshold = own.is_some();
        }
    }

    /// Returns a queue's own threshold, if it has one.
    pub fn own_threshold(&self, index: u32) -> Option<u32> {
        let queue = self.queue(index);
        let is_own = self.cold.find(queue.cold).is_some_and(|cold| cold.has_own_threshold);
        is_own.then_some(queue.threshold)
    }

    /// Returns a queue, if it exists.
    #[inline]
    pub fn find(&self, index: u32) -> Option<&Queue> {
        self.queues.find(index)
    }

    #[inline]
    pub fn queue(&self, index: u32) -> &Queue {
        &self.queues[index]
    }

    /// Returns a queue and the length of its first packet; `None` if the queue is empty.
    #[inline]
    pub fn first(&self, index: u32) -> Option<(&Queue, u32)> {
        let queue = self.queue(index);
        Some((queue, self.arena.head_length(&queue.list)?))
    }

    #[inline]
    pub fn queue_mut(&mut self, index: u32) -> &mut Queue {
        &mut self.queues[index]
    }

    /// Returns all queues, and the packet memory opened for a batch.
    #[inline(always)]
    pub fn open_all(&mut self) -> (&mut [Queue], Opened<'_, T>) {
        (self.queues.all_mut(), self.arena.open())
    }

    pub fn view(&self, index: u32) -> QueueView {
        let queue = self.queue(index);
        queue.view(self.cold.find(queue.cold))
    }

    /// Returns the cold part of a queue, and creates it if there is none.
    #[cold]
    fn cold_mut(&mut self, index: u32) -> &mut Cold {
        let queue = &mut self.queues[index];
        if queue.cold == NONE {
            queue.cold = self.cold.insert(Cold::default());
        }
        &mut self.cold[queue.cold]
    }

    /// Offers an arriving packet to a queue.
    #[inline(always)]
    pub fn offer(
        &mut self,
        index: u32,
        flow: FlowNumber,
        item: T,
        now: Instant,
        sink: &mut impl DropSink<T>,
    ) -> Offer {
        let length = item.length();
        let queue = &mut self.queues[index];
        if queue.list.bytes() > queue.threshold
            || queue.cold != NONE
            || !self.arena.is_roomy(Load::of_packet(length))
        {
            return self.offer_carefully(index, flow, item, now, sink);
        }
        let offer = if queue.list.is_empty() { Offer::First } else { Offer::Taken };
        self.arena.push(&mut queue.list, Held { item, arrival: now, length, flow });
        offer
    }

    /// Offers an arriving packet to a queue that may refuse it, by threshold, AQM or lack of room.
    #[inline(never)]
    fn offer_carefully(
        &mut self,
        index: u32,
        flow: FlowNumber,
        mut item: T,
        now: Instant,
        sink: &mut impl DropSink<T>,
    ) -> Offer {
        let length = item.length();
        let queue = &mut self.queues[index];
        let mut is_to_mark = false;
        if queue.cold != NONE {
            // Active queue management also counts arrivals that the threshold refuses.
            match Self::arrival(&mut self.cold[queue.cold], queue, length, now) {
                RedVerdict::Pass => {}
                RedVerdict::Mark => is_to_mark = true,
                RedVerdict::Drop(cause) => return self.refuse(index, item, cause, sink),
            }
        }
        if queue.list.bytes() > queue.threshold {
            return self.refuse(index, item, DropCause::Threshold, sink);
        }
        let load = queue.list.load;
        let is_within =
            |arena: &Arena<T>| arena.has_space(length) && arena.is_within(reserve_for(0), load, length);
        let has_room = self.arena.has_room(load, length) || queue.is_reserved() && is_within(&self.arena);
        if !has_room {
            return self.refuse(index, item, DropCause::BufferFull, sink);
        }
        // Only packets that stay get a mark and count as marked.
        if is_to_mark {
            if !item.mark_congestion() {
                return self.refuse(index, item, DropCause::Early, sink);
            }
            self.cold[queue.cold].drops.mark();
            sink.marked();
        }
        let offer = if queue.list.is_empty() { Offer::First } else { Offer::Taken };
        self.arena.push(&mut queue.list, Held { item, arrival: now, length, flow });
        offer
    }

    /// Offers packets of `bytes` bytes in total to one queue, in order. `batch` is empty afterwards.
    #[inline]
    pub fn offer_all(
        &mut self,
        index: u32,
        (batch, bytes): (&mut Vec<Arrival<T>>, u64),
        now: Instant,
        sink: &mut impl DropSink<T>,
    ) {
        let queue = &mut self.queues[index];
        let load = Load::of(batch.len(), bytes);
        if let Some(load) = load
            && queue.cold == NONE
            && self.arena.has_room_for(queue.list.load, load, queue.threshold)
        {
            let arrivals = batch.drain(..).map(|Arrival { flow, item, .. }| {
                let length = item.length();
                (item, length, flow)
            });
            return self.arena.push_all(&mut queue.list, load, arrivals, now);
        }
        for Arrival { flow, item, .. } in batch.drain(..) {
            self.offer_carefully(index, flow, item, now, sink);
        }
    }

    /// Returns the decision of active queue management about an arriving packet. Without ECN, a mark becomes
    /// a drop.
    fn arrival(cold: &mut Cold, queue: &Queue, length: u32, now: Instant) -> RedVerdict {
        cold.max_packet = cold.max_packet.max(length);
        let AqmState::Red(red) = &mut cold.aqm else { return RedVerdict::Pass };
        match red.arrival(queue.list.load, now) {
            RedVerdict::Mark if !red.settings.ecn => RedVerdict::Drop(DropCause::Early),
            verdict => verdict,
        }
    }

    #[cold]
    fn refuse(&mut self, index: u32, item: T, cause: DropCause, sink: &mut impl DropSink<T>) -> Offer {
        self.cold_mut(index).drops.add(cause, item.length());
        sink.dropped(item, cause);
        Offer::Refused
    }

    /// Takes up to `most` packets of a queue to send them, while `wanted` accepts the next packet's length.
    /// Takes none from a queue with a [`Cold`] part, which decides about each packet separately.
    #[inline(always)]
    pub fn take_while(
        &mut self,
        index: u32,
        most: usize,
        wanted: impl FnMut(u32) -> bool,
        out: impl FnMut(T),
    ) -> Load {
        let queue = &mut self.queues[index];
        if queue.cold != NONE {
            return Load::NOTHING;
        }
        queue.note_peak();
        let gone = self.arena.pop_while(&mut queue.list, most, wanted, out);
        queue.sent(gone);
        gone
    }

    /// Takes the next packet of a queue to send it. Returns whether more packets wait.
    #[inline]
    pub fn take(&mut self, index: u32, now: Instant, sink: &mut impl DropSink<T>) -> (Option<Held<T>>, bool) {
        let queue = &mut self.queues[index];
        queue.note_peak();
        let managed = queue.cold != NONE;
        let held =
            if managed { self.take_managed(index, now, sink) } else { self.arena.pop(&mut queue.list) };
        let queue = &mut self.queues[index];
        if let Some(held) = &held {
            queue.sent(Load::of_packet(held.length));
        }
        if !managed {
            self.arena.prefetch(&queue.list);
        }
        (held, !queue.list.is_empty())
    }

    fn take_managed(&mut self, index: u32, now: Instant, sink: &mut impl DropSink<T>) -> Option<Held<T>> {
        let queue = &mut self.queues[index];
        let Cold { aqm, drops, max_packet, .. } = &mut self.cold[queue.cold];
        let AqmState::Codel(settings, codel) = aqm else {
            let held = self.arena.pop(&mut queue.list);
            if let AqmState::Red(red) = aqm
                && held.is_some()
                && queue.list.is_empty()
            {
                red.emptied(now);
            }
            return held;
        };
        let (arena, list) = (&mut self.arena, &mut queue.list);
        let mut queue = CodelQueue { arena, list, max_packet: *max_packet, has_marked: false };
        let held = codel.dequeue(settings, &mut queue, now, |held| {
            drops.add(DropCause::Sojourn, held.length);
            sink.dropped(held.item, DropCause::Sojourn);
        });
        if queue.has_marked {
            drops.mark();
            sink.marked();
        }
        held
    }

    /// Takes the next packet of a queue that is about to close, to move it to another queue.
    pub fn take_to_move(&mut self, index: u32) -> Option<Held<T>> {
        self.arena.pop(&mut self.queues[index].list)
    }

    /// Appends a packet that was taken from another queue, regardless of the threshold.
    pub fn put(&mut self, index: u32, held: Held<T>) {
        let (length, queue) = (held.length, &mut self.queues[index]);
        if let Some(cold) = self.cold.find_mut(queue.cold) {
            cold.max_packet = cold.max_packet.max(length);
        }
        self.arena.push(&mut queue.list, held);
    }

    /// Moves the packets of a flow from one queue to an empty queue. All packets keep their order. Returns
    /// the number of moved packets.
    pub fn separate(&mut self, from: u32, to: u32, flow: FlowNumber) -> u32 {
        self.queues[from].note_peak();
        let mut all = std::mem::take(&mut self.queues[from].list);
        let mut moved = Load::NOTHING;
        while let Some(held) = self.arena.pop(&mut all) {
            if held.flow != flow {
                self.arena.push(&mut self.queues[from].list, held);
                continue;
            }
            moved = moved.plus(Load::of_packet(held.length));
            self.put(to, held);
        }
        if moved != Load::NOTHING {
            let cold = self.cold_mut(from);
            cold.moved_packets += u64::from(moved.packets());
            cold.moved_bytes += u64::from(moved.bytes());
        }
        moved.packets()
    }

    /// Prefetches the cache line of a queue, but not its packets.
    #[inline]
    pub fn prefetch(&self, index: u32) {
        millrace_memory::prefetch_slice_element(self.queues.all(), index as usize);
    }

    /// Returns the memory of all queues in bytes, without their packets.
    pub fn memory(&self) -> usize {
        self.queues.len() * size_of::<Queue>() + self.cold.len() * size_of::<Cold>()
    }
}
