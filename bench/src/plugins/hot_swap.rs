//! `hot-swap`: upgrades of an instance under load, with state hand-over.

use std::time::Instant as Clock;

use millrace_plugin::{Inheritance, Inherited, Successor};
use millrace_plugin_abi::Plugin;
use serde_json::Map;

use super::{failed, module, plugin, sandbox};
use crate::family::Family;
use crate::interrupt::check;
use crate::memory::case::Case;
use crate::memory::setup::{GatesSetup, Pipeline, Setup};
use crate::statistics::median;
use crate::{BenchError, Bound, Measurement, Options, Quantiles, Subject};

/// Number of upgrades.
const UPGRADES: usize = 1000;
/// Number of packets between two upgrades: ten batches.
const PACKETS: u64 = 2560;
/// Promised maximum: 99th percentile of the worker's pause for an upgrade, in microseconds.
const PAUSE_LIMIT: f64 = 100.0;

/// Number of flows.
const FLOWS: u32 = 1000;
/// Size of the handed-over state in bytes: two counters.
const STATE: usize = 16;

/// Upgrades an instance repeatedly under load.
pub(crate) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let sandbox = sandbox(true)?;
    let counter = std::sync::Arc::new(plugin(&sandbox, module!("counter"))?);
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
        let successor = Successor::new(vec![instance], Inheritance::Required, 0, true);
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
    let (sent, read) = (pipeline.sent, pipeline.control(id, "read")?);
    let (received, came) = pipeline.passed();
    let counted = read.as_u64().unwrap_or_default();
    let usual = median(&plain);
    swapping.sort_by(f64::total_cmp);
    let pause = |rank: usize| (swapping[rank] - usual).max(0.0);
    let (middle, late) = (pause(UPGRADES / 2), pause(UPGRADES * 99 / 100));
    let pauses: Vec<f64> = (0..UPGRADES).map(pause).collect();
    let distribution = Quantiles::of("pause, us").with(Subject::Millrace, "Millrace", &pauses);
    (options.progress)(&format!(
        "{UPGRADES} upgrades among {sent} packets: pause {middle:.1} us (median), {late:.1} us (99th percentile); instances counted {counted} packets of {begun} flows"
    ));
    Ok(vec![
        Measurement::of("upgrade pause, median", middle, "us"),
        Measurement::of("upgrade pause, 99th percentile", late, "us")
            .promising(Bound::AtMost, PAUSE_LIMIT)
            .with_distribution(distribution),
        Measurement::of("lost packets", received.saturating_sub(came) as f64, "packets")
            .promising(Bound::AtMost, 0.0),
        Measurement::of("packets not counted by the instances", sent.abs_diff(counted) as f64, "packets")
            .promising(Bound::AtMost, 0.0),
        Measurement::of("flows with lost state", begun.abs_diff(u64::from(FLOWS)) as f64, "flows")
            .promising(Bound::AtMost, 0.0),
    ])
}
