//! Instructions per lookup, counted by valgrind's callgrind.

use std::path::Path;
use std::time::Duration;

use millrace_testkit::classbench::{FilterSet, Popularity, Style, generate, trace};

use super::set::{Source, ranked};
use super::table::{KINDS, Kind};
use super::{BATCH, Table, in_batches};
use crate::callgrind::{callgrind_measured, name_of, part_of};
use crate::counters::Meter;
use crate::family::Family;
use crate::{BenchError, callgrind};

/// Number of packets to look up.
const PACKETS: usize = 128 * BATCH;
/// Time limit of one run, including the time to fill the table.
const PATIENCE: Duration = Duration::from_secs(90);

/// Run for callgrind, which only fills a table and looks up a trace: index of the filter set, and kind of
/// table.
type Part = (usize, String);
/// Name of the benchmark that the runs belong to.
const BENCH: &str = "classify";

/// Counts the instructions per lookup; returns `None` if the binary has no function names.
pub(super) fn count(binary: &Path, source: Source, kind: &Kind) -> Result<Option<f64>, BenchError> {
    let index = Source::all().iter().position(|other| *other == source).unwrap_or(usize::MAX);
    let part: Part = (index, kind.name.to_owned());
    let instructions = callgrind::instructions(binary, &name_of(BENCH, &part), PATIENCE)?;
    Ok(instructions.map(|instructions| instructions / PACKETS as f64))
}

/// Runs only the lookups of `name`, under a tool that counts their cost. Returns `None` if `name` isn't the
/// name of such a run.
pub(crate) fn run_measured(name: &str) -> Option<Result<(), BenchError>> {
    let (source, kind): Part = part_of(BENCH, name)?;
    let set = Source::all().get(source)?.load()?;
    let packets = trace(&set, Popularity::Uniform, PACKETS, 2);
    let counted = filled(&kind, &set).map(|table| callgrind_measured(|| in_batches(&*table, &packets)));
    Some(counted.map(|found| _ = std::hint::black_box(found)))
}

/// Returns a table of this kind, filled with the filters of a set.
fn filled(kind: &str, set: &FilterSet) -> Result<Box<dyn Table>, BenchError> {
    let unfit = || BenchError::measurement(kind, "the table can't be filled");
    let known = KINDS.iter().find(|known| known.name == kind).ok_or_else(unfit)?;
    known.fill(&ranked(set)?).map(|(table, _)| table).map_err(|_| unfit())
}

/// Number of filters per table in runs that count only instructions.
const FILTERS: usize = 1000;

/// Looks up packets in batches in a table of the given kind. The table's filters are in the style of access
/// lists.
pub(crate) fn look_up(kind: &str, family: Family, packets: u64, meter: &mut Meter) -> Result<(), BenchError> {
    let set = generate(Style::Acl, family.into(), FILTERS, 1);
    let trace = trace(&set, Popularity::Uniform, packets as usize, 2);
    let table = filled(kind, &set)?;
    std::hint::black_box(meter.measure(|| in_batches(&*table, &trace)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_is_parsed_from_its_name() {
        let part: Part = (3, "tuple space".to_owned());
        assert_eq!(part_of(BENCH, &name_of(BENCH, &part)), Some(part));
        assert!(run_measured("classify").is_none() && run_measured(r#"classify/[99,"linear"]"#).is_none());
    }
}
