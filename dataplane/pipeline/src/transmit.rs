//! From a port's queue to its device, as much as that has room for: the rest waits, in order.

use std::collections::VecDeque;

use millrace_packet::{BATCH_SIZE, Batch, DropReason, Packet, Pool};
use millrace_port::Port;
use millrace_units::Instant;

use crate::ports::{PortCount, QUEUE_LIMIT};

/// Packets that may wait at a port whose device is full: no more than leave half of the packet memory to others, where so
/// many ports do the same.
pub(crate) fn most_waiting(pool: &Pool, ports: usize) -> usize {
    (pool.capacity() as usize / 2 / ports.max(1)).clamp(1, QUEUE_LIMIT)
}

/// Gives a device the packets of a queue, in batches, until the queue is empty or the device full. Of what is left then, `most`
/// packets wait; those behind are dropped. `outgoing` is empty before and after.
pub(crate) fn transmit(
    port: &mut dyn Port,
    (pool, now): (&Pool, Instant),
    (queue, most): (&mut VecDeque<Packet>, usize),
    count: &mut PortCount,
    outgoing: &mut Batch,
) {
    while !queue.is_empty() {
        let mut room = port.room();
        if room < queue.len().min(BATCH_SIZE) {
            port.flush(pool, now);
            room = port.room();
        }
        let batch = queue.len().min(BATCH_SIZE).min(room);
        if batch == 0 {
            let left = queue.len().min(most);
            count.drops.add(DropReason::QueueFull, (queue.len() - left) as u64);
            queue.truncate(left);
            return;
        }
        for packet in queue.drain(..batch) {
            count.tx_packets += 1;
            count.tx_bytes += packet.len() as u64;
            // The batch was empty and takes as many as were drained.
            let _ = outgoing.push(packet);
        }
        port.transmit(pool, now, outgoing);
        outgoing.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::RawFd;

    use millrace_port::{Capabilities, PortCounters};

    use super::*;

    /// A device with a ring of so many places, which a flush empties as far as its wire takes packets.
    struct Narrow {
        ring: VecDeque<u8>,
        places: usize,
        wire: usize,
        sent: Vec<u8>,
    }

    impl Port for Narrow {
        fn receive(&mut self, _pool: &Pool, _now: Instant, _batch: &mut Batch) {}

        fn transmit(&mut self, _pool: &Pool, _now: Instant, batch: &mut Batch) {
            self.ring.extend(batch.drain().map(|packet| packet.data()[0]));
            assert!(self.ring.len() <= self.places, "more than there was room for");
        }

        fn room(&mut self) -> usize {
            self.places - self.ring.len()
        }

        fn flush(&mut self, _pool: &Pool, _now: Instant) {
            let taken = self.wire.min(self.ring.len());
            self.wire -= taken;
            self.sent.extend(self.ring.drain(..taken));
        }

        fn counters(&mut self) -> PortCounters {
            PortCounters::default()
        }

        fn capabilities(&self) -> &Capabilities {
            unreachable!("nobody asks")
        }

        fn descriptor(&self) -> Option<RawFd> {
            None
        }
    }

    #[test]
    fn what_a_full_device_does_not_take_waits_in_order() {
        let pool = Pool::new(64).unwrap();
        let mut port = Narrow { ring: VecDeque::new(), places: 4, wire: 3, sent: Vec::new() };
        let mut queue: VecDeque<Packet> =
            (0..20).map(|number| pool.packet_from(&[number; 60]).unwrap()).collect();
        let (mut count, mut outgoing) = (PortCount::default(), Batch::new());
        let at = (&pool, Instant::ZERO);
        transmit(&mut port, at, (&mut queue, 13), &mut count, &mut outgoing);
        // Four filled the ring, of which three left: there was room for three more.
        assert_eq!((queue.len(), count.tx_packets, count.tx_bytes), (13, 7, 420));
        assert_eq!((port.sent.as_slice(), port.ring.len()), (&[0, 1, 2][..], 4));
        // A device that takes nothing more is left alone, and loses nothing.
        transmit(&mut port, at, (&mut queue, 13), &mut count, &mut outgoing);
        assert_eq!((queue.len(), count.tx_packets, pool.in_use()), (13, 7, 13));
        assert_eq!(count.drops.get(DropReason::QueueFull), 0);
        // What is more than may wait is dropped from behind, and counted.
        transmit(&mut port, at, (&mut queue, 10), &mut count, &mut outgoing);
        assert_eq!((queue.len(), count.drops.get(DropReason::QueueFull), pool.in_use()), (10, 3, 10));
        port.wire = usize::MAX;
        transmit(&mut port, at, (&mut queue, 0), &mut count, &mut outgoing);
        port.flush(&pool, Instant::ZERO);
        assert_eq!((queue.len(), count.tx_packets, pool.in_use()), (0, 17, 0));
        assert_eq!(port.sent, (0..17).collect::<Vec<u8>>());
    }

    #[test]
    fn ports_that_are_full_leave_half_of_the_memory() {
        let pool = Pool::new(1024).unwrap();
        assert_eq!([1, 4, 100_000].map(|ports| most_waiting(&pool, ports)), [512, 128, 1]);
        assert_eq!(most_waiting(&Pool::new(1 << 14).unwrap(), 2), QUEUE_LIMIT);
    }
}
