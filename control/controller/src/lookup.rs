//! Packets that people describe, and what would happen to them.

use millrace_classify::{Filter, PortRange};
use millrace_packet::FlowKey;
use millrace_pipeline::{Explanation, Question};
use millrace_plugin::BindingId;
use millrace_units::{GateId, PortId};
use std::net::IpAddr;

use crate::ControlError;
use crate::model::{Model, Plugins};
use crate::view::{LookupView, StepView};

/// Length of a packet of which none was said.
const LENGTH: u16 = 64;

/// The packet that a filter without wildcards for source and destination describes.
pub(crate) fn parse_packet(text: &str, model: &Model) -> Result<Question, ControlError> {
    let filter: Filter =
        text.parse().map_err(|error| ControlError::Invalid(format!("packet {text:?}: {error}")))?;
    let host = |net: Option<ipnet::IpNet>, side: &str| match net {
        Some(net) if net.prefix_len() == net.max_prefix_len() => Ok(net.addr()),
        _ => Err(ControlError::Invalid(format!(
            "packet {text:?}: a packet has one {side} address: say `{side} ADDRESS`, without a prefix length"
        ))),
    };
    let (source, destination) = (host(filter.source(), "src")?, host(filter.destination(), "dst")?);
    let protocol = filter.protocol().map_or(17, |protocol| protocol.0);
    let low = |range: PortRange| match range {
        PortRange::Any => 0,
        PortRange::Ports { first, .. } => first,
    };
    let ports = (low(filter.source_port()), low(filter.destination_port()));
    let port = match filter.incoming() {
        Some(name) => model.port(name)?.id,
        None => PortId::NONE,
    };
    let key = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            FlowKey::v4(source, destination, protocol, ports, port)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            FlowKey::v6(source, destination, protocol, ports, port)
        }
        _ => {
            return Err(ControlError::Invalid(format!(
                "packet {text:?}: source and destination are of two families"
            )));
        }
    };
    Ok(Question {
        key,
        tcp_flags: filter.tcp_flags().map(|flags| flags.value()),
        dscp: filter.dscp().map_or(0, |dscp| dscp.value()),
        tag: filter.tag().unwrap_or(0),
        length: LENGTH,
    })
}

/// The worker's explanation with the names that only control knows.
pub(crate) fn view(explanation: Explanation, plugins: &Plugins) -> LookupView {
    let steps = explanation
        .steps
        .into_iter()
        .map(|step| StepView { stage: step.stage, text: named(&step.text, plugins) });
    LookupView { steps: steps.collect(), verdict: explanation.verdict }
}

/// Replaces `{gate 3}` and `{binding 5}` by what they are called.
fn named(text: &str, plugins: &Plugins) -> String {
    let mut result = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('{') {
        let Some((inside, after)) = behind.split_once('}') else { break };
        result += before;
        result += &name_of(inside, plugins);
        rest = after;
    }
    result + rest
}

fn name_of(reference: &str, plugins: &Plugins) -> String {
    let mut words = reference.split(' ');
    let number = |word: Option<&str>| word.and_then(|word| word.parse::<u32>().ok());
    match (words.next(), number(words.next())) {
        (Some("gate"), Some(gate)) => format!("gate {}", plugins.gate_name(GateId(gate as u8))),
        (Some("binding"), Some(binding)) => match plugins.binding(BindingId(binding)) {
            Some(bound) => {
                format!("{} by {:?}", plugins.action_name(&bound.action), bound.filter.to_string())
            }
            None => format!("binding {binding}"),
        },
        _ => reference.to_owned(),
    }
}
