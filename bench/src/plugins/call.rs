//! `plugin-call`: cost of a call of an instance, in the built-in and the wasm runtime.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant as Clock};

use millrace_packet::{FlowKey, Packet, Pool};
use millrace_plugin::wasm::{Sandbox, SandboxSettings};
use millrace_plugin_abi::{Instance, Message, Packets, Plugin, PluginError, Progress, Reply, Verdict};
use millrace_units::{Instant, PortId};
use millrace_workbench::cycles;
use serde_json::Map;

use super::shared_ring::{Idle, OtherSide, WINDOW};
use super::{failed, module, plugin, sandbox};
use crate::counters::Meter;
use crate::interrupt::check;
use crate::statistics::{extremes, median};
use crate::{BenchError, Bound, Measurement, Options};

/// Number of repetitions; the result is their median.
const REPETITIONS: usize = 21;
/// Number of calls per repetition.
const CALLS: u64 = 20_000;
/// Number of packets per call in the cases with many packets.
const MANY: usize = 32;
/// Promised maximum: time-stamp-counter cycles of a call of a sandboxed plugin that can be suspended.
const CALL_LIMIT: f64 = 300.0;
/// Promised maximum: time-stamp-counter cycles of a call of a sandboxed plugin on the worker's own stack.
const SHORT_LIMIT: f64 = 60.0;
const BACK_LIMIT: f64 = 110.0;
/// Promised maximum: additional nanoseconds per packet of a sandboxed plugin, compared with a built-in
/// plugin, in calls with many packets.
const PACKET_LIMIT: f64 = 8.0;

/// Built-in instance that does nothing, as the sandboxed plugins.
struct Nothing;

impl Instance for Nothing {
    fn process(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        packets.for_each(|_, packet| {
            std::hint::black_box(packet);
            Verdict::Pass
        });
        Progress::Done
    }

    fn control(&mut self, message: &Message) -> Reply {
        Err(PluginError::unknown_message("nothing", &message.name, &[]))
    }
}

/// Packets and the other arguments of a call.
pub(crate) struct Batch {
    pub packets: Vec<Packet>,
    keys: Vec<FlowKey>,
    members: Vec<u16>,
    pub verdicts: Vec<Verdict>,
}

impl Batch {
    /// Creates a batch of `count` packets, all of the same flow.
    pub fn new(pool: &Pool, count: usize) -> Result<Self, BenchError> {
        let key = FlowKey::v4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 17, (1, 2), PortId(0));
        let packet = || pool.packet_from(&[0; 350]).ok_or_else(|| failed("no packet memory"));
        Ok(Self {
            packets: (0..count).map(|_| packet()).collect::<Result<_, _>>()?,
            keys: vec![key; count],
            members: (0..count as u16).collect(),
            verdicts: vec![Verdict::Pass; count],
        })
    }

    /// Calls an instance until it has decided. Calls `idle` before each resumption.
    #[inline]
    pub fn call(&mut self, instance: &mut dyn Instance, idle: impl Fn()) {
        let mut packets = Packets::new(&mut self.packets, &self.keys, &self.members, &mut self.verdicts);
        let mut progress = instance.process(&mut packets, Instant::ZERO);
        while progress != Progress::Done {
            idle();
            progress = instance.resume(&mut packets, Instant::ZERO);
        }
    }
}

/// Time of a call: nanoseconds, and time stamp counter cycles if the machine has the counter.
pub(crate) type Cost = (f64, f64);

/// Returns the mean time of a call.
pub(crate) fn cost_of(calls: u64, mut call: impl FnMut()) -> Cost {
    let (clock, counter) = (Clock::now(), cycles());
    (0..calls).for_each(|_| call());
    let cycles = counter.zip(cycles()).map_or(0.0, |(start, end)| (end - start) as f64);
    (clock.elapsed().as_secs_f64() * 1e9 / calls as f64, cycles / calls as f64)
}

/// Measures the calls of all instances alternately, so that a disturbance affects all alike.
fn costs(instances: &mut [Box<dyn Instance>], batch: &mut Batch) -> Result<Vec<Vec<Cost>>, BenchError> {
    let mut costs = vec![Vec::new(); instances.len()];
    for _ in 0..REPETITIONS {
        check()?;
        for (instance, costs) in instances.iter_mut().zip(&mut costs) {
            costs.push(cost_of(CALLS, || batch.call(&mut **instance, || {})));
        }
    }
    Ok(costs)
}

fn nanoseconds(costs: &[Cost]) -> f64 {
    median(&costs.iter().map(|(nanoseconds, _)| *nanoseconds).collect::<Vec<_>>())
}

fn counted(costs: &[Cost]) -> Vec<f64> {
    costs.iter().map(|(_, cycles)| *cycles).collect()
}

/// Measures a round trip between two processes over a ring in shared memory: the minimum cost of calling a
/// plugin in another process. The other process may use the processors of the calling thread.
pub(crate) fn round_trip(binary: &Path, idle: Idle) -> Result<Vec<Cost>, BenchError> {
    let mut other = OtherSide::start(binary, idle)?;
    let window = [7; WINDOW];
    (0..REPETITIONS)
        .map(|_| {
            check()?;
            let mut asked = Ok(());
            let cost = cost_of(CALLS, || {
                if asked.is_ok() {
                    asked = other.ask(&window);
                }
            });
            asked.map(|()| cost)
        })
        .collect()
}

/// Returns three instances: built-in, sandboxed, and sandboxed with a call of one of the router's functions.
fn instances(sandbox: &Sandbox) -> Result<[Box<dyn Instance>; 3], BenchError> {
    let nothing = plugin(sandbox, module!("writes"))?;
    let calls_back = plugin(sandbox, module!("calls-back"))?;
    let make = |plugin: &dyn Plugin| plugin.create(&Map::new()).map_err(failed);
    Ok([Box::new(Nothing), make(&nothing)?, make(&calls_back)?])
}

/// Instance whose calls are counted in instructions.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Called {
    Native,
    Contained,
    ContainedWithCallBack,
}

/// Calls an instance, with the given number of packets per call. Sandboxed calls run on the worker's stack.
pub(crate) fn call_counted(
    called: Called,
    packets: usize,
    calls: u64,
    meter: &mut Meter,
) -> Result<(), BenchError> {
    // With a long tick, no call is suspended even if the counting tool slows it.
    let usual = SandboxSettings::default();
    let sandbox =
        Sandbox::new(SandboxSettings { tick: Duration::from_millis(50), ..usual }).map_err(failed)?;
    let [native, contained, with_call_back] = instances(&sandbox)?;
    let mut instance = match called {
        Called::Native => native,
        Called::Contained => contained,
        Called::ContainedWithCallBack => with_call_back,
    };
    let pool = Pool::new(256).map_err(failed)?;
    let mut batch = Batch::new(&pool, packets)?;
    // After these calls, the sandbox knows that the instance's calls are short, and runs them on the worker's
    // stack.
    (0..2 * usual.short_calls).for_each(|_| batch.call(&mut *instance, || {}));
    meter.measure(|| (0..calls).for_each(|_| batch.call(&mut *instance, || {})));
    Ok(())
}

/// Runs all cases. The times include copying each packet's window (its first bytes) into and out of the
/// sandbox.
pub(crate) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let pool = Pool::new(256).map_err(failed)?;
    let [native, stopped, stopped_back] = instances(&sandbox(false)?)?;
    let [_, short, short_back] = instances(&sandbox(true)?)?;
    let mut instances = [native, stopped, short, stopped_back, short_back];
    let one = costs(&mut instances, &mut Batch::new(&pool, 1)?)?;
    let many = costs(&mut instances[..3], &mut Batch::new(&pool, MANY)?)?;
    let trip = median(&counted(&round_trip(&options.binary, Idle::Spin)?));
    let mut results = Vec::new();
    let mut report = |case: &str, ours: &[f64], limit: Option<f64>| {
        let (least, most) = extremes(ours);
        (options.progress)(&format!("{case}: {:.1} cycles ({least:.1} to {most:.1})", median(ours)));
        let measured = Measurement::of(case, median(ours), "cycles").promising(Bound::AtMost, limit);
        let trip = limit.is_none().then_some(trip);
        results.push(measured.beside("round trip to another process", trip));
    };
    let cases = [
        ("built-in call, one packet", None),
        ("sandboxed call, suspendable, one packet", Some(CALL_LIMIT)),
        ("sandboxed call on the worker's stack, one packet", Some(SHORT_LIMIT)),
        ("sandboxed call with a host function call, suspendable, one packet", None),
        ("sandboxed call with a host function call on the worker's stack, one packet", Some(BACK_LIMIT)),
    ];
    for ((case, limit), ours) in cases.iter().zip(&one) {
        report(case, &counted(ours), *limit);
    }
    let each: Vec<f64> = many.iter().map(|costs| nanoseconds(costs) / MANY as f64).collect();
    for (how, contained) in [("suspendable", each[1]), ("on the worker's stack", each[2])] {
        let case = format!("sandboxed call of {MANY} packets, {how}, additional time to a built-in call");
        (options.progress)(&format!("{case}: {contained:.1} less {:.1} ns", each[0]));
        let beyond = Measurement::of(case, contained - each[0], "ns/packet");
        results.push(beyond.promising(Bound::AtMost, PACKET_LIMIT));
    }
    Ok(results)
}
