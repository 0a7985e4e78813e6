//! Report as one HTML page without references to other files.

use std::fmt::Write as _;

use millrace_bench::escaped;

use crate::experiment::{Experiment, Report};
use crate::table::{Row, Table};

const STYLE: &str = "body{font:15px/1.4 sans-serif;max-width:72em;margin:2em auto;padding:0 1em}\
    table{border-collapse:collapse;margin:1em 0}td,th{border:1px solid #ccc;padding:2px 8px;text-align:right}\
    td:first-child,th:first-child{text-align:left}small{color:#666}.no{color:#b00}.yes{color:#060}\
    .bar{background:#1f77b4;height:12px;display:inline-block}";

/// Returns a page with a title and a body.
#[must_use]
pub fn page(title: &str, body: &str) -> String {
    let title = escaped(title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n<h1>{title}</h1>\n{body}</html>\n"
    )
}

impl Report {
    /// Returns the report as a page.
    #[must_use]
    pub fn page(&self) -> String {
        let body: String = self.experiments.iter().map(section).collect();
        page("Experiments of the papers", &body)
    }
}

fn section(experiment: &Experiment) -> String {
    let mut html = format!(
        "<h2 id=\"{0}\">{1} <small>{0}</small></h2>\n<p>{2}. {3}</p>\n",
        escaped(&experiment.name),
        escaped(&experiment.title),
        escaped(&experiment.paper),
        verdict(experiment.holds)
    );
    if let Some(plot) = &experiment.plot {
        html.push_str(&plot.picture());
    }
    html.push_str(&tables(&experiment.printed, &experiment.ours));
    // Writing to a string can't fail.
    for statement in &experiment.statements {
        let (text, ours) = (escaped(&statement.text), escaped(&statement.ours));
        let _ = writeln!(html, "<p>{} {text} <small>{ours}</small></p>", verdict(statement.holds));
    }
    if !experiment.note.is_empty() {
        let _ = writeln!(html, "<p>{}</p>", escaped(&experiment.note).replace('\n', "<br>"));
    }
    if !experiment.choices.is_empty() {
        html.push_str("<table><tr><th>open in the paper</th><th>here</th></tr>\n");
        for choice in &experiment.choices {
            let _ = writeln!(
                html,
                "<tr><td>{}</td><td>{}</td></tr>",
                escaped(&choice.open),
                escaped(&choice.ours)
            );
        }
        html.push_str("</table>\n");
    }
    html
}

const fn verdict(holds: bool) -> &'static str {
    if holds { "<b class=\"yes\">holds</b>" } else { "<b class=\"no\">doesn't hold</b>" }
}

/// Returns one table with printed values above ours.
fn tables(printed: &Table, ours: &Table) -> String {
    let mut html = "<table>\n<tr><th></th>".to_owned();
    for column in &ours.columns {
        html.push_str(&format!("<th>{}</th>", escaped(column)));
    }
    html.push_str("</tr>\n");
    for row in &ours.rows {
        let _ = write!(html, "<tr><td>{}</td>", escaped(&row.name));
        let theirs = printed.rows.iter().find(|known| known.name == row.name);
        for index in 0..ours.columns.len() {
            let _ = write!(html, "<td>{}</td>", cell(theirs, row, index, ours.digits.get(index).copied()));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table>\n");
    html
}

/// Returns the printed value, ours with the difference, and its range.
fn cell(printed: Option<&Row>, ours: &Row, index: usize, digits: Option<usize>) -> String {
    let digits = digits.unwrap_or_default();
    let number = |row: &Row| row.values.get(index).copied().flatten();
    let difference = printed.and_then(number).zip(number(ours)).map(|(printed, ours)| ours - printed);
    let difference = difference.map_or(String::new(), |value| format!(" <small>({value:+.digits$})</small>"));
    let value = |row: &Row| number(row).map(|value| format!("{value:.digits$}"));
    let printed = printed.and_then(value).unwrap_or_default();
    let range = ours
        .ranges
        .get(index)
        .map_or(String::new(), |(low, high)| format!("<br><small>{low:.digits$} to {high:.digits$}</small>"));
    format!("{printed}<br><b>{}</b>{difference}{range}", value(ours).unwrap_or_default())
}
