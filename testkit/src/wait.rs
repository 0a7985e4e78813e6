//! Waits for conditions, which return as soon as the condition holds.

use std::time::{Duration, Instant};

/// Interval between two checks.
const LOOK: Duration = Duration::from_millis(5);

/// Waits until `holds` returns true, for at most `patience`. Returns the time it took; `None` if `holds`
/// never returned true.
pub fn wait_until(patience: Duration, mut holds: impl FnMut() -> bool) -> Option<Duration> {
    let start = Instant::now();
    loop {
        if holds() {
            return Some(start.elapsed());
        }
        if start.elapsed() >= patience {
            return None;
        }
        std::thread::sleep(LOOK);
    }
}

/// Waits until `look` returns a value, for at most `patience`.
///
/// # Panics
/// `look` returns no value in time; the message contains `what`.
pub fn eventually<T>(what: &str, patience: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    wait_until(patience, || {
        found = look();
        found.is_some()
    });
    found.unwrap_or_else(|| panic!("not within {patience:?}: {what}"))
}
