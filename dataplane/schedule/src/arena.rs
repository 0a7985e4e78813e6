//! Packet memory of a port: one slice of slots, linked into lists.
//!
//! A list takes four words; its packets are in the slots of the port. So an empty queue costs little memory,
//! and all queues of the port share one limit. The slot freed last is used first, because it is still in the
//! CPU cache.

mod extraction;
mod held_back;
mod opened;

use millrace_memory::prefetch_slice_element;
use millrace_units::Instant;

use crate::FlowNumber;

use held_back::HeldBack;
pub(crate) use held_back::reserve_for;
pub(crate) use opened::Opened;

/// Index that means "no slot, queue or node".
pub(crate) const NONE: u32 = u32::MAX;

/// Packet taken from a queue, with the values noted at its arrival. `F` is `()` where the flow isn't noted.
#[derive(Debug)]
pub struct Held<T, F = FlowNumber> {
    /// Packet.
    pub item: T,
    /// Time of arrival in the queue.
    pub arrival: Instant,
    /// Length in bytes at arrival.
    pub length: u32,
    /// Flow of the packet.
    pub flow: F,
}

/// Packet count and byte count in one word, so that one addition updates both.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Load(u64);

impl Load {
    pub const NOTHING: Self = Self(0);

    #[inline]
    pub fn of_packet(length: u32) -> Self {
        Self(1 << 32 | u64::from(length))
    }

    /// Creates a load of `packets` and `bytes`; `None` if one of the counts exceeds 32 bits.
    #[inline]
    pub fn of(packets: usize, bytes: u64) -> Option<Self> {
        let fits = packets <= u32::MAX as usize && bytes <= u64::from(u32::MAX);
        fits.then_some(Self((packets as u64) << 32 | bytes))
    }

    #[inline]
    pub fn packets(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline]
    pub fn bytes(self) -> u32 {
        self.0 as u32
    }

    /// Returns the sum. The caller ensures that neither count overflows.
    #[inline]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }

    /// Returns the difference. The caller ensures that neither count is less than in `other`.
    #[inline]
    pub fn minus(self, other: Self) -> Self {
        Self(self.0.wrapping_sub(other.0))
    }
}

#[derive(Debug)]
struct Slot<T, F> {
    item: Option<T>,
    arrival: Instant,
    length: u32,
    flow: F,
    next: u32,
}

impl<T, F> Slot<T, F> {
    /// Puts a packet into an empty slot.
    #[inline]
    fn fill(&mut self, item: T, arrival: Instant, length: u32, flow: F) {
        // The replaced value is `None`, so `forget` skips only a drop without effect.
        std::mem::forget(self.item.replace(item));
        (self.arrival, self.length, self.flow) = (arrival, length, flow);
    }
}

/// A list of packets, first in, first out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct List {
    head: u32,
    tail: u32,
    pub load: Load,
}

impl List {
    pub const EMPTY: Self = Self { head: NONE, tail: NONE, load: Load::NOTHING };
}

impl List {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head == NONE
    }

    #[inline]
    pub fn packets(&self) -> u32 {
        self.load.packets()
    }

    #[inline]
    pub fn bytes(&self) -> u32 {
        self.load.bytes()
    }
}

impl Default for List {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// Storage of all packets of a port, with the flow of each.
#[derive(Debug)]
pub(crate) struct Arena<T, F = FlowNumber> {
    slots: Vec<Slot<T, F>>,
    free: u32,
    pub load: Load,
    limit_bytes: u32,
    limit_packets: u32,
    /// Limits without what is held back.
    open_bytes: u32,
    open_packets: u32,
    /// Half of the port's packet limit and byte limit, without what is held back. While the port's load is below
    /// this half, no queue can hold more than the port's free space.
    half: Load,
    held_back: HeldBack,
}

impl<T, F: Copy> Arena<T, F> {
    /// Creates memory for `packets` packets and `bytes` bytes. The system provides the memory at first use.
    pub fn new(packets: u32, bytes: u32) -> Self {
        let slots = Vec::with_capacity(packets as usize);
        let (load, held_back) = (Load::NOTHING, HeldBack::default());
        let (limit_bytes, limit_packets) = (bytes, packets);
        let (open_bytes, open_packets, half) = (bytes, packets, load);
        let mut new = Self {
            slots,
            free: NONE,
            load,
            limit_bytes,
            limit_packets,
            open_bytes,
            open_packets,
            half,
            held_back,
        };
        new.change_reserve(load, load);
        new
    }

    /// Changes a [reserve](reserve_for) from `before` to `after`. A larger one takes effect when packets that are in
    /// its way have left.
    pub fn change_reserve(&mut self, before: Load, after: Load) {
        let half = |packets: u32, bytes: u32| Load(u64::from(packets / 2) << 32 | u64::from(bytes / 2));
        self.held_back.change(before, after, half(self.limit_packets, self.limit_bytes));
        let part = self.held_back.part;
        self.open_packets = self.limit_packets - part.packets();
        self.open_bytes = self.limit_bytes - part.bytes();
        self.half = half(self.open_packets, self.open_bytes);
    }

    /// Whether memory is held back, and a packet may find no other.
    #[inline]
    pub fn is_tight(&self, length: u32) -> bool {
        self.is_tight_for(1, length)
    }

    /// Whether memory is held back, and one of these packets may find no other.
    #[inline]
    pub fn is_tight_for(&self, packets: usize, bytes: u32) -> bool {
        self.held_back.part != Load::NOTHING
            && (self.load.packets() as usize + packets > self.half.packets() as usize
                || u64::from(self.load.bytes()) + u64::from(bytes) > u64::from(self.half.bytes()))
    }

    /// Sets whether the next packet is [within](Self::is_within) a reserve.
    pub fn entitle(&mut self, is_entitled: bool) {
        self.held_back.is_entitled = is_entitled;
    }

    /// Whether what has this reserve and holds `load` stays within the reserve with one more packet.
    pub fn is_within(&self, reserve: Load, load: Load, length: u32) -> bool {
        let part = self.held_back.part_of(reserve);
        load.packets() < part.packets()
            && u64::from(load.bytes()) + u64::from(length) <= u64::from(part.bytes())
    }

    /// Whether the memory has space for a packet, with what is held back.
    #[inline]
    pub fn has_space(&self, length: u32) -> bool {
        self.load.packets() < self.limit_packets && length <= self.limit_bytes - self.load.bytes()
    }

    /// Whether every queue of the port [has room](Self::has_room) for the packets of `more`, and the
    /// previously used slots suffice for these packets.
    #[inline]
    pub fn is_roomy(&self, more: Load) -> bool {
        let [packets, held] = [more, self.load].map(|load| u64::from(load.packets()));
        packets + held <= u64::from(self.half.packets())
            && u64::from(self.load.bytes()) + u64::from(more.bytes()) <= u64::from(self.half.bytes())
            && packets + held <= self.slots.len() as u64
    }

    /// Whether the port can take a packet of `length` bytes into a queue that holds the load `queue`. A queue
    /// may hold no more than the free space of the port, so that one full queue leaves room for others. Space
    /// that is held back is free only for an [entitled](Self::entitle) packet. (Choudhury and Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches", 1998, with
    /// a factor of 1.)
    #[inline]
    pub fn has_room(&self, queue: Load, length: u32) -> bool {
        let packets = self.open_packets.saturating_sub(self.load.packets());
        let bytes = self.open_bytes.saturating_sub(self.load.bytes());
        queue.packets() < packets && queue.bytes() <= bytes && length <= bytes
            || self.held_back.is_entitled && self.has_space(length)
    }

    /// Appends a new slot to the slice. Returns its index.
    #[cold]
    fn grow(&mut self, slot: Slot<T, F>) -> u32 {
        self.slots.push(slot);
        self.slots.len() as u32 - 1
    }

    /// Appends a packet to `list`. The caller ensures that the port has room.
    #[inline]
    pub fn push(&mut self, list: &mut List, held: Held<T, F>) {
        let Held { item, arrival, length, flow } = held;
        let load = Load::of_packet(length);
        self.load = self.load.plus(load);
        list.load = list.load.plus(load);
        let mut index = self.free;
        match self.slots.get_mut(index as usize) {
            Some(slot) => {
                self.free = slot.next;
                slot.fill(item, arrival, length, flow);
                slot.next = NONE;
            }
            None => index = self.grow(Slot { item: Some(item), arrival, length, flow, next: NONE }),
        }
        let last = std::mem::replace(&mut list.tail, index);
        match self.slots.get_mut(last as usize) {
            Some(last) => last.next = index,
            None => list.head = index,
        }
    }

    /// Removes and returns the first packet of `list`; `None` if the list is empty.
    #[inline]
    pub fn pop(&mut self, list: &mut List) -> Option<Held<T, F>> {
        let index = list.head;
        let slot = self.slots.get_mut(index as usize)?;
        let item = slot.item.take()?;
        let held = Held { item, arrival: slot.arrival, length: slot.length, flow: slot.flow };
        list.head = slot.next;
        slot.next = self.free;
        self.free = index;
        if list.head == NONE {
            list.tail = NONE;
        }
        let load = Load::of_packet(held.length);
        list.load = list.load.minus(load);
        self.load = self.load.minus(load);
        Some(held)
    }

    /// Whether the packets of `more` fit at the end of a list that holds `load` and may hold `threshold`
    /// bytes. The port must have room for each packet, and the previously used slots must suffice.
    #[inline]
    pub fn has_room_for(&self, load: Load, more: Load, threshold: u32) -> bool {
        let others = self.load.minus(load);
        let used = self.slots.len() as u32 - self.load.packets();
        let packets = self.open_packets.saturating_sub(others.packets());
        let bytes = self.open_bytes.saturating_sub(others.bytes());
        // A list that holds at most half of the space that other lists leave never exceeds the free space.
        let most = u64::from(threshold.min(bytes / 2));
        more.packets() <= used
            && u64::from(load.packets()) + u64::from(more.packets()) <= u64::from(packets / 2)
            && u64::from(load.bytes()) + u64::from(more.bytes()) <= most
    }

    /// Appends packets with the total load `load` to `list`, which must [have room](Self::has_room_for) for
    /// them. The packets fill the first slots of the free list in order. These slots are already linked in
    /// that order, so the links between them stay.
    #[inline]
    pub fn push_all(
        &mut self,
        list: &mut List,
        load: Load,
        arrivals: impl Iterator<Item = (T, u32, F)>,
        now: Instant,
    ) {
        let (mut index, mut last) = (self.free, NONE);
        let slots = self.slots.as_mut_slice();
        for (item, length, flow) in arrivals {
            let Some(slot) = slots.get_mut(index as usize) else { break };
            slot.fill(item, now, length, flow);
            (last, index) = (index, slot.next);
        }
        if let Some(slot) = slots.get_mut(last as usize) {
            slot.next = NONE;
            let first = std::mem::replace(&mut self.free, index);
            let tail = std::mem::replace(&mut list.tail, last);
            match slots.get_mut(tail as usize) {
                Some(tail) => tail.next = first,
                None => list.head = first,
            }
            list.load = list.load.plus(load);
            self.load = self.load.plus(load);
        }
    }

    /// Takes up to `most` packets from the head of `list`, while `wanted` accepts the next packet's length.
    /// Passes the packets to `out` and returns their load. Their slots become free in list order.
    #[inline]
    pub fn pop_while(
        &mut self,
        list: &mut List,
        most: usize,
        wanted: impl FnMut(u32) -> bool,
        out: impl FnMut(T),
    ) -> Load {
        let mut opened = self.open();
        let gone = opened.pop_while(list, most, wanted, out);
        opened.close();
        gone
    }

    /// Returns the packets of all lists.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.item.as_ref())
    }

    /// Returns the length of the first packet of `list`, in bytes; `None` if the list is empty.
    #[inline]
    pub fn head_length(&self, list: &List) -> Option<u32> {
        self.slots.get(list.head as usize).map(|slot| slot.length)
    }

    /// Returns the arrival time of the first packet of `list`; `None` if the list is empty.
    #[inline]
    pub fn head_arrival(&self, list: &List) -> Option<Instant> {
        self.slots.get(list.head as usize).map(|slot| slot.arrival)
    }

    /// Returns the first packet of `list`; `None` if the list is empty.
    #[inline]
    pub fn first(&self, list: &List) -> Option<&T> {
        self.slots.get(list.head as usize)?.item.as_ref()
    }

    /// Prefetches the first slot of `list`.
    #[inline]
    pub fn prefetch(&self, list: &List) {
        prefetch_slice_element(&self.slots, list.head as usize);
    }

    /// Prefetches the first slots of `list`, up to 1 KiB. Packets that arrived together are in adjacent slots, in
    /// ascending or descending order. Unless all packets of the list are adjacent, the order of the first ones is
    /// unknown, so the slots on both sides of the first one are prefetched.
    #[inline]
    pub fn prefetch_run(&self, list: &List) {
        let step = (64 / size_of::<Slot<T, F>>()).max(1);
        let lines = 16.min(list.packets() as usize / step + 1);
        let is_run = list.head.abs_diff(list.tail).wrapping_add(1) == list.packets();
        let (up, down) = match (is_run, list.tail < list.head) {
            (false, _) => (lines / 2, lines / 2),
            (true, false) => (lines, 0),
            (true, true) => (0, lines),
        };
        let head = list.head as usize;
        (0..up).for_each(|line| prefetch_slice_element(&self.slots, head.wrapping_add(line * step)));
        (0..down).for_each(|line| prefetch_slice_element(&self.slots, head.wrapping_sub(line * step)));
    }

    /// Returns the memory of one packet's slot, in bytes.
    #[cfg(test)]
    pub const fn slot_size() -> usize {
        size_of::<Slot<T, F>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn held(item: u32, length: u32) -> Held<u32> {
        Held { item, arrival: Instant::from_nanos(item.into()), length, flow: FlowNumber(item) }
    }

    #[test]
    fn a_slot_for_a_packet_of_the_router_is_half_a_cache_line() {
        assert_eq!(Arena::<millrace_packet::Packet>::slot_size(), 32);
    }

    /// Takes `batch` packets from the front of a list.
    fn take(arena: &mut Arena<u32>, list: &mut List, batch: usize) -> Vec<u32> {
        let (mut taken, mut offered) = (Vec::new(), 0);
        let mut opened = arena.open();
        let wanted = |_: &u32| {
            offered += 1;
            offered <= batch
        };
        let gone = opened.pop_wanted(list, wanted, |item| taken.push(item));
        opened.close();
        assert_eq!(gone.packets() as usize, taken.len());
        taken
    }

    #[test]
    fn slots_of_a_list_with_batches_are_in_one_run() {
        let (mut arena, mut list) = (Arena::new(200, 200), List::EMPTY);
        (0..33).for_each(|number| arena.push(&mut list, held(number, 1)));
        for batch in [32, 33, 32, 32].into_iter().cycle().take(50) {
            let taken = take(&mut arena, &mut list, batch);
            taken.into_iter().for_each(|item| arena.push(&mut list, held(item, 1)));
            let next = |place: &u32| arena.slots.get(*place as usize).map(|slot| slot.next);
            let places: Vec<u32> = std::iter::successors(Some(list.head), next).take(33).collect();
            let steps: Vec<i64> =
                places.windows(2).map(|two| i64::from(two[1]) - i64::from(two[0])).collect();
            assert!(steps.iter().all(|step| step.abs() == 1 && *step == steps[0]), "{batch}: {places:?}");
            assert_eq!(list.head.abs_diff(list.tail), 32);
        }
    }

    proptest! {
        #[test]
        fn lists_in_one_arena_are_queues(
            steps in prop::collection::vec((0_usize..4, any::<bool>(), 1_u32..2000), 0..400),
            reserve in (0_u32..15, 0_u32..15_000),
        ) {
            let mut arena = Arena::new(20, 20_000);
            arena.change_reserve(Load::NOTHING, Load(u64::from(reserve.0) << 32 | u64::from(reserve.1)));
            // At most half of the memory is held back.
            let (kept, kept_bytes) = (reserve.0.min(10), reserve.1.min(10_000));
            let mut lists = [List::EMPTY; 4];
            let mut twins: [VecDeque<(u32, u32)>; 4] = Default::default();
            for (number, (which, put, length)) in steps.into_iter().enumerate() {
                if put {
                    let total: u32 = twins.iter().flatten().map(|(_, length)| length).sum();
                    let count = twins.iter().flatten().count();
                    let own: u32 = twins[which].iter().map(|(_, length)| length).sum();
                    let free = 20_000_u32.saturating_sub(kept_bytes + total);
                    let slots = 20_usize.saturating_sub(kept as usize + count);
                    let room = twins[which].len() < slots && own <= free && length <= free;
                    prop_assert_eq!(arena.has_room(lists[which].load, length), room);
                    if room {
                        arena.push(&mut lists[which], held(number as u32, length));
                        twins[which].push_back((number as u32, length));
                    }
                } else if length % 2 == 0 {
                    let taken = arena.pop(&mut lists[which]).map(|held| (held.item, held.length));
                    prop_assert_eq!(taken, twins[which].pop_front());
                } else {
                    let batch = length as usize % 7;
                    let due = twins[which].drain(..batch.min(twins[which].len())).map(|(item, _)| item);
                    let due: Vec<u32> = due.collect();
                    prop_assert_eq!(take(&mut arena, &mut lists[which], batch), due);
                }
                prop_assert_eq!(lists[which].packets() as usize, twins[which].len());
                prop_assert_eq!(lists[which].bytes(), twins[which].iter().map(|(_, length)| length).sum::<u32>());
                let first = twins[which].front().map(|(_, length)| *length);
                prop_assert_eq!(arena.head_length(&lists[which]), first);
                prop_assert_eq!(arena.load.packets() as usize, twins.iter().flatten().count());
            }
        }
    }
}
