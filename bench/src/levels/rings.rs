//! Cost of handing over a packet from worker to worker. Two workers have ports in memory; each runs on its
//! own processor.
//!
//! In one case, flows arrive at any worker. Half of the packets are handed over at the input and half at the
//! output: one hand-over per packet on average. In the other case, every flow arrives at its owner and leaves
//! by the owner's port, so no packet is handed over.
//!
//! Both workers are always busy in both cases. So the times per packet of the two cases differ by the cost of
//! a hand-over at both workers together. The workers also generate their packets; this time is part of both
//! cases.

use super::Size;
use crate::family::Family;
use crate::memory::REPETITIONS;
use crate::memory::case::Case;
use crate::memory::setup::Setup;
use crate::memory::workers::{Spread, rate};
use crate::statistics::median;
use crate::{BenchError, Measurement, Options};

pub(super) const CASE: &str = "worker to worker to port";
const FLOWS: u32 = 1000;
const WORKERS: usize = 2;

pub(super) fn measure(size: Size, options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    if std::thread::available_parallelism().map_or(1, std::num::NonZero::get) < WORKERS {
        (options.progress)("the case with two workers is left out: it needs two processors");
        return Ok(Vec::new());
    }
    let (mut handed, mut direct, mut takes) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..REPETITIONS {
        let [with, without] = rates(size)?;
        takes.push(hand_over(with, without));
        handed.push(with);
        direct.push(without);
    }
    let name = format!("{CASE}, {}", size.words());
    let (with, without) = (median(&handed), median(&direct));
    (options.progress)(&format!(
        "{name}: {with:.3} Mpps, {without:.3} without a hand-over, which takes {:.0} ns at both ends",
        median(&takes)
    ));
    let rate = Measurement::median_of(format!("{name}: rate"), &handed, "Mpps")
        .beside_runs("without hand-over", &direct);
    Ok(vec![rate, Measurement::median_of(format!("{name}: hand-over time, both workers"), &takes, "ns")])
}

/// Returns the rates of two workers with and without hand-overs, in millions of packets per second.
fn rates(size: Size) -> Result<[f64; 2], BenchError> {
    let (case, setup) = (Case { family: Family::V4, flows: FLOWS }, Setup { size, ..Setup::default() });
    let of = |spread| rate(case, setup, WORKERS, spread).map(|rate| rate / 1e6);
    Ok([of(Spread::Anywhere)?, of(Spread::AtTheirs)?])
}

/// Returns the time of both workers together for one hand-over, in nanoseconds: the median of repetitions.
pub(crate) fn hand_over_time(size: Size) -> Result<f64, BenchError> {
    let times = (0..REPETITIONS).map(|_| rates(size).map(|[with, without]| hand_over(with, without)));
    Ok(median(&times.collect::<Result<Vec<_>, _>>()?))
}

/// Returns the workers' time for one hand-over in nanoseconds. `with` and `without` are the total rates with
/// and without hand-overs, in millions of packets per second.
fn hand_over(with: f64, without: f64) -> f64 {
    WORKERS as f64 * 1e3 * (1.0 / with - 1.0 / without)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handover_time_is_the_extra_time_per_packet() {
        // At these rates, two workers spend 100 ns per packet with a hand-over, and 50 ns without.
        assert!((hand_over(20.0, 40.0) - 50.0).abs() < 1e-9);
    }
}
