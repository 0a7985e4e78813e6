//! `flow-table`: what a look-up in the flow table costs, and what its changes cost, in this process.
//!
//! Packets come in batches of 256 as in the pipeline, their keys just written; how often each flow comes is uniform,
//! or as Zipf's law says. A hit is the batch's look-up and the packets' counting, given keys and hashes. Making the
//! keys is not timed, reading the clock once per batch is.

mod attack;
mod changes;
pub(crate) mod counted;
pub(crate) mod flows;
mod lookups;

use millrace_classify::{FlowTable, FlowTableConfig};

pub(crate) use self::counted::run_measured;

use crate::{BenchError, Measurement, Options};

/// Repetitions, of which the median counts.
const REPETITIONS: usize = 7;
/// Packets that are looked up together.
const BATCH: usize = 256;

/// Runs all cases.
pub(crate) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let mut results = Vec::new();
    for part in [lookups::run, attack::run, changes::run] {
        for result in part()? {
            let ratio = result.ratio.map_or_else(String::new, |ratio| format!(", {ratio:.2} of the peer's"));
            (options.progress)(&format!("{}: {:.1} {}{ratio}", result.case, result.ours, result.unit));
            results.push(result);
        }
    }
    results.extend(counted::run(options)?);
    Ok(results)
}

/// An empty table, with a seed that nothing else here has.
fn table(initial: u32, maximum: u32) -> Result<FlowTable, BenchError> {
    table_with(initial, maximum, true)
}

/// The same, with its memory taken before, or as records need it.
fn table_with(initial: u32, maximum: u32, populate: bool) -> Result<FlowTable, BenchError> {
    let config =
        FlowTableConfig { initial, maximum, populate, seed: 0x0bad_5eed, ..FlowTableConfig::default() };
    FlowTable::new(config).map_err(|error| BenchError::measurement("flow table", error.to_string()))
}
