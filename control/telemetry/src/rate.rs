//! Rates from counters that are looked at now and then.

use std::collections::HashMap;
use std::time::Duration;

use millrace_units::Instant;

/// Shortest time between two readings that make a rate: shorter ones say more about the reader than about the router.
const SHORTEST: Duration = Duration::from_millis(200);

/// Remembers counters by name, and says how fast each grows.
#[derive(Debug, Default)]
pub struct Rate {
    before: HashMap<String, Reading>,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Instant,
    value: u64,
    rate: f64,
}

impl Rate {
    /// Takes a reading of the counter `name`, and returns its growth per second since the last one; 0 the first time
    /// and when the counter was set back. Readings closer than 200 ms repeat the last rate.
    pub fn read(&mut self, name: &str, value: u64, at: Instant) -> f64 {
        let Some(before) = self.before.get_mut(name) else {
            self.before.insert(name.to_owned(), Reading { at, value, rate: 0.0 });
            return 0.0;
        };
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
        let mut rate = Rate::default();
        assert_eq!(rate.read("a", 100, Instant::from_millis(0)), 0.0);
        assert_eq!(rate.read("a", 300, Instant::from_millis(500)), 400.0);
        assert_eq!(rate.read("a", 900, Instant::from_millis(600)), 400.0);
        assert_eq!(rate.read("a", 0, Instant::from_millis(1500)), 0.0);
        assert_eq!(rate.read("b", 5, Instant::from_millis(1500)), 0.0);
    }
}
