//! The results of several benchmarks, with the machine that they are of, as JSON and as a page.

mod escaped;
mod machine;
mod page;
mod plot;

use std::time::Instant;

use serde::{Deserialize, Serialize};

pub use self::machine::{Machine, Platform};

use crate::{BenchError, Measurement, Options, interrupt, list, run_one};

/// All that was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// On what; nothing where this isn't known.
    #[serde(default)]
    pub machine: Machine,
    /// The measurements, in the order in which they were made.
    pub results: Vec<Entry>,
    /// The benchmarks that gave none.
    #[serde(default)]
    pub failures: Vec<FailedBench>,
}

/// A measurement and its benchmark.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The benchmark; empty where it isn't known.
    #[serde(default)]
    pub bench: String,
    /// What it measured.
    #[serde(flatten)]
    pub measurement: Measurement,
}

/// A benchmark without results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedBench {
    /// Its name.
    pub bench: String,
    /// Why it has none.
    pub error: String,
    /// Whether it only lacks what this machine, or who runs it, hasn't.
    pub left_out: bool,
}

impl Report {
    /// The results of one benchmark, on this machine.
    pub fn of(bench: &str, measurements: Vec<Measurement>) -> Self {
        let mut report = Self { machine: Machine::this(), ..Self::default() };
        report.add(bench, measurements);
        report
    }

    fn add(&mut self, bench: &str, measurements: Vec<Measurement>) {
        let entry = |measurement| Entry { bench: bench.to_owned(), measurement };
        self.results.extend(measurements.into_iter().map(entry));
    }

    /// The promises that were not kept, a line each: benchmark, case, figure and limit.
    pub fn broken_promises(&self) -> Vec<String> {
        let broken = |Entry { bench, measurement }: &Entry| {
            let promise = measurement.broken_promise()?;
            Some(if bench.is_empty() { promise } else { format!("{bench}: {promise}") })
        };
        self.results.iter().filter_map(broken).collect()
    }

    /// One HTML page that needs nothing else, with a plot of each measurement.
    pub fn page(&self) -> String {
        page::page(self)
    }
}

/// Runs all benchmarks one after the other, and goes on behind one that fails.
///
/// # Errors
/// Only when it is interrupted.
pub fn run_all(options: &mut Options<'_>) -> Result<Report, BenchError> {
    let _watch = interrupt::Interrupt::watch();
    let mut report = Report { machine: Machine::this(), ..Report::default() };
    let count = list().len();
    for (number, bench) in list().iter().enumerate() {
        (options.progress)(&format!("{} of {count}: {}: {}", number + 1, bench.name, bench.summary));
        let start = Instant::now();
        match run_one(bench.name, options) {
            Ok(measurements) => report.add(bench.name, measurements),
            Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
            Err(error) => {
                let left_out = matches!(error, BenchError::NotRoot { .. });
                let error = error.to_string();
                (options.progress)(&format!("{} gives no results: {error}", bench.name));
                report.failures.push(FailedBench { bench: bench.name.to_owned(), error, left_out });
            }
        }
        (options.progress)(&format!("{}: {:.0} s", bench.name, start.elapsed().as_secs_f64()));
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_as_it_was_written_and_so_is_one_without_a_machine() {
        let measured = Measurement::median_of("c", &[1.0, 2.0, 3.0], "ns").beside("peer", 4.0);
        let report = Report { machine: Machine::default(), ..Report::of("memory", vec![measured]) };
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
        let old = r#"{"results": [{"case": "c", "ours": 1.0, "unit": "ns", "peer": null, "peer_name": null,
            "ratio": null, "limit": null, "holds": null}]}"#;
        let old: Report = serde_json::from_str(old).unwrap();
        assert_eq!((&*old.results[0].bench, old.results[0].measurement.spread), ("", None));
    }
}
