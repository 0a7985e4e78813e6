//! What routes and filters send: counted where packets are given to the queues of ports, and where they leave them.
//!
//! A packet counts once, when its port's queue gets it: with the route that is noted on it, which has a number of its own
//! among the first [`ROUTES`], and with the filters of the path that it [counts for](millrace_packet::Annotations::counts_for).
//! As a rule the device takes it in the same turn, and then that is all. So what is counted beside that is what does *not* leave
//! at once: packets in a scheduler, packets that a full device has left in the queue at the end of a turn, and packets that
//! are dropped there. What was sent is the rest ([`QueueAccount::sent`]); between two turns it is exact.

use millrace_packet::{DropReason, Packet};
use millrace_plugin::{EMPTY_PATH, WorkerPlugins};
use millrace_units::{Amount, NextHopIndex, QueueAccount};

use crate::commands::WaitingRoutes;
use crate::drop_log::DropLog;
use crate::gate_tables::WorkerTable;
use crate::route::NO_ROUTE;
use crate::work::Accounts;

/// Numbers of routes below this are counted, each for itself.
pub const ROUTES: u32 = 1 << 16;
/// Routes that are asked about between two batches of packets.
const WAITING_AT_ONCE: usize = 4096;
/// Routes whose accounts are cleared between two batches: 48 bytes each are written.
const CLEARED_AT_ONCE: usize = 4096;

/// What waits of a route, and what was dropped.
#[derive(Clone, Copy, Debug, Default)]
struct Behind {
    waiting: Amount,
    dropped: Amount,
}

/// The accounts of routes, by their numbers.
#[derive(Debug)]
pub(crate) struct RouteAccounts {
    /// All that most packets need: four routes in a cache line.
    queued: Vec<Amount>,
    behind: Vec<Behind>,
}

impl Default for RouteAccounts {
    fn default() -> Self {
        let (mut queued, mut behind) = (Vec::new(), Vec::new());
        // Nothing is moved when there are more of them, which packets would have to wait for. What there is no memory for now is asked
        // for when it is needed.
        let _ = queued.try_reserve_exact(ROUTES as usize);
        let _ = behind.try_reserve_exact(ROUTES as usize);
        Self { queued, behind }
    }
}

impl RouteAccounts {
    /// The number means a route that nothing was counted of so far.
    pub fn begin(&mut self, route: NextHopIndex) {
        let index = route.index();
        if index >= ROUTES as usize {
            return;
        }
        if self.queued.len() <= index {
            self.queued.resize(index + 1, Amount::default());
            self.behind.resize(index + 1, Behind::default());
        }
        if let (Some(queued), Some(behind)) = (self.queued.get_mut(index), self.behind.get_mut(index)) {
            (*queued, *behind) = (Amount::default(), Behind::default());
        }
    }

    /// Counts what was given to queues, or sent where there is none.
    #[inline(always)]
    pub fn queued(&mut self, route: NextHopIndex, amount: Amount) {
        if let Some(queued) = self.queued.get_mut(route.index()) {
            *queued += amount;
        }
    }

    /// The account of a route; empty for a number without one.
    pub fn account(&self, route: NextHopIndex) -> QueueAccount {
        let index = route.index();
        let Behind { waiting, dropped } = self.behind.get(index).copied().unwrap_or_default();
        QueueAccount { queued: self.queued.get(index).copied().unwrap_or_default(), waiting, dropped }
    }

    /// The routes of which packets wait in queues, of a bounded number from one on.
    pub fn waiting(&self, from: NextHopIndex) -> WaitingRoutes {
        let rest = self.behind.get(from.index()..).unwrap_or_default();
        let waits = |(_, behind): &(u32, &Behind)| behind.waiting.packets > 0;
        let waiting = (from.0..).zip(rest).take(WAITING_AT_ONCE).filter(waits);
        let next = (rest.len() > WAITING_AT_ONCE).then(|| NextHopIndex(from.0 + WAITING_AT_ONCE as u32));
        (waiting.map(|(index, _)| NextHopIndex(index)).collect(), next)
    }

    /// Counts a bounded number of routes from nothing again, from one on. Returns where the next ones begin.
    pub fn clear(&mut self, from: NextHopIndex) -> Option<NextHopIndex> {
        let end = self.queued.len().min(from.index().saturating_add(CLEARED_AT_ONCE));
        let all = self.queued.iter_mut().zip(&mut self.behind);
        for (queued, behind) in all.take(end).skip(from.index()) {
            (*queued, behind.dropped) = (behind.waiting, Amount::default());
        }
        (end < self.queued.len()).then_some(NextHopIndex(end as u32))
    }
}

/// Where packets are counted that come to queues and leave them.
pub(crate) struct Ledger<'a> {
    pub routes: &'a mut RouteAccounts,
    pub filters: &'a mut WorkerPlugins<WorkerTable>,
}

impl Ledger<'_> {
    /// A packet of so many bytes is given to a port's queue.
    #[inline(always)]
    pub fn queued(&mut self, packet: &Packet, bytes: usize) {
        self.amount_queued((packet.next_hop, packet.counts_for), Amount::packet(bytes));
    }

    /// Packets are given to a port's queue; returns their bytes. Those that count alike, and come one after the other, are counted
    /// together.
    #[inline]
    pub fn all_queued<'p>(&mut self, packets: impl Iterator<Item = &'p Packet>) -> u64 {
        let (mut bytes, mut alike) = (0, Amount::default());
        let mut accounts = (NO_ROUTE, EMPTY_PATH);
        for packet in packets {
            let own = (packet.next_hop, packet.counts_for);
            if own != accounts {
                self.amount_queued(accounts, std::mem::take(&mut alike));
                accounts = own;
            }
            let amount = Amount::packet(packet.len());
            alike += amount;
            bytes += amount.bytes;
        }
        self.amount_queued(accounts, alike);
        bytes
    }

    /// So much is given to a port's queue that counts alike.
    #[inline]
    pub fn amount_queued(&mut self, (route, filters): Accounts, amount: Amount) {
        self.routes.queued(route, amount);
        if filters != EMPTY_PATH {
            self.filters.count(filters, |account| account.queued += amount);
        }
    }

    /// It does not leave at once.
    pub fn waits(&mut self, packet: &Packet) {
        let amount = Amount::packet(packet.len());
        if let Some(behind) = self.routes.behind.get_mut(packet.next_hop.index()) {
            behind.waiting += amount;
        }
        if packet.counts_for != EMPTY_PATH {
            self.filters.count(packet.counts_for, |account| account.waiting += amount);
        }
    }

    /// One that waited goes on. Where that was not noted, as for a packet that another worker handed over before this one knew
    /// its filter, nothing is taken off.
    pub fn goes_on(&mut self, packet: &Packet) {
        let amount = Amount::packet(packet.len());
        if let Some(behind) = self.routes.behind.get_mut(packet.next_hop.index()) {
            behind.waiting = behind.waiting.less(amount);
        }
        if packet.counts_for != EMPTY_PATH {
            self.filters.count(packet.counts_for, |account| account.waiting = account.waiting.less(amount));
        }
    }

    /// One that did not wait, or does so no longer, is dropped.
    pub fn dropped(&mut self, packet: &Packet) {
        let amount = Amount::packet(packet.len());
        if let Some(behind) = self.routes.behind.get_mut(packet.next_hop.index()) {
            behind.dropped += amount;
        }
        if packet.counts_for != EMPTY_PATH {
            self.filters.count(packet.counts_for, |account| account.dropped += amount);
        }
    }
}

/// Packets on their way from a port's queue to its device.
pub(crate) struct Departures<'a> {
    pub ledger: Ledger<'a>,
    /// So many of the queue's first packets are known to wait.
    pub noted: &'a mut usize,
    /// Where those are noted that don't leave.
    pub log: &'a mut DropLog,
}

impl Departures<'_> {
    /// The first packets of the queue leave.
    #[inline]
    pub fn leave(&mut self, packets: &[Packet]) {
        if *self.noted > 0 {
            let noted = packets.len().min(*self.noted);
            packets.iter().take(noted).for_each(|packet| self.ledger.goes_on(packet));
            *self.noted -= noted;
        }
    }

    /// The packets of the queue from the one of that number on are dropped, for a reason.
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

    /// What is left in the queue waits.
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
    use millrace_testkit::Random;

    use super::*;

    #[test]
    fn accounts_are_cleared_in_pieces_and_what_waits_still_does() {
        let mut accounts = RouteAccounts::default();
        let (queued, waiting) = (Amount { packets: 9, bytes: 900 }, Amount { packets: 2, bytes: 200 });
        let all = 2 * CLEARED_AT_ONCE as u32 + 1;
        for route in 0..all {
            accounts.begin(NextHopIndex(route));
            accounts.queued(NextHopIndex(route), queued);
            accounts.behind[route as usize] = Behind { waiting, dropped: Amount::default() };
        }
        let (mut from, mut pieces) = (Some(NextHopIndex(0)), 0);
        while let Some(next) = from {
            from = accounts.clear(next);
            pieces += 1;
        }
        assert_eq!(pieces, 3);
        let cleared = |route| accounts.account(NextHopIndex(route)).queued == waiting;
        assert!((0..all).all(cleared), "sent = queued - waiting - dropped is 0");
        assert_eq!(accounts.clear(NextHopIndex(all + 9)), None);
    }

    #[test]
    fn what_a_full_device_leaves_waits_until_it_is_sent_or_dropped() {
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
            // Now the device takes some, and of the rest not all may wait.
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

    #[test]
    fn a_number_that_is_given_anew_counts_from_nothing_and_numbers_beyond_the_limit_do_not() {
        let mut routes = RouteAccounts::default();
        let amount = Amount { packets: 3, bytes: 300 };
        for route in [NextHopIndex(7), NextHopIndex(ROUTES), NextHopIndex(u32::MAX)] {
            routes.begin(route);
            routes.queued(route, amount);
        }
        assert_eq!(routes.account(NextHopIndex(7)).sent(), amount);
        assert_eq!(routes.account(NextHopIndex(ROUTES)), QueueAccount::default());
        assert_eq!(routes.queued.len(), 8);
        routes.begin(NextHopIndex(7));
        assert_eq!(routes.account(NextHopIndex(7)), QueueAccount::default());
    }
}
