//! Results of several benchmarks and their machine, as JSON and as an HTML page.

pub(crate) mod escaped;
mod machine;
mod page;
mod picture;
mod plot;

use std::time::Instant;

use serde::{Deserialize, Serialize};

pub use self::machine::{Machine, Platform};

use crate::{BenchError, Measurement, Options, interrupt, list, run_one};

/// Results of a benchmark run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Machine of the run. If the machine is unknown, all its fields have default values.
    #[serde(default)]
    pub machine: Machine,
    /// Measurements in the order of their execution.
    pub results: Vec<Entry>,
    /// Benchmarks without results.
    #[serde(default)]
    pub failures: Vec<FailedBench>,
}

/// Measurement with the name of its benchmark.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Name of the benchmark; empty if unknown.
    #[serde(default)]
    pub bench: String,
    /// Measurement of the benchmark.
    #[serde(flatten)]
    pub measurement: Measurement,
}

/// Benchmark that has no results, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedBench {
    /// Name of the benchmark.
    pub bench: String,
    /// Reason for the missing results.
    pub error: String,
    /// Whether the reason is only a missing resource of this machine, or a missing right of the user. Such a
    /// benchmark does not count as failed.
    pub left_out: bool,
}

impl Report {
    /// Returns the results of one benchmark on this machine.
    pub fn of(bench: &str, measurements: Vec<Measurement>) -> Self {
        let mut report = Self { machine: Machine::this(), ..Self::default() };
        report.add(bench, measurements);
        report
    }

    fn add(&mut self, bench: &str, measurements: Vec<Measurement>) {
        let entry = |measurement| Entry { bench: bench.to_owned(), measurement };
        self.results.extend(measurements.into_iter().map(entry));
    }

    /// Returns the broken promises, one per line: benchmark, case, figure, and limit.
    pub fn broken_promises(&self) -> Vec<String> {
        let broken = |Entry { bench, measurement }: &Entry| {
            let promise = measurement.broken_promise()?;
            Some(if bench.is_empty() { promise } else { format!("{bench}: {promise}") })
        };
        self.results.iter().filter_map(broken).collect()
    }

    /// Returns a self-contained HTML page with plots of all measurements.
    pub fn page(&self) -> String {
        page::page(self)
    }

    /// Returns a bar chart of the first benchmark as an SVG file; `None` without results. The chart shows the
    /// measurements with the same unit as the first measurement.
    pub fn picture(&self) -> Option<String> {
        picture::picture(self)
    }
}

/// Runs all benchmarks one after the other. Continues with the next one if one fails.
///
/// # Errors
/// The run was interrupted.
pub fn run_all(options: &mut Options<'_>) -> Result<Report, BenchError> {
    let _watch = interrupt::Interrupt::watch();
    let mut report = Report { machine: Machine::this(), ..Report::default() };
    let count = list().len();
    for (number, bench) in list().iter().enumerate() {
        (options.progress)(&format!("{} of {count}: {}: {}", number + 1, bench.name, bench.summary));
        let start = Instant::now();
        match run_one(bench, options) {
            Ok(measurements) => report.add(bench.name, measurements),
            Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
            Err(error) => {
                let left_out = matches!(error, BenchError::NotRoot { .. });
                let error = error.to_string();
                (options.progress)(&format!("{} has no results: {error}", bench.name));
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
    fn report_round_trips_with_and_without_a_machine() {
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
