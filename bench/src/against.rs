//! Comparison of two builds of Millrace: both run the same benchmark alternately, each run in its own
//! process.

use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde::Deserialize;

use crate::interrupt::wait_until;
use crate::testbed::process::Running;
use crate::{BenchError, Measurement, Options};

/// Name that results use for the other build, in place of a peer's name.
const NAME: &str = "the other build";
/// Time limit of one run, which may include all benchmarks.
const PATIENCE: Duration = Duration::from_secs(4 * 3600);
/// Time limit for an interrupted build to remove its network namespaces.
const GRACE: Duration = Duration::from_secs(15);

/// Result of one case, as a build prints it. This struct has only the fields that builds of every age print.
#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Said {
    case: String,
    ours: f64,
    unit: String,
    peer_name: Option<String>,
}

#[derive(Deserialize)]
struct Results {
    results: Vec<Said>,
}

impl Said {
    fn is_the_same_as(&self, other: &Self) -> bool {
        (&self.case, &self.unit, &self.peer_name) == (&other.case, &other.unit, &other.peer_name)
    }
}

/// Runs `bench ARGUMENTS` with this build and with the build at `other`, alternately, `rounds` times each.
/// For each case that both builds have, returns the medians of both builds and the ratio of these medians.
///
/// # Errors
/// A build prints no results; see [`BenchError`].
pub fn against(
    options: &mut Options<'_>,
    other: &Path,
    arguments: &[String],
    rounds: u32,
) -> Result<Vec<Measurement>, BenchError> {
    let _watch = crate::interrupt::Interrupt::watch();
    let ours = options.binary.clone();
    let mut said: [Vec<Vec<Said>>; 2] = Default::default();
    for round in 0..rounds as usize {
        // In every other round, the other build runs first.
        for turn in 0..2 {
            let build = (round + turn) % 2;
            let (binary, name) = [(ours.as_path(), "this build"), (other, NAME)][build];
            (options.progress)(&format!("round {} of {rounds}: {name}", round + 1));
            said[build].push(results_of(binary, arguments)?);
        }
    }
    let [ours, theirs] = said;
    let (measurements, missing) = compare(&ours, &theirs);
    for case in missing {
        (options.progress)(&format!("{case}: left out, because not every run has this case"));
    }
    Ok(measurements)
}

/// Runs the benchmark with a build and returns the results that the build prints.
fn results_of(binary: &Path, arguments: &[String]) -> Result<Vec<Said>, BenchError> {
    let mut command = Command::new(binary);
    command.arg("bench").args(arguments).arg("--json");
    let mut running = Running::start(&mut command)?;
    let ended = wait_until(PATIENCE, || Ok(running.ended()?.is_some()));
    if ended.is_err() {
        running.signal(Signal::SIGTERM)?;
        let begun = Instant::now();
        while running.ended()?.is_none() && begun.elapsed() < GRACE {
            sleep(Duration::from_millis(20));
        }
    }
    if !ended? {
        return Err(running.failure(&format!("still running after {PATIENCE:?}")));
    }
    // A benchmark may fail only because it breaks a promise; its output then still has results.
    parse(&running.output()).ok_or_else(|| running.failure("the program printed no results"))
}

/// Parses the JSON results after the progress lines.
fn parse(output: &str) -> Option<Vec<Said>> {
    let start = if output.starts_with("{\n") { 0 } else { output.find("\n{\n")? };
    let values = serde_json::Deserializer::from_str(&output[start..]).into_iter::<Results>();
    values.filter_map(Result::ok).next().map(|found| found.results)
}

/// Returns the medians of the cases that occur in all runs, and the names of the cases that don't.
fn compare(ours: &[Vec<Said>], theirs: &[Vec<Said>]) -> (Vec<Measurement>, Vec<String>) {
    let figures = |runs: &[Vec<Said>], wanted: &Said| -> Option<Vec<f64>> {
        let of_run = |run: &Vec<Said>| Some(run.iter().find(|said| said.is_the_same_as(wanted))?.ours);
        runs.iter().map(of_run).collect()
    };
    let (mut measurements, mut missing) = (Vec::new(), Vec::new());
    for wanted in ours.iter().take(1).flatten() {
        match (figures(ours, wanted), figures(theirs, wanted)) {
            (Some(ours), Some(theirs)) => {
                let measured = Measurement::median_of(&wanted.case, &ours, &wanted.unit);
                measurements.push(measured.beside_runs(NAME, &theirs));
            }
            _ => missing.push(wanted.case.clone()),
        }
    }
    let all = theirs.iter().take(1).flatten();
    let only_theirs = all.filter(|said| !ours.iter().take(1).flatten().any(|own| own.is_the_same_as(said)));
    missing.extend(only_theirs.map(|said| said.case.clone()));
    (measurements, missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(figures: &[(&str, f64)]) -> Vec<Said> {
        let said = |&(case, ours): &(&str, f64)| Said {
            case: case.to_owned(),
            ours,
            unit: "ns".to_owned(),
            peer_name: None,
        };
        figures.iter().map(said).collect()
    }

    #[test]
    fn only_cases_of_all_runs_are_compared_by_their_medians() {
        let ours = [run(&[("a", 1.0), ("new", 5.0)]), run(&[("a", 2.0), ("new", 5.0)]), run(&[("a", 9.0)])];
        let theirs = [run(&[("a", 4.0), ("gone", 1.0)]), run(&[("a", 5.0)]), run(&[("a", 3.0)])];
        let (measurements, missing) = compare(&ours, &theirs);
        let [a] = &measurements[..] else { panic!("{measurements:?}") };
        assert_eq!((a.ours, a.peer, a.ratio), (2.0, Some(4.0), Some(0.5)));
        assert_eq!((a.spread, a.peer_spread), (Some([1.0, 9.0]), Some([3.0, 5.0])));
        assert_eq!(missing, ["new", "gone"]);
    }

    #[test]
    fn results_are_parsed_after_progress_lines() {
        let json =
            "{\n  \"results\": [{\"case\": \"c\", \"ours\": 1.5, \"unit\": \"ns\", \"peer\": null}]\n}\n";
        for output in [json.to_owned(), format!("c: {{1.5}} ns\nmore\n{json}millrace: it failed\n")] {
            assert_eq!(parse(&output).unwrap()[0].ours, 1.5);
        }
        assert_eq!(parse("nothing"), None);
    }

    #[test]
    fn build_without_results_is_reported_with_its_output() {
        let _alone = crate::interrupt::FLAG_IN_USE.lock().unwrap();
        let error = results_of(Path::new("/bin/echo"), &["memory".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("the program printed no results: bench memory --json"), "{error}");
    }
}
