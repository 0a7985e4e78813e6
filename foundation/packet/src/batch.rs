//! Batch: up to 256 packets that pass a stage together.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};

use crate::Packet;

/// Maximum number of packets in a batch.
pub const BATCH_SIZE: usize = 256;

/// Ordered group of owned packets. A batch never exceeds [`BATCH_SIZE`] and never allocates after its
/// creation.
#[derive(Debug)]
pub struct Batch {
    packets: Vec<Packet>,
    limit: usize,
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl Batch {
    /// Returns an empty batch.
    pub fn new() -> Self {
        Self { packets: Vec::with_capacity(BATCH_SIZE), limit: BATCH_SIZE }
    }

    /// Limits the batch to `limit` packets, at most [`BATCH_SIZE`]. Packets above the limit stay in the
    /// batch.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit.min(BATCH_SIZE);
    }

    /// Returns the number of packets for which the batch has room.
    #[inline]
    pub fn room(&self) -> usize {
        self.limit.saturating_sub(self.packets.len())
    }

    /// Appends a packet.
    ///
    /// # Errors
    /// Returns the packet if the batch is full.
    #[inline]
    pub fn push(&mut self, packet: Packet) -> Result<(), Packet> {
        if self.packets.len() >= self.limit {
            return Err(packet);
        }
        self.packets.push(packet);
        Ok(())
    }

    /// Moves the first packets of a queue into the batch: at most `most`, and as many as there is room for.
    /// Returns their number.
    #[inline]
    pub fn take_from(&mut self, queue: &mut VecDeque<Packet>, most: usize) -> usize {
        let count = self.room().min(queue.len()).min(most);
        self.packets.extend(queue.drain(..count));
        count
    }

    /// Moves all packets of a queue into the batch at once and calls `work`. Then drops the packets that
    /// `work` has left, so that batch and queue are empty. The batch borrows the queue's memory, so no packet
    /// is copied. The batch must be empty before.
    #[inline]
    pub fn with_all_of(&mut self, queue: &mut VecDeque<Packet>, work: impl FnOnce(&mut Self)) {
        debug_assert!(self.packets.is_empty() && queue.len() <= self.limit);
        let own = std::mem::replace(&mut self.packets, Vec::from(std::mem::take(queue)));
        work(self);
        self.packets.clear();
        *queue = VecDeque::from(std::mem::replace(&mut self.packets, own));
    }

    /// Removes all packets, first to last.
    #[inline]
    pub fn drain(&mut self) -> std::vec::Drain<'_, Packet> {
        self.packets.drain(..)
    }

    /// Removes the first `count` packets, or all if there are fewer.
    #[inline]
    pub fn drain_front(&mut self, count: usize) -> std::vec::Drain<'_, Packet> {
        let count = count.min(self.packets.len());
        self.packets.drain(..count)
    }

    /// Moves the packets of `other` from position `from` on into this batch, as many as there is room for.
    /// Drops the rest.
    #[inline]
    pub fn take_tail(&mut self, other: &mut Self, from: usize) {
        let room = self.room();
        self.packets.extend(other.packets.drain(from..).take(room));
    }

    /// Removes the packet at a position. Until [`put_back`](Self::put_back), this position holds the batch's
    /// last packet.
    ///
    /// # Panics
    /// When there is no packet at this position.
    #[inline]
    pub fn take_out(&mut self, place: usize) -> Packet {
        self.packets.swap_remove(place)
    }

    /// Puts back the packet that [`take_out`](Self::take_out) removed from this position. No packet may be
    /// added or removed in between.
    #[inline]
    pub fn put_back(&mut self, place: usize, packet: Packet) {
        self.packets.push(packet);
        let last = self.packets.len() - 1;
        self.packets.swap(place.min(last), last);
    }

    /// Returns the packet at a position. Positions come from loops over the batch and from lists of its
    /// packets, never from packet contents.
    ///
    /// # Panics
    /// When there is no packet at this position.
    #[inline(always)]
    #[expect(
        clippy::indexing_slicing,
        reason = "the one place where packets of a batch are indexed, by places in it"
    )]
    pub fn at(&self, place: usize) -> &Packet {
        &self.packets[place]
    }

    /// Returns the packet at a position, mutable (see [`at`](Self::at)).
    ///
    /// # Panics
    /// When there is no packet at this position.
    #[inline(always)]
    #[expect(clippy::indexing_slicing, reason = "as of `at`")]
    pub fn at_mut(&mut self, place: usize) -> &mut Packet {
        &mut self.packets[place]
    }

    /// Removes and returns the last packet; `None` if the batch is empty.
    #[inline]
    pub fn pop(&mut self) -> Option<Packet> {
        self.packets.pop()
    }

    /// Drops all packets, so that their memory frames return to the pool.
    #[inline]
    pub fn clear(&mut self) {
        self.packets.clear();
    }
}

impl Deref for Batch {
    type Target = [Packet];

    #[inline]
    fn deref(&self) -> &[Packet] {
        &self.packets
    }
}

impl DerefMut for Batch {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Packet] {
        &mut self.packets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pool;

    #[test]
    fn a_full_batch_gives_the_packet_back() {
        let pool = Pool::new(BATCH_SIZE as u32 + 1).unwrap();
        let mut batch = Batch::new();
        while batch.room() > 0 {
            batch.push(pool.allocate().unwrap()).unwrap();
        }
        assert!(batch.push(pool.allocate().unwrap()).is_err());
        batch.clear();
        assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn a_batch_takes_the_first_of_a_queue_in_order() {
        let pool = Pool::new(4).unwrap();
        let mut queue: VecDeque<_> = [b"a", b"b", b"c"].map(|byte| pool.packet_from(byte).unwrap()).into();
        let mut batch = Batch::new();
        batch.set_limit(2);
        assert_eq!((batch.take_from(&mut queue, 9), batch.take_from(&mut queue, 9)), (2, 0));
        assert_eq!((batch[0].data(), batch[1].data(), queue[0].data()), (&b"a"[..], &b"b"[..], &b"c"[..]));
    }

    #[test]
    fn queue_taken_at_once_keeps_its_memory() {
        let pool = Pool::new(8).unwrap();
        let mut queue = VecDeque::with_capacity(8);
        let mut batch = Batch::new();
        // In each round, the queue's packets begin at another place of its ring buffer.
        for round in 0..20_usize {
            let count = round % 8;
            queue.extend((0..count).map(|number| pool.packet_from(&[number as u8]).unwrap()));
            if round % 3 == 0 {
                queue.pop_front();
            }
            let (expected, capacity) =
                (queue.iter().map(|packet| packet.data()[0]).collect::<Vec<_>>(), queue.capacity());
            batch.with_all_of(&mut queue, |batch| {
                assert_eq!(batch.iter().map(|packet| packet.data()[0]).collect::<Vec<_>>(), expected);
                batch.pop();
            });
            assert_eq!((batch.len(), queue.len(), queue.capacity(), pool.in_use()), (0, 0, capacity, 0));
            assert_eq!(batch.packets.capacity(), BATCH_SIZE);
        }
    }

    #[test]
    fn batch_takes_the_requested_number_of_packets() {
        let pool = Pool::new(8).unwrap();
        let mut batch = Batch::new();
        batch.set_limit(2);
        (0..2).for_each(|_| batch.push(pool.allocate().unwrap()).unwrap());
        assert!(batch.room() == 0 && batch.push(pool.allocate().unwrap()).is_err());
        batch.set_limit(1);
        assert_eq!((batch.len(), batch.room()), (2, 0));
        batch.set_limit(1000);
        assert_eq!(batch.room(), BATCH_SIZE - 2);
    }
}
