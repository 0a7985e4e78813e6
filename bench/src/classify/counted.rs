//! Instructions per lookup, counted by valgrind's callgrind.

use std::path::Path;
use std::time::Duration;

use millrace_packet::Family;
use millrace_testkit::classbench::{Popularity, Style, generate, trace};

use super::set::Source;
use super::table::{KINDS, Kind, Ranked};
use super::{BATCH, in_batches};
use crate::counters::Meter;
use crate::{BenchError, callgrind};

/// Number of packets to look up.
const PACKETS: usize = 128 * BATCH;
/// Time limit of one run, including the time to fill the table.
const PATIENCE: Duration = Duration::from_secs(90);

/// Name prefix of a run that only fills a table and looks up a trace, for callgrind.
const PREFIX: &str = "classify/";

/// Counts the instructions per lookup; returns `None` if the binary has no function names.
pub(super) fn count(binary: &Path, source: Source, kind: &Kind) -> Result<Option<f64>, BenchError> {
    let instructions = callgrind::instructions(binary, &name(source, kind), PATIENCE)?;
    Ok(instructions.map(|instructions| instructions / PACKETS as f64))
}

fn name(source: Source, kind: &Kind) -> String {
    let source = Source::all().iter().position(|other| *other == source).unwrap_or(usize::MAX);
    format!("{PREFIX}{source}/{}", kind.name)
}

fn parse(name: &str) -> Option<(Source, &'static Kind)> {
    let (source, kind) = name.strip_prefix(PREFIX)?.split_once('/')?;
    let source = Source::all().get(source.parse::<usize>().ok()?).copied()?;
    Some((source, KINDS.iter().find(|known| known.name == kind)?))
}

/// Runs only lookups, for a tool that counts their cost; returns `None` if `name` isn't the name of such a
/// run.
pub(crate) fn run_measured(name: &str) -> Option<Result<(), BenchError>> {
    let (source, kind) = parse(name)?;
    let set = source.load()?;
    let compile = |(place, filter): (usize, &millrace_classify::Filter)| {
        Some((filter.compile(|_| None).ok()?, set.priority(place)))
    };
    let filters: Vec<Ranked> = set.filters.iter().enumerate().filter_map(compile).collect();
    let packets = trace(&set, Popularity::Uniform, PACKETS, 2);
    let Ok((table, _)) = kind.fill(&filters) else {
        return Some(Err(BenchError::measurement(kind.name, "filling the table takes too long")));
    };
    std::hint::black_box(callgrind_measured(&*table, &packets));
    Some(Ok(()))
}

/// Filters per table in runs that count only instructions.
const FILTERS: usize = 1000;

/// Looks up packets in batches in a table of a given kind, with filters in the style of access lists.
pub(crate) fn look_up(kind: &str, family: Family, packets: u64, meter: &mut Meter) -> Result<(), BenchError> {
    let set = generate(Style::Acl, family, FILTERS, 1);
    let compile = |(place, filter): (usize, &millrace_classify::Filter)| {
        Some((filter.compile(|_| None).ok()?, set.priority(place)))
    };
    let filters: Vec<Ranked> = set.filters.iter().enumerate().filter_map(compile).collect();
    let trace = trace(&set, Popularity::Uniform, packets as usize, 2);
    let unfit = || BenchError::measurement(kind, "the table can't be filled");
    let known = KINDS.iter().find(|known| known.name == kind).ok_or_else(unfit)?;
    let (table, _) = known.fill(&filters).map_err(|_| unfit())?;
    std::hint::black_box(meter.measure(|| in_batches(&*table, &trace)));
    Ok(())
}

#[inline(never)]
fn callgrind_measured(table: &dyn super::Table, packets: &[millrace_classify::Candidate]) -> u64 {
    in_batches(table, packets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_read_from_its_name() {
        for source in Source::all() {
            for kind in KINDS {
                let (found, of) = parse(&name(source, kind)).unwrap();
                assert!(found == source && of.name == kind.name);
            }
        }
        assert!(parse("classify").is_none() && parse("classify/99/linear").is_none());
    }
}
