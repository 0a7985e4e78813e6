//! `contexts`: calls of an instance that block, with one context and with several.
//!
//! The plugin is a shared object whose calls sleep for 1 ms. Each context has a process. The worker has packets of
//! many flows for all of them, so each context begins its next call as soon as a call ends.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use millrace_plugin::process::ProcessPlugin;

use super::failed;
use super::object::{can_compile, compile_whole, keeper};
use super::wire::{Flow, Pace, Wire};
use crate::family::Family;
use crate::interrupt::check;
use crate::memory::case::Case;
use crate::memory::setup::{GatesSetup, Pipeline, Setup, frame};
use crate::statistics::median;
use crate::{BenchError, Bound, Measurement, Options, Subject};

/// Number of contexts that is compared with one.
const CONTEXTS: u8 = 8;
/// Number of flows. Each has one packet in the router.
const FLOWS: u32 = 64;
/// Time of a measurement, and time before it.
const TIME: Duration = Duration::from_secs(1);
const WARM_UP: Duration = Duration::from_millis(100);
const ROUNDS: usize = 5;
/// Promised minimum: calls of several contexts per call of one.
const LIMIT: f64 = 7.0;

/// Plugin that counts its calls, and sleeps in each. Its process may sleep only at a futex.
const CODE: &str = r#"#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "millrace.h"
MILLRACE_PLUGIN("{\"abi\":1,\"name\":\"sleep\",\"version\":\"1.0.0\",\"summary\":\"For benches.\","
                "\"positions\":[\"late\"],\"counters\":[\"calls\"],\"contexts\":" CONTEXTS "}");
int32_t millrace_init(const uint8_t *settings, size_t bytes) { (void)settings; (void)bytes; return 0; }
void millrace_packets(struct millrace_call *call) {
    static uint32_t word;
    struct timespec time = {0, 1000000};
    (void)call;
    if (syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &time) != -1 || errno != ETIMEDOUT)
        __builtin_trap();
    millrace_count(0, 1);
}
"#;

pub(super) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    if !can_compile() {
        (options.progress)("contexts: skipped, because there is no C compiler `cc`");
        return Ok(Vec::new());
    }
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (contexts, rates) in [1, CONTEXTS].into_iter().zip(&mut rates) {
            rates.push(measure(contexts, &options.binary, TIME)?);
        }
    }
    let [one, several] = &rates;
    (options.progress)(&format!(
        "contexts: {:.0} calls/s with one, {:.0} with {CONTEXTS}",
        median(one),
        median(several)
    ));
    let case = format!("contexts, {CONTEXTS}, calls that block 1 ms");
    Ok(vec![
        Measurement::median_of(case, several, "calls/s")
            .beside_pairs("one context", several, one)
            .peer_about(Subject::Millrace)
            .promising_ratio(Bound::AtLeast, LIMIT),
    ])
}

/// Returns the calls per second of an instance with this number of contexts.
fn measure(contexts: u8, binary: &Path, time: Duration) -> Result<f64, BenchError> {
    let bytes = compile_whole(CODE, &[&format!("-DCONTEXTS=\"{contexts}\"")])?;
    let plugin = ProcessPlugin::new(&bytes, Arc::new(keeper(binary)?)).map_err(failed)?;
    let flow = |number| Flow {
        port: 0,
        frame: frame(Family::V4, 31, number),
        pace: Pace::Window(1),
        work: Vec::new(),
    };
    let wire = Wire::new(1, (0..FLOWS).map(flow).collect());
    let case = Case { family: Family::V4, flows: FLOWS };
    let setup = Setup { gates: GatesSetup::Empty, ..Setup::default() };
    let mut pipeline = Pipeline::between(case, setup, wire.input(0), wire.output())?;
    pipeline.create_instance(Arc::new(plugin), "sleep")?;
    pipeline.bind_instance("sleep", "monitor", "src 31.0.0.0/8", None)?;
    wire.start();
    drive(&mut pipeline, WARM_UP)?;
    let (before, start) = (calls(&mut pipeline)?, Clock::now());
    drive(&mut pipeline, time)?;
    let made = calls(&mut pipeline)? - before;
    Ok(made as f64 / start.elapsed().as_secs_f64())
}

/// Runs the worker for `time`. Between two iterations, other threads may have the processor.
fn drive(pipeline: &mut Pipeline, time: Duration) -> Result<(), BenchError> {
    let start = Clock::now();
    while start.elapsed() < time {
        check()?;
        pipeline.iterate_now();
        std::thread::yield_now();
    }
    Ok(())
}

/// Returns the calls that the instance has counted.
fn calls(pipeline: &mut Pipeline) -> Result<u64, BenchError> {
    let instances = pipeline.snapshot().instances;
    let counted = instances.iter().find_map(|(_, report)| Some((report, *report.counters.get("calls")?)));
    match counted {
        Some((report, calls)) if report.faults.is_empty() => Ok(calls),
        Some((report, _)) => Err(failed(&report.last_fault)),
        None => Err(failed("the instance is missing")),
    }
}

#[cfg(test)]
mod tests {
    use crate::testbed::process::is_installed;

    use super::*;

    #[test]
    fn plugin_declares_its_contexts() {
        if !is_installed("cc") {
            println!("skipped: there is no cc");
            return;
        }
        for contexts in [1, CONTEXTS] {
            let bytes = compile_whole(CODE, &[&format!("-DCONTEXTS=\"{contexts}\"")]).unwrap();
            assert_eq!(millrace_plugin::manifest_of(&bytes).unwrap().calls.contexts, contexts);
        }
    }
}
