//! `flow-table`: cost of lookups in the flow table, and of changes to the table, in this process.
//!
//! Packets come in batches of 256 as in the pipeline, with freshly written keys. The popularity of flows is
//! uniform or follows Zipf's law. The time of a hit covers the lookup, the count of the packet, and one clock
//! reading per batch. It excludes the time to generate the keys. It also excludes the time to hash them,
//! unless a case says otherwise.

mod attack;
mod changes;
pub(crate) mod counted;
pub(crate) mod flows;
mod lookups;

use millrace_classify::{FlowTable, FlowTableConfig};

pub(crate) use self::counted::run_measured;

use crate::{BenchError, Measurement, Options};

/// Number of repetitions; the result is their median.
const REPETITIONS: usize = 7;
/// Number of packets per batched lookup.
const BATCH: usize = 256;

/// Runs all cases of the benchmark `flow-table`.
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

/// Returns an empty table whose memory is already allocated. Its seed differs from that of the attacker's
/// table.
fn table(initial: u32, maximum: u32) -> Result<FlowTable, BenchError> {
    table_with(initial, maximum, true)
}

/// Returns an empty table. `populate` allocates its memory at once, otherwise on demand.
fn table_with(initial: u32, maximum: u32, populate: bool) -> Result<FlowTable, BenchError> {
    let config =
        FlowTableConfig { initial, maximum, populate, seed: 0x0bad_5eed, ..FlowTableConfig::default() };
    FlowTable::new(config).map_err(|error| BenchError::measurement("flow table", error.to_string()))
}
