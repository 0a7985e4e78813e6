//! `memory`: the pipeline without devices, in this process.
//!
//! A generator produces batches of 256 packets as copies of prepared frames. The frames of all flows come in
//! rotation, or with Zipf's frequencies. The router has 1,000 routes over one next hop, unless the case has
//! another number.
//!
//! The generator's own cost is measured, shown, and subtracted. The peer of plain IPv4 forwarding is a loop
//! over DPDK's libraries.

pub(crate) mod case;
mod figures;
pub(crate) mod instructions;
mod peer;
mod sample;
pub(crate) mod setup;
pub(crate) mod traffic;
pub(crate) mod words;
pub(crate) mod workers;
pub(crate) mod workload;

use std::time::Instant;

use self::case::Case;
use self::figures::{Figure, figures};
use self::instructions::{BENCH, PACKETS as COUNTED, Part, What};
use self::peer::Forwarder;
use self::sample::{Counters, Sample, UNITS};
use self::setup::{Pipeline, Setup, Source};
use self::workers::Spread;
use self::workload::Workload;
use crate::callgrind::{callgrind_measured, part_of};
use crate::family::Family;
use crate::interrupt::check;
use crate::statistics::{extremes, median};
use crate::testbed::process::is_installed;
use crate::{BenchError, Bound, Measurement, Options, Subject};

/// Number of repetitions; the result is their median.
pub(crate) const REPETITIONS: usize = 7;
/// Maximum number of flows that become known before instructions are counted. The limit is needed because
/// callgrind slows all code down by a factor of 50.
const MOST_KNOWN: u32 = 100_000;
/// Maximum number of flows whose instructions are counted; the count does not depend on the number of flows.
const MOST_COUNTED: u32 = 1000;
/// Number of packets per repetition, which takes about a twentieth of a second.
const PACKETS: u64 = 1_000_000;
/// Number of packets in the run that counts the cost of traces. About 256 of these packets are traced.
const TRACED_AMONG: u64 = 256_000;
/// Promised maximum: additional instructions when 1 packet in 1,000 is traced, in percent.
const TRACED_ADDS: f64 = 1.0;
/// Promised minimum: rate of two workers, as a multiple of one worker's rate.
const SPEED_UP: f64 = 1.9;

/// Runs the requested workload, or all cases with a promise.
pub(crate) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let workload = options.workload;
    let mut run =
        Run { valgrind: is_installed("valgrind"), counters: Counters::open(), options, results: Vec::new() };
    if !run.valgrind {
        run.tell("valgrind is not installed: instructions are not counted");
    }
    if !run.counters.has_events() {
        run.tell(
            "no event counter of the processor is available (or the kernel forbids it): core cycles and \
             cache misses are not counted",
        );
    }
    match workload {
        // With two workers, measure only the rate.
        Some(workload) if workload.workers.0 == 2 => run.two_workers(&figures::of(&workload))?,
        Some(workload) => _ = run.figure(&figures::of(&workload))?,
        None => {
            let mut before = 0.0;
            for figure in figures() {
                let time = run.figure(&figure)?;
                run.beyond(&figure, time - before);
                before = time;
            }
            run.traces()?;
            let gates = Workload { gates: workload::EmptyGates::THREE, ..Workload::default() };
            run.two_workers(&figures::of(&gates))?;
        }
    }
    Ok(run.results)
}

struct Run<'a, 'b> {
    valgrind: bool,
    counters: Counters,
    options: &'a mut Options<'b>,
    results: Vec<Measurement>,
}

impl Run<'_, '_> {
    fn tell(&mut self, what: &str) {
        (self.options.progress)(what);
    }

    /// Measures a case in all units; returns its nanoseconds.
    fn figure(&mut self, figure: &Figure) -> Result<f64, BenchError> {
        let Figure { name, case, setup, limit, .. } = figure;
        let (sample, peers) = sample(*case, *setup, &self.counters)?;
        let times = sample.net(0);
        let ((least, most), middle) = (extremes(&times), median(&times));
        let peer = peers.as_ref().map_or_else(String::new, |peers| format!("; peer {:.1}", median(peers)));
        self.tell(&format!(
            "{name}: {middle:.1} ns per packet ({least:.1} to {most:.1}), without {:.1} ns of the generator{peer}",
            sample.source()
        ));
        let mut measured = Measurement::median_of(name, &times, UNITS[0]);
        if let Some(peers) = peers {
            measured = measured.beside_pairs(peer::NAME, &times, &peers);
        }
        self.results.push(measured.promising(Bound::AtMost, *limit));
        for (unit, name_of) in UNITS.iter().enumerate().skip(1) {
            let counted = sample.net(unit);
            if !counted.is_empty() {
                self.results.push(Measurement::median_of(name, &counted, name_of));
            }
        }
        self.results.push(generator(name, sample.source()));
        self.instructions(figure)?;
        Ok(middle)
    }

    /// Counts the instructions of the portable code.
    fn instructions(&mut self, figure: &Figure) -> Result<(), BenchError> {
        if !self.valgrind || figure.case.flows > MOST_COUNTED || figure.setup.routes > MOST_COUNTED {
            return Ok(());
        }
        match instructions::count(&self.options.binary, figure.case, figure.setup, COUNTED) {
            Ok(Some(count)) => {
                let name = format!("{}, portable code", figure.name);
                self.results.push(Measurement::of(name, count, "instructions/packet"));
            }
            Ok(None) => self.tell("callgrind found no function names: instructions are not counted"),
            Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
            Err(error) => self.tell(&format!("instructions are not counted: {error}")),
        }
        Ok(())
    }

    /// Counts the additional instructions when 1 packet in 1,000 is traced. The time that these instructions
    /// take is too short to be measured.
    fn traces(&mut self) -> Result<(), BenchError> {
        if !self.valgrind {
            return Ok(());
        }
        let (case, usual) = (Case { family: Family::V4, flows: 1000 }, Setup::default());
        let binary = &self.options.binary;
        let count = |setup| instructions::count(binary, case, setup, TRACED_AMONG);
        let counted = count(usual)?.zip(count(Setup { traced: 1000, ..usual })?);
        if let Some((without, with)) = counted {
            let added = 100.0 * (with - without) / without;
            let name = "IPv4, 1 K flows, additional instructions of tracing 1 packet in 1,000";
            self.results.push(Measurement::of(name, added, "%").promising(Bound::AtMost, TRACED_ADDS));
        }
        Ok(())
    }

    /// Reports by how much the time of this case exceeds the time of the previous case, if a promise limits
    /// the difference.
    fn beyond(&mut self, figure: &Figure, time: f64) {
        if let Some(limit) = figure.beyond {
            let name = format!("{}, additional time to one queue", figure.name);
            self.results.push(Measurement::of(name, time, UNITS[0]).promising(Bound::AtMost, limit));
        }
    }

    /// Measures the rate of two workers and the rate of one worker, alternately. The generator's time is
    /// excluded from both rates.
    fn two_workers(&mut self, figure: &Figure) -> Result<(), BenchError> {
        let Figure { name, case, setup, .. } = figure;
        if std::thread::available_parallelism().map_or(1, std::num::NonZero::get) < 2 {
            self.tell("the cases with two workers are left out: they need two processors");
            return Ok(());
        }
        let source = sample_source(*case, *setup)?;
        for (spread, how, limit) in [
            (Spread::AtTheirs, "2 workers, each flow arrives at its worker", Some(SPEED_UP)),
            (Spread::Anywhere, "2 workers, flows arrive at either worker", None),
        ] {
            let (mut ours, mut one) = (Vec::new(), Vec::new());
            for _ in 0..REPETITIONS {
                one.push(net_rate(workers::rate(*case, *setup, 1, Spread::Anywhere)?, 1, source));
                ours.push(net_rate(workers::rate(*case, *setup, 2, spread)?, 2, source));
            }
            let (double, single) = (median(&ours), median(&one));
            self.tell(&format!("{name}, {how}: {double:.1} Mpps, one worker {single:.1}"));
            let measured = Measurement::median_of(format!("{name}, {how}"), &ours, "Mpps").beside_pairs(
                "one worker",
                &ours,
                &one,
            );
            self.results.push(measured.promising_ratio(Bound::AtLeast, limit));
        }
        Ok(())
    }
}

/// Returns the measurement of the generator's time per packet alone.
fn generator(name: &str, time: f64) -> Measurement {
    Measurement::of(format!("{name}: generator only"), time, UNITS[0]).about(Subject::Generator)
}

/// Returns the workers' rate without the generator's time, in millions of packets per second. `rate` is in
/// packets per second, `source` in nanoseconds per packet.
fn net_rate(rate: f64, workers: usize, source: f64) -> f64 {
    let each = workers as f64 * 1e9 / rate - source;
    workers as f64 * 1e3 / each
}

/// Runs only the forwarding of packets that `name` stands for, under a tool that counts its cost. Returns
/// `None` if `name` isn't the name of such a run.
pub(crate) fn run_measured(name: &str) -> Option<Result<(), BenchError>> {
    let (what, case, setup, packets): Part = part_of(BENCH, name)?;
    Some(match what {
        What::Source => {
            Source::with(case, setup).map(|mut source| _ = callgrind_measured(|| source.make(packets)))
        }
        What::Pipeline => {
            Pipeline::with(case, setup).map(|mut pipeline| {
                // Two packets per flow make the flows known.
                pipeline.forward(2 * u64::from(case.flows.min(MOST_KNOWN)));
                pipeline.trace();
                callgrind_measured(|| pipeline.forward(packets));
            })
        }
    })
}

/// Measures three costs in each repetition: of the packet source and the router together, of the packet
/// source alone, and of the peer (in nanoseconds).
fn sample(case: Case, setup: Setup, counters: &Counters) -> Result<(Sample, Option<Vec<f64>>), BenchError> {
    let mut peer = Forwarder::start(case, setup, PACKETS)?;
    let (mut source, mut pipeline) = (Source::with(case, setup)?, Pipeline::with(case, setup)?);
    // Two packets per flow make all flows known, and warm up the caches and the processor's clock.
    pipeline.forward((2 * u64::from(case.flows)).max(PACKETS / 4));
    let (mut sample, mut peers) = (Sample::default(), Vec::new());
    for _ in 0..REPETITIONS {
        check()?;
        pipeline.trace();
        let bare = counters.count(|| source.make(PACKETS));
        sample.add(bare, counters.count(|| pipeline.forward(PACKETS)));
        if let Some(peer) = &mut peer {
            peers.push(peer.forward(PACKETS)?);
        }
    }
    pipeline.check(case)?;
    Ok((sample, peer.map(|_| peers)))
}

/// Returns the nanoseconds per packet of the source alone.
fn sample_source(case: Case, setup: Setup) -> Result<f64, BenchError> {
    let mut source = Source::with(case, setup)?;
    let times: Vec<f64> = (0..REPETITIONS).map(|_| per_packet(|| source.make(PACKETS))).collect();
    Ok(median(&times))
}

/// Runs `work`, which returns its number of packets. Returns the nanoseconds per packet.
pub(crate) fn per_packet(work: impl FnOnce() -> u64) -> f64 {
    let start = Instant::now();
    let packets = work();
    start.elapsed().as_secs_f64() * 1e9 / packets as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generator_figure_is_not_counted_as_the_routers() {
        assert_eq!(generator("IPv4", 9.0).subject, Subject::Generator);
    }

    #[test]
    fn the_generators_time_is_subtracted_from_each_workers() {
        // At this rate, each of two workers spends 20 ns per packet, 10 ns of which in the generator.
        assert!((net_rate(100e6, 2, 10.0) - 200.0).abs() < 1e-9);
    }
}
