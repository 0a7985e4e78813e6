//! Upcall counts of offloaded flows. Upcalls are packets longer than the MTU, in several buffers, or long
//! with a partial checksum. A flow with many upcalls leaves the offload for [`STAYS_UP`].

use std::time::Duration;

use millrace_classify::FlowIndex;
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

/// Flows that left the offload, each with the time until which it stays at the worker. If there is no room
/// for a flow here, it may be offloaded again at once.
#[derive(Debug, Default)]
pub(super) struct KeptUp(RecentFlows<(FlowKey, Instant)>);

impl KeptUp {
    /// Keeps a flow at the worker from now on. Returns whether there was room.
    pub fn add(&mut self, flow: FlowIndex, key: FlowKey, now: Instant) -> bool {
        self.0.insert(flow.slot(), (key, now + STAYS_UP), now, |(_, until)| *until > now)
    }

    /// Returns whether a flow still stays at the worker.
    pub fn has(&self, flow: FlowIndex, key: &FlowKey, now: Instant) -> bool {
        self.0.get(flow.slot()).is_some_and(|(own, until)| own == key && now < *until)
    }
}

#[cfg(test)]
mod tests {
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
