//! Measurement of a plugin's costs on this machine.

use std::time::{Duration, Instant as Clock};

use millrace_packet::Pool;
use millrace_pipeline::cycles;
use millrace_plugin::Cost;
use millrace_plugin_abi::{Instance, PluginError, Runtime};
use millrace_units::Instant;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::frames::sized;
use crate::impact::{Point, cost};
use crate::inspect::Outline;
use crate::ready::{Call, Flows, Ready, instance_of};
use crate::{Module, WorkbenchError};

/// Batch sizes to measure, in packets per call.
const BATCHES: [usize; 4] = [1, 8, 32, 64];
/// Length of the packets in bytes, link header included.
const BYTES: usize = 128;
/// Lengths of packets to measure, in calls of [`SIZED`] packets.
const SIZES: [usize; 3] = [64, 512, 1500];
const SIZED: usize = 32;
/// Maximum number of measured calls per batch size. The warm-up before them makes at most as many calls, and
/// takes at most a tenth of [`PATIENCE`].
const ROUNDS: usize = 20_000;
/// Maximum time to measure one batch size, or one length of packets.
const PATIENCE: Duration = Duration::from_millis(400);
/// Number of instances that are created to measure the resident memory of one instance.
const INSTANCES: usize = 8;

/// Costs of a plugin on this machine: time and memory.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Costs {
    /// Name of the plugin.
    pub plugin: String,
    /// Version of the plugin.
    pub version: String,
    /// Size of the module in bytes.
    pub module: usize,
    /// Size of the compiled code with its data, in bytes. For a shared object, the size of its file.
    pub code: usize,
    /// Time to compile the module, or to load the shared object, in milliseconds.
    pub compile: f64,
    /// Time to create an instance, in milliseconds.
    pub create: f64,
    /// Initial memory of an instance in bytes, as the module declares it.
    pub memory: u64,
    /// Resident memory of an instance in bytes, before its first packet.
    pub resident: u64,
    /// Length of the packets in bytes, link header included.
    pub packet: usize,
    /// Costs of calls, by their number of packets.
    pub batches: Vec<BatchCost>,
    /// Costs of calls of 32 packets, by the length of the packets.
    pub sizes: Vec<BatchCost>,
    /// Cost as measured, in the form of a manifest; `None` on a machine without a time-stamp counter.
    pub measured: Option<Value>,
    /// Cost that the manifest declares; `None` if it declares none.
    pub declared: Option<Value>,
}

/// Time of calls with a given number of packets.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct BatchCost {
    /// Number of packets per call.
    pub packets: usize,
    /// Length of the packets in bytes, link header included.
    pub bytes: usize,
    /// Number of measured calls.
    pub rounds: usize,
    /// Number of calls that were suspended at the end of their slice.
    pub suspended: usize,
    /// Nanoseconds per packet.
    pub nanoseconds: Spread,
    /// Cycles of the time-stamp counter per packet; `None` on a machine without such a counter.
    pub cycles: Option<Spread>,
}

/// Median and 99th percentile of measured values.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Spread {
    /// 50th percentile.
    pub median: f64,
    /// 99th percentile.
    pub p99: f64,
}

/// Measures a plugin with settings, in about three seconds plus its compile time.
pub fn measure(module: &Module, settings: &Map<String, Value>) -> Result<Costs, WorkbenchError> {
    let compiled = module.compile()?;
    let plugin = module.load(&compiled)?;
    let code = compiled.code().unwrap_or(module.bytes().len());
    let begin = Clock::now();
    let mut instance = instance_of(&*plugin, settings)?;
    let create = milliseconds(begin.elapsed());
    let resident = resident(|| instance_of(&*plugin, settings))?;
    let pool = Pool::new(1024).map_err(|error| WorkbenchError::Memory(error.to_string()))?;
    let batches = BATCHES.map(|packets| batch(&mut *instance, &pool, packets, BYTES));
    let batches = batches.into_iter().collect::<Result<Vec<_>, _>>()?;
    let sizes = SIZES.map(|bytes| batch(&mut *instance, &pool, SIZED, bytes));
    let sizes = sizes.into_iter().collect::<Result<Vec<_>, _>>()?;
    let initial = Outline::read(module.bytes()).memory;
    let kind = if compiled.runtime() == Runtime::Contained { "worker" } else { "process" };
    let measured = measured(kind, &batches, &sizes, initial.max(resident) as f64);
    Ok(Costs {
        plugin: plugin.name().to_owned(),
        version: plugin.version().to_owned(),
        module: module.bytes().len(),
        code,
        compile: milliseconds(compiled.took),
        create,
        memory: initial,
        resident,
        packet: BYTES,
        batches,
        sizes,
        measured: measured.map(|cost| cost.written()),
        declared: compiled.manifest().calls.cost.as_ref().map(Cost::written),
    })
}

/// Returns the measured cost on a kind of processor; `None` without cycles.
fn measured(kind: &str, batches: &[BatchCost], sizes: &[BatchCost], memory: f64) -> Option<Cost> {
    let point = |batch: &BatchCost| {
        let (packets, bytes) = (batch.packets as f64, batch.bytes as f64);
        Some(Point { packets, bytes, cycles: batch.cycles?.median * packets })
    };
    let points = |of: &[BatchCost]| of.iter().map(point).collect::<Option<Vec<_>>>();
    let most = batches.first()?.cycles?.p99;
    cost(kind, &points(batches)?, &points(sizes)?, most, memory)
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Returns the resident memory of one instance in bytes. It is measured as the growth of the process while
/// instances are created.
fn resident(create: impl Fn() -> Result<Box<dyn Instance>, PluginError>) -> Result<u64, WorkbenchError> {
    let before = resident_pages();
    let instances = (0..INSTANCES).map(|_| create()).collect::<Result<Vec<_>, _>>()?;
    let pages = resident_pages().saturating_sub(before);
    drop(instances);
    Ok(pages * 4096 / INSTANCES as u64)
}

/// Returns the resident memory of the process in pages; 0 if the system does not report it.
fn resident_pages() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0)
}

/// Measures calls with a given number of packets of `bytes` bytes.
fn batch(
    instance: &mut dyn Instance,
    pool: &Pool,
    packets: usize,
    bytes: usize,
) -> Result<BatchCost, WorkbenchError> {
    let frames: Vec<_> = (0..packets).map(|index| sized(bytes, 1000 + index as u16)).collect();
    round(instance, pool, &frames, ROUNDS, PATIENCE / 10)?;
    let rounds = round(instance, pool, &frames, ROUNDS, PATIENCE)?;
    let each = |figure: fn(&Round) -> Option<f64>| {
        rounds.iter().map(figure).map(|figure| Some(figure? / packets as f64)).collect::<Option<Vec<_>>>()
    };
    Ok(BatchCost {
        packets,
        bytes,
        rounds: rounds.len(),
        suspended: rounds.iter().filter(|round| round.slices > 0).count(),
        nanoseconds: Spread::of(each(|round| Some(round.nanoseconds as f64)).unwrap_or_default()),
        cycles: each(|round| round.cycles.map(|cycles| cycles as f64)).map(Spread::of),
    })
}

/// Measurement of one call: its time, cycles and slices.
struct Round {
    nanoseconds: u64,
    cycles: Option<u64>,
    slices: u32,
}

/// Makes at most `most` calls, in at most `patience`. Each call gets new packets, since a plugin may change
/// its packets.
fn round(
    instance: &mut dyn Instance,
    pool: &Pool,
    frames: &[Vec<u8>],
    most: usize,
    patience: Duration,
) -> Result<Vec<Round>, WorkbenchError> {
    let begin = Clock::now();
    let mut flows = Flows::new(instance);
    let mut rounds = Vec::with_capacity(most);
    while rounds.len() < most && (begin.elapsed() < patience || rounds.is_empty()) {
        let ready = frames.iter().map(|frame| Ready::of(pool, frame)).collect::<Result<Vec<_>, _>>();
        let mut call = Call::new(ready.map_err(WorkbenchError::Memory)?);
        let now = Instant::from_nanos(begin.elapsed().as_nanos() as u64);
        let (from, start) = (Clock::now(), cycles());
        let (slices, fault) = call.run(instance, &mut flows, now);
        let (end, took) = (cycles(), from.elapsed());
        if let Some(fault) = fault {
            return Err(WorkbenchError::Failed(format!("{}: {}", fault.kind, fault.text)));
        }
        let cycles = start.zip(end).map(|(start, end)| end.saturating_sub(start));
        rounds.push(Round { nanoseconds: took.as_nanos() as u64, cycles, slices });
    }
    Ok(rounds)
}

impl Spread {
    fn of(mut figures: Vec<f64>) -> Self {
        figures.sort_by(f64::total_cmp);
        let at = |part: f64| {
            let index = (figures.len() as f64 * part).ceil() as usize;
            figures.get(index.max(1) - 1).copied().unwrap_or(0.0)
        };
        Self { median: at(0.5), p99: at(0.99) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ready::test_modules::{Written, for_each, module};

    #[test]
    fn spread_covers_its_figures() {
        assert_eq!(Spread::of((1..=100).map(f64::from).collect()), Spread { median: 50.0, p99: 99.0 });
        assert_eq!(Spread::of(vec![7.0]), Spread { median: 7.0, p99: 7.0 });
        assert_eq!(Spread::of(Vec::new()), Spread { median: 0.0, p99: 0.0 });
    }

    #[test]
    fn a_plugin_is_measured_in_a_few_seconds() {
        let written = Written::new(&module("", ""));
        let module = Module::read(written.path()).unwrap();
        let begin = Clock::now();
        let costs = measure(&module, &Map::new()).unwrap();
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
        assert_eq!(costs.batches.iter().map(|batch| batch.packets).collect::<Vec<_>>(), BATCHES);
        for batch in &costs.batches {
            assert!(batch.rounds > 0 && batch.nanoseconds.median > 0.0, "{batch:?}");
            assert!(batch.nanoseconds.median <= batch.nanoseconds.p99, "{batch:?}");
            assert!(batch.cycles.is_some() == cycles().is_some());
        }
        assert_eq!((costs.memory, costs.packet), (4 << 16, 128));
        assert_eq!(costs.sizes.iter().map(|batch| batch.bytes).collect::<Vec<_>>(), SIZES);
        assert_eq!((costs.measured.is_some(), costs.declared), (cycles().is_some(), None));
        assert!(costs.code > 0 && costs.compile > 0.0 && costs.module == module.bytes().len());
    }

    #[test]
    fn a_plugin_that_fails_is_not_measured() {
        let written = Written::new(&for_each("unreachable"));
        let module = Module::read(written.path()).unwrap();
        let failed = measure(&module, &Map::new()).unwrap_err();
        assert!(matches!(failed, WorkbenchError::Failed(_)), "{failed}");
    }
}
