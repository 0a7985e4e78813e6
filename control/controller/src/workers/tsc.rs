//! Frequency of the time-stamp counter that the workers read.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use millrace_pipeline::cycles;

/// Duration of the measurement.
const MEASURED: Duration = Duration::from_millis(10);
/// Number of readings of both clocks, of which the closest counts: the machine may stop between two clocks.
const READINGS: usize = 16;
/// Frequencies are rounded to this step, which is greater than the error of a measurement. So nearly every start finds
/// the same frequency, and admission compares promises with what they were accepted for.
const STEP: u64 = 1_000_000;
/// Frequency on a processor without a counter, where a packet counts as 1,000 cycles.
const NOMINAL: u64 = 1_000_000_000;

/// Returns the cycles per second of the time-stamp counter. The first call takes 10 ms.
pub(crate) fn frequency() -> u64 {
    static FREQUENCY: OnceLock<u64> = OnceLock::new();
    *FREQUENCY.get_or_init(|| measure().unwrap_or(NOMINAL))
}

fn measure() -> Option<u64> {
    let (start, first) = reading()?;
    std::thread::sleep(MEASURED);
    let (end, last) = reading()?;
    let cycles = u128::from(last.saturating_sub(first)) * 1_000_000_000;
    let frequency = u64::try_from(cycles / (end - start).as_nanos().max(1)).ok()?;
    Some(frequency.saturating_add(STEP / 2) / STEP * STEP).filter(|frequency| *frequency > 0)
}

/// Reads both clocks at once.
fn reading() -> Option<(Instant, u64)> {
    let read = || {
        let (before, count) = (Instant::now(), cycles()?);
        Some((before.elapsed(), (before, count)))
    };
    let closest = (0..READINGS).filter_map(|_| read()).min_by_key(|(gap, _)| *gap);
    closest.map(|(gap, (before, count))| (before + gap / 2, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_agree() {
        let Some(first) = measure() else { return };
        let others: Vec<u64> = (0..20).filter_map(|_| measure()).collect();
        // Between two steps, a measurement may give either.
        let near = others.iter().filter(|other| other.abs_diff(first) <= STEP).count();
        assert!(near > 15, "{first}: {others:?}");
    }

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
