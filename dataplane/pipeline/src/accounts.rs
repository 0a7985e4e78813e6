//! Accounts of routes and filters: packets counted as they enter and leave the queues of ports.
//!
//! A packet is counted once, when it enters its port's queue. Its route has an account if the route number in
//! the packet's annotations is below [`ROUTES`]. The filters whose accounts count the packet are those of the
//! path in [`counts_for`](millrace_packet::Annotations::counts_for). Usually the device accepts the packet in
//! the same iteration, and nothing else is counted. The other counters concern packets that do *not* leave at
//! once: packets in a scheduler, packets that a full device leaves in the queue at the end of an iteration,
//! and packets dropped there. All other packets were sent ([`QueueAccount::sent`]); this number is exact
//! between two iterations.
//!
//! A packet for a port of another worker takes the keys of its filters' bindings along, and is counted at
//! that worker. The account of a filter ends with its binding. The account of a route ends with its route
//! number, which is reused only when no packet of the route waits in a queue.

use millrace_packet::Packet;
use millrace_plugin::{EMPTY_PATH, WorkerPlugins};
use millrace_units::{Amount, NextHopIndex, QueueAccount};

use crate::gate_tables::WorkerTable;
use crate::route_number::{NO_ROUTE, ROUTES};
use crate::work::Accounts;

/// Maximum number of routes reported between two batches.
const WAITING_AT_ONCE: usize = 4096;
/// Maximum number of accounts cleared between two batches; each takes a write of 48 bytes.
const CLEARED_AT_ONCE: usize = 4096;

/// Routes with waiting packets, and the first route number of the next command; `None` after the last route.
pub type WaitingRoutes = (Vec<NextHopIndex>, Option<NextHopIndex>);

/// Packets of a route that wait in queues, and packets of the route that queues have dropped.
#[derive(Clone, Copy, Debug, Default)]
struct Behind {
    waiting: Amount,
    dropped: Amount,
}

/// Accounts of routes, by route number.
#[derive(Debug)]
pub(crate) struct RouteAccounts {
    /// Packets and bytes put into queues. One cache line holds the amounts of four routes; most packets
    /// change no other counter.
    queued: Vec<Amount>,
    behind: Vec<Behind>,
}

impl Default for RouteAccounts {
    fn default() -> Self {
        let (mut queued, mut behind) = (Vec::new(), Vec::new());
        // The reserved memory saves later reallocations, which would delay packets. If the reservation fails,
        // the vectors grow on demand.
        let _ = queued.try_reserve_exact(ROUTES as usize);
        let _ = behind.try_reserve_exact(ROUTES as usize);
        Self { queued, behind }
    }
}

impl RouteAccounts {
    /// Starts an empty account for a route number that control assigns to a new route.
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

    /// Counts packets put into queues, or sent by the offload.
    #[inline(always)]
    pub fn queued(&mut self, route: NextHopIndex, amount: Amount) {
        if let Some(queued) = self.queued.get_mut(route.index()) {
            *queued += amount;
        }
    }

    /// Returns the account of a route; empty for a number without one.
    pub fn account(&self, route: NextHopIndex) -> QueueAccount {
        let index = route.index();
        let Behind { waiting, dropped } = self.behind.get(index).copied().unwrap_or_default();
        QueueAccount { queued: self.queued.get(index).copied().unwrap_or_default(), waiting, dropped }
    }

    /// Returns the routes with waiting packets among the first [`WAITING_AT_ONCE`] routes from number `from`
    /// on, and the first route number of the next call.
    pub fn waiting(&self, from: NextHopIndex) -> WaitingRoutes {
        let rest = self.behind.get(from.index()..).unwrap_or_default();
        let waits = |(_, behind): &(u32, &Behind)| behind.waiting.packets > 0;
        let waiting = (from.0..).zip(rest).take(WAITING_AT_ONCE).filter(waits);
        let next = (rest.len() > WAITING_AT_ONCE).then(|| NextHopIndex(from.0 + WAITING_AT_ONCE as u32));
        (waiting.map(|(index, _)| NextHopIndex(index)).collect(), next)
    }

    /// Clears the accounts of the first [`CLEARED_AT_ONCE`] routes from number `from` on. Returns the first
    /// route number of the next call; `None` after the last route.
    pub fn clear(&mut self, from: NextHopIndex) -> Option<NextHopIndex> {
        let end = self.queued.len().min(from.index().saturating_add(CLEARED_AT_ONCE));
        let all = self.queued.iter_mut().zip(&mut self.behind);
        for (queued, behind) in all.take(end).skip(from.index()) {
            (*queued, behind.dropped) = (behind.waiting, Amount::default());
        }
        (end < self.queued.len()).then_some(NextHopIndex(end as u32))
    }
}

/// Accounts of routes and filters that count packets as they enter and leave queues.
pub(crate) struct Ledger<'a> {
    pub routes: &'a mut RouteAccounts,
    pub filters: &'a mut WorkerPlugins<WorkerTable>,
}

impl Ledger<'_> {
    /// Counts a packet that enters a port's queue.
    #[inline(always)]
    pub fn queued(&mut self, packet: &Packet, bytes: usize) {
        self.amount_queued((packet.next_hop, packet.counts_for), Amount::packet(bytes));
    }

    /// Counts packets that enter a port's queue. Successive packets with the same accounts are counted
    /// together. Returns their bytes.
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

    /// Counts packets that enter a port's queue, in the accounts of the route and filters that they have in
    /// common.
    #[inline]
    pub fn amount_queued(&mut self, (route, filters): Accounts, amount: Amount) {
        self.routes.queued(route, amount);
        if filters != EMPTY_PATH {
            self.filters.count(filters, |account| account.queued += amount);
        }
    }

    /// Counts a packet as waiting, because it does not leave at once.
    pub fn waits(&mut self, packet: &Packet) {
        let amount = Amount::packet(packet.len());
        if let Some(behind) = self.routes.behind.get_mut(packet.next_hop.index()) {
            behind.waiting += amount;
        }
        if packet.counts_for != EMPTY_PATH {
            self.filters.count(packet.counts_for, |account| account.waiting += amount);
            self.filters.paths.hold(packet.counts_for);
        }
    }

    /// Counts a packet as waiting no longer, in all its accounts. An account that never counted the packet as
    /// waiting stays as it is: another worker may hand a packet over before this worker knows the packet's
    /// filter.
    pub fn goes_on(&mut self, packet: &Packet) {
        let amount = Amount::packet(packet.len());
        if let Some(behind) = self.routes.behind.get_mut(packet.next_hop.index()) {
            behind.waiting = behind.waiting.less(amount);
        }
        if packet.counts_for != EMPTY_PATH {
            self.filters.count(packet.counts_for, |account| account.waiting = account.waiting.less(amount));
            self.filters.paths.release(packet.counts_for);
        }
    }

    /// Counts the drop of a packet. If the accounts count the packet as waiting, [`goes_on`](Self::goes_on)
    /// must be called before.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_cleared_in_pieces_and_waiting_packets_still_count() {
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
    fn reused_number_counts_from_zero_and_numbers_beyond_the_limit_are_ignored() {
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
