//! The command `admission simulate`: placement of services on described hardware.

use std::fmt::Write as _;
use std::path::Path;

use millrace_admission::hardware::{Hardware, known};
use millrace_admission::request::{Cycles, Needs};
use millrace_admission::scenario::{Outcome, Scenario, Use};
use millrace_bench::escaped;
use millrace_reproduce::page::page;
use millrace_reproduce::{Plot, Series};
use millrace_units::count;
use millrace_workbench::{Cost, KindCost, Module, inspect};

use crate::output::{self, Failure, show, write_file};

/// Characters of a full bar.
const BAR: usize = 40;
/// Width of a full bar of a page, in pixels.
const PAGE_BAR: f64 = 400.0;

/// Places the requests of a scenario.
pub fn simulate(file: &Path, html: Option<&Path>, json: bool) -> Result<(), Failure> {
    let wrong =
        |file: &Path, error: &dyn std::fmt::Display| Failure::new(format!("{}: {error}", file.display()));
    let mut scenario =
        Scenario::parse(&output::read(file)?).map_err(|error| wrong(file, &error.to_string().trim()))?;
    let hardware = match known(&scenario.hardware) {
        Some(text) => Hardware::parse(text).map_err(|error| wrong(Path::new(&scenario.hardware), &error))?,
        None => {
            let path = file.parent().unwrap_or(Path::new("")).join(&scenario.hardware);
            Hardware::parse(&output::read(&path)?).map_err(|error| wrong(&path, &error))?
        }
    };
    for request in &mut scenario.requests {
        let Some(plugin) = &request.plugin else { continue };
        let plugin = file.parent().unwrap_or(Path::new("")).join(plugin);
        let cost = declared_cost(&plugin)?;
        let declared = request.clone().declared(needs(&cost), cost.output);
        *request = declared.map_err(|error| wrong(file, &error))?;
    }
    let outcome = scenario.place(&hardware).map_err(|error| wrong(file, &error))?;
    show(&outcome, json, || text(&outcome));
    if let Some(html) = html {
        write_file("page", html, &html_page(&outcome))?;
    }
    let refused = outcome.requests.len() - outcome.placed;
    if refused == 0 { Ok(()) } else { Err(Failure::new(format!("{} refused", count(refused, "request")))) }
}

/// Returns the cost that the manifest of a plugin declares.
fn declared_cost(plugin: &Path) -> Result<Cost, Failure> {
    let inspection = Module::read(plugin).and_then(|module| inspect(&module)).map_err(Failure::new)?;
    let Some(cost) = &inspection.calls.cost else {
        let remedy = "`millrace plugin bench FILE --write` measures and declares it";
        return Err(Failure::new(format!("{}: the manifest declares no cost; {remedy}", plugin.display())));
    };
    Cost::read(cost).map_err(Failure::new)
}

/// Returns the needs of a service whose plugin declares this cost. A call may have one packet, so each packet bears
/// the cost of a call.
fn needs(cost: &Cost) -> Needs {
    let cycles = |kind: &KindCost| Cycles {
        fixed: kind.fixed,
        packet: kind.call + kind.packet,
        packet_maximum: kind.packet_maximum.map(|most| kind.call + most),
        byte: kind.byte,
    };
    Needs {
        cycles: cost.on.iter().map(|(kind, cost)| (kind.clone(), cycles(cost))).collect(),
        whole_packet: cost.whole_packet,
        memory_bytes: cost.memory,
        code_slots: cost.code,
    }
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
        // A full bar is the limit, or the whole component without one.
        let width = (component.used / component.limit.unwrap_or(1.0)).clamp(0.0, 1.0) * PAGE_BAR;
        let outline = if component.limit.is_some() { "outline:1px solid #ccc;" } else { "" };
        let _ = writeln!(
            body,
            "<tr><td>{}</td><td style=\"text-align:left\"><div style=\"width:{PAGE_BAR}px;{outline}font-size:0\">\
             <span class=\"bar\" style=\"width:{width:.0}px\"></span></div></td><td>{}</td></tr>",
            escaped(&component.name),
            escaped(&shares(component))
        );
    }
    let _ = write!(body, "</table>\n<h2>Use as requests arrive</h2>\n{}<table>\n", growth(outcome).picture());
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

/// Returns the plot of the promised share of each limited component after each request.
fn growth(outcome: &Outcome) -> Plot {
    let limited = outcome.components.iter().enumerate().filter(|(_, component)| component.limit.is_some());
    let series = limited.map(|(index, component)| Series {
        name: component.name.clone(),
        values: outcome.growth.iter().filter_map(|used| Some(used.get(index)? * 100.0)).collect(),
    });
    Plot {
        horizontal: "requests, in their order".to_owned(),
        vertical: "promised share, in percent".to_owned(),
        points: (1..=outcome.growth.len()).map(|number| number.to_string()).collect(),
        series: series.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_has_a_bar_of_each_component_and_a_plot_of_their_growth() {
        let component = |name: &str, limit| Use { name: name.to_owned(), used: 0.25, limit };
        let outcome = Outcome {
            hardware: "two processors".to_owned(),
            algorithm: Default::default(),
            placed: 2,
            bound: 2,
            requests: Vec::new(),
            components: vec![component("UE & SA", Some(0.5)), component("Port", None)],
            growth: vec![vec![0.1, 0.2], vec![0.25, 0.25]],
        };
        let html = html_page(&outcome);
        assert_eq!(html.matches("class=\"bar\"").count(), 2, "{html}");
        // Half of the limit is half of the outlined bar.
        assert!(html.contains("width:200px") && html.contains("width:100px"), "{html}");
        assert_eq!(html.matches("<polyline").count(), 1, "ports without a limit are not drawn");
        assert!(html.contains(">UE &amp; SA</text>") && html.contains(">2</text>"), "{html}");
        let plot = growth(&outcome);
        assert_eq!((plot.points.len(), plot.series[0].values.clone()), (2, vec![10.0, 25.0]));
    }

    #[test]
    fn packet_bears_the_declared_cost_of_a_call() {
        let kind = KindCost { fixed: 5.0, call: 300.0, packet: 50.0, packet_maximum: Some(80.0), byte: 0.5 };
        let cost = Cost {
            on: [("worker".to_owned(), kind)].into(),
            memory: 7.0,
            code: 1.0,
            whole_packet: true,
            ..Cost::default()
        };
        let needs = needs(&cost);
        let expected = Cycles { fixed: 5.0, packet: 350.0, packet_maximum: Some(380.0), byte: 0.5 };
        assert_eq!(needs.on("worker"), Some(&expected));
        assert_eq!(needs.on("offload"), None);
        assert_eq!((needs.memory_bytes, needs.code_slots, needs.whole_packet), (7.0, 1.0, true));
    }
}
