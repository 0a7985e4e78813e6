//! `process`: call and return of an instance in a process of its own, through the ring in shared memory.
//!
//! The plugin is a shared object that reads the first byte of each packet. Its process has a processor of its
//! own, or that of the worker. The figures include copying descriptions and windows, and the worker's checks.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use millrace_packet::Pool;
use millrace_plugin::process::ProcessPlugin;
use millrace_plugin_abi::{Instance, Plugin, Verdict};
use millrace_plugin_process::{ChildCommand, ProcessKeeper};
use serde_json::Map;

use super::failed;
use crate::interrupt::check;
use crate::plugins::call::{Batch, cost_of};
use crate::testbed::process::{Processor, is_installed, on_processor};
use crate::testbed::scratch::Scratch;
use crate::{BenchError, Bound, Measurement, Options};

/// Processors of the worker and of the process.
const WORKER: Processor = 0;
const OTHER: Processor = 1;
/// Number of repetitions; the result is their median.
const REPETITIONS: usize = 21;
/// Number of calls per repetition.
const CALLS: u64 = 2000;
/// Number of packets per call.
const BATCH: usize = 32;
/// Time without a call after which the process certainly sleeps.
const PAUSE: Duration = Duration::from_millis(1);
/// Promised maximum: cycles per packet in a call of [`BATCH`] packets, of a call with one packet, and of a
/// call at the worker's own processor.
const PACKET_LIMIT: f64 = 300.0;
const SINGLE_LIMIT: f64 = 1360.0;
const OWN_LIMIT: f64 = 6000.0;
/// Promised maximum: time from a crash to the next packet, in milliseconds.
const RESTART_LIMIT: f64 = 50.0;
/// First byte of a packet that crashes the plugin.
const CRASHES: u8 = 0xff;

/// Header of the kit.
const HEADER: &str = include_str!("../../../sdk/c/millrace.h");

/// Plugin without the header of the kit. The offsets are those of the plugin ABI.
const CODE: &str = r#"#include <stdint.h>
#include <stdlib.h>
static const char text[] __attribute__((used, section("millrace.manifest"))) =
    "{\"abi\":1,\"name\":\"bench\",\"version\":\"1.0.0\",\"summary\":\"For benches.\",\"positions\":[\"late\"]}";
const char *millrace_manifest(void) { return text; }
void millrace_attach(const void *table) { (void)table; }
uint32_t millrace_abi(void) { return 1; }
void *millrace_reserve(size_t bytes) { return malloc(bytes ? bytes : 1); }
void millrace_release(void *address, size_t bytes) { (void)bytes; free(address); }
int32_t millrace_init(const uint8_t *settings, size_t bytes) { (void)settings; (void)bytes; return 0; }
void millrace_packets(const uint8_t *call) {
    const uint8_t *packet = *(const uint8_t *const *)(call + 16);
    for (uint32_t i = *(const uint32_t *)(call + 4); i > 0; i--, packet += 64)
        if (**(const uint8_t *const *)(packet + 8) == 0xff) __builtin_trap();
}
"#;

pub(super) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    if !is_possible("process", options) {
        return Ok(Vec::new());
    }
    let object = object(CODE, &[])?;
    let mut results = Vec::new();
    if std::thread::available_parallelism().is_ok_and(|count| count.get() > 1) {
        let plugin = plugin(&object, &options.binary, OTHER)?;
        results.extend(on_processor(WORKER, || elsewhere(&plugin))??);
    } else {
        (options.progress)("process: this machine has no second processor");
    }
    let plugin = plugin(&object, &options.binary, WORKER)?;
    results.extend(on_processor(WORKER, || here(&plugin))??);
    for Measurement { case, ours, unit, .. } in &results {
        (options.progress)(&format!("{case}: {ours:.1} {unit}"));
    }
    Ok(results)
}

/// Whether a plugin can be compiled. If not, reports that the case `case` is skipped.
pub(super) fn is_possible(case: &str, options: &mut Options<'_>) -> bool {
    let is_possible = is_installed("cc");
    if !is_possible {
        (options.progress)(&format!("{case}: skipped, because there is no C compiler `cc`"));
    }
    is_possible
}

/// Compiles a plugin to a shared object. Its code may include the header of the kit.
pub(super) fn object(code: &str, flags: &[&str]) -> Result<Vec<u8>, BenchError> {
    let scratch = Scratch::new()?;
    let (source, built) = (scratch.write("plugin.c", code)?, scratch.file("plugin.so"));
    scratch.write("millrace.h", HEADER)?;
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&built).arg(&source).args(flags);
    let output = cc.output().map_err(failed)?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr)));
    }
    std::fs::read(&built).map_err(failed)
}

/// Prepares the plugin, whose processes run on `processor`.
fn plugin(object: &[u8], binary: &Path, processor: Processor) -> Result<ProcessPlugin, BenchError> {
    // Processes inherit the processor of the thread that starts the keeper.
    let keeper = on_processor(processor, || keeper(binary))??;
    ProcessPlugin::new(object, Arc::new(keeper)).map_err(failed)
}

/// Starts a keeper of processes. `binary`: the router's binary.
pub(super) fn keeper(binary: &Path) -> Result<ProcessKeeper, BenchError> {
    let command = ChildCommand { program: binary.to_owned(), arguments: vec!["plugin-process".into()] };
    ProcessKeeper::start(command).map_err(failed)
}

/// Instance under test, with the packets of a call.
struct Bench {
    instance: Box<dyn Instance>,
    pool: Pool,
    batch: Batch,
    /// Wait of the worker between two looks for the answer.
    idle: fn(),
}

impl Bench {
    fn new(plugin: &ProcessPlugin, packets: usize, idle: fn()) -> Result<Self, BenchError> {
        let instance = plugin.create(&Map::new()).map_err(failed)?;
        let pool = Pool::new(256).map_err(failed)?;
        Ok(Self { instance, batch: Batch::new(&pool, packets)?, pool, idle })
    }

    /// Returns the cycles of a call in each repetition.
    fn cycles(&mut self) -> Result<Vec<f64>, BenchError> {
        let repetition = |_| {
            check()?;
            let (_, cycles) = cost_of(CALLS, || self.batch.call(&mut *self.instance, self.idle));
            self.require_pass()?;
            Ok(cycles)
        };
        (0..REPETITIONS).map(repetition).collect()
    }

    /// Returns the time of a call in each repetition, when the process sleeps at its start, in microseconds.
    fn wake_ups(&mut self) -> Result<Vec<f64>, BenchError> {
        let repetition = |_| {
            check()?;
            std::thread::sleep(PAUSE);
            let (nanoseconds, _) = cost_of(1, || self.batch.call(&mut *self.instance, self.idle));
            self.require_pass()?;
            Ok(nanoseconds / 1000.0)
        };
        (0..10 * REPETITIONS).map(repetition).collect()
    }

    /// Returns the time from a crash to the next packet that passes in each repetition, in milliseconds.
    fn restarts(&mut self) -> Result<Vec<f64>, BenchError> {
        let mut crash = Batch::new(&self.pool, 1)?;
        crash.packets[0].data_mut()[0] = CRASHES;
        let repetition = |_| {
            check()?;
            crash.call(&mut *self.instance, self.idle);
            let fault = self.instance.take_fault();
            let fault = fault.ok_or_else(|| failed("a packet that crashes the plugin caused no fault"))?;
            if fault.kind != "crash" {
                return Err(failed(fault.text));
            }
            let begun = Clock::now();
            self.instance.restart().map_err(failed)?;
            self.batch.call(&mut *self.instance, self.idle);
            self.require_pass()?;
            Ok(begun.elapsed().as_secs_f64() * 1e3)
        };
        (0..REPETITIONS).map(repetition).collect()
    }

    fn require_pass(&mut self) -> Result<(), BenchError> {
        match self.instance.take_fault() {
            Some(fault) => Err(failed(fault.text)),
            None if self.batch.verdicts.iter().all(|verdict| *verdict == Verdict::Pass) => Ok(()),
            None => Err(failed("the plugin lets a packet not pass")),
        }
    }
}

/// Measures a process on another processor.
fn elsewhere(plugin: &ProcessPlugin) -> Result<Vec<Measurement>, BenchError> {
    let each: Vec<f64> = Bench::new(plugin, BATCH, std::hint::spin_loop)?.cycles()?;
    let each: Vec<f64> = each.into_iter().map(|cycles| cycles / BATCH as f64).collect();
    let mut one = Bench::new(plugin, 1, std::hint::spin_loop)?;
    let single = one.cycles()?;
    let (woken, restarts) = (one.wake_ups()?, one.restarts()?);
    Ok(vec![
        Measurement::median_of(
            format!("process, calls of {BATCH} packets, another processor"),
            &each,
            "cycles/packet",
        )
        .promising(Bound::AtMost, PACKET_LIMIT),
        Measurement::median_of("process, one packet, another processor", &single, "cycles")
            .promising(Bound::AtMost, SINGLE_LIMIT),
        Measurement::median_of("process, one packet, asleep on another processor", &woken, "us"),
        Measurement::median_of("process, restart after a crash", &restarts, "ms")
            .promising(Bound::AtMost, RESTART_LIMIT),
    ])
}

/// Measures a process on the worker's own processor.
fn here(plugin: &ProcessPlugin) -> Result<Vec<Measurement>, BenchError> {
    let calls = Bench::new(plugin, BATCH, std::thread::yield_now)?.cycles()?;
    let case = format!("process, call of {BATCH} packets, the worker's processor");
    Ok(vec![Measurement::median_of(case, &calls, "cycles").promising(Bound::AtMost, OWN_LIMIT)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugin_is_a_shared_object_for_processes() {
        if !is_installed("cc") {
            println!("skipped: there is no cc");
            return;
        }
        let plugin = plugin(&object(CODE, &[]).unwrap(), Path::new("/nowhere"), WORKER).unwrap();
        assert_eq!(plugin.name(), "bench");
        let refused = plugin.create(&Map::new()).err().unwrap().to_string();
        assert!(refused.contains("can't start its process"), "{refused}");
    }
}
