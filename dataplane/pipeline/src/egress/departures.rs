//! Departures of packets from the queues of ports, counted for routes and filters.

use millrace_packet::{DropReason, Packet};

use crate::accounts::Ledger;
use crate::observe::drop_log::DropLog;

/// Counter of the packets in a port's queue: those that leave for the device, those that wait in the queue,
/// and those that are dropped.
pub(crate) struct Departures<'a> {
    pub ledger: Ledger<'a>,
    /// Number of packets at the head of the queue that their accounts already count as waiting.
    pub noted: &'a mut usize,
    /// Log of dropped packets.
    pub log: &'a mut DropLog,
}

impl Departures<'_> {
    /// Counts the departure of `packets`, the first packets of the queue.
    #[inline]
    pub fn leave(&mut self, packets: &[Packet]) {
        if *self.noted > 0 {
            let noted = packets.len().min(*self.noted);
            packets.iter().take(noted).for_each(|packet| self.ledger.goes_on(packet));
            *self.noted -= noted;
        }
    }

    /// Counts the drop of the queue's packets from index `from` on.
    pub fn lose<'p>(&mut self, from: usize, packets: impl Iterator<Item = &'p Packet>, reason: DropReason) {
        for (number, packet) in packets.enumerate().skip(from) {
            self.log.note(packet, reason, self.ledger.filters);
            if number < *self.noted {
                self.ledger.goes_on(packet);
            }
            self.ledger.dropped(packet);
        }
        *self.noted = (*self.noted).min(from);
    }

    /// Counts the packets left in the queue as waiting.
    pub fn stay<'p>(&mut self, packets: impl ExactSizeIterator<Item = &'p Packet>) {
        let count = packets.len();
        packets.skip(*self.noted).for_each(|packet| self.ledger.waits(packet));
        *self.noted = count;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use millrace_packet::{Batch, Pool};
    use millrace_plugin::WorkerPlugins;
    use millrace_testkit::Random;
    use millrace_units::{Amount, NextHopIndex, QueueAccount};

    use super::*;
    use crate::accounts::RouteAccounts;

    #[test]
    fn frames_left_by_a_full_device_wait_until_sent_or_dropped() {
        let pool = Pool::new(1024).unwrap();
        let (mut routes, mut filters) = (RouteAccounts::default(), WorkerPlugins::new());
        (0..3).for_each(|route| routes.begin(NextHopIndex(route)));
        let (mut queue, mut noted, mut random) = (VecDeque::new(), 0, Random::new(7));
        let mut seen = [QueueAccount::default(); 3];
        for _ in 0..2000 {
            let mut ledger = Ledger { routes: &mut routes, filters: &mut filters };
            for _ in 0..random.below(20) {
                let route = random.below(3);
                let mut packet = pool.packet_from(&vec![0; 60 + route]).unwrap();
                packet.next_hop = NextHopIndex(route as u32);
                ledger.queued(&packet, packet.len());
                seen[route].queued += Amount::packet(packet.len());
                queue.push_back(packet);
            }
            // The device takes some packets from the head, and some of the rest are dropped.
            let mut log = DropLog::default();
            let mut departures = Departures { ledger, noted: &mut noted, log: &mut log };
            let mut batch = Batch::new();
            batch.take_from(&mut queue, random.below(20));
            departures.leave(&batch);
            let most = random.below(60);
            if queue.len() > most {
                departures.lose(most, queue.iter(), DropReason::QueueFull);
                for packet in queue.drain(most..) {
                    seen[packet.next_hop.index()].dropped += Amount::packet(packet.len());
                }
            }
            departures.stay(queue.iter());
            for (route, seen) in (0..).map(NextHopIndex).zip(&mut seen) {
                seen.waiting = Amount::default();
                let own = queue.iter().filter(|packet| packet.next_hop == route);
                own.for_each(|packet| seen.waiting += Amount::packet(packet.len()));
                assert_eq!(routes.account(route), *seen);
            }
            let waits = |route: &NextHopIndex| seen[route.index()].waiting.packets > 0;
            let waiting: Vec<_> = (0..3).map(NextHopIndex).filter(waits).collect();
            assert_eq!(routes.waiting(NextHopIndex(0)), (waiting, None));
        }
        assert!(seen.iter().all(|seen| seen.dropped.packets > 100 && seen.sent().packets > 100), "{seen:?}");
    }
}
