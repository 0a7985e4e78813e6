//! Route lookups on one processor while another one updates the table.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::ours::{Addresses, Ours};
use super::tables::Prefix;
use crate::BenchError;
use crate::interrupt::check;
use crate::statistics::median;
use crate::testbed::process::{Processor, dedicate};

/// Duration of each measurement.
const SPAN: Duration = Duration::from_secs(2);
/// Promised minimum: updates per second.
pub(super) const PROMISED: f64 = 100_000.0;
/// Number of updates after which the writer reads the clock and the reader's progress.
const PORTION: u64 = 100;
const THIS: nix::unistd::Pid = nix::unistd::Pid::from_raw(0);

/// Pace of the writer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pace {
    Idle,
    /// Promised number of updates per second.
    Promised,
    /// Unlimited number of updates.
    Full,
}

/// Results of the reading and the writing thread.
pub(super) struct Seen {
    /// Median nanoseconds per lookup.
    pub lookup: f64,
    /// Updates per second.
    pub updates: f64,
}

/// Measures lookups on one processor while a writer on another processor updates the table. The writer reuses
/// nodes only after a grace period of the reader.
pub(super) fn run(
    ours: &mut Ours,
    table: &[Prefix],
    addresses: &Addresses,
    processors: [Processor; 2],
    pace: Pace,
) -> Result<Seen, BenchError> {
    let reader = ours.fib.reader();
    let (stop, told, seen) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (stop, told, seen) = (&stop, &told, &seen);
        let reading = scope.spawn(move || {
            let _ = dedicate(THIS, processors[0]);
            let mut times = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let now = told.load(Ordering::Acquire);
                times.push(addresses.look_up(&reader).0);
                seen.store(now, Ordering::Release);
            }
            median(&times)
        });
        let writing = scope.spawn(move || {
            let _ = dedicate(THIS, processors[1]);
            let result = write(ours, table, pace, told, seen);
            stop.store(true, Ordering::Relaxed);
            result
        });
        let died = |_| BenchError::measurement("updates", "a thread panicked");
        let (updates, lookup) = (writing.join(), reading.join());
        Ok(Seen { lookup: lookup.map_err(died)?, updates: updates.map_err(died)?? })
    })
}

/// Updates the table and returns the updates per second.
fn write(
    ours: &mut Ours,
    table: &[Prefix],
    pace: Pace,
    told: &AtomicU64,
    seen: &AtomicU64,
) -> Result<f64, BenchError> {
    let start = Instant::now();
    let (mut updates, mut open) = (0u64, None);
    let mut prefixes = table.iter().cycle();
    while start.elapsed() < SPAN {
        check()?;
        if pace == Pace::Idle
            || (pace == Pace::Promised && updates as f64 > PROMISED * start.elapsed().as_secs_f64())
        {
            std::thread::sleep(Duration::from_micros(100));
            continue;
        }
        for prefix in prefixes.by_ref().take(PORTION as usize / 2) {
            ours.remove(prefix);
            ours.insert(prefix)?;
        }
        updates += PORTION;
        // The grace period ends when the reader completes a pass that it began after the epoch's end.
        match open {
            None => {
                told.store(updates, Ordering::Release);
                open = Some((updates, ours.fib.close_epoch()));
            }
            Some((told, epoch)) if seen.load(Ordering::Acquire) >= told => {
                ours.fib.quiesced(epoch);
                open = None;
            }
            Some(_) => {}
        }
    }
    Ok(updates as f64 / start.elapsed().as_secs_f64())
}
