//! Route lookups for instruction counts.

use std::hint::black_box;

use super::ours::{Addresses, Ours};
use super::tables::{random, table};
use crate::BenchError;
use crate::counters::Meter;
use crate::family::Family;

/// Number of prefixes in the table. It affects the time to fill the table, but not the instructions of a
/// lookup.
const PREFIXES: usize = 20_000;

/// Looks up addresses in batches, IPv4 or IPv6.
pub(crate) fn look_up(family: Family, packets: u64, meter: &mut Meter) -> Result<(), BenchError> {
    let table = table(family, PREFIXES);
    let addresses = Addresses::new(family, &random(&table, packets as usize));
    let mut ours = Ours::new(family)?;
    table.iter().try_for_each(|prefix| ours.insert(prefix))?;
    let reader = ours.fib.reader();
    let sum = meter.measure(|| black_box(addresses.sum(&reader)));
    let problem = || BenchError::measurement("routes", "some looked-up addresses had no route");
    (sum >= packets).then_some(()).ok_or_else(problem)
}
