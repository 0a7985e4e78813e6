//! Lookup: explains how the router would treat a described packet.

use millrace_pipeline::Explanation;
use millrace_plugin::BindingId;
use millrace_units::{GateId, QueueId};

use crate::model::Model;
use crate::show;
use crate::view::{LookupView, StepView};
use crate::workers::route_table::RouteTable;

/// Returns a worker's explanation with numbers replaced by names. `leaf` is the scheduler leaf in which the
/// packet would wait.
pub(crate) fn view(
    explanation: Explanation,
    leaf: Option<QueueId>,
    model: &Model,
    routes: &RouteTable,
) -> LookupView {
    let port = explanation.queue.map(|(port, _)| port);
    let place = || match (port, leaf) {
        (Some(port), Some(leaf)) => model.schedulers.describe(port, leaf),
        _ => "FIFO".to_owned(),
    };
    let steps = explanation
        .steps
        .into_iter()
        .map(|step| StepView { stage: step.stage, text: named(&step.text, &place, model, routes) });
    LookupView { steps: steps.collect(), verdict: explanation.verdict }
}

/// Replaces placeholders in a text: `{gate 3}` and `{binding 5}` by names, `{prefix 192.0.2.1}` by the prefix
/// of the route to that address, and `{leaf}` by the result of `place`.
fn named(text: &str, place: &dyn Fn() -> String, model: &Model, routes: &RouteTable) -> String {
    let mut result = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('{') {
        let Some((inside, after)) = behind.split_once('}') else { break };
        result += before;
        result += &match inside {
            "leaf" => place(),
            other => name_of(other, model, routes),
        };
        rest = after;
    }
    result + rest
}

fn name_of(reference: &str, model: &Model, routes: &RouteTable) -> String {
    if let Some(address) = reference.strip_prefix("prefix ").and_then(|address| address.parse().ok()) {
        return routes.prefix_of(address).map_or_else(|| "-".to_owned(), |(prefix, _)| prefix.to_string());
    }
    let mut words = reference.split(' ');
    let number = |word: Option<&str>| word.and_then(|word| word.parse::<u32>().ok());
    match (words.next(), number(words.next())) {
        (Some("gate"), Some(gate)) => format!("gate {}", model.plugins.gate_name(GateId(gate as u8))),
        (Some("binding"), Some(binding)) => match model.plugins.binding(BindingId(binding)) {
            Some(bound) => {
                format!("{} by {:?}", show::action(&bound.action, model), bound.filter.to_string())
            }
            None => format!("binding {binding}"),
        },
        _ => reference.to_owned(),
    }
}
