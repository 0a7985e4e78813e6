//! Transmit stage: moves packets from a port's queue to its device as far as the device has room. The rest
//! waits in order.

use std::collections::VecDeque;

use millrace_packet::{BATCH_SIZE, Batch, DropReason, Packet, Pool};
use millrace_port::Port;
use millrace_units::{Amount, Instant};

use crate::accounts::Ledger;
use crate::egress::departures::Departures;
use crate::egress::queueing::{EgressScratch, Queueing};
use crate::observe::Observation;
use crate::ports::{DeviceId, QUEUE_LIMIT};

/// Returns the maximum number of packets that wait at a port whose device is full. With this limit, the ports
/// together occupy half of the packet memory at most.
pub(crate) fn most_waiting(pool: &Pool, ports: usize) -> usize {
    (pool.capacity() as usize / 2 / ports.max(1)).clamp(1, QUEUE_LIMIT)
}

/// Returns the sum of packets and bytes.
fn amount_of<'a>(packets: impl Iterator<Item = &'a Packet>) -> Amount {
    let mut sum = Amount::default();
    packets.for_each(|packet| sum += Amount::packet(packet.len()));
    sum
}

/// Releases due packets from each port's scheduler, and calls `send` for each port with a non-empty queue.
/// Packets that `send` leaves in the queue wait there. `send` returns the amount that it dropped for lack of
/// room, or `None` if the device is gone. If the device is gone, all packets of the queue are dropped.
pub(crate) fn for_each_queue(
    queueing: &mut Queueing<'_>,
    now: Instant,
    mut send: impl FnMut(DeviceId, &mut VecDeque<Packet>, &mut Departures<'_>) -> Option<Amount>,
) {
    let Queueing { ports, gates, scratch: EgressScratch { queue_drops, .. }, observation, .. } = queueing;
    let Observation { route_accounts, totals, drop_log, trace, .. } = &mut **observation;
    // Few packets are traced, so queues are searched for them only while the router holds a traced packet.
    let mut trace = trace.as_mut().filter(|tracer| tracer.has_live());
    for (id, entry) in ports.iter_mut() {
        let mut ledger = Ledger { routes: route_accounts, filters: gates.plugins_mut() };
        entry.release(now, queue_drops, &mut ledger);
        if entry.queue.is_empty() {
            continue;
        }
        let before = Amount { packets: entry.queue.len() as u64, bytes: entry.queue_bytes };
        if let Some(tracer) = &mut trace {
            tracer.look_for(&entry.queue);
        }
        let mut departures = Departures { ledger, noted: &mut entry.noted, log: drop_log };
        let (beyond, reason) = match send(entry.settings.device, &mut entry.queue, &mut departures) {
            Some(beyond) => (beyond, DropReason::QueueFull),
            None => {
                departures.lose(0, entry.queue.iter(), DropReason::PortDown);
                entry.queue.clear();
                (before, DropReason::PortDown)
            }
        };
        departures.stay(entry.queue.iter());
        let left = amount_of(entry.queue.iter());
        let sent = before.packets - left.packets - beyond.packets;
        entry.count.tx_packets += sent;
        entry.count.tx_bytes += before.bytes - left.bytes - beyond.bytes;
        if let Some(tracer) = &mut trace {
            tracer.left(id, sent, left.packets, reason, now);
        }
        entry.count.drops.add(reason, beyond.packets);
        entry.queue_bytes = left.bytes;
        totals.transmitted += sent;
        totals.dropped += beyond.packets;
    }
    if let Some(tracer) = trace {
        tracer.looked();
    }
    if !queueing.scratch.queue_drops.is_empty() {
        queueing.drop_queued();
    }
}

/// Gives a device the packets of a queue, in batches, until the queue is empty or the device is full. If the
/// device is full, the first `most` of the remaining packets wait, and the rest is dropped. Returns the
/// amount dropped. `outgoing` is scratch memory, empty before and after the call.
pub(crate) fn transmit(
    port: &mut dyn Port,
    (pool, now): (&Pool, Instant),
    (queue, most): (&mut VecDeque<Packet>, usize),
    departures: &mut Departures<'_>,
    outgoing: &mut Batch,
) -> Amount {
    while !queue.is_empty() {
        let mut room = port.room();
        if room < queue.len().min(BATCH_SIZE) {
            port.flush(pool, now);
            room = port.room();
        }
        let batch = queue.len().min(BATCH_SIZE).min(room);
        if batch == 0 {
            let beyond = amount_of(queue.iter().skip(most));
            departures.lose(most, queue.iter(), DropReason::QueueFull);
            queue.truncate(most);
            return beyond;
        }
        let mut give = |outgoing: &mut Batch| {
            departures.leave(outgoing);
            port.transmit(pool, now, outgoing);
        };
        if batch == queue.len() {
            outgoing.with_all_of(queue, give);
        } else {
            outgoing.take_from(queue, batch);
            give(outgoing);
            outgoing.clear();
        }
    }
    Amount::default()
}

#[cfg(test)]
mod tests {
    use std::os::fd::RawFd;

    use millrace_plugin::WorkerPlugins;
    use millrace_port::{Capabilities, PortCounters};

    use super::*;
    use crate::accounts::RouteAccounts;
    use crate::observe::drop_log::DropLog;

    /// Device with a transmit ring of `places` descriptors; each flush sends as many of its packets as `wire`
    /// allows.
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
    fn frames_refused_by_a_full_device_wait_in_order() {
        let pool = Pool::new(64).unwrap();
        let mut port = Narrow { ring: VecDeque::new(), places: 4, wire: 3, sent: Vec::new() };
        let mut queue: VecDeque<Packet> =
            (0..20).map(|number| pool.packet_from(&[number; 60]).unwrap()).collect();
        let mut outgoing = Batch::new();
        let at = (&pool, Instant::ZERO);
        let nothing = Amount::default();
        let (mut routes, mut filters, mut noted) = (RouteAccounts::default(), WorkerPlugins::new(), 0);
        let ledger = Ledger { routes: &mut routes, filters: &mut filters };
        let mut log = DropLog::default();
        let mut departures = Departures { ledger, noted: &mut noted, log: &mut log };
        assert_eq!(transmit(&mut port, at, (&mut queue, 13), &mut departures, &mut outgoing), nothing);
        // Four packets filled the ring. The device sent three of them, and the ring took three more.
        assert_eq!(queue.len(), 13);
        assert_eq!((port.sent.as_slice(), port.ring.len()), (&[0, 1, 2][..], 4));
        // A device that takes no packets loses none.
        assert_eq!(transmit(&mut port, at, (&mut queue, 13), &mut departures, &mut outgoing), nothing);
        assert_eq!((queue.len(), pool.in_use()), (13, 13));
        // Packets beyond the limit are dropped from the end of the queue, and counted.
        let beyond = transmit(&mut port, at, (&mut queue, 10), &mut departures, &mut outgoing);
        assert_eq!((beyond, queue.len()), (Amount { packets: 3, bytes: 180 }, 10));
        assert_eq!(pool.in_use(), 10);
        port.wire = usize::MAX;
        assert_eq!(transmit(&mut port, at, (&mut queue, 0), &mut departures, &mut outgoing), nothing);
        port.flush(&pool, Instant::ZERO);
        assert_eq!((queue.len(), pool.in_use()), (0, 0));
        assert_eq!(port.sent, (0..17).collect::<Vec<u8>>());
    }

    #[test]
    fn ports_that_are_full_leave_half_of_the_memory() {
        let pool = Pool::new(1024).unwrap();
        assert_eq!([1, 4, 100_000].map(|ports| most_waiting(&pool, ports)), [512, 128, 1]);
        assert_eq!(most_waiting(&Pool::new(1 << 14).unwrap(), 2), QUEUE_LIMIT);
    }
}
