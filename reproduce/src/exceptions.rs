//! Printed values outside the ranges of ours, with their reasons.

use crate::table::{Exception, Table};

/// Beginnings of the names of rows, and the reason for their exceptions.
pub type Reason = (&'static [&'static str], &'static str);

/// Lists exceptions by their reasons. A row that also runs as written shows that value, too.
pub fn listed(exceptions: &[Exception], ours: &Table, reasons: &[Reason]) -> String {
    if exceptions.is_empty() {
        return "Outside: none.".to_owned();
    }
    let mut text = "Outside:".to_owned();
    let mut left: Vec<&Exception> = exceptions.iter().collect();
    for (rows, reason) in reasons.iter().chain(&[(&[""][..], "no reason is known")]) {
        let is_here = |known: &&Exception| rows.iter().any(|row| known.row.starts_with(*row));
        let (here, others): (Vec<_>, Vec<_>) = left.into_iter().partition(is_here);
        left = others;
        let shown: Vec<String> = here.into_iter().map(|known| shown(known, ours)).collect();
        if !shown.is_empty() {
            text.push_str(&format!("\n{}. Reason: {reason}.", shown.join("; ")));
        }
    }
    text
}

fn shown(exception: &Exception, ours: &Table) -> String {
    let Exception { row, column, text } = exception;
    let written = ours.value(&format!("{row} as written"), column);
    let written = written.map_or(String::new(), |value| format!(" (as written {value:.2})"));
    format!("{row} {column}: {text}{written}")
}
