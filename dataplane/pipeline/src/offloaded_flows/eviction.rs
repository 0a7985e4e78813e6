//! Eviction of entries from a full flow cache: heavier flows take the places of lighter ones.
//!
//! While the cache is full, one in [`SAMPLED`] packets of flows without an entry requests an entry. The rate
//! of its flow follows from the packets since the flow's previous request. The rate of an entry is measured
//! whenever its packets are accounted. A flow evicts an entry only if the entry has less than half the flow's
//! rate, so flows of similar rates don't evict each other.

use std::time::Duration;

use millrace_classify::FlowIndex;
use millrace_units::Instant;

use super::entry::Entry;
use super::rate::{SHORTEST, rate};
use super::recent_flows::RecentFlows;
use super::{ENTRIES_PER_ITERATION, IDLE_WHEN_FULL, OffloadedFlows};

/// Sampling interval: one in this number of packets of flows without an entry requests an entry while the
/// cache is full.
const SAMPLED: u32 = 256;
/// Number of entries that the rate of a requesting flow is compared with.
const LOOKED_AT: usize = 32;
/// Minimum ratio between the rate of a flow and the rate of an entry that it evicts.
const TIMES: u64 = 2;
/// Longest time between two requests from which a rate is measured.
const LONGEST: Duration = Duration::from_secs(10);

/// Requests of flows for an entry while the flow cache is full.
#[derive(Debug, Default)]
pub(super) struct Asking {
    /// For each requesting flow: its number of packets at the last request, and the time of that request.
    asked: RecentFlows<(u32, Instant)>,
    /// Number of packets of flows without an entry so far.
    packets: u32,
    /// Index of the first entry that the next request is compared with.
    next: usize,
}

impl Asking {
    /// Returns whether this packet of a flow without an entry is sampled, so that it may request an entry.
    pub fn is_sampled(&mut self) -> bool {
        self.packets = self.packets.wrapping_add(1);
        self.packets.is_multiple_of(SAMPLED)
    }

    /// Returns the packets per second of a flow since its previous request. `packets`: packets of the flow so
    /// far. `None` without a previous request, or if it was less than [`SHORTEST`] or more than [`LONGEST`]
    /// ago.
    fn rate(&mut self, flow: u32, packets: u32, now: Instant) -> Option<u64> {
        let before = self.asked.get(flow).copied();
        if before.is_some_and(|(_, at)| now < at + SHORTEST) {
            return None;
        }
        self.asked.insert(flow, (packets, now), now, |(_, at)| now < *at + LONGEST);
        // Fewer packets than at the previous request mean that the flow record now belongs to another flow.
        let (before, at) = before.filter(|(_, at)| now < *at + LONGEST)?;
        Some(rate(packets.checked_sub(before)?.into(), now.since(at)))
    }
}

impl OffloadedFlows {
    /// Marks a flow as refused because the flow cache has no room. Counts each flow once, however often it
    /// requests an entry.
    pub(super) fn refuse(&mut self, flow: FlowIndex) {
        self.counts.refused += u64::from(self.states.refuse(flow));
    }

    /// Returns the slot of the entry that a placed flow takes over: the least recently used among the next
    /// [`ENTRIES_PER_ITERATION`] entries. Entries of placed flows are not taken.
    pub(super) fn least_wanted(&self) -> Option<u32> {
        let places =
            (self.sweep.next..self.entries.len()).chain(0..self.sweep.next).take(ENTRIES_PER_ITERATION);
        let found = places.filter_map(|place| Some((place, self.entries.get(place)?.as_ref()?)));
        let unasked = found.filter(|(_, entry)| !entry.placed);
        unasked.min_by_key(|(_, entry)| entry.last_used).map(|(place, _)| place as u32)
    }

    /// Returns the slot of the entry that a flow evicts: the one with the lowest rate among the next
    /// [`LOOKED_AT`] entries. Returns `None` unless the flow's rate is more than [`TIMES`] times that rate.
    /// `packets`: packets of the flow so far.
    pub(super) fn lighter_than(&mut self, flow: FlowIndex, packets: u32, now: Instant) -> Option<u32> {
        let asks = self.asking.rate(flow.slot(), packets, now)?;
        let count = self.entries.len();
        let from = if self.asking.next < count { self.asking.next } else { 0 };
        self.asking.next = (from + LOOKED_AT) % count.max(1);
        let weight = |entry: &Entry| match now >= entry.last_used + IDLE_WHEN_FULL {
            true => Some(0),
            false => entry.rate.per_second(),
        };
        let lightest = (from..count)
            .chain(0..from)
            .take(LOOKED_AT)
            .filter_map(|place| Some((place, self.entries.get(place)?.as_ref()?)))
            .filter(|(_, entry)| entry.is_begun() && !entry.placed)
            .filter_map(|(place, entry)| Some((place, weight(entry)?)))
            .min_by_key(|(_, weight)| *weight)?;
        (asks > lightest.1.saturating_mul(TIMES)).then_some(lightest.0 as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn second_query_of_a_flow_yields_its_rate() {
        let (mut asking, flow, other) = (Asking::default(), 3, 4);
        assert_eq!(asking.rate(flow, 100, at(0)), None);
        assert_eq!(asking.rate(flow, 150, at(100)), None, "too soon");
        assert_eq!(asking.rate(flow, 600, at(500)), Some(1000));
        assert_eq!(asking.rate(other, 700, at(600)), None);
        assert_eq!(asking.rate(flow, 2, at(800)), None, "another flow's record");
        assert_eq!(asking.rate(flow, 9, at(20_000)), None, "too long ago");
        assert_eq!(asking.rate(flow, 1009, at(21_000)), Some(1000));
    }
}
