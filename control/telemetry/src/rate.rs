//! Rates of counters that are read at irregular intervals.

use std::collections::HashMap;
use std::time::Duration;

use millrace_units::Instant;

/// Minimum time between two readings for a new rate. Over a shorter time, delays of the readings would
/// distort the rate.
const SHORTEST: Duration = Duration::from_millis(200);

/// Counters by name, each with its last rate.
#[derive(Debug)]
pub struct Rate {
    begun: Instant,
    before: HashMap<String, Reading>,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Instant,
    value: u64,
    rate: f64,
}

impl Rate {
    /// Creates the rates of counters, all of which were 0 at `begun`.
    pub fn since(begun: Instant) -> Self {
        Self { begun, before: HashMap::new() }
    }

    /// Starts a counter of this name at 0. Replaces an earlier counter of the same name.
    pub fn begin(&mut self, name: &str, at: Instant) {
        self.before.insert(name.to_owned(), Reading { at, value: 0, rate: 0.0 });
    }

    /// Removes the counter of this name.
    pub fn forget(&mut self, name: &str) {
        self.before.remove(name);
    }

    /// Reads the counter `name`, and returns its growth per second since the previous reading; for the first
    /// reading, since its start. Returns 0 if the counter was set back. Returns the last rate again if the
    /// previous reading was less than 200 ms ago.
    pub fn read(&mut self, name: &str, value: u64, at: Instant) -> f64 {
        let begun = Reading { at: self.begun, value: 0, rate: 0.0 };
        let before = self.before.entry(name.to_owned()).or_insert(begun);
        let passed = at.since(before.at);
        if passed < SHORTEST {
            return before.rate;
        }
        let grown = value.saturating_sub(before.value);
        *before = Reading { at, value, rate: grown as f64 / passed.as_secs_f64() };
        before.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_growth_over_time() {
        let mut rate = Rate::since(Instant::from_millis(1000));
        assert_eq!(rate.read("a", 100, Instant::from_millis(1100)), 0.0, "too early");
        assert_eq!(rate.read("a", 200, Instant::from_millis(1500)), 400.0);
        assert_eq!(rate.read("a", 900, Instant::from_millis(1600)), 400.0);
        assert_eq!(rate.read("a", 0, Instant::from_millis(2500)), 0.0);
        assert_eq!(rate.read("b", 3, Instant::from_millis(2500)), 2.0);
    }

    #[test]
    fn fault_39_counter_near_its_wrap_has_a_correct_nonnegative_rate() {
        for (start, after, expected) in [
            (u64::from(u32::MAX) - 9, u64::from(u32::MAX) + 11, 20.0),
            (u64::MAX - 9, u64::MAX, 9.0),
            (u64::MAX - 9, 10, 0.0),
        ] {
            let mut rate = Rate::since(Instant::from_millis(0));
            rate.read("a", start, Instant::from_millis(1000));
            assert_eq!(rate.read("a", after, Instant::from_millis(2000)), expected, "{start} to {after}");
            let next = rate.read("a", after.wrapping_add(5), Instant::from_millis(3000));
            assert!((0.0..=5.0).contains(&next), "{next} behind {after}");
        }
    }

    #[test]
    fn counters_with_equal_names_have_separate_rates() {
        let mut rate = Rate::since(Instant::from_millis(1000));
        assert_eq!(rate.read("a", 9000, Instant::from_millis(2000)), 9000.0);
        rate.begin("a", Instant::from_millis(3000));
        assert_eq!(rate.read("a", 100, Instant::from_millis(4000)), 100.0);
        rate.forget("a");
        assert_eq!(rate.before.len(), 0);
    }
}
