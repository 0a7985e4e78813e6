//! `instructions`: instruction counts of the hot paths, compared with a committed baseline.
//!
//! The workload is fixed, and the counts don't depend on the machine's load. So a difference of 2 % comes
//! from the code. Callgrind hides the widest vector instructions, and so counts the portable code. If the
//! processor has an instruction counter, the benchmark also judges the code that this machine runs. The cost
//! of the generator or of the loop is subtracted.

mod baseline;
mod paths;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use self::baseline::{Baseline, Change, Counter, Counts, TOLERANCE};
use self::paths::PATHS;
use crate::counters::Meter;
use crate::testbed::process::is_installed;
use crate::{BenchError, Bound, Measurement, Options, callgrind};

/// Name of the run for callgrind, which runs all paths.
const RUN: &str = "instructions/all";
/// Time limit of callgrind.
const PATIENCE: Duration = Duration::from_secs(600);
/// Factor to round a count to one decimal. Further decimals vary with memory addresses.
const PRECISION: f64 = 10.0;

/// Path of the baseline in the repository.
pub const BASELINE: &str = "bench/instructions.json";

/// Result of a comparison with the baseline.
#[derive(Debug, Default)]
pub struct Comparison {
    /// All counts, beside the counts of the baseline.
    pub measurements: Vec<Measurement>,
    /// Notes for the user, one per line.
    pub notes: Vec<String>,
    /// Paths whose count exceeds the baseline by more than the tolerance, or that only one of the baseline
    /// and this run has. One path per line.
    pub failures: Vec<String>,
    /// Reasons why counts could not be judged, one per line.
    pub not_judged: Vec<String>,
    /// Number of counting methods whose counts were judged.
    judged: usize,
}

impl Comparison {
    /// Checks that the comparison judged enough counting methods to find an increase. At least one is
    /// necessary. With `all`, every method is necessary that both this machine and the baseline have.
    ///
    /// # Errors
    /// Reasons why the comparison judged too few methods, in one line.
    pub fn check_judged(&self, all: bool) -> Result<(), String> {
        if self.judged == 0 {
            let reasons = self.not_judged.iter().chain(&self.notes).map(String::as_str).collect::<Vec<_>>();
            let reasons = reasons.join("; ");
            return Err(format!("no instruction count was compared with the baseline: {reasons}"));
        }
        if all && !self.not_judged.is_empty() {
            return Err(self.not_judged.join("; "));
        }
        Ok(())
    }
}

/// Counts the instructions of each path, without comparing them with a baseline.
pub(crate) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    let mut results = Vec::new();
    for (counter, counts) in count(options)? {
        results.extend(counts.instructions.iter().map(|(path, count)| measurement(counter, path, *count)));
    }
    Ok(results)
}

/// Counts instructions and compares them with the baseline in a file.
///
/// # Errors
/// The file doesn't exist, or no counter works; see [`BenchError`].
pub fn compare(options: &mut Options<'_>, file: &Path) -> Result<Comparison, BenchError> {
    let Some(before) = Baseline::read(file)? else {
        let problem = "no such file: `millrace bench instructions --accept` creates it";
        return Err(BenchError::measurement(&format!("baseline {}", file.display()), problem));
    };
    let mut comparison = Comparison::default();
    for (counter, counts) in count(options)? {
        compare_counts(&mut comparison, counter, &counts, before.0.get(&counter));
    }
    Ok(comparison)
}

/// Counts instructions and writes them as the new baseline. Returns the changes, one line per path.
///
/// # Errors
/// See [`BenchError`]; the file is unchanged then.
pub fn accept(options: &mut Options<'_>, file: &Path) -> Result<Vec<String>, BenchError> {
    let mut baseline = Baseline::read(file)?.unwrap_or_default();
    let mut changes = Vec::new();
    for (counter, counts) in count(options)? {
        if let Some(before) = baseline.0.get(&counter) {
            changes.extend(counts.made_otherwise(before).map(|how| format!("{counter}: {how}")));
            let changed = counts.changes(before).into_iter().filter(|change| change.before != change.after);
            changes.extend(changed.map(|change| format!("{counter}: {change}")));
        } else {
            let new =
                counts.instructions.iter().map(|(path, count)| format!("{counter}: {path}: {count:.1}, new"));
            changes.extend(new);
        }
        baseline.0.insert(counter, counts);
    }
    baseline.write(file)?;
    Ok(changes)
}

/// Runs all paths, under callgrind. Returns `None` if `name` isn't the name of this run.
pub(crate) fn run_measured(name: &str) -> Option<Result<(), BenchError>> {
    (name == RUN).then(|| run_paths(&mut Meter::callgrind()))
}

fn run_paths(meter: &mut Meter) -> Result<(), BenchError> {
    for (place, path) in PATHS.iter().enumerate() {
        (path.run)(path.times, meter)?;
        if meter.pieces() != place + 1 {
            return Err(BenchError::measurement(
                path.name,
                "the path must be measured as exactly one piece of work",
            ));
        }
    }
    Ok(())
}

/// Returns the instruction counts by each method that this machine has.
fn count(options: &mut Options<'_>) -> Result<Vec<(Counter, Counts)>, BenchError> {
    let mut found = Vec::new();
    if is_installed("valgrind") {
        (options.progress)("callgrind counts; this takes about a minute");
        let parts = callgrind::parts(&options.binary, RUN, PATIENCE)?;
        if parts.len() == PATHS.len() && parts.iter().all(|part| *part > 0.0) {
            found.push((Counter::Callgrind, counts(&parts, vectors(false))));
        } else {
            (options.progress)("callgrind found no function names: it counts no instructions");
        }
    } else {
        (options.progress)("valgrind is not installed: the portable code is not counted");
    }
    match Meter::processor() {
        Some(mut meter) => {
            run_paths(&mut meter)?;
            match meter.counts() {
                Some(parts) => found.push((Counter::Processor, counts(&parts, vectors(true)))),
                None => {
                    (options.progress)("the processor's instruction counter stopped: its counts are left out")
                }
            }
        }
        None => (options.progress)(
            "no instruction counter of the processor is available (or the kernel forbids it): the code with \
             the widest vectors is not counted",
        ),
    }
    if found.is_empty() {
        return Err(BenchError::measurement(
            "instructions",
            "no counter of instructions is available: install valgrind",
        ));
    }
    Ok(found)
}

/// Converts the counts of all paths, in the order of [`PATHS`](paths::PATHS), to counts per packet or call.
fn counts(parts: &[f64], vectors: &str) -> Counts {
    let each: BTreeMap<&str, f64> =
        PATHS.iter().zip(parts).map(|(path, part)| (path.name, part / path.times as f64)).collect();
    let net = |path: &paths::HotPath| {
        let less = path.without.and_then(|without| each.get(without)).copied().unwrap_or(0.0);
        ((each[path.name] - less) * PRECISION).round() / PRECISION
    };
    let judged = PATHS.iter().filter(|path| path.is_judged());
    Counts {
        compiler: env!("MILLRACE_COMPILER").to_owned(),
        vectors: vectors.to_owned(),
        instructions: judged.map(|path| (path.name.to_owned(), net(path))).collect(),
    }
}

/// Returns the name of the processor's widest vector instructions. Without `all`, returns the widest that
/// callgrind doesn't hide.
pub(crate) fn vectors(all: bool) -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        if all && is_x86_feature_detected!("avx512bw") {
            return "AVX-512";
        }
        if is_x86_feature_detected!("avx2") {
            return "AVX2";
        }
    }
    let _ = all;
    std::env::consts::ARCH
}

fn measurement(counter: Counter, path: &str, count: f64) -> Measurement {
    Measurement::of(format!("{path}, counted by {counter}"), count, "instructions")
}

fn compare_counts(comparison: &mut Comparison, counter: Counter, counts: &Counts, before: Option<&Counts>) {
    let Some(before) = before else {
        let path_count = |(path, count): (&String, &f64)| measurement(counter, path, *count);
        comparison.measurements.extend(counts.instructions.iter().map(path_count));
        // Few machines have an instruction counter, so the baseline may lack its counts.
        comparison.notes.push(format!(
            "the baseline has no counts by {counter}: the counts by {counter} are not compared"
        ));
        return;
    };
    let otherwise = counts.made_otherwise(before);
    comparison.judged += usize::from(otherwise.is_none());
    for change in counts.changes(before) {
        let judged = otherwise.is_none();
        comparison.measurements.extend(compared(counter, &change, judged));
        if judged && change.fails() {
            comparison.failures.push(format!("{change} (counted by {counter})"));
        } else if judged && change.is_cheaper() {
            comparison
                .notes
                .push(format!("{change}: update the baseline, or a later loss of this gain is not detected"));
        }
    }
    let reason = |how| format!("the baseline's counts by {counter} are not comparable: {how}");
    comparison.not_judged.extend(otherwise.map(reason));
}

fn compared(counter: Counter, change: &Change, judged: bool) -> Option<Measurement> {
    let measured = measurement(counter, &change.path, change.after?);
    let Some(before) = change.before else { return Some(measured) };
    let measured = measured.beside("the baseline", before);
    Some(if judged { measured.promising_ratio(Bound::AtMost, 1.0 + TOLERANCE) } else { measured })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(count: f64) -> Counts {
        counts(&PATHS.iter().map(|path| count * path.times as f64).collect::<Vec<_>>(), "AVX2")
    }

    #[test]
    fn subtracted_path_is_not_compared() {
        let counts = all(10.0);
        assert!(counts.instructions.keys().all(|path| !path.starts_with("source")));
        assert_eq!(counts.instructions["IPv4, 1,000 flows"], 0.0);
        assert_eq!(counts.instructions["route lookup, IPv4"], 10.0);
        assert!(counts.compiler.starts_with("rustc "), "{}", counts.compiler);
    }

    #[test]
    fn longer_path_fails_unless_another_compiler_built_it() {
        let (mut before, mut now) = (all(10.0), all(10.0));
        for counts in [&mut before, &mut now] {
            counts.instructions.values_mut().for_each(|count| *count = 100.0);
        }
        now.instructions.insert("route lookup, IPv4".to_owned(), 105.0);
        now.instructions.insert("route lookup, IPv6".to_owned(), 95.0);
        let compared = |before: Option<&Counts>| {
            let mut comparison = Comparison::default();
            compare_counts(&mut comparison, Counter::Callgrind, &now, before);
            comparison
        };
        let comparison = compared(Some(&before));
        let expected = "route lookup, IPv4: 100.0 before, 105.0 now, +5.0 % (counted by callgrind)";
        assert_eq!(comparison.failures, [expected]);
        assert!(comparison.notes[0].starts_with("route lookup, IPv6: 100.0 before, 95.0 now, -5.0 %"));
        assert_eq!(comparison.measurements.iter().filter(|one| one.holds == Some(false)).count(), 1);
        before.compiler = "rustc 1.0".to_owned();
        let comparison = compared(Some(&before));
        assert!(comparison.failures.is_empty());
        assert!(comparison.not_judged[0].contains("rustc 1.0"), "{:?}", comparison.not_judged);
        assert!(compared(None).failures.is_empty());
    }

    #[test]
    fn a_comparison_that_judged_no_counter_is_a_failure_everywhere() {
        let now = all(100.0);
        let mut other = all(100.0);
        other.compiler = "rustc 1.0".to_owned();
        let compared = |befores: &[Option<&Counts>]| {
            let mut comparison = Comparison::default();
            for before in befores {
                compare_counts(&mut comparison, Counter::Callgrind, &now, *before);
            }
            [false, true].map(|all| comparison.check_judged(all).is_ok())
        };
        assert_eq!(compared(&[]), [false, false]);
        assert_eq!(compared(&[None]), [false, false]);
        assert_eq!(compared(&[Some(&other)]), [false, false]);
        assert_eq!(compared(&[Some(&now), Some(&other)]), [true, false]);
        assert_eq!(compared(&[Some(&now), None]), [true, true]);
    }
}
