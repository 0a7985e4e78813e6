//! The command `bench`.

use std::path::{Path, PathBuf};

use millrace_bench::instructions::{self, BASELINE};
use millrace_bench::{BenchError, Measurement, Options, Report, Workload, run_all, shown};
use millrace_units::{by_number, count};
use serde_json::{Value, json};

use crate::arguments::{Bench, BenchWorkload};
use crate::output::{self, Failure, print, rows, table, write_file};

const COLUMNS: &str = "case | ours | spread | unit | peer | peer name=peer_name | ratio | limit \
    | holds";

/// Name of the benchmark that takes `--baseline` and `--accept`.
const INSTRUCTIONS: &str = "instructions";
const MEMORY: &str = "memory";
const WITH_CASES: [&str; 5] = ["admission", "offload", "levels", "cpu", "services"];

/// Runs a benchmark, or lists them.
pub fn bench(bench: &Bench, json: bool) -> Result<(), Failure> {
    check_options(bench)?;
    if let Some(results) = &bench.from {
        let report = read(results)?;
        write_files(&report, bench)?;
        return judge(&report);
    }
    let Some(name) = &bench.name else {
        list(json);
        return Ok(());
    };
    match (name.as_str(), baseline(bench)) {
        (INSTRUCTIONS, Some(baseline)) if bench.accept => return accept(&baseline, json),
        (INSTRUCTIONS, Some(baseline)) if bench.against.is_none() => {
            return compare(&baseline, bench, json);
        }
        _ => {}
    }
    check_name(name)?;
    if name.contains('/') {
        return with_options(|options| millrace_bench::run(name, options)).map(drop);
    }
    let report = match (&bench.against, name.as_str()) {
        (Some(other), _) => Report::of(name, against(bench, name, other)?),
        (None, ALL) => all()?,
        (None, _) => {
            let workload = workload(&bench.workload);
            Report::of(
                name,
                with_options(|options| {
                    options.workload = workload;
                    options.case.clone_from(&bench.case);
                    millrace_bench::run(name, options)
                })?,
            )
        }
    };
    show(&report, json);
    write_files(&report, bench)?;
    judge(&report)
}

/// Argument that runs all benchmarks.
const ALL: &str = "all";

/// Prints requirements and duration, and runs all benchmarks.
fn all() -> Result<Report, Failure> {
    eprintln!(
        "running all benchmarks, which takes up to an hour: use an otherwise idle machine. Ctrl-C stops them \
         and removes their setup."
    );
    with_options(run_all)
}

/// Compares the results of this binary with those of the binary `other`, in alternating runs.
fn against(bench: &Bench, name: &str, other: &Path) -> Result<Vec<Measurement>, Failure> {
    if !other.is_file() {
        return Err(Failure::usage(format!("--against {}: no such program", other.display())));
    }
    let mut arguments = vec![name.to_owned()];
    arguments.extend(workload(&bench.workload).iter().flat_map(Workload::arguments));
    arguments.extend(bench.case.iter().flat_map(|case| ["--case".to_owned(), case.clone()]));
    with_options(|options| millrace_bench::against(options, other, &arguments, bench.rounds))
}

fn read(results: &Path) -> Result<Report, Failure> {
    serde_json::from_str(&output::read(results)?).map_err(|error| {
        let file = results.display();
        Failure::new(format!("{file}: not a result file of `millrace bench --json`: {error}"))
    })
}

/// Writes the HTML page of `--html` and the picture of `--svg`.
fn write_files(report: &Report, bench: &Bench) -> Result<(), Failure> {
    if let Some(file) = &bench.html {
        write_file("page", file, &report.page())?;
    }
    if let Some(file) = &bench.svg {
        let picture = report.picture().ok_or_else(|| Failure::new("--svg: there are no results to draw"))?;
        write_file("picture", file, &picture)?;
    }
    Ok(())
}

/// Returns an error if a result misses its target, or if a benchmark has no results. A benchmark that was
/// skipped, for example for lack of root, causes no error. The caller has already written the results.
fn judge(report: &Report) -> Result<(), Failure> {
    for failure in report.failures.iter().filter(|failure| failure.left_out) {
        eprintln!("skipped: {}: {}", failure.bench, failure.error);
    }
    let failed = report.failures.iter().filter(|failure| !failure.left_out);
    let failed: Vec<String> = failed.map(|failure| format!("{}: {}", failure.bench, failure.error)).collect();
    let broken = report.broken_promises();
    let mut lines = Vec::new();
    if !broken.is_empty() {
        let promises = report.results.iter().filter(|entry| entry.measurement.holds.is_some()).count();
        let verb = by_number(broken.len(), "is", "are");
        lines.push(format!("{} of {} {verb} missed:", broken.len(), count(promises, "performance target")));
        lines.extend(broken);
    }
    if !failed.is_empty() {
        lines.push(format!("benchmarks without results: {}", failed.join("; ")));
    }
    if lines.is_empty() { Ok(()) } else { Err(Failure::new(lines.join("\n"))) }
}

/// Returns an error if an option is given that the chosen benchmark doesn't take.
fn check_options(bench: &Bench) -> Result<(), Failure> {
    let options = [
        (bench.accept, "--accept", &[INSTRUCTIONS][..]),
        (bench.baseline.is_some(), "--baseline", &[INSTRUCTIONS]),
        (bench.workload != BenchWorkload::default(), "a workload option", &[MEMORY]),
        (bench.case.is_some(), "--case", &WITH_CASES),
    ];
    for (said, option, wanted) in options {
        if said && !wanted.iter().any(|wanted| bench.name.as_deref() == Some(*wanted)) {
            let wanted = wanted.join("` and `millrace bench ");
            return Err(Failure::usage(format!("{option} is only valid with `millrace bench {wanted}`")));
        }
    }
    let files = [("--html", bench.html.is_some()), ("--svg", bench.svg.is_some())];
    let asked = files.iter().find(|(_, asked)| *asked);
    match (asked, &bench.name, &bench.from) {
        (Some((option, _)), None, None) => {
            let problem = format!("{option} needs the name of a benchmark, `all`, or --from FILE");
            return Err(Failure::usage(problem));
        }
        (None, _, Some(_)) => return Err(Failure::usage("--from needs --html or --svg")),
        _ => {}
    }
    if bench.against.is_some() && bench.name.is_none() {
        return Err(Failure::usage("--against needs the name of a benchmark"));
    }
    Ok(())
}

/// Returns the given workload; `None` without workload options.
fn workload(said: &BenchWorkload) -> Option<Workload> {
    let usual = Workload::default();
    (*said != BenchWorkload::default()).then(|| Workload {
        flows: said.flows.unwrap_or(usual.flows),
        distribution: said.distribution.unwrap_or(usual.distribution),
        ip: said.ip.unwrap_or(usual.ip),
        size: said.size.unwrap_or(usual.size),
        routes: said.routes.unwrap_or(usual.routes),
        gates: said.gates.unwrap_or(usual.gates),
        path: said.path.unwrap_or(usual.path),
        workers: said.workers.unwrap_or(usual.workers),
    })
}

/// Returns the file of `--baseline`. Without this option, returns the repository's baseline file if it
/// exists, or if `--accept` will create it.
fn baseline(bench: &Bench) -> Option<PathBuf> {
    let usual = Path::new(BASELINE);
    let usual = (bench.accept || usual.exists()).then(|| usual.to_owned());
    bench.baseline.clone().or(usual)
}

/// Counts instructions and compares them with a baseline. Returns an error if the count of a path exceeds its
/// limit.
fn compare(baseline: &Path, bench: &Bench, json: bool) -> Result<(), Failure> {
    let mut comparison = with_options(|options| instructions::compare(options, baseline))?;
    let report = Report::of(INSTRUCTIONS, std::mem::take(&mut comparison.measurements));
    show(&report, json);
    write_files(&report, bench)?;
    for line in comparison.notes.iter().chain(&comparison.not_judged) {
        eprintln!("{line}");
    }
    let accept = format!("to make the new counts the baseline, run `millrace bench {INSTRUCTIONS} --accept`");
    if !comparison.failures.is_empty() {
        comparison.failures.iter().for_each(|failure| eprintln!("{failure}"));
        let (number, file) = (comparison.failures.len(), baseline.display());
        let noun = by_number(number, "path differs", "paths differ");
        return Err(Failure::new(format!("{number} {noun} from {file} (see above); {accept}")));
    }
    // In continuous integration, the counts of each counting method must be comparable with the baseline.
    // Elsewhere, one method suffices.
    let judged = comparison.check_judged(std::env::var_os("CI").is_some());
    judged.map_err(|why| Failure::new(format!("{why}; {accept}")))?;
    if !comparison.not_judged.is_empty() {
        eprintln!("not compared with the baseline; {accept}");
    }
    Ok(())
}

/// Makes the current counts the baseline, and prints the changes.
fn accept(baseline: &Path, json: bool) -> Result<(), Failure> {
    let changes = with_options(|options| instructions::accept(options, baseline))?;
    let number = count(changes.len(), "change");
    let lines: String = changes.iter().map(|change| format!("{change}\n")).collect();
    output::show(&json!({"baseline": baseline, "changes": changes}), json, || {
        format!("{lines}{number}; written to {}\n", baseline.display())
    });
    Ok(())
}

/// Calls `work` with benchmark options that name this binary as the one to measure.
pub fn with_options<T>(work: impl FnOnce(&mut Options<'_>) -> Result<T, BenchError>) -> Result<T, Failure> {
    let binary = std::env::current_exe().map_err(|error| {
        Failure::new(format!("can't determine the path of the running millrace binary: {error}"))
    })?;
    let mut progress = |line: &str| eprintln!("{line}");
    work(&mut Options { binary, workload: None, case: None, progress: &mut progress }).map_err(Failure::new)
}

fn list(json: bool) {
    let entry = |bench: &millrace_bench::Bench| json!({"name": bench.name, "summary": bench.summary});
    let benches: Vec<Value> = millrace_bench::list().iter().map(entry).collect();
    print(&benches.into(), "benchmark=name | what it measures=summary", json);
}

/// Checks that a benchmark exists. The name may be followed by `/PART`: a part that the benchmark runs in a
/// process of its own.
fn check_name(name: &str) -> Result<(), Failure> {
    let known: Vec<&str> = millrace_bench::list().iter().map(|bench| bench.name).chain([ALL]).collect();
    if known.contains(&name.split('/').next().unwrap_or(name)) {
        return Ok(());
    }
    let remedy = millrace_units::remedy("benchmark", name, known);
    Err(Failure::usage(format!("no benchmark is named {name:?}{remedy}")))
}

fn show(report: &Report, json: bool) {
    let value = json!(report);
    output::show(&value, json, || {
        table(&rows(&value["results"]).iter().map(readable).collect::<Vec<_>>(), COLUMNS)
    });
}

/// Formats a measurement for the table: yes or NO for booleans, numbers rounded to significant digits.
fn readable(measurement: &Value) -> Value {
    let mut row = measurement.clone();
    for key in ["ours", "peer", "ratio", "limit"] {
        if let Some(figure) = row[key].as_f64() {
            row[key] = Value::from(shown(figure));
        }
    }
    let ends: Vec<f64> = row["spread"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
    if let [least, most] = ends[..] {
        row["spread"] = format!("{} to {}", shown(least), shown(most)).into();
    }
    row["holds"] = match row["holds"].as_bool() {
        Some(true) => "yes".into(),
        Some(false) => "NO".into(),
        None => Value::Null,
    };
    row
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::arguments::{Arguments, Command};

    #[test]
    fn earlier_names_of_benchmarks_are_read() {
        let arguments = Arguments::try_parse_from(["millrace", "bench", "driver"]).unwrap();
        let Command::Bench(bench) = arguments.command else { panic!("{arguments:?}") };
        assert_eq!(bench.name.as_deref(), Some("offload"));
    }

    #[test]
    fn measurements_are_formatted_for_people() {
        let row = readable(
            &json!({"case": "c", "ours": 1234.56, "spread": [1.0, 20.5], "peer": null, "ratio": 0.9123, "holds": false}),
        );
        let expected = json!({"case": "c", "ours": "1235", "spread": "1.00 to 20.5", "peer": null, "ratio": "0.912", "holds": "NO"});
        assert_eq!(row, expected);
    }
}
