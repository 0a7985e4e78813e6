//! Instructions and cache misses per lookup, by valgrind's callgrind.
//!
//! The misses are those of simulated caches of 32 KiB and 512 KiB, eight-fold associative, without any fetching ahead:
//! this is not what the machine does, but it is the same for all tables, and in every run.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use millrace_testkit::classbench::{Popularity, trace};

use super::set::Source;
use super::table::{KINDS, Kind, Ranked};
use super::{BATCH, in_batches};
use crate::BenchError;
use crate::process::Running;

/// Packets looked up.
const PACKETS: usize = 128 * BATCH;
/// How long one run may take; filling the table is part of it.
const PATIENCE: Duration = Duration::from_secs(90);

/// The name of a run that only fills a table and looks up a trace.
const PREFIX: &str = "classify/";

/// Figures per lookup with their units; `None` when the binary's functions have no names.
pub(super) fn count(
    binary: &Path,
    source: Source,
    kind: &Kind,
) -> Result<Option<[(f64, &'static str); 3]>, BenchError> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"]);
    command.args(["--cache-sim=yes", "--D1=32768,8,64", "--LL=524288,8,64"]);
    command.arg("--toggle-collect=*callgrind_measured*").arg(binary);
    command.args(["bench", &name(source, kind)]);
    let figures = collected(&Running::start(&mut command)?.finish(PATIENCE)?);
    let units = ["instructions/lookup", "misses of 32 KiB/lookup", "misses of 512 KiB/lookup"];
    Ok(figures.map(|figures| std::array::from_fn(|index| (figures[index] / PACKETS as f64, units[index]))))
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

/// Runs nothing but some lookups, for a tool that counts what they cost; `None` when `name` isn't such a run.
pub(crate) fn run_measured(name: &str) -> Option<Result<(), BenchError>> {
    let (source, kind) = parse(name)?;
    let set = source.load()?;
    let compile = |(place, filter): (usize, &millrace_classify::Filter)| {
        Some((filter.compile(|_| None).ok()?, set.priority(place)))
    };
    let filters: Vec<Ranked> = set.filters.iter().enumerate().filter_map(compile).collect();
    let packets = trace(&set, Popularity::Uniform, PACKETS, 2);
    let Ok((table, _)) = kind.fill(&filters) else {
        return Some(Err(BenchError::measurement(kind.name, "it can't be filled in time")));
    };
    std::hint::black_box(callgrind_measured(&*table, &packets));
    Some(Ok(()))
}

#[inline(never)]
fn callgrind_measured(table: &dyn super::Table, packets: &[millrace_classify::Candidate]) -> u64 {
    in_batches(table, packets)
}

/// Instructions, and misses of reading at the first and the last level, from callgrind's summary.
fn collected(output: &str) -> Option<[f64; 3]> {
    let line = output.lines().find_map(|line| line.split_once("Collected :"))?.1;
    let counts: Vec<f64> = line.split_ascii_whitespace().map_while(|word| word.parse().ok()).collect();
    // Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw
    let [instructions, _, _, _, first, _, _, last, _] = counts[..] else { return None };
    (instructions > 0.0).then_some([instructions, first, last])
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

    #[test]
    fn the_sums_are_found() {
        let line = "==7== Collected : 800 200 50 4 90 5 3 40 2\n";
        assert_eq!(collected(line), Some([800.0, 90.0, 40.0]));
        assert_eq!(collected("==7== Collected : 0 0 0 0 0 0 0 0 0\n"), None);
        assert_eq!(collected("nothing"), None);
    }
}
