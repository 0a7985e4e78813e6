//! The command `admission simulate`: placement of services on described hardware.

use std::fmt::Write as _;
use std::path::Path;

use millrace_admission::hardware::{Hardware, known};
use millrace_admission::scenario::{Outcome, Scenario, Use};
use millrace_bench::escaped;
use millrace_reproduce::page::page;
use millrace_units::count;

use crate::output::{self, Failure, show, write_file};

/// Characters of a full bar.
const BAR: usize = 40;

/// Places the requests of a scenario.
pub fn simulate(file: &Path, html: Option<&Path>, json: bool) -> Result<(), Failure> {
    let wrong =
        |file: &Path, error: &dyn std::fmt::Display| Failure::new(format!("{}: {error}", file.display()));
    let scenario =
        Scenario::parse(&output::read(file)?).map_err(|error| wrong(file, &error.to_string().trim()))?;
    let hardware = match known(&scenario.hardware) {
        Some(text) => Hardware::parse(text).map_err(|error| wrong(Path::new(&scenario.hardware), &error))?,
        None => {
            let path = file.parent().unwrap_or(Path::new("")).join(&scenario.hardware);
            Hardware::parse(&output::read(&path)?).map_err(|error| wrong(&path, &error))?
        }
    };
    let outcome = scenario.place(&hardware).map_err(|error| wrong(file, &error))?;
    show(&outcome, json, || text(&outcome));
    if let Some(html) = html {
        write_file("page", html, &html_page(&outcome))?;
    }
    let refused = outcome.requests.len() - outcome.placed;
    if refused == 0 { Ok(()) } else { Err(Failure::new(format!("{} refused", count(refused, "request")))) }
}

fn text(outcome: &Outcome) -> String {
    let mut text = format!("{}\n", summary(outcome));
    let width = outcome.requests.iter().map(|request| request.name.chars().count()).max().unwrap_or_default();
    // Writing to a string can't fail.
    for request in &outcome.requests {
        let _ = writeln!(text, "{:<width$}  {}", request.name, decision(request));
    }
    let width =
        outcome.components.iter().map(|component| component.name.chars().count()).max().unwrap_or_default();
    text.push('\n');
    for component in &outcome.components {
        let full = ((component.used.min(1.0) * BAR as f64).round() as usize).min(BAR);
        let bar = format!("{}{}", "#".repeat(full), ".".repeat(BAR - full));
        let _ = writeln!(text, "{:<width$}  {bar}  {}", component.name, shares(component));
    }
    text
}

fn summary(outcome: &Outcome) -> String {
    format!(
        "{}: {} of {} placed, no placement has more than {}",
        outcome.hardware,
        outcome.placed,
        count(outcome.requests.len(), "request"),
        outcome.bound
    )
}

fn decision(request: &millrace_admission::scenario::Decision) -> String {
    if let Some(processor) = &request.processor {
        return processor.clone();
    }
    let lacks = request.lacks.iter().map(|lack| {
        format!("on {} lacks {:.2} % of {}", lack.processor, lack.missing * 100.0, lack.component)
    });
    let lacks: Vec<String> = lacks.collect();
    if lacks.is_empty() {
        "refused: no processor runs it".to_owned()
    } else {
        format!("refused: {}", lacks.join(", "))
    }
}

fn shares(component: &Use) -> String {
    let limit = component.limit.map_or("unbounded".to_owned(), |limit| format!("{:.0} %", limit * 100.0));
    format!("{:.2} % of {limit}", component.used * 100.0)
}

fn html_page(outcome: &Outcome) -> String {
    let mut body = format!("<p>{}</p>\n<table>\n", escaped(&summary(outcome)));
    for component in &outcome.components {
        let width = component.used.min(1.0) * 400.0;
        let _ = writeln!(
            body,
            "<tr><td>{}</td><td style=\"text-align:left\"><span class=\"bar\" style=\"width:{width:.0}px\"></span></td>\
             <td>{}</td></tr>",
            escaped(&component.name),
            escaped(&shares(component))
        );
    }
    body.push_str("</table>\n<table>\n");
    for request in &outcome.requests {
        let _ = writeln!(
            body,
            "<tr><td>{}</td><td>{}</td></tr>",
            escaped(&request.name),
            escaped(&decision(request))
        );
    }
    body.push_str("</table>\n");
    page("Placement", &body)
}
