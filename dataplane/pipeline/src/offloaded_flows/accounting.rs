//! Adds offloaded packets to flow records, routes and filters, and removes idle entries.

use std::ops::Range;
use std::time::Duration;

use millrace_classify::FlowTable;
use millrace_forward::NeighbourTable;
use millrace_packet::OffloadTotals;
use millrace_plugin::WorkerPlugins;
use millrace_units::{Amount, Instant};

use super::entry::Entry;
use super::{ENTRIES_PER_ITERATION, IDLE_WHEN_FULL, OffloadedFlows, SUSPENDED};
use crate::accounts::RouteAccounts;
use crate::gate_tables::WorkerTable;
use crate::pending::driver_time::INTERVAL;

/// Maximum number of entries whose packets one command accounts.
const ACCOUNTED_AT_ONCE: u32 = 1024;
/// Time without offloaded packets after which an entry is removed.
const IDLE: Duration = Duration::from_secs(15);

/// Sweep over all entries, a bounded part in each iteration.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// Time from which on the next part is due.
    pub due: Instant,
    /// Index of the next entry.
    pub next: usize,
}

impl Sweep {
    /// Returns the indices of the next part of `entries` entries, and advances the sweep.
    fn take_part(&mut self, entries: usize, now: Instant) -> Range<usize> {
        let end = entries.min(self.next + ENTRIES_PER_ITERATION);
        let part = self.next..end;
        self.next = if end < entries { end } else { 0 };
        if self.next == 0 {
            self.due = now + INTERVAL;
        }
        part
    }
}

/// State of offload accounting: the entries of the flow cache, and the counters that offloaded packets are
/// added to.
pub(crate) struct Accounting<'a> {
    pub offload: &'a mut OffloadedFlows,
    pub flows: &'a mut FlowTable,
    pub routes: &'a mut RouteAccounts,
    pub neighbours: &'a mut NeighbourTable,
    pub plugins: &'a mut WorkerPlugins<WorkerTable>,
}

impl Accounting<'_> {
    /// Accounts the offloaded packets of the next part of the entries. Removes an entry if it is idle, if its flow has no
    /// record or too many upcalls, or if the principal that pays for its eBPF variant is ahead of its share.
    pub fn keep(&mut self, now: Instant) {
        let offload = &mut *self.offload;
        if now < offload.sweep.due || offload.counts.flows == 0 {
            return;
        }
        let (full, suspended) = (offload.cache.room() == 0, offload.published == SUSPENDED);
        for place in offload.sweep.take_part(offload.entries.len(), now) {
            let slot = place as u32;
            let Some((known, entry)) = self.account(slot, now) else { continue };
            let patience = if full { IDLE_WHEN_FULL } else { IDLE };
            let is_idle = now >= entry.last_used + patience && !suspended && !entry.placed;
            if !known || is_idle {
                self.remove(slot);
                self.offload.counts.idle += u64::from(known);
            } else if self.plugins.is_ahead(&entry.plan.steps) {
                self.remove(slot);
            } else if self.offload.is_better_up(slot, now) {
                self.remove(slot);
                self.offload.states.keep_up(entry.flow, entry.key, now);
            }
        }
    }

    /// Accounts the offloaded packets of a bounded number of entries, from slot `from` on. Returns the first
    /// slot of the next call; `None` after the last.
    pub fn account_from(&mut self, from: u32, now: Instant) -> Option<u32> {
        let count = self.offload.entries.len() as u32;
        let end = count.min(from.saturating_add(ACCOUNTED_AT_ONCE));
        (from..end).for_each(|slot| _ = self.account(slot, now));
        (end < count).then_some(end)
    }

    /// Removes an entry, and accounts the packets that it has treated since the last accounting.
    pub fn remove(&mut self, slot: u32) {
        if let Some((entry, totals)) = self.offload.remove(slot) {
            self.count(&entry, since(totals, entry.accounted));
        }
    }

    /// Adds the packets that an entry has treated since the last accounting to the flow's record, route and
    /// filters. Returns whether the flow still has a record, and the entry; `None` for a free slot.
    pub(super) fn account(&mut self, slot: u32, now: Instant) -> Option<(bool, Entry)> {
        let OffloadedFlows { entries, cache, .. } = &mut *self.offload;
        let entry = entries.get_mut(slot as usize)?.as_mut()?;
        let totals = cache.totals(slot);
        let flows = &mut *self.flows;
        let known = flows.record(entry.flow).is_live() && flows.key(entry.flow) == entry.key;
        let OffloadTotals { sent, dropped } = since(totals, entry.accounted);
        if sent.packets + dropped.packets > 0 {
            if known {
                let (packets, bytes) = (sent.packets + dropped.packets, sent.bytes + dropped.bytes);
                flows.touch_many(entry.flow, packets, bytes, now);
            }
            (entry.accounted, entry.last_used) = (totals, now);
            entry.upcalls.treated(sent.packets + dropped.packets);
        }
        entry.rate.treated(sent.packets + dropped.packets, now);
        let entry = *entry;
        self.count(&entry, OffloadTotals { sent, dropped });
        Some((known, entry))
    }

    /// Adds offloaded packets of an entry to the accounts of its route and filters.
    fn count(&mut self, entry: &Entry, OffloadTotals { sent, dropped }: OffloadTotals) {
        if sent.packets > 0 {
            self.routes.queued(entry.plan.route, sent);
            if let Some((port, neighbour)) = entry.plan.neighbour {
                // The lookup marks the neighbour as used.
                let _ = self.neighbours.lookup(port, neighbour);
            }
        }
        if sent.packets + dropped.packets > 0 {
            self.plugins.count_offloaded(&entry.plan.steps, sent, dropped);
        }
    }
}

impl OffloadedFlows {
    /// Returns whether a flow has so many upcalls that the worker should treat it. Upcalls during an
    /// overload, a stalled grace period or a suspension of the flow cache don't count.
    pub(super) fn is_better_up(&mut self, slot: u32, now: Instant) -> bool {
        let Self { entries, cache, quiescence, published, .. } = self;
        let Some(entry) = entries.get_mut(slot as usize).and_then(Option::as_mut) else { return false };
        let is_hindered = cache.is_overloaded(entry.key.port) || quiescence.is_stalled(now);
        entry.upcalls.is_better_up(is_hindered || *published == SUSPENDED, now)
    }
}

/// Returns the packets and bytes in `now` that are not in `accounted`.
fn since(now: OffloadTotals, accounted: OffloadTotals) -> OffloadTotals {
    let less = |now: Amount, accounted: Amount| Amount {
        packets: now.packets.wrapping_sub(accounted.packets),
        bytes: now.bytes.wrapping_sub(accounted.bytes),
    };
    let mut sent = less(now.sent, accounted.sent);
    // The XDP program counts sent packets in 32 bits, so the difference is taken modulo 2^32.
    sent.packets &= u64::from(u32::MAX);
    OffloadTotals { sent, dropped: less(now.dropped, accounted.dropped) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_accounted_across_a_wrapped_count() {
        let totals =
            |packets, bytes| OffloadTotals { sent: Amount { packets, bytes }, ..OffloadTotals::default() };
        let before = totals(u64::from(u32::MAX) - 1, 1 << 40);
        assert_eq!(since(totals(3, (1 << 40) + 300), before), totals(5, 300));
    }
}
