//! `plugin-call`: what a call of an instance costs, in both homes.

use std::hint::spin_loop;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant as Clock;

use millrace_packet::{FlowKey, Packet, Pool};
use millrace_plugin_abi::{Instance, Message, Packets, Plugin, PluginError, Progress, Reply, Verdict};
use millrace_units::{Instant, PortId};
use millrace_workbench::cycles;
use serde_json::Map;

use super::{failed, plugin, sandbox};
use crate::interrupt::check;
use crate::statistics::{extremes, median};
use crate::{BenchError, Bound, Measurement, Options};

/// Repetitions, of which the median counts.
const REPETITIONS: usize = 21;
/// Calls of a repetition.
const CALLS: u64 = 20_000;
/// Packets of a call of many.
const MANY: usize = 32;
/// Promised: cycles of the counter for a call of a contained plugin that can be stopped.
const CALL_LIMIT: f64 = 300.0;
/// Promised: nanoseconds for a packet of a call of many, beyond the same in the router itself.
const PACKET_LIMIT: f64 = 8.0;

/// What the contained ones do, in the router itself: nothing.
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

/// Packets and what a call needs beside them.
struct Batch {
    packets: Vec<Packet>,
    keys: Vec<FlowKey>,
    members: Vec<u16>,
    verdicts: Vec<Verdict>,
}

impl Batch {
    fn new(pool: &Pool, count: usize) -> Result<Self, BenchError> {
        let key = FlowKey::v4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 17, (1, 2), PortId(0));
        let packet = || pool.packet_from(&[0; 350]).ok_or_else(|| failed("no packet memory"));
        Ok(Self {
            packets: (0..count).map(|_| packet()).collect::<Result<_, _>>()?,
            keys: vec![key; count],
            members: (0..count as u16).collect(),
            verdicts: vec![Verdict::Pass; count],
        })
    }

    fn call(&mut self, instance: &mut dyn Instance) {
        let mut packets = Packets::new(&mut self.packets, &self.keys, &self.members, &mut self.verdicts);
        let mut progress = instance.process(&mut packets, Instant::ZERO);
        while progress == Progress::Suspended {
            progress = instance.resume(&mut packets, Instant::ZERO);
        }
    }
}

/// Time of a call: nanoseconds, and cycles of the counter where there is one.
type Cost = (f64, f64);

fn cost_of(calls: u64, mut call: impl FnMut()) -> Cost {
    let (clock, counter) = (Clock::now(), cycles());
    (0..calls).for_each(|_| call());
    let cycles = counter.zip(cycles()).map_or(0.0, |(start, end)| (end - start) as f64);
    (clock.elapsed().as_secs_f64() * 1e9 / calls as f64, cycles / calls as f64)
}

/// Costs of the instances' calls, in turn, so that what disturbs one disturbs all.
fn costs(instances: &mut [Box<dyn Instance>], batch: &mut Batch) -> Result<Vec<Vec<Cost>>, BenchError> {
    let mut costs = vec![Vec::new(); instances.len()];
    for _ in 0..REPETITIONS {
        check()?;
        for (instance, costs) in instances.iter_mut().zip(&mut costs) {
            costs.push(cost_of(CALLS, || batch.call(&mut **instance)));
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

/// There and back between two threads over shared memory: what a call of another process costs at the least.
fn round_trip() -> Vec<Cost> {
    let (there, back) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut seen = 0;
            while seen != u64::MAX {
                let next = there.load(Ordering::Acquire);
                if next == seen {
                    spin_loop();
                } else {
                    seen = next;
                    back.store(seen, Ordering::Release);
                }
            }
        });
        let mut number = 0;
        let costs = (0..REPETITIONS).map(|_| {
            cost_of(CALLS, || {
                number += 1;
                there.store(number, Ordering::Release);
                while back.load(Ordering::Acquire) != number {
                    spin_loop();
                }
            })
        });
        let costs = costs.collect();
        there.store(u64::MAX, Ordering::Release);
        costs
    })
}

/// Runs all cases.
pub(crate) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let sandbox = sandbox()?;
    let nothing = plugin(&sandbox, "", "", r#"(func (export "millrace_packets") (param i32))"#)?;
    let calls_back = plugin(
        &sandbox,
        r#""capabilities": ["packet-read"],"#,
        r#"(import "millrace" "packet_read" (func $read (param i32 i32 i32 i32) (result i32)))"#,
        r#"(func (export "millrace_packets") (param i32)
             (drop (call $read (i32.const 0) (i32.const 200) (i32.const 64) (i32.const 4))))"#,
    )?;
    let make = |plugin: &dyn Plugin| plugin.create(&Map::new()).map_err(failed);
    let pool = Pool::new(256).map_err(failed)?;
    let mut instances: [Box<dyn Instance>; 3] = [Box::new(Nothing), make(&nothing)?, make(&calls_back)?];
    let one = costs(&mut instances, &mut Batch::new(&pool, 1)?)?;
    let many = costs(&mut instances[..2], &mut Batch::new(&pool, MANY)?)?;
    let trip = counted(&round_trip());
    let mut results = Vec::new();
    let mut report = |case: &str, ours: &[f64], unit: &str| {
        let (least, most) = extremes(ours);
        (options.progress)(&format!("{case}: {:.1} {unit} ({least:.1} to {most:.1})", median(ours)));
        Measurement::of(case, median(ours), unit).beside("another thread, there and back", median(&trip))
    };
    results.push(report("a call in the router itself, one packet", &counted(&one[0]), "cycles"));
    results.push(report("a contained call that can be stopped, one packet", &counted(&one[1]), "cycles"));
    results.push(report("the same with a call back inside", &counted(&one[2]), "cycles"));
    let promised = Measurement::of("a contained call, as promised", median(&counted(&one[1])), "cycles");
    results.push(promised.promising(Bound::AtMost, CALL_LIMIT));
    let each = |costs: &[Cost]| nanoseconds(costs) / MANY as f64;
    let (native, contained) = (each(&many[0]), each(&many[1]));
    let case = format!("a packet of a contained call of {MANY}, beyond the router itself");
    (options.progress)(&format!("{case}: {contained:.1} less {native:.1} ns"));
    results
        .push(Measurement::of(case, contained - native, "ns/packet").promising(Bound::AtMost, PACKET_LIMIT));
    Ok(results)
}
