//! Measurement of a plugin's costs on this machine.

use std::time::{Duration, Instant as Clock};

use millrace_packet::Pool;
use millrace_plugin::{Cost, KindCost};
use millrace_units::count;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::impact::{Point, cost};
use crate::inspect::Outline;
use crate::memory::resident;
use crate::meter::{BatchCost, Meter, PATIENCE, Spread};
use crate::ready::instance_of;
use crate::{Module, ObjectRuntime, WorkbenchError};

/// Batch sizes to measure, in packets per call.
const BATCHES: [usize; 4] = [1, 8, 32, 64];
/// Length of the packets in bytes, link header included.
const BYTES: usize = 128;
/// Lengths of packets to measure, in calls of [`SIZED`] packets.
const SIZES: [usize; 3] = [64, 512, 1500];
const SIZED: usize = 32;
/// Passes over all kinds of calls.
const PASSES: u32 = 3;
/// Kinds of processors.
const WORKER: &str = "worker";
const PROCESS: &str = "process";

/// Costs of a plugin on this machine: time and memory.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Costs {
    /// Name of the plugin.
    pub plugin: String,
    /// Version of the plugin.
    pub version: String,
    /// Runtime of the plugin, with an explanation.
    pub runtime: &'static str,
    /// Costs before the first packet.
    #[serde(flatten)]
    pub start: StartCosts,
    /// Length of the packets in bytes, link header included.
    pub packet: usize,
    /// Costs of calls, by their number of packets.
    pub batches: Vec<BatchCost>,
    /// Costs of calls of 32 packets, by the length of the packets.
    pub sizes: Vec<BatchCost>,
    /// Packets that left the plugin for each packet that arrived.
    pub output: f64,
    /// Use of the ring to the process of the plugin; `None` if no process runs the plugin, and on a machine without
    /// a time-stamp counter.
    pub ring: Option<RingUse>,
    /// Cost as measured, in the form of a manifest; `None` on a machine without a time-stamp counter.
    pub measured: Option<Value>,
    /// Cost that the manifest declares; `None` if it declares none.
    pub declared: Option<Value>,
}

/// Costs of a plugin before its first packet.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct StartCosts {
    /// Size of the module in bytes.
    pub module: usize,
    /// Size of the compiled code with its data, in bytes. For a shared object or executable, the size of its file.
    pub code: usize,
    /// Time to compile the module, or to load the shared object, in milliseconds.
    pub compile: f64,
    /// Time to create an instance, with its process, in milliseconds.
    pub create: f64,
    /// Initial memory of an instance in bytes, as the module declares it.
    pub memory: u64,
    /// Resident memory of an instance in bytes, before its first packet; 0 if the system doesn't report it.
    pub resident: u64,
}

/// Use of the ring between a worker and the process of a plugin.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct RingUse {
    /// Transfers of each packet: to the process, and of the packets that leave it.
    pub transfers: f64,
    /// Cycles of the worker per call.
    pub call: f64,
    /// Cycles of the worker per packet.
    pub packet: f64,
    /// Cycles of the worker per byte of a packet.
    pub byte: f64,
}

/// Measures a plugin with settings, in about four seconds plus its compile time. `runtime` is that of a shared object
/// or executable. `progress` gets a line at each step.
///
/// # Errors
/// The file is not a plugin, the plugin can't run in this runtime or refuses the settings, or a call fails.
pub fn measure(
    module: &Module,
    settings: &Map<String, Value>,
    runtime: ObjectRuntime,
    progress: &mut dyn FnMut(&str),
) -> Result<Costs, WorkbenchError> {
    progress("compiling or loading the plugin");
    let compiled = module.compile(runtime)?;
    let plugin = module.load(&compiled)?;
    let begin = Clock::now();
    let instance = instance_of(&*plugin, settings)?;
    let create = milliseconds(begin.elapsed());
    progress("measuring the memory of instances");
    let has_processes = compiled.runtime().has_processes();
    let start = StartCosts {
        module: module.bytes().len(),
        code: compiled.code().unwrap_or(module.bytes().len()),
        compile: milliseconds(compiled.took),
        create,
        memory: Outline::read(module.bytes()).memory,
        resident: resident(has_processes, || instance_of(&*plugin, settings))?,
    };
    let pool = Pool::new(1024).map_err(|error| WorkbenchError::Memory(error.to_string()))?;
    let mut meter = Meter::new(instance, &pool);
    let (batches, sizes) = measure_calls(&mut meter, progress)?;
    progress("measuring calls for timers");
    let (fixed, output) = (meter.timers()?, meter.output());
    let kind = if has_processes { PROCESS } else { WORKER };
    let cycles = fixed.zip(calls(&batches, &sizes, |batch| batch.cycles));
    let measured = cycles.map(|(fixed, cycles)| Cost {
        on: [(kind.to_owned(), KindCost { fixed, ..cycles }.rounded())].into(),
        memory: start.memory.max(start.resident) as f64,
        // Other packets may pass where these were dropped.
        output: (output.max(1.0) * 100.0).round() / 100.0,
        whole_packet: has_processes && usize::from(compiled.manifest().window) >= SIZES[SIZES.len() - 1],
        ..Cost::default()
    });
    Ok(Costs {
        plugin: plugin.name().to_owned(),
        version: plugin.version().to_owned(),
        runtime: compiled.runtime().text(),
        start,
        packet: BYTES,
        ring: ring_use(&batches, &sizes, output),
        batches,
        sizes,
        output,
        measured: measured.map(|cost| cost.written()),
        declared: compiled.manifest().calls.cost.as_ref().map(Cost::written),
    })
}

/// Measures all kinds of calls several times in turn. Returns, for each number of packets and for each length, the calls
/// of the pass with the least median: other load on the machine lengthens calls for a while.
fn measure_calls(
    meter: &mut Meter,
    progress: &mut dyn FnMut(&str),
) -> Result<(Vec<BatchCost>, Vec<BatchCost>), WorkbenchError> {
    let kinds = BATCHES.map(|packets| (packets, BYTES)).into_iter().chain(SIZES.map(|bytes| (SIZED, bytes)));
    let mut best: Vec<BatchCost> = Vec::new();
    for pass in 1..=PASSES {
        for (index, (packets, bytes)) in kinds.clone().enumerate() {
            let packets_text = count(packets, "packet");
            progress(&format!("measuring calls of {packets_text}, {bytes} bytes each ({pass} of {PASSES})"));
            let calls = meter.batch(packets, bytes, PATIENCE / PASSES)?;
            match best.get_mut(index) {
                Some(best) => best.keep_least(calls),
                None => best.push(calls),
            }
        }
    }
    let sizes = best.split_off(BATCHES.len());
    Ok((best, sizes))
}

/// Returns the use of the ring to a process by calls, of which each packet has `output` results.
fn ring_use(batches: &[BatchCost], sizes: &[BatchCost], output: f64) -> Option<RingUse> {
    let KindCost { call, packet, byte, .. } = calls(batches, sizes, |batch| batch.exchange)?;
    Some(RingUse { transfers: 1.0 + output, call, packet, byte })
}

/// Returns the part `part` of the cycles of calls; `None` without cycles.
fn calls(
    batches: &[BatchCost],
    sizes: &[BatchCost],
    part: fn(&BatchCost) -> Option<Spread>,
) -> Option<KindCost> {
    let point = |batch: &BatchCost| {
        let (packets, bytes) = (batch.packets as f64, batch.bytes as f64);
        Some(Point { packets, bytes, cycles: part(batch)?.median * packets })
    };
    let points = |of: &[BatchCost]| of.iter().map(point).collect::<Option<Vec<_>>>();
    let most = part(batches.first()?)?.p99;
    cost(&points(batches)?, &points(sizes)?, most)
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use millrace_pipeline::cycles;
    use millrace_plugin::process::Keeper;

    use super::*;
    use crate::ready::test_modules::{Written, for_each, module};

    fn measured(module: &Module) -> Result<Costs, WorkbenchError> {
        measure(module, &Map::new(), ObjectRuntime::InProcess, &mut |_| {})
    }

    #[test]
    fn a_plugin_is_measured_in_a_few_seconds() {
        let written = Written::new(&module("", ""));
        let module = Module::read(written.path()).unwrap();
        let begin = Clock::now();
        let costs = measured(&module).unwrap();
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
        assert_eq!(costs.batches.iter().map(|batch| batch.packets).collect::<Vec<_>>(), BATCHES);
        for batch in &costs.batches {
            assert!(batch.rounds > 0 && batch.nanoseconds.median > 0.0, "{batch:?}");
            assert!(batch.nanoseconds.median <= batch.nanoseconds.p99, "{batch:?}");
            assert!(batch.cycles.is_some() == cycles().is_some());
        }
        assert_eq!((costs.start.memory, costs.packet), (4 << 16, 128));
        assert_eq!((costs.output, costs.ring), (1.0, None));
        assert_eq!(costs.sizes.iter().map(|batch| batch.bytes).collect::<Vec<_>>(), SIZES);
        assert_eq!((costs.measured.is_some(), costs.declared), (cycles().is_some(), None));
        assert!(
            costs.start.code > 0 && costs.start.compile > 0.0 && costs.start.module == module.bytes().len()
        );
    }

    #[test]
    fn a_plugin_that_fails_is_not_measured() {
        let written = Written::new(&for_each("unreachable"));
        let module = Module::read(written.path()).unwrap();
        let failed = measured(&module).unwrap_err();
        assert!(matches!(failed, WorkbenchError::Failed(_)), "{failed}");
    }

    #[test]
    fn packets_that_a_plugin_makes_are_output_and_timers_are_fixed_cycles() {
        let keys = r#", "capabilities": ["packet-make", "timer"], "period": 10"#;
        let body = r#"(import "millrace" "packet_make" (func $make (param i32 i32 i32) (result i32)))
            (func (export "millrace_packets") (param i32)
              (if (call $make (i32.const 64) (i32.const 40) (i32.const 0)) (then unreachable)))
            (func (export "millrace_periodic") (param i64))"#;
        let written = Written::new(&module(keys, body));
        let costs = measured(&Module::read(written.path()).unwrap()).unwrap();
        // Each call makes one packet. More calls have one packet than have 64.
        assert!(costs.output > 1.01 && costs.output < 2.0, "{}", costs.output);
        let Some(measured) = costs.measured else { return };
        let measured = Cost::read(&measured).unwrap();
        let fixed = measured.of_kind(WORKER).unwrap().fixed;
        // 100 calls a second, of 20 cycles to 100,000 each.
        assert!((2e3..1e7).contains(&fixed), "{fixed}");
        assert!((measured.output - costs.output).abs() < 0.006, "{measured:?}");
    }

    #[test]
    fn no_code_of_a_shared_object_runs_without_a_keeper() {
        let keeper: fn() -> Result<Arc<dyn Keeper>, String> = || Err("no processes here".to_owned());
        let written = Written::new(b"\x7fELF");
        let module = Module::read(written.path()).unwrap();
        let refused = measure(&module, &Map::new(), ObjectRuntime::Process(keeper), &mut |_| {}).unwrap_err();
        assert!(refused.to_string().ends_with("no processes here"), "{refused}");
    }
}
