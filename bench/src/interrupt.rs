//! SIGINT and SIGTERM during a benchmark. Both set a flag; the benchmark then removes its network namespaces
//! and ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use crate::BenchError;

static RAISED: AtomicBool = AtomicBool::new(false);
const SIGNALS: [Signal; 2] = [Signal::SIGINT, Signal::SIGTERM];
/// Maximum delay until a waiting benchmark notices an interruption.
const LOOK: Duration = Duration::from_millis(20);

extern "C" fn raise(_: libc::c_int) {
    RAISED.store(true, Ordering::Relaxed);
}

/// Guard during which SIGINT and SIGTERM set the flag. Dropping it restores the previous signal actions.
pub(crate) struct Interrupt {
    before: Vec<(Signal, SigAction)>,
}

impl Interrupt {
    pub fn watch() -> Self {
        RAISED.store(false, Ordering::Relaxed);
        let action = SigAction::new(SigHandler::Handler(raise), SaFlags::empty(), SigSet::empty());
        let set = |signal| {
            // SAFETY: the handler only stores to an atomic, which a signal handler may do at any time.
            let before = unsafe { sigaction(signal, &action) };
            before.ok().map(|before| (signal, before))
        };
        Self { before: SIGNALS.into_iter().filter_map(set).collect() }
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        for (signal, action) in &self.before {
            // SAFETY: this action was installed before `watch` replaced it.
            let _ = unsafe { sigaction(*signal, action) };
        }
    }
}

/// Returns an error if the benchmark was interrupted.
pub(crate) fn check() -> Result<(), BenchError> {
    if RAISED.load(Ordering::Relaxed) { Err(BenchError::Interrupted) } else { Ok(()) }
}

/// Sleeps for `duration`. If interrupted, returns early with an error.
pub(crate) fn pause(duration: Duration) -> Result<(), BenchError> {
    let end = Instant::now() + duration;
    loop {
        check()?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(LOOK));
    }
}

/// Waits until `done` returns true, for at most `patience`. Returns whether `done` returned true.
pub(crate) fn wait_until(
    patience: Duration,
    mut done: impl FnMut() -> Result<bool, BenchError>,
) -> Result<bool, BenchError> {
    let end = Instant::now() + patience;
    loop {
        if done()? {
            return Ok(true);
        }
        if Instant::now() >= end {
            return Ok(false);
        }
        pause(Duration::from_millis(5))?;
    }
}

/// Lock for tests that set the flag, and for tests that a set flag would disturb.
#[cfg(test)]
pub(crate) static FLAG_IN_USE: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signal_ends_a_pause_only_while_watched() {
        let _alone = FLAG_IN_USE.lock().unwrap();
        let watch = Interrupt::watch();
        assert!(pause(Duration::from_millis(1)).is_ok());
        nix::sys::signal::raise(Signal::SIGTERM).unwrap();
        let start = Instant::now();
        assert!(matches!(pause(Duration::from_secs(10)), Err(BenchError::Interrupted)));
        assert!(start.elapsed() < Duration::from_secs(1));
        drop(watch);
        drop(Interrupt::watch());
        assert!(check().is_ok());
    }
}
