//! The command `reproduce`.

use std::io::IsTerminal as _;
use std::path::PathBuf;

use millrace_reproduce::{Entry, Experiment, Report, Table};
use millrace_units::count;
use serde_json::{Value, json};

use crate::arguments::Reproduce;
use crate::output::{Failure, print, show, table, write_file};

/// Runs experiments of the papers, or lists them.
pub fn reproduce(asked: &Reproduce, json: bool) -> Result<(), Failure> {
    let entries = entries(asked.name.as_deref())?;
    if asked.list {
        let row = |entry: &Entry| json!({"name": entry.name, "title": entry.title});
        print(&entries.iter().map(row).collect(), "experiment=name | contents=title", json);
        return Ok(());
    }
    let program = std::env::current_exe()
        .and_then(std::fs::read)
        .map_err(|error| Failure::new(format!("can't read the running millrace binary: {error}")))?;
    let cache = if asked.fresh { None } else { cache() };
    let mut report = Report::default();
    for entry in &entries {
        let mut last = 101;
        let mut progress = |share: f64| {
            let percent = (share * 100.0) as u32;
            if percent != last && std::io::stderr().is_terminal() {
                eprint!("{}: {percent} %\r", entry.name);
                last = percent;
            }
        };
        let (experiment, kept) = millrace_reproduce::run(entry, cache.as_deref(), &program, &mut progress);
        if let Err(error) = kept {
            eprintln!("millrace: {error}: the next run computes it again");
        }
        if !json {
            show(&experiment, false, || text(&experiment));
        }
        report.experiments.push(experiment);
    }
    if json {
        show(&report, true, String::new);
    }
    if let Some(file) = &asked.html {
        write_file("page", file, &report.page())?;
    }
    judge(&report)
}

/// Returns an error if a conclusion doesn't show.
fn judge(report: &Report) -> Result<(), Failure> {
    let failed = report.experiments.iter().filter(|experiment| !experiment.holds);
    let failed: Vec<&str> = failed.map(|experiment| experiment.name.as_str()).collect();
    if failed.is_empty() {
        return Ok(());
    }
    let all = count(report.experiments.len(), "experiment");
    Err(Failure::new(format!("{} of {all} don't hold: {}", failed.len(), failed.join(", "))))
}

fn entries(name: Option<&str>) -> Result<Vec<Entry>, Failure> {
    let Some(name) = name else { return Ok(millrace_reproduce::experiments()) };
    let found = millrace_reproduce::named(name);
    if found.is_empty() {
        let known: Vec<&str> = millrace_reproduce::experiments().iter().map(|entry| entry.name).collect();
        let remedy = millrace_units::remedy("experiment", name, known);
        return Err(Failure::usage(format!("no experiment is named {name:?}{remedy}")));
    }
    Ok(found)
}

/// Returns the folder of earlier results; `None` without a home.
fn cache() -> Option<PathBuf> {
    let folder =
        |variable: &str| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")));
    base.map(|base| base.join("millrace/reproduce"))
}

/// Returns an experiment as text: each value of ours beside the printed one and the difference.
fn text(experiment: &Experiment) -> String {
    let verdict = if experiment.holds { "holds" } else { "DOESN'T HOLD" };
    let mut text = format!("{}: {} ({verdict})\n{}\n\n", experiment.name, experiment.title, experiment.paper);
    let rows: Vec<Value> = experiment.ours.rows.iter().map(|row| cells(experiment, &row.name)).collect();
    let columns = experiment.ours.columns.iter().enumerate().map(|(index, name)| format!("{name}=c{index}"));
    let columns: Vec<String> =
        [String::from("ours/printed (difference)=name")].into_iter().chain(columns).collect();
    text.push_str(&table(&rows, &columns.join(" | ")));
    for statement in &experiment.statements {
        let verdict = if statement.holds { "holds" } else { "DOESN'T HOLD" };
        let ours = if statement.ours.is_empty() { String::new() } else { format!(" ({})", statement.ours) };
        text.push_str(&format!("{verdict}: {}{ours}\n", statement.text));
    }
    if !experiment.note.is_empty() {
        text.push_str(&format!("{}\n", experiment.note));
    }
    for choice in &experiment.choices {
        text.push_str(&format!("open: {}; here: {}\n", choice.open, choice.ours));
    }
    text.push('\n');
    text
}

/// Returns a row: ours, printed and their difference for each column.
fn cells(experiment: &Experiment, name: &str) -> Value {
    let mut row = json!({"name": name});
    for (index, column) in experiment.ours.columns.iter().enumerate() {
        let digits = experiment.ours.digits.get(index).copied().unwrap_or_default();
        let shown = |table: &Table| table.value(name, column).map(|value| format!("{value:.digits$}"));
        let ours = shown(&experiment.ours).unwrap_or_else(|| "-".to_owned());
        let difference = experiment.difference.value(name, column);
        let difference = difference.map_or(String::new(), |value| format!(" ({value:+.digits$})"));
        let printed = shown(&experiment.printed);
        let cell = printed.map_or(ours.clone(), |printed| format!("{ours}/{printed}{difference}"));
        row[format!("c{index}")] = cell.into();
    }
    row
}
