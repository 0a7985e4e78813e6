//! Calculations of appendix A: parameters from the measurements of chapter 3.

use millrace_admission::hardware::Hardware;

use super::paper;
use crate::experiment::{Experiment, Statement};
use crate::table::Table;

/// Parameter: name, printed value, value computed from measurements, and allowed difference.
pub type Parameter = (&'static str, f64, f64, f64);

/// Returns cost per packet and per byte of a line through two measurements (bytes, cost).
pub fn line(one: (f64, f64), other: (f64, f64)) -> (f64, f64) {
    let per_byte = (other.1 - one.1) / (other.0 - one.0);
    (one.1 - per_byte * one.0, per_byte)
}

/// Returns nanoseconds for a number of bytes at a rate in MB/s.
pub fn nanoseconds(bytes: f64, rate: f64) -> f64 {
    bytes / rate * 1e3
}

/// Compares printed parameters with computed ones. `hardware` is the file that holds them.
pub fn compare(
    name: &str,
    title: &str,
    parameters: &[Parameter],
    hardware: Option<Hardware>,
    note: &str,
) -> Experiment {
    let headings = ["value:2"];
    let (mut printed, mut ours) = (Table::new(&headings), Table::new(&headings));
    let mut wrong = Vec::new();
    for (parameter, theirs, computed, allowed) in parameters {
        printed.add(parameter, &[*theirs]);
        ours.add(parameter, &[*computed]);
        if (theirs - computed).abs() > *allowed {
            wrong.push(format!("{parameter}: {theirs} printed, {computed:.2} computed"));
        }
    }
    let (difference, _) = ours.minus(&printed);
    let computed = wrong.is_empty();
    let statements = vec![
        Statement::new("the printed parameters follow from the measurements", computed, wrong.join("; ")),
        Statement::new("the hardware file is right", hardware.is_some(), String::new()),
    ];
    Experiment {
        name: name.to_owned(),
        title: title.to_owned(),
        paper: paper(&format!("{} and appendix A", name.trim_start_matches("vera-").replace('-', " "))),
        printed,
        ours,
        difference,
        holds: computed && hardware.is_some(),
        note: note.to_owned(),
        statements,
        choices: Vec::new(),
        plot: None,
    }
}
