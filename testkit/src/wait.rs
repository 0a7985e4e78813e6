//! Waiting for what comes soon, without sleeping longer than needed.

use std::time::{Duration, Instant};

/// How often is looked.
const LOOK: Duration = Duration::from_millis(5);

/// Waits until `holds`, for at most `patience`; returns how long it took, `None` when it never held.
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

/// Waits until `look` finds something, for at most `patience`.
///
/// # Panics
/// With `what` when it finds nothing.
pub fn eventually<T>(what: &str, patience: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    wait_until(patience, || {
        found = look();
        found.is_some()
    });
    found.unwrap_or_else(|| panic!("not within {patience:?}: {what}"))
}
