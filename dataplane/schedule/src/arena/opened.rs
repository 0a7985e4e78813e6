//! An arena that is at hand for a batch: what changes with each packet is held in registers, and written back once.

use millrace_units::Instant;

use super::{Arena, List, Load, NONE, Slot};
use crate::FlowNumber;

/// The slots of an arena while a batch goes in or out. Nothing is noted in the arena before [`close`](Self::close).
#[derive(Debug)]
pub(crate) struct Opened<'a, T> {
    slots: &'a mut [Slot<T>],
    free: u32,
    load: Load,
    noted: (&'a mut u32, &'a mut Load),
}

impl<T> Arena<T> {
    /// Borrows the arena for a batch; [`close`](Opened::close) writes the changes back.
    #[inline(always)]
    pub fn open(&mut self) -> Opened<'_, T> {
        let (free, load) = (self.free, self.load);
        Opened { slots: &mut self.slots, free, load, noted: (&mut self.free, &mut self.load) }
    }
}

impl<T> Opened<'_, T> {
    /// What the arena holds by now.
    #[inline(always)]
    pub fn load(&self) -> Load {
        self.load
    }

    /// Notes in the arena what became of it.
    #[inline(always)]
    pub fn close(self) {
        (*self.noted.0, *self.noted.1) = (self.free, self.load);
    }

    /// Puts a packet of `length` bytes at the end of `list`, into a slot that was used before; it comes back if there is none.
    #[inline(always)]
    pub fn push(
        &mut self,
        list: &mut List,
        (item, length, flow): (T, u32, FlowNumber),
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

    /// Takes up to `most` packets from the head of `list`, each as long as `wanted` says so of its length, and gives them to
    /// `out`. Returns what they were. Their slots become free in the order in which they stand.
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
            list.head = head;
            if head == NONE {
                list.tail = NONE;
            }
            (self.load, list.load) = (self.load.minus(gone), list.load.minus(gone));
        }
        gone
    }
}
