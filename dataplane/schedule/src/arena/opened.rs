//! Arena opened for a batch: the free list and the load stay in registers, and are written back once.

use millrace_units::Instant;

use super::{Arena, List, Load, NONE, Slot};
use crate::FlowNumber;

/// Slots of an arena while a batch of packets enters or leaves. [`close`](Self::close) writes the changes
/// back to the arena.
#[derive(Debug)]
pub(crate) struct Opened<'a, T, F = FlowNumber> {
    slots: &'a mut [Slot<T, F>],
    free: u32,
    load: Load,
    noted: (&'a mut u32, &'a mut Load),
}

impl<T, F: Copy> Arena<T, F> {
    /// Borrows the arena for a batch; [`close`](Opened::close) writes the changes back.
    #[inline(always)]
    pub fn open(&mut self) -> Opened<'_, T, F> {
        let (free, load) = (self.free, self.load);
        Opened { slots: &mut self.slots, free, load, noted: (&mut self.free, &mut self.load) }
    }
}

impl<T, F: Copy> Opened<'_, T, F> {
    /// Returns the current load of the arena.
    #[inline(always)]
    pub fn load(&self) -> Load {
        self.load
    }

    /// Writes the free list and the load back to the arena.
    #[inline(always)]
    pub fn close(self) {
        (*self.noted.0, *self.noted.1) = (self.free, self.load);
    }

    /// Appends a packet of `length` bytes to `list`, in a previously used slot. If no such slot is free,
    /// returns the packet as an error.
    #[inline(always)]
    pub fn push(
        &mut self,
        list: &mut List,
        (item, length, flow): (T, u32, F),
        now: Instant,
    ) -> Result<(), T> {
        let index = self.free;
        let Some(slot) = self.slots.get_mut(index as usize) else { return Err(item) };
        self.free = slot.next;
        slot.fill(item, now, length, flow);
        slot.next = NONE;
        let load = Load::of_packet(length);
        (self.load, list.load) = (self.load.plus(load), list.load.plus(load));
        let last = std::mem::replace(&mut list.tail, index);
        match self.slots.get_mut(last as usize) {
            Some(last) => last.next = index,
            None => list.head = index,
        }
        Ok(())
    }

    /// Takes up to `most` packets from the head of `list`, while `wanted` accepts the next packet's length.
    /// Passes the packets to `out` and returns their load. Their slots become free in list order.
    #[inline(always)]
    pub fn pop_while(
        &mut self,
        list: &mut List,
        most: usize,
        mut wanted: impl FnMut(u32) -> bool,
        mut out: impl FnMut(T),
    ) -> Load {
        let (first, mut head, mut last, mut gone, mut left) =
            (list.head, list.head, NONE, Load::NOTHING, most);
        while left > 0
            && let Some(slot) = self.slots.get_mut(head as usize)
            && wanted(slot.length)
            && let Some(item) = slot.item.take()
        {
            gone = gone.plus(Load::of_packet(slot.length));
            (last, head) = (head, slot.next);
            left -= 1;
            out(item);
        }
        if let Some(slot) = self.slots.get_mut(last as usize) {
            slot.next = std::mem::replace(&mut self.free, first);
            self.shorten(list, head, gone);
        }
        gone
    }

    /// Takes packets from the head of `list` while `wanted` accepts the next one. Passes the packets to `out`
    /// and returns their load. Their slots become free in reverse order. So the slots of a list whose packets
    /// leave and arrive in batches stay in ascending or descending order: [`Arena::prefetch_run`] finds them.
    #[inline(always)]
    pub fn pop_wanted(
        &mut self,
        list: &mut List,
        mut wanted: impl FnMut(&T) -> bool,
        mut out: impl FnMut(T),
    ) -> Load {
        let (mut head, mut gone) = (list.head, Load::NOTHING);
        while let Some(slot) = self.slots.get_mut(head as usize)
            && slot.item.as_ref().is_some_and(&mut wanted)
            && let Some(item) = slot.item.take()
        {
            gone = gone.plus(Load::of_packet(slot.length));
            let next = std::mem::replace(&mut slot.next, self.free);
            self.free = std::mem::replace(&mut head, next);
            out(item);
        }
        self.shorten(list, head, gone);
        gone
    }

    /// Ends the removal of packets with the load `gone` from the front of `list`, before `head`.
    #[inline(always)]
    fn shorten(&mut self, list: &mut List, head: u32, gone: Load) {
        list.head = head;
        if head == NONE {
            list.tail = NONE;
        }
        (self.load, list.load) = (self.load.minus(gone), list.load.minus(gone));
    }
}
