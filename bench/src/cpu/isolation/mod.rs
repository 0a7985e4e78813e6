//! `isolation`: loss and delay of a plain flow, while the same worker runs a plugin that takes 1 ms for each
//! packet. A built-in plugin is bound without a principal, so that the worker calls it in line, or with one.
//! Plugins of the other runtimes are bound with a principal.
//!
//! | runtime | the worker gets its processor back |
//! |---|---|
//! | built-in, shared object in process | at the end of a call: after 1 ms, the time of a packet |
//! | sandboxed | at the end of a slice |
//! | shared object in a process of its own | at once: the process has another processor |
//!
//! The worker has the highest priority, and the process the normal one.
//!
//! A hypervisor may stop a worker several times per second, for 10 ms and more. Therefore, the limits apply to the median
//! over windows of 50 ms. The report also has the delays of whole runs, and those of the plain flow alone.

mod two_workers;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use millrace_plugin::native::NativePlugin;
use millrace_plugin::process::ProcessPlugin;
use millrace_plugin_abi::Plugin;
use millrace_schedule::cpu::{CpuSchedulerKind, CpuShare};
use millrace_units::{Cycles, PrincipalId};

use super::burn::{BURN, Burn};
use super::gaps::Sandboxed;
use super::object::{can_compile, compile, in_processes, keeper};
use super::process::{OTHER, WORKER};
use super::wire::{Flow, Pace, Seen, Wire};
use super::{drive, failed, frequency, preemptions, settings};
use crate::family::Family;
use crate::interrupt::check;
use crate::memory::case::Case;
use crate::memory::setup::{GatesSetup, Pipeline, Place, Setup, frame};
use crate::statistics::median;
use crate::testbed::process::{beside, on_processor};
use crate::{BenchError, Bound, Measurement, Options, Quantiles, Subject};

/// Interval between packets of the plain flow: 10,000 packets per second.
const INTERVAL: Duration = Duration::from_micros(100);
/// Processor time of a packet of the plugin.
const PACKET: Duration = Duration::from_millis(1);
/// Rates of the plugin's packets per second.
const RATES: [u32; 2] = [500, MOST_RATE];
const MOST_RATE: u32 = 2000;
/// Duration of a run, and number of runs; the result is their median.
const TIME: Duration = Duration::from_secs(3);
const ROUNDS: usize = 3;
/// Maximum time in which the packets of a run leave the router after its end.
const PATIENCE: Duration = Duration::from_secs(8);
/// Length of the windows that a whole run is divided into.
pub(super) const WINDOW: Duration = Duration::from_millis(50);
/// Promised maxima of the plain flow's delay, as the median over the windows, in milliseconds.
const LONGEST: f64 = 5.0;
const LATE: f64 = 2.0;
/// Names of the runs to compare with.
const IN_LINE: &str = "without a principal";
const ALONE: &str = "alone";

/// Statement of a shared object for a packet: it burns this number of cycles.
const STATEMENT: &str =
    "for (uint64_t start = __builtin_ia32_rdtsc(); __builtin_ia32_rdtsc() - start < CYCLES;)
            __builtin_ia32_pause();";

/// Plugin that takes 1 ms for each packet.
struct Slow {
    /// Runtime of the plugin.
    runtime: &'static str,
    plugin: Arc<dyn Plugin>,
    /// Work of a packet, if the plugin reads it from there.
    work: Vec<u32>,
}

/// Traffic of the plugin.
#[derive(Clone, Copy, Debug)]
struct Beside {
    /// Packets per second.
    rate: u32,
    /// Whether the packets arrive at the port of the plain flow.
    same_port: bool,
}

/// Figures of the plain flow in one run: lost packets, and delays in milliseconds.
pub(super) struct Figures {
    pub lost: f64,
    /// Of the whole run.
    pub whole: Delays,
    /// Median over the windows of the run.
    pub usual: Delays,
    pub delays: Vec<f64>,
}

/// 99.9th percentile and maximum of delays in milliseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Delays {
    pub late: f64,
    pub longest: f64,
}

/// Runs of a case with a principal, and of the plain flow alone.
#[derive(Default)]
struct Runs {
    paid: Vec<Figures>,
    alone: Vec<Figures>,
}

impl fmt::Display for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = if self.same_port { "same port" } else { "other port" };
        write!(f, "{} packets/s of 1 ms, {port}", self.rate)
    }
}

pub(super) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let frequency = frequency()?;
    let mut results = Vec::new();
    let built_in = Slow::built_in(frequency);
    for rate in RATES {
        for same_port in [true, false] {
            let beside = Beside { rate, same_port };
            let (mut runs, mut in_line, mut disturbed) = (Runs::default(), Vec::new(), 0);
            for _ in 0..ROUNDS {
                let (figures, preemptions) = run_worker(&built_in, Some((beside, true)))?;
                runs.paid.push(figures);
                disturbed += preemptions;
                in_line.push(run_worker(&built_in, Some((beside, false)))?.0);
                runs.alone.push(run_worker(&built_in, None)?.0);
            }
            results.extend(report(&beside.to_string(), &runs, Some(&in_line), options));
            (options.progress)(&format!("other work took the worker's processor {disturbed} times"));
        }
    }
    results.extend(run_two_workers(&built_in, options)?);
    let sandboxed = Sandboxed::new()?;
    let mut others = vec![Slow::sandboxed(&sandboxed, frequency)?];
    if can_compile() {
        others.extend(Slow::shared_objects(frequency, options)?);
    } else {
        (options.progress)("isolation: no shared objects, because there is no C compiler `cc`");
    }
    for slow in others {
        for same_port in [true, false] {
            let beside = Beside { rate: MOST_RATE, same_port };
            let (mut runs, mut disturbed) = (Runs::default(), 0);
            for _ in 0..ROUNDS {
                let (figures, preemptions) = run_worker(&slow, Some((beside, true)))?;
                runs.paid.push(figures);
                disturbed += preemptions;
                runs.alone.push(run_worker(&slow, None)?.0);
            }
            results.extend(report(&format!("{}, {beside}", slow.runtime), &runs, None, options));
            (options.progress)(&format!("other work took the worker's processor {disturbed} times"));
        }
    }
    Ok(results)
}

/// Measures the built-in plugin at a worker, and the plain flow at another one.
fn run_two_workers(slow: &Slow, options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    if std::thread::available_parallelism().is_ok_and(|count| count.get() < 2) {
        (options.progress)("isolation: this machine has no second processor for a second worker");
        return Ok(Vec::new());
    }
    let (mut runs, mut in_line) = (Runs::default(), Vec::new());
    for _ in 0..ROUNDS {
        check()?;
        let measured = |beside| two_workers::measure(slow, beside, TIME).map(|seen| Figures::of(&seen));
        runs.paid.push(measured(Some((MOST_RATE, true)))?);
        in_line.push(measured(Some((MOST_RATE, false)))?);
        runs.alone.push(measured(None)?);
    }
    let beside = format!("{MOST_RATE} packets/s of 1 ms, other worker");
    Ok(report(&beside, &runs, Some(&in_line), options))
}

impl Slow {
    fn built_in(frequency: u64) -> Self {
        let Cycles(cycles) = Cycles::in_time(PACKET, frequency);
        Self { runtime: "built-in", plugin: Arc::new(Burn { name: BURN, cycles }), work: Vec::new() }
    }

    fn sandboxed(sandboxed: &Sandboxed, frequency: u64) -> Result<Self, BenchError> {
        let Cycles(cycles) = Cycles::in_time(PACKET, frequency);
        let iterations = cycles as f64 / sandboxed.cycles_of_an_iteration()?;
        Ok(Self { runtime: "sandboxed", plugin: sandboxed.plugin.clone(), work: vec![iterations as u32] })
    }

    /// Returns a shared object in process, and in a process of its own if that can have another processor.
    fn shared_objects(frequency: u64, options: &mut Options<'_>) -> Result<Vec<Self>, BenchError> {
        let native = Arc::new(NativePlugin::new(&object(PACKET, frequency)?).map_err(failed)?);
        let mut made = vec![Self { runtime: "shared object in process", plugin: native, work: Vec::new() }];
        if let Some(plugin) = shared_object_in_processes(PACKET, frequency, options)? {
            made.push(Self { runtime: "process", plugin: Arc::new(plugin), work: Vec::new() });
        }
        Ok(made)
    }
}

/// Compiles a shared object that burns a time for each packet.
fn object(packet: Duration, frequency: u64) -> Result<Vec<u8>, BenchError> {
    let Cycles(cycles) = Cycles::in_time(packet, frequency);
    compile(&STATEMENT.replace("CYCLES", &cycles.to_string()))
}

/// Returns a plugin that burns a time for each packet in a process of its own, on the other processor. Returns `None`,
/// and says why, if the machine has no C compiler or no second processor.
pub(super) fn shared_object_in_processes(
    packet: Duration,
    frequency: u64,
    options: &mut Options<'_>,
) -> Result<Option<ProcessPlugin>, BenchError> {
    if !can_compile() || std::thread::available_parallelism().is_ok_and(|count| count.get() < 2) {
        (options.progress)("no plugin process: this machine has no C compiler `cc`, or no second processor");
        return Ok(None);
    }
    let keeper = beside(OTHER, || keeper(&options.binary))??;
    in_processes(&object(packet, frequency)?, keeper).map(Some)
}

/// Returns the measurements of a case. `in_line` are runs without a principal.
fn report(
    beside: &str,
    runs: &Runs,
    in_line: Option<&[Figures]>,
    options: &mut Options<'_>,
) -> Vec<Measurement> {
    let name = |what: &str| format!("isolation, {beside}, {what}");
    let figures = |runs: &[Figures], of: fn(&Figures) -> f64| runs.iter().map(of).collect::<Vec<_>>();
    let promised = |what: &str, of: fn(&Figures) -> f64, unit: &str, limit: f64| {
        let measured = Measurement::median_of(name(what), &figures(&runs.paid, of), unit);
        let measured = match in_line {
            Some(runs) => measured.beside_runs(IN_LINE, &figures(runs, of)).peer_about(Subject::Millrace),
            None => measured,
        };
        measured.promising(Bound::AtMost, limit)
    };
    let whole = |what: &str, of: fn(&Figures) -> f64| {
        Measurement::median_of(name(what), &figures(&runs.paid, of), "ms")
            .beside_runs(ALONE, &figures(&runs.alone, of))
            .peer_about(Subject::Millrace)
    };
    let all = |runs: &[Figures]| runs.iter().flat_map(|run| run.delays.clone()).collect::<Vec<_>>();
    let mut distribution = Quantiles::of("delay, ms")
        .with(Subject::Millrace, "with a principal", &all(&runs.paid))
        .with(Subject::Peer, ALONE, &all(&runs.alone));
    if let Some(runs) = in_line {
        distribution = distribution.with(Subject::Peer, IN_LINE, &all(runs));
    }
    let results = vec![
        promised("lost packets", |run| run.lost, "packets", 0.0),
        promised("99.9th percentile delay in 50 ms", |run| run.usual.late, "ms", LATE),
        promised("longest delay in 50 ms", |run| run.usual.longest, "ms", LONGEST),
        whole("99.9th percentile delay", |run| run.whole.late).with_distribution(distribution),
        whole("longest delay", |run| run.whole.longest),
    ];
    for Measurement { case, ours, unit, peer, .. } in &results {
        let peer = peer.map_or_else(String::new, |peer| format!(" ({peer:.2})"));
        (options.progress)(&format!("{case}: {ours:.2} {unit}{peer}"));
    }
    results
}

impl Figures {
    pub fn of(seen: &Seen) -> Self {
        let delay = |[due, left]: &[u64; 2]| left.saturating_sub(*due) as f64 / 1e6;
        let mut windows: BTreeMap<u128, Vec<f64>> = BTreeMap::new();
        for times in &seen.times {
            windows.entry(u128::from(times[0]) / WINDOW.as_nanos()).or_default().push(delay(times));
        }
        let windows: Vec<Delays> = windows.into_values().map(|delays| Delays::of(&sorted(delays))).collect();
        let usual = |of: fn(&Delays) -> f64| median(&windows.iter().map(of).collect::<Vec<_>>());
        let delays = sorted(seen.times.iter().map(delay).collect());
        Self {
            lost: seen.sent.saturating_sub(seen.left) as f64,
            whole: Delays::of(&delays),
            usual: Delays { late: usual(|delays| delays.late), longest: usual(|delays| delays.longest) },
            delays,
        }
    }

    /// Returns the median delay in milliseconds.
    pub fn middle(&self) -> f64 {
        self.delays.get(self.delays.len() / 2).copied().unwrap_or_default()
    }
}

impl Delays {
    /// Returns the figures of delays in ascending order.
    fn of(delays: &[f64]) -> Self {
        let last = delays.len().saturating_sub(1);
        let at = |rank: usize| delays.get(rank.min(last)).copied().unwrap_or_default();
        Self { late: at(delays.len() * 999 / 1000), longest: at(last) }
    }
}

fn sorted(mut delays: Vec<f64>) -> Vec<f64> {
    delays.sort_by(f64::total_cmp);
    delays
}

/// Runs a worker on its processor. Returns the figures of the plain flow, and the number of times that other work took
/// the processor.
fn run_worker(slow: &Slow, beside: Option<(Beside, bool)>) -> Result<(Figures, i64), BenchError> {
    on_processor(WORKER, || Ok((Figures::of(&measure(slow, beside, TIME)?), preemptions())))?
}

/// Runs a worker for `time`: the plain flow beside packets of the plugin, which has a principal or not, or alone. Returns
/// the packets of the plain flow.
fn measure(slow: &Slow, beside: Option<(Beside, bool)>, time: Duration) -> Result<Seen, BenchError> {
    let flow = |port, net, interval, work: &[u32]| Flow {
        port,
        frame: frame(Family::V4, net, 0),
        pace: Pace::Every(interval),
        work: work.to_vec(),
    };
    let plugins = beside.map(|(beside, _)| {
        flow(usize::from(!beside.same_port), 31, Duration::from_secs(1) / beside.rate, &slow.work)
    });
    let wire = Wire::new(2, std::iter::once(flow(0, 30, INTERVAL, &[])).chain(plugins).collect());
    let case = Case { family: Family::V4, flows: 1 };
    let setup = Setup { gates: GatesSetup::Empty, ..Setup::default() };
    let mut pipeline = Pipeline::between(case, setup, wire.input(0), wire.output())?;
    pipeline.add_input(Place::numbered(2), wire.input(1));
    let payer = PrincipalId(1);
    pipeline.schedule_cpu(settings(CpuSchedulerKind::default(), frequency()?))?;
    pipeline.add_principal(payer, CpuShare::Weight(1))?;
    pipeline.create_instance(slow.plugin.clone(), BURN)?;
    let paid = beside.is_none_or(|(_, paid)| paid);
    pipeline.bind_instance(BURN, "monitor", "src 31.0.0.0/8", paid.then_some(payer))?;
    wire.start();
    drive(&mut pipeline, time)?;
    wire.end_arrivals();
    finish(&wire, &mut pipeline)
}

/// Runs the worker until its ports have no packets. Returns the packets of the plain flow.
pub(super) fn finish(wire: &Wire, pipeline: &mut Pipeline) -> Result<Seen, BenchError> {
    let (start, mut before) = (Clock::now(), 0);
    loop {
        check()?;
        // Packets of the plain flow never wait behind the plugin for long once the rings are empty.
        (0..64).for_each(|_| pipeline.iterate_now());
        let is_empty = wire.is_empty() && pipeline.sent == before;
        before = pipeline.sent;
        if is_empty || start.elapsed() > PATIENCE {
            return Ok(wire.seen(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_count_lost_packets_and_late_ones() {
        let times =
            (0..1000).map(|number| [number, number + if number == 7 { 9_000_000 } else { 1_000_000 }]);
        let figures = Figures::of(&Seen { sent: 1003, left: 1000, times: times.collect() });
        assert_eq!((figures.lost, figures.whole), (3.0, Delays { late: 9.0, longest: 9.0 }));
        assert_eq!(figures.delays[998], 1.0);
        let none = Figures::of(&Seen::default());
        assert_eq!((none.lost, none.whole, none.usual), (0.0, Delays::of(&[]), Delays::of(&[])));
    }

    #[test]
    fn few_disturbed_windows_leave_the_usual_delay() {
        let window = WINDOW.as_nanos() as u64;
        let times = |number: u64| {
            let delay = if number < 2 * 1000 { 9_000_000 } else { 40_000 };
            let due = number / 1000 * window + number % 1000;
            [due, due + delay]
        };
        let figures = Figures::of(&Seen { sent: 5000, left: 5000, times: (0..5000).map(times).collect() });
        assert_eq!(figures.usual, Delays { late: 0.04, longest: 0.04 });
        assert_eq!(figures.whole.late, 9.0);
    }

    #[test]
    fn plain_flow_loses_nothing_beside_a_slow_plugin_of_a_principal() {
        let beside = Beside { rate: 2000, same_port: false };
        let slow = Slow::built_in(frequency().unwrap());
        let seen = measure(&slow, Some((beside, true)), Duration::from_millis(100)).unwrap();
        // 1,000 in 100 ms. The machine may stop the worker at the end, before the last ones arrive.
        assert!(seen.sent >= 500, "{} packets", seen.sent);
        assert_eq!(seen.left, seen.sent);
    }
}
