//! Upcall counts of offloaded flows. Upcalls are packets longer than the MTU, in several buffers, or long
//! with a partial checksum. A flow with many upcalls leaves the offload for [`STAYS_UP`].

use std::time::Duration;

use millrace_packet::FlowKey;
use millrace_units::Instant;

use super::recent_flows::RecentFlows;

/// Minimum number of upcalls before the counts of a flow are evaluated.
const ENOUGH: u32 = 32;
/// Minimum time before the counts of a flow are evaluated.
const LONG_ENOUGH: Duration = Duration::from_secs(1);
/// Ratio of upcalls to offloaded packets above which a flow leaves the offload.
const TIMES: u64 = 4;
/// Time for which a flow that has left the offload stays at the worker.
const STAYS_UP: Duration = Duration::from_secs(60);

/// Upcalls and offloaded packets of a flow with an entry, since its counts were last evaluated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Upcalls {
    since: Instant,
    up: u32,
    treated: u64,
}

impl Upcalls {
    pub fn from(now: Instant) -> Self {
        Self { since: now, up: 0, treated: 0 }
    }

    /// Counts an upcall.
    pub fn count(&mut self) {
        self.up = self.up.saturating_add(1);
    }

    /// Adds packets that the offload treated.
    pub fn treated(&mut self, packets: u64) {
        self.treated += packets;
    }

    /// Returns whether the flow has too many upcalls for the offload. If `is_hindered` (the offload can't
    /// treat packets for another reason), restarts the counts and returns `false`.
    pub fn is_better_up(&mut self, is_hindered: bool, now: Instant) -> bool {
        if is_hindered {
            *self = Self::from(now);
            return false;
        }
        if self.up < ENOUGH || now < self.since + LONG_ENOUGH {
            return false;
        }
        let is_better = u64::from(self.up) > TIMES * self.treated;
        *self = Self::from(now);
        is_better
    }
}

/// Flow without an entry that had upcalls.
#[derive(Clone, Copy, Debug)]
enum BackOff {
    /// The flow had too many upcalls, and stays at the worker until this time.
    KeptUp(Instant),
    /// The flow lost its entry because a packet waited at the worker. Its next entry continues these counts.
    Withdrawn(Upcalls),
}

impl BackOff {
    /// Returns whether the flow still stays at the worker.
    fn keeps_up(&self, now: Instant) -> bool {
        matches!(self, Self::KeptUp(until) if now < *until)
    }
}

/// Flows that left the offload, by the slots of their records. If there is no room for a flow here, it may be offloaded
/// again at once, and its counts begin anew. In a full table, all withdrawn flows lose their places.
#[derive(Debug, Default)]
pub(super) struct BackOffs(RecentFlows<(FlowKey, BackOff)>);

impl BackOffs {
    /// Keeps a flow at the worker from now on. Returns whether there was room.
    pub fn keep_up(&mut self, record: u32, key: FlowKey, now: Instant) -> bool {
        self.insert(record, (key, BackOff::KeptUp(now + STAYS_UP)), now)
    }

    /// Keeps the counts of a flow whose entry is withdrawn.
    pub fn withdraw(&mut self, record: u32, key: FlowKey, upcalls: Upcalls, now: Instant) {
        // Without room, the counts begin anew.
        let _ = self.insert(record, (key, BackOff::Withdrawn(upcalls)), now);
    }

    fn insert(&mut self, record: u32, back_off: (FlowKey, BackOff), now: Instant) -> bool {
        self.0.insert(record, back_off, now, |(_, back_off)| back_off.keeps_up(now))
    }

    /// Returns whether a flow still stays at the worker.
    pub fn keeps_up(&self, record: u32, key: &FlowKey, now: Instant) -> bool {
        self.0.get(record).is_some_and(|(own, back_off)| own == key && back_off.keeps_up(now))
    }

    /// Ends the back-off of a flow that gets an entry. Returns the counts of its withdrawn entry.
    pub fn end(&mut self, record: u32, key: &FlowKey) -> Option<Upcalls> {
        match self.0.remove(record)? {
            (own, BackOff::Withdrawn(upcalls)) if own == *key => Some(upcalls),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use millrace_units::PortId;

    use super::*;

    fn after(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn upcalls(up: u32, treated: u64) -> Upcalls {
        let mut upcalls = Upcalls::from(Instant::ZERO);
        (0..up).for_each(|_| upcalls.count());
        upcalls.treated(treated);
        upcalls
    }

    #[test]
    fn withdrawn_flow_continues_its_counts_once_and_one_that_is_kept_up_begins_anew() {
        let mut back_offs = BackOffs::default();
        let key = |port| FlowKey::v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 17, (port, 2), PortId(0));
        let (flow, now) = (3, after(0));
        back_offs.withdraw(flow, key(1), upcalls(20, 3), now);
        assert!(!back_offs.keeps_up(flow, &key(1), now));
        assert_eq!(back_offs.end(flow, &key(1)).map(|counts| (counts.up, counts.treated)), Some((20, 3)));
        assert!(back_offs.end(flow, &key(1)).is_none());
        back_offs.withdraw(flow, key(1), upcalls(20, 3), now);
        assert!(back_offs.end(flow, &key(2)).is_none(), "another flow has the record");
        assert!(back_offs.keep_up(flow, key(1), now) && back_offs.keeps_up(flow, &key(1), after(59_999)));
        assert!(!back_offs.keeps_up(flow, &key(1), after(60_000)));
        assert!(back_offs.end(flow, &key(1)).is_none());
    }

    #[test]
    fn flow_with_four_upcalls_for_each_offloaded_packet_leaves_the_offload() {
        assert!(upcalls(ENOUGH, 0).is_better_up(false, after(1000)));
        assert!(!upcalls(ENOUGH, 0).is_better_up(false, after(999)), "it may just have gone down");
        assert!(!upcalls(ENOUGH - 1, 0).is_better_up(false, after(60_000)), "too few");
        assert!(upcalls(1000, 249).is_better_up(false, after(1000)));
        assert!(!upcalls(1000, 250).is_better_up(false, after(1000)), "the offload has a good part of them");
        let mut hindered = upcalls(1000, 0);
        assert!(!hindered.is_better_up(true, after(1000)));
        assert!(!hindered.is_better_up(false, after(5000)), "what was before says nothing");
    }
}
