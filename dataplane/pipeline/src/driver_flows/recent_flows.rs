//! A bounded number of flows with what is remembered of each, by the numbers of their records.

use std::collections::HashMap;
use std::time::Duration;

use foldhash::fast::FixedState;
use millrace_units::Instant;

/// Most flows that are remembered.
const MOST: usize = 4096;
/// Time between two sweeps of a full table: a sweep looks at all flows.
const SWEEP_INTERVAL: Duration = Duration::from_millis(100);

/// What is remembered of flows. No packet allocates.
#[derive(Debug)]
pub(super) struct RecentFlows<V> {
    flows: HashMap<u32, V, FixedState>,
    next_sweep: Instant,
}

impl<V> Default for RecentFlows<V> {
    /// Returns a table with memory for [`MOST`] flows.
    fn default() -> Self {
        let flows = HashMap::with_capacity_and_hasher(MOST, FixedState::default());
        Self { flows, next_sweep: Instant::ZERO }
    }
}

impl<V> RecentFlows<V> {
    /// Returns what is remembered of a flow.
    pub fn get(&self, flow: u32) -> Option<&V> {
        self.flows.get(&flow)
    }

    /// Remembers something of a flow. A full table is swept of what is not `current`, once in [`SWEEP_INTERVAL`]. Returns whether there was
    /// room.
    pub fn insert(&mut self, flow: u32, value: V, now: Instant, current: impl Fn(&V) -> bool) -> bool {
        if self.flows.len() >= MOST && !self.flows.contains_key(&flow) {
            if now < self.next_sweep {
                return false;
            }
            self.next_sweep = now + SWEEP_INTERVAL;
            self.flows.retain(|_, value| current(value));
            if self.flows.len() >= MOST {
                return false;
            }
        }
        self.flows.insert(flow, value);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_table_is_swept_of_what_is_old_and_not_more_often_than_its_interval() {
        let (mut recent, start) = (RecentFlows::default(), Instant::from_millis(1000));
        let current = |value: &u32| *value > 0;
        for flow in 0..MOST as u32 {
            assert!(recent.insert(flow, 1, start, current));
        }
        let looked_at = std::cell::Cell::new(0);
        let counted = |value: &u32| {
            looked_at.set(looked_at.get() + 1);
            current(value)
        };
        assert!(!recent.insert(5000, 1, start, counted));
        assert!(!recent.insert(5001, 1, start, counted));
        assert_eq!(looked_at.get(), MOST);
        // A flow that is there finds its place.
        assert!(recent.insert(7, 0, start, counted) && recent.get(7) == Some(&0));
        assert!(recent.insert(5000, 1, start + SWEEP_INTERVAL, counted));
        assert_eq!((recent.get(7), recent.get(5000)), (None, Some(&1)));
    }
}
