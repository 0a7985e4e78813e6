//! `containment`: a flow beside an instance that misbehaves.

use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use millrace_wire::MacAddr;

use super::paced::{Arrivals, paced};
use super::{plugin, sandbox};
use crate::interrupt::check;
use crate::memory::case::{Case, Family};
use crate::memory::setup::{GatesSetup, IN_MAC, OUT_MAC, Pipeline, Setup, frame};
use crate::{BenchError, Bound, Measurement, Options};

/// Time between two packets of a flow: 50,000 in a second.
const INTERVAL: Duration = Duration::from_micros(20);
/// How long each case takes.
const TIME: Duration = Duration::from_secs(5);
/// Promised: the delay of 99 in 100 packets of the bystander, over that without the other one.
const DELAY_LIMIT: f64 = 2.0;

/// What instances do to the packets of the other flow.
const CASES: [(&str, &str); 4] = [
    ("nothing", r#"(func (export "millrace_packets") (param i32))"#),
    ("loops", r#"(func (export "millrace_packets") (param i32) (loop $on (br $on)))"#),
    ("traps", r#"(func (export "millrace_packets") (param i32) unreachable)"#),
    (
        "grows",
        r#"(func (export "millrace_packets") (param i32)
          (loop $on (br_if $on (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))) unreachable)"#,
    ),
];

/// Runs all cases.
pub(crate) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let sandbox = sandbox()?;
    let mut results = Vec::new();
    let mut usual = 0.0;
    for (name, body) in CASES {
        let (mut pipeline, arrivals) = pipeline()?;
        let plugin = Arc::new(plugin(&sandbox, "", "", body)?);
        pipeline.add_instance(plugin, name, "monitor", "src 31.0.0.0/8")?;
        drive(&mut pipeline, &arrivals)?;
        let (sent, came, middle, late) = arrivals.of_first();
        let lost = sent.saturating_sub(came);
        (options.progress)(&format!(
            "beside an instance that does this: {name}: {lost} of {sent} lost, delay {middle:.1} us, {late:.1} us for 99 of 100"
        ));
        if name == "nothing" {
            usual = late;
            results.push(Measurement::of(
                "delay of the bystander, 99 of 100, beside nothing bad",
                late,
                "us",
            ));
            continue;
        }
        results.push(
            Measurement::of(
                format!("bystander's packets lost, the other one {name}"),
                lost as f64,
                "packets",
            )
            .promising(Bound::AtMost, 0.0),
        );
        results.push(
            Measurement::of(format!("delay of the bystander, 99 of 100, the other one {name}"), late, "us")
                .beside("nothing bad", usual)
                .promising_ratio(Bound::AtMost, DELAY_LIMIT),
        );
    }
    Ok(results)
}

fn pipeline() -> Result<(Pipeline, Arrivals), BenchError> {
    let case = Case { family: Family::V4, flows: 1 };
    let templates = [30, 31].map(|net| frame(case.family, net, 0)).to_vec();
    let ([input, output], arrivals) = paced(templates, INTERVAL, [MacAddr(IN_MAC), MacAddr(OUT_MAC)]);
    let setup = Setup { gates: GatesSetup::Empty, ..Setup::default() };
    Ok((Pipeline::between(case, setup, Box::new(input), Box::new(output))?, arrivals))
}

/// Runs the worker in real time.
fn drive(pipeline: &mut Pipeline, arrivals: &Arrivals) -> Result<(), BenchError> {
    for time in [Duration::from_millis(200), TIME] {
        arrivals.restart();
        let start = Clock::now();
        while start.elapsed() < time {
            check()?;
            (0..1000).for_each(|_| pipeline.turn_now());
        }
        // What is inside comes out.
        (0..4).for_each(|_| pipeline.turn_now());
    }
    Ok(())
}
