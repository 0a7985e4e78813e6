//! `containment`: delay and loss of a flow with a reserved rate, while an instance at a gate misbehaves.

use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use millrace_plugin::wasm::Sandbox;
use millrace_schedule::Rate;
use millrace_wire::MacAddr;

use super::paced::{Arrivals, paced};
use super::{failed, module, plugin, sandbox};
use crate::family::Family;
use crate::interrupt::check;
use crate::memory::case::Case;
use crate::memory::setup::{GatesSetup, IN_MAC, OUT_MAC, Pipeline, Setup, flow, frame};
use crate::statistics::median;
use crate::{BenchError, Bound, Measurement, Options, Quantiles, Subject};

/// Interval between two packets of a flow: 50,000 packets per second.
const INTERVAL: Duration = Duration::from_micros(20);
/// Reserved rate of the measured flow; its actual rate is 35 Mb/s.
const RESERVED: Rate = Rate::from_megabits(50);
const PORT: Rate = Rate::from_megabits(10_000);
/// Duration of each case in one round.
const TIME: Duration = Duration::from_secs(2);
/// Number of rounds; the result is their median. A short disturbance of the machine thus affects only one
/// round.
const ROUNDS: usize = 5;
/// Promised maximum: 99th percentile of the flow's delay beside a misbehaving instance, as a multiple of the
/// 99th percentile without such an instance.
const DELAY_LIMIT: f64 = 2.0;

/// Name and module of each misbehaving plugin.
const CASES: [(&str, &[u8]); 4] = [
    ("nothing", module!("nothing")),
    ("loops", module!("loops")),
    ("traps", module!("traps")),
    ("grows", module!("grows")),
];

/// Results of the measured flow in all rounds of a case.
#[derive(Default)]
struct Seen {
    sent: u64,
    lost: u64,
    middle: Vec<f64>,
    late: Vec<f64>,
    /// Delays of all arriving packets in microseconds.
    delays: Vec<f64>,
}

/// Runs all cases of the benchmark `containment`.
pub(crate) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let sandbox = sandbox(true)?;
    let mut seen: [Seen; CASES.len()] = Default::default();
    for _ in 0..ROUNDS {
        for ((name, module), seen) in CASES.iter().zip(&mut seen) {
            round(&sandbox, name, module, seen)?;
        }
    }
    for ((name, _), Seen { sent, lost, middle, late, .. }) in CASES.iter().zip(&seen) {
        let (middle, late) = (median(middle), median(late));
        (options.progress)(&format!(
            "flow beside an instance ({name}): {lost} of {sent} packets lost, delay {middle:.1} us (median), {late:.1} us (99th percentile)"
        ));
    }
    let [nothing, bad @ ..] = &seen;
    let usual = median(&nothing.late);
    let mut results = vec![Measurement::of("99th percentile delay, beside a correct instance", usual, "us")];
    for ((name, _), Seen { lost, late, delays, .. }) in CASES[1..].iter().zip(bad) {
        let case = format!("lost packets, beside an instance that {name}");
        results.push(Measurement::of(case, *lost as f64, "packets").promising(Bound::AtMost, 0.0));
        let case = format!("99th percentile delay, beside an instance that {name}");
        let delay = Measurement::of(case, median(late), "us").beside("beside a correct instance", usual);
        let distribution = Quantiles::of("delay, us")
            .with(Subject::Millrace, &format!("beside an instance that {name}"), delays)
            .with(Subject::Peer, "beside a correct instance", &nothing.delays);
        results.push(delay.promising_ratio(Bound::AtMost, DELAY_LIMIT).with_distribution(distribution));
    }
    Ok(results)
}

/// Runs one round of a case.
fn round(sandbox: &Sandbox, name: &str, module: &[u8], seen: &mut Seen) -> Result<(), BenchError> {
    let (mut pipeline, arrivals) = pipeline()?;
    let bystander = flow(30, 0).ok_or_else(|| failed("the bystander has no flow"))?;
    pipeline.reserve(bystander, RESERVED, PORT)?;
    let plugin = Arc::new(plugin(sandbox, module)?);
    pipeline.add_instance(plugin, name, "monitor", "src 31.0.0.0/8")?;
    drive(&mut pipeline, &arrivals)?;
    let (sent, came, middle, late) = arrivals.of_first();
    seen.sent += sent;
    seen.lost += sent.saturating_sub(came);
    seen.middle.push(middle);
    seen.late.push(late);
    seen.delays.extend(arrivals.delays_of_first());
    Ok(())
}

fn pipeline() -> Result<(Pipeline, Arrivals), BenchError> {
    let case = Case { family: Family::V4, flows: 1 };
    let templates = [30, 31].map(|net| frame(case.family, net, 0)).to_vec();
    let ([input, output], arrivals) = paced(templates, INTERVAL, [MacAddr(IN_MAC), MacAddr(OUT_MAC)]);
    let setup = Setup { gates: GatesSetup::Empty, ..Setup::default() };
    Ok((Pipeline::between(case, setup, Box::new(input), Box::new(output))?, arrivals))
}

/// Runs the worker in real time for [`TIME`].
fn drive(pipeline: &mut Pipeline, arrivals: &Arrivals) -> Result<(), BenchError> {
    for time in [Duration::from_millis(200), TIME] {
        arrivals.restart();
        let start = Clock::now();
        while start.elapsed() < time {
            check()?;
            (0..1000).for_each(|_| pipeline.iterate_now());
        }
        // Further iterations, in which the remaining packets are sent.
        (0..4).for_each(|_| pipeline.iterate_now());
    }
    Ok(())
}
