//! From worker to worker: two of them with ports in memory, each on a processor of its own.
//!
//! Where flows come in at any worker, half of the packets are handed over on the way in, and half on the way out: one hand-over for each. Where
//! they come in at the worker that has them, and leave by its port, there is none. Both workers are busy all the time in both cases, so that none
//! has anything to spare, and the difference is what a hand-over takes at both ends together. Workers make their packets themselves, which is part
//! of both rates.

use super::Size;
use crate::memory::REPETITIONS;
use crate::memory::case::{Case, Family};
use crate::memory::setup::Setup;
use crate::memory::traffic;
use crate::memory::workers::{Spread, rate};
use crate::statistics::median;
use crate::{BenchError, Measurement, Options};

pub(super) const CASE: &str = "worker to worker and out";
const FLOWS: u32 = 1000;
const WORKERS: usize = 2;

pub(super) fn measure(size: Size, options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    if std::thread::available_parallelism().map_or(1, std::num::NonZero::get) < WORKERS {
        (options.progress)("two workers need two processors: they are left out");
        return Ok(Vec::new());
    }
    let length = match size {
        Size::Shortest => traffic::Size::Shortest,
        Size::Longest => traffic::Size::Longest,
    };
    let (case, setup) =
        (Case { family: Family::V4, flows: FLOWS }, Setup { size: length, ..Setup::default() });
    let (mut handed, mut direct, mut takes) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..REPETITIONS {
        let of = |spread| rate(case, setup, WORKERS, spread).map(|rate| rate / 1e6);
        let (with, without) = (of(Spread::Anywhere)?, of(Spread::AtTheirs)?);
        takes.push(hand_over(with, without));
        handed.push(with);
        direct.push(without);
    }
    let name = format!("{CASE}, {size}");
    let (with, without) = (median(&handed), median(&direct));
    (options.progress)(&format!(
        "{name}: {with:.3} Mpps, {without:.3} without a hand-over, which takes {:.0} ns at both ends",
        median(&takes)
    ));
    let rate = Measurement::median_of(format!("{name}: rate"), &handed, "Mpps")
        .beside("without a hand-over", without)
        .peer_within(&direct);
    Ok(vec![rate, Measurement::median_of(format!("{name}: time of a hand-over, both ends"), &takes, "ns")])
}

/// Nanoseconds of a worker's time that a hand-over of each packet takes, by the millions of packets a second of all workers.
fn hand_over(with: f64, without: f64) -> f64 {
    WORKERS as f64 * 1e3 * (1.0 / with - 1.0 / without)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hand_over_takes_what_packets_take_longer() {
        // Two workers with 100 ns a packet each, and 50 without.
        assert!((hand_over(20.0, 40.0) - 50.0).abs() < 1e-9);
    }
}
