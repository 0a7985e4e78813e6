//! Bounded table of flows, each with a value, by flow record number.

use std::collections::HashMap;
use std::time::Duration;

use foldhash::fast::FixedState;
use millrace_units::Instant;

/// Maximum number of flows in the table.
const MOST: usize = 4096;
/// Minimum time between two sweeps of a full table; a sweep checks all flows.
const SWEEP_INTERVAL: Duration = Duration::from_millis(100);

/// Values of flows. The memory is allocated in advance, so that no packet has to wait for an allocation.
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
    /// Returns the value of a flow.
    pub fn get(&self, flow: u32) -> Option<&V> {
        self.flows.get(&flow)
    }

    /// Removes and returns the value of a flow.
    pub fn remove(&mut self, flow: u32) -> Option<V> {
        self.flows.remove(&flow)
    }

    /// Sets the value of a flow. If the table is full, first removes all values that are not `current`, at
    /// most once per [`SWEEP_INTERVAL`]. Returns whether there was room.
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
    fn full_table_removes_old_flows_at_most_once_per_interval() {
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
        // A flow that is in the table already needs no further room.
        assert!(recent.insert(7, 0, start, counted) && recent.get(7) == Some(&0));
        assert!(recent.insert(5000, 1, start + SWEEP_INTERVAL, counted));
        assert_eq!((recent.get(7), recent.get(5000)), (None, Some(&1)));
        assert_eq!((recent.remove(5000), recent.remove(5000)), (Some(1), None));
    }
}
