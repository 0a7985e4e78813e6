//! Flows whose packets come up although the driver has them: they are longer than the MTU, lie in several buffers, or are long ones whose
//! checksums were left to the card. Such a flow is given up, and does not go down again for a while.

use std::collections::HashMap;
use std::time::Duration;

use foldhash::fast::FixedState;
use millrace_classify::FlowIndex;
use millrace_packet::FlowKey;
use millrace_units::Instant;

/// Packets that have to come up before anything is said of a flow, and how long that is watched at least.
const ENOUGH: u32 = 32;
const LONG_ENOUGH: Duration = Duration::from_secs(1);
/// A flow is given up when so many times as many packets came up as the driver treated.
const TIMES: u64 = 4;
/// How long it does not go down again.
const STAYS_UP: Duration = Duration::from_secs(60);
/// Flows that are remembered; further ones go down again at once.
const MOST: usize = 4096;

/// What became of the packets of a flow that has an entry, since it was last judged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watched {
    since: Instant,
    up: u32,
    treated: u64,
}

impl Watched {
    pub fn from(now: Instant) -> Self {
        Self { since: now, up: 0, treated: 0 }
    }

    /// A packet came up.
    pub fn came_up(&mut self) {
        self.up = self.up.saturating_add(1);
    }

    /// The driver treated so many.
    pub fn treated(&mut self, packets: u64) {
        self.treated += packets;
    }

    /// Whether the flow is better off at the worker. While something else keeps packets from being treated below, nothing is said.
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

/// The flows that stay up, by the numbers of their records, each until some time.
#[derive(Debug, Default)]
pub(super) struct KeptUp(HashMap<u32, (FlowKey, Instant), FixedState>);

impl KeptUp {
    /// Has a flow stay up from now on; whether there was room.
    pub fn add(&mut self, flow: FlowIndex, key: FlowKey, now: Instant) -> bool {
        if self.0.len() == MOST {
            self.0.retain(|_, (_, until)| *until > now);
        }
        let room = self.0.len() < MOST;
        if room {
            self.0.insert(flow.slot(), (key, now + STAYS_UP));
        }
        room
    }

    /// Whether a flow stays up.
    pub fn has(&self, flow: FlowIndex, key: &FlowKey, now: Instant) -> bool {
        self.0.get(&flow.slot()).is_some_and(|(own, until)| own == key && now < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn watched(up: u32, treated: u64) -> Watched {
        let mut watched = Watched::from(Instant::ZERO);
        (0..up).for_each(|_| watched.came_up());
        watched.treated(treated);
        watched
    }

    #[test]
    fn a_flow_is_better_up_when_nearly_all_of_its_packets_come_there_for_a_while() {
        assert!(watched(ENOUGH, 0).is_better_up(false, after(1000)));
        assert!(!watched(ENOUGH, 0).is_better_up(false, after(999)), "it may just have gone down");
        assert!(!watched(ENOUGH - 1, 0).is_better_up(false, after(60_000)), "too few");
        assert!(watched(1000, 249).is_better_up(false, after(1000)));
        assert!(!watched(1000, 250).is_better_up(false, after(1000)), "the driver has a good part of them");
        let mut hindered = watched(1000, 0);
        assert!(!hindered.is_better_up(true, after(1000)));
        assert!(!hindered.is_better_up(false, after(5000)), "what was before says nothing");
    }
}
