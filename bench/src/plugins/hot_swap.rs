//! `hot-swap`: upgrades of an instance under load, with state hand-over.

use std::time::Instant as Clock;

use millrace_plugin::{Inheritance, Inherited, Successor};
use millrace_plugin_abi::Plugin;
use serde_json::Map;

use super::{failed, plugin, sandbox};
use crate::interrupt::check;
use crate::memory::case::{Case, Family};
use crate::memory::setup::{GatesSetup, Pipeline, Setup};
use crate::statistics::median;
use crate::{BenchError, Bound, Measurement, Options, Quantiles, Subject};

/// Number of upgrades.
const UPGRADES: usize = 1000;
/// Packets between two upgrades: ten batches.
const PACKETS: u64 = 2560;
/// Promised maximum: 99th percentile of the worker's pause for an upgrade in microseconds.
const PAUSE_LIMIT: f64 = 100.0;

/// Flows of the packets.
const FLOWS: u32 = 1000;
/// Bytes of handed-over state: both counters.
const STATE: usize = 16;

/// Module of a plugin that counts packets at address 64 and new flows at address 72, and each flow's packets
/// in the flow's state. It hands both counters over. Message `read` returns the number of packets, and
/// `begun` the number of new flows.
const COUNTER: &str = r#"
    (func (export "millrace_packets") (param $call i32)
      (local $at i32) (local $left i32) (local $state i32) (local $packets i64)
      (i64.store (i32.const 64) (i64.add (i64.load (i32.const 64)) (i64.load32_u offset=4 (local.get $call))))
      (local.set $at (i32.wrap_i64 (i64.load offset=16 (local.get $call))))
      (local.set $left (i32.load offset=4 (local.get $call)))
      (loop $next
        (local.set $state (i32.wrap_i64 (i64.load offset=32 (local.get $at))))
        (local.set $packets (i64.load (local.get $state)))
        (if (i64.eqz (local.get $packets))
          (then (i64.store (i32.const 72) (i64.add (i64.load (i32.const 72)) (i64.const 1)))))
        (i64.store (local.get $state) (i64.add (local.get $packets) (i64.const 1)))
        (local.set $at (i32.add (local.get $at) (i32.const 64)))
        (br_if $next (local.tee $left (i32.sub (local.get $left) (i32.const 1))))))
    (func (export "millrace_control") (param $name i32) (param $length i32) (param i32 i32) (result i32)
      (local $left i64) (local $at i32)
      (local.set $left
        (i64.load (select (i32.const 64) (i32.const 72) (i32.eq (local.get $length) (i32.const 4)))))
      (local.set $at (i32.const 120))
      (loop $digit
        (local.set $at (i32.sub (local.get $at) (i32.const 1)))
        (i64.store8 (local.get $at) (i64.add (i64.const 48) (i64.rem_u (local.get $left) (i64.const 10))))
        (local.set $left (i64.div_u (local.get $left) (i64.const 10)))
        (br_if $digit (i64.ne (local.get $left) (i64.const 0))))
      (call $reply (local.get $at) (i32.sub (i32.const 120) (local.get $at)))
      i32.const 0)
    (func (export "millrace_save") (result i32) (call $reply (i32.const 64) (i32.const 16)) i32.const 0)
    (func (export "millrace_restore") (param $at i32) (param $bytes i32) (param $version i32) (result i32)
      (i64.store (i32.const 64) (i64.load (local.get $at)))
      (i64.store (i32.const 72) (i64.load offset=8 (local.get $at)))
      i32.const 0)"#;

/// Runs the benchmark.
pub(crate) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let sandbox = sandbox(true)?;
    let imports = r#"(import "millrace" "reply" (func $reply (param i32 i32)))"#;
    let keys = r#""messages": {"read": "packets", "begun": "flows"}, "flow-state": 8,"#;
    let counter = std::sync::Arc::new(plugin(&sandbox, keys, imports, COUNTER)?);
    let case = Case { family: Family::V4, flows: FLOWS };
    let mut pipeline = Pipeline::with(case, Setup { gates: GatesSetup::Empty, ..Setup::default() })?;
    let id = pipeline.add_instance(counter.clone(), "counter", "monitor", "*")?;
    let (mut plain, mut swapping) = (Vec::new(), Vec::new());
    for upgrade in 0..UPGRADES {
        check()?;
        let instance = counter.create(&Map::new()).map_err(failed)?;
        pipeline.forward(PACKETS);
        let start = Clock::now();
        pipeline.forward(1);
        plain.push(start.elapsed().as_secs_f64() * 1e6);
        let successor =
            Successor { instance, inheritance: Inheritance::Required, version: 0, same_version: true };
        let answer = pipeline.begin_succession(id, successor);
        let start = Clock::now();
        pipeline.forward(1);
        swapping.push(start.elapsed().as_secs_f64() * 1e6);
        let end = answer.try_recv().ok().flatten().ok_or_else(|| failed("an instance was not replaced"))?;
        if end.inherited != Ok(Inherited::Bytes(STATE)) {
            return Err(failed(format!("upgrade {upgrade}: {:?}", end.inherited)));
        }
    }
    let begun = pipeline.control(id, "begun")?.as_u64().unwrap_or_default();
    let (sent, read) = (pipeline.sent(), pipeline.control(id, "read")?);
    let (received, came) = pipeline.passed();
    let counted = read.as_u64().unwrap_or_default();
    let usual = median(&plain);
    swapping.sort_by(f64::total_cmp);
    let pause = |rank: usize| (swapping[rank] - usual).max(0.0);
    let (middle, late) = (pause(UPGRADES / 2), pause(UPGRADES * 99 / 100));
    let pauses: Vec<f64> = (0..UPGRADES).map(pause).collect();
    let distribution = Quantiles::of("pause, us").with(Subject::Millrace, "Millrace", &pauses);
    (options.progress)(&format!(
        "{UPGRADES} upgrades among {sent} packets: pauses of {middle:.1} us, {late:.1} us for 99 of 100; {counted} counted, of {begun} flows"
    ));
    Ok(vec![
        Measurement::of("pause of an upgrade, the median", middle, "us"),
        Measurement::of("pause of an upgrade, 99 of 100", late, "us")
            .promising(Bound::AtMost, PAUSE_LIMIT)
            .with_distribution(distribution),
        Measurement::of("packets lost", received.saturating_sub(came) as f64, "packets")
            .promising(Bound::AtMost, 0.0),
        Measurement::of("packets that the instances did not count", sent.abs_diff(counted) as f64, "packets")
            .promising(Bound::AtMost, 0.0),
        Measurement::of("flows whose own state began anew", begun.abs_diff(u64::from(FLOWS)) as f64, "flows")
            .promising(Bound::AtMost, 0.0),
    ])
}
