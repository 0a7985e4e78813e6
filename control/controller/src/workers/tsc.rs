//! Frequency of the time-stamp counter that the workers read.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use millrace_pipeline::cycles;

/// Duration of the measurement. The readings of the clocks are exact to less than a microsecond, so the
/// frequency is exact to 100 parts per million.
const MEASURED: Duration = Duration::from_millis(10);
/// Frequency on a processor without a counter, where a packet counts as 1,000 cycles.
const NOMINAL: u64 = 1_000_000_000;

/// Returns the cycles per second of the time-stamp counter. The first call takes 10 ms.
pub(crate) fn frequency() -> u64 {
    static FREQUENCY: OnceLock<u64> = OnceLock::new();
    *FREQUENCY.get_or_init(|| measure().unwrap_or(NOMINAL))
}

fn measure() -> Option<u64> {
    let (start, first) = (Instant::now(), cycles()?);
    std::thread::sleep(MEASURED);
    let (elapsed, last) = (start.elapsed(), cycles()?);
    let cycles = u128::from(last.saturating_sub(first)) * 1_000_000_000;
    u64::try_from(cycles / elapsed.as_nanos().max(1)).ok().filter(|frequency| *frequency > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_runs_at_the_measured_frequency() {
        let Some(first) = cycles() else { return };
        let (start, frequency) = (Instant::now(), frequency());
        std::thread::sleep(Duration::from_millis(50));
        let seconds = (cycles().unwrap_or(first) - first) as f64 / frequency as f64;
        let error = seconds / start.elapsed().as_secs_f64() - 1.0;
        assert!(error.abs() < 0.02, "off by {error}");
    }
}
