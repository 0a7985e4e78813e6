//! `process`: call and return of an instance in a process of its own, through the ring in shared memory.
//!
//! The plugin is a shared object that reads the first byte of each packet. Its process has a processor of its
//! own, or that of the worker. The figures include copying descriptions and windows, and the worker's checks.
//!
//! On the worker's processor, a call takes two switches between processes. The peer of this case is their minimum:
//! two processes on one processor that only poll words of shared memory, and yield the processor to each other.

use std::path::Path;
use std::time::{Duration, Instant as Clock};

use millrace_packet::Pool;
use millrace_plugin::process::ProcessPlugin;
use millrace_plugin_abi::{Instance, Plugin, Verdict};
use serde_json::Map;

use super::failed;
use super::object::{can_compile, compile, in_processes, keeper};
use crate::interrupt::check;
use crate::plugins::call::{Batch, cost_of, round_trip};
use crate::plugins::shared_ring::Idle;
use crate::statistics::median;
use crate::testbed::process::{Processor, on_processor};
use crate::{BenchError, Bound, Measurement, Options};

/// Processors of the worker and of the process.
pub(super) const WORKER: Processor = 0;
pub(super) const OTHER: Processor = 1;
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
/// Promised maximum of the last figure where two switches alone take more than [`OWN_LIMIT`] would allow: ratio to
/// their minimum.
const OWN_RATIO: f64 = 1.5;
/// Promised maximum: time from a crash to the next packet, in milliseconds.
const RESTART_LIMIT: f64 = 50.0;
/// First byte of a packet that crashes the plugin.
const CRASHES: u8 = 0xff;

/// Statement of the plugin for a packet.
const STATEMENT: &str = "if (*window == 0xff) __builtin_trap();";

pub(super) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    if !can_compile() {
        (options.progress)("process: skipped, because there is no C compiler `cc`");
        return Ok(Vec::new());
    }
    let object = compile(STATEMENT)?;
    let mut results = Vec::new();
    if std::thread::available_parallelism().is_ok_and(|count| count.get() > 1) {
        let plugin = in_processes(&object, on_processor(OTHER, || keeper(&options.binary))??)?;
        results.extend(on_processor(WORKER, || elsewhere(&plugin))??);
    } else {
        (options.progress)("process: this machine has no second processor");
    }
    let plugin = in_processes(&object, on_processor(WORKER, || keeper(&options.binary))??)?;
    results.extend(on_processor(WORKER, || here(&plugin, &options.binary))??);
    for Measurement { case, ours, unit, peer, peer_name, .. } in &results {
        let peer = peer_name.as_ref().zip(*peer).map(|(name, peer)| format!(" ({name}: {peer:.1})"));
        (options.progress)(&format!("{case}: {ours:.1} {unit}{}", peer.unwrap_or_default()));
    }
    Ok(results)
}

/// Returns the nanoseconds that a worker takes to exchange a packet with a plugin process, in calls of [`BATCH`]
/// packets. The process has a processor of its own if the machine has two.
pub(crate) fn time_of_exchange(binary: &Path) -> Result<f64, BenchError> {
    if !can_compile() {
        return Err(failed("there is no C compiler `cc` for the plugin that is called"));
    }
    let is_beside = std::thread::available_parallelism().is_ok_and(|count| count.get() > 1);
    let (other, idle) = match is_beside {
        true => (OTHER, std::hint::spin_loop as fn()),
        false => (WORKER, std::thread::yield_now as fn()),
    };
    let plugin = in_processes(&compile(STATEMENT)?, on_processor(other, || keeper(binary))??)?;
    on_processor(WORKER, || {
        let mut bench = Bench::new(&plugin, BATCH, idle)?;
        let times = (0..REPETITIONS).map(|_| {
            check()?;
            let (nanoseconds, _) = cost_of(CALLS, || bench.batch.call(&mut *bench.instance, idle));
            bench.require_pass()?;
            Ok(nanoseconds / BATCH as f64)
        });
        Ok(median(&times.collect::<Result<Vec<f64>, BenchError>>()?))
    })?
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
fn here(plugin: &ProcessPlugin, binary: &Path) -> Result<Vec<Measurement>, BenchError> {
    let calls = Bench::new(plugin, BATCH, std::thread::yield_now)?.cycles()?;
    let switches: Vec<f64> = round_trip(binary, Idle::Yield)?.into_iter().map(|(_, cycles)| cycles).collect();
    let case = format!("process, call of {BATCH} packets, the worker's processor");
    let limit = OWN_LIMIT.max(OWN_RATIO * median(&switches));
    Ok(vec![
        Measurement::median_of(case, &calls, "cycles")
            .beside_runs("two processes that only yield to each other", &switches)
            .promising(Bound::AtMost, limit),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugin_is_a_shared_object_for_processes() {
        if !can_compile() {
            println!("skipped: there is no cc");
            return;
        }
        let plugin =
            in_processes(&compile(STATEMENT).unwrap(), keeper(Path::new("/nowhere")).unwrap()).unwrap();
        assert_eq!(plugin.name(), "bench");
        let refused = plugin.create(&Map::new()).err().unwrap().to_string();
        assert!(refused.contains("can't start its process"), "{refused}");
    }
}
