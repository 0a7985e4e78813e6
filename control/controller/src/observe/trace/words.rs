//! Texts of a journey's steps, with names that only control knows.

use std::net::IpAddr;
use std::time::Duration;

use millrace_classify::Candidate;
use millrace_pipeline::{FlowFound, Head, RouteTaken, StageOutcome, TraceEnd, TraceEvent, TraceStep, Waits};
use millrace_plugin::{BindingId, Direction};
use millrace_telemetry::utc_milliseconds;
use millrace_units::{GateId, PortId, QueueId, count};

use crate::observe::words::{
    Names, RouteWords, TO_KERNEL, TO_OWN_STACK, TO_ROUTER, dropped, parsed, refused,
};
use crate::ports::headers::Headers;
use crate::show::{self, hexadecimal};
use crate::view::{RawFrame, TraceStepView, TraceView};

/// Sources for the texts of steps: names, and the offset of the workers' clock.
pub(super) struct Words<'a> {
    pub names: Names<'a>,
    /// Time since 1970 at which the workers' clock was zero.
    pub origin: Duration,
}

impl Words<'_> {
    /// Returns the view of a journey, made of all steps of a packet.
    pub fn view(&self, number: u64, events: &[TraceEvent], is_over: bool) -> TraceView {
        let arrived = events.iter().find_map(|event| match event.step {
            TraceStep::Arrived(port, length) => Some((event, port, length)),
            _ => None,
        });
        let parsed = events.iter().find_map(|event| match event.step {
            TraceStep::Parsed(candidate) => Some(candidate),
            _ => None,
        });
        let frame =
            arrived.and_then(|(event, ..)| event.head.as_deref()).map(Head::bytes).unwrap_or_default();
        let before = Headers::of_frame(frame);
        let mut steps = Vec::new();
        for event in events {
            if let (TraceStep::End(TraceEnd::Sent(..)), Some(head)) = (&event.step, &event.head) {
                let changes = before.changes(&Headers::of_frame(head.bytes()));
                if !changes.is_empty() {
                    let step = said("rewrite", changes.join(", "));
                    steps.push(TraceStepView { worker: event.worker, ..step });
                }
            }
            let step = self.step(event, parsed.as_ref());
            steps.push(TraceStepView { worker: event.worker, cycles: event.cycles, ..step });
        }
        let (port, length, first) = match arrived {
            Some((event, port, length)) => (self.names.port(port), length, event),
            None => (String::new(), 0, &events[0]),
        };
        let at = self.origin + Duration::from_nanos(first.at.as_nanos());
        // The worker that owns the packet's flow classifies the packet.
        let is_of_flow = |event: &&TraceEvent| matches!(event.step, TraceStep::Classified { .. });
        let level = events.iter().rev().find(is_of_flow).unwrap_or(first).worker;
        let known: Vec<u64> = events.iter().filter_map(|event| event.cycles).collect();
        TraceView {
            number,
            time: utc_milliseconds(at.as_millis() as u64),
            level: format!("worker {level}"),
            length,
            frame: hexadecimal(frame),
            verdict: self.verdict(events, is_over),
            reason: events.iter().rev().find_map(|event| match event.step {
                TraceStep::End(TraceEnd::Dropped(reason)) => Some(reason.name()),
                _ => None,
            }),
            cycles: (!known.is_empty()).then(|| known.iter().sum()),
            is_over,
            raw: RawFrame { port: port.clone(), at, length, bytes: frame.to_vec() },
            port,
            steps,
        }
    }

    fn step(&self, event: &TraceEvent, candidate: Option<&Candidate>) -> TraceStepView {
        let said = |stage, text: String| TraceStepView { stage, text, ..TraceStepView::default() };
        let at = |stage, port: PortId, text: String| TraceStepView {
            port: Some(self.names.port(port)),
            ..said(stage, text)
        };
        let worker = event.worker;
        match event.step {
            TraceStep::Arrived(port, length) => {
                let text = format!("port {}, {length} bytes, by worker {worker}", self.names.port(port));
                at("receive", port, text)
            }
            TraceStep::TakenOver => {
                said("worker", format!("received from another worker, by worker {worker}"))
            }
            TraceStep::Parsed(candidate) => said("parse", parsed(&candidate)),
            TraceStep::Classified { found, bindings, is_offloaded } => {
                classified(found, bindings, is_offloaded)
            }
            TraceStep::Gate { gate, binding, outcome, charged } => {
                let step = self.gate(gate, binding, outcome);
                let how = charged.map(|payer| format!(", {}", self.names.in_line(payer)));
                TraceStepView { text: step.text + &how.unwrap_or_default(), ..step }
            }
            TraceStep::Copied(copies) => said("copy", format!("{} made", count(copies, "copy"))),
            TraceStep::Routed(taken) => self.route(taken, candidate.map(|packet| packet.key.destination())),
            TraceStep::Refused(error) => said("error", refused(error)),
            TraceStep::Fragmented(pieces) => {
                said("fragment", format!("longer than the MTU: {pieces} fragments"))
            }
            TraceStep::Queued { port, leaf, before } => self.queue(port, leaf, before),
            TraceStep::HandedOver => said("worker", "handed over to another worker".to_owned()),
            TraceStep::Waits(Waits::Neighbour(port, address)) => {
                at("wait", port, self.names.wait(port, address))
            }
            TraceStep::Waits(Waits::Instance) => {
                said("wait", "for the instance, which is busy or holds the packet".to_owned())
            }
            TraceStep::Waits(Waits::Processor(wait)) => said("wait", self.names.processor(wait)),
            TraceStep::GoesOn => said("wait", "ended; forwarding resumes".to_owned()),
            TraceStep::Again => said("classify", "classify again, after a change".to_owned()),
            TraceStep::End(TraceEnd::Sent(port, length)) => {
                at("transmit", port, format!("port {}, {length} bytes", self.names.port(port)))
            }
            TraceStep::End(TraceEnd::Dropped(reason)) => TraceStepView {
                reason: Some(reason.name()),
                ..said("drop", self.names.drop(reason, candidate))
            },
            TraceStep::End(TraceEnd::Host) => said("host", TO_KERNEL.to_owned()),
            TraceStep::End(TraceEnd::Own) => said("own", TO_OWN_STACK.to_owned()),
            TraceStep::End(TraceEnd::Consumed) => said("plugin", "consumed by the instance".to_owned()),
        }
    }

    fn gate(&self, gate: GateId, binding: BindingId, outcome: StageOutcome) -> TraceStepView {
        let model = self.names.model;
        let (verdict, came) = match outcome {
            StageOutcome::Passed => ("pass", "pass".to_owned()),
            StageOutcome::Queue(queue) => {
                ("queue", format!("pass, to queue {}", model.schedulers.name(queue)))
            }
            StageOutcome::Sent(direction) => ("send", format!("pass, to {}", self.direction(direction))),
            StageOutcome::Dropped(reason) => ("drop", dropped(reason)),
            StageOutcome::Consumed => ("consume", "consumed".to_owned()),
            StageOutcome::Kept => ("hold", "held by the instance".to_owned()),
            StageOutcome::Again => ("classify", "classify again".to_owned()),
        };
        let bound = model.plugins.binding(binding);
        let instance = bound.and_then(|bound| bound.action.instance());
        TraceStepView {
            gate: Some(model.plugins.gate_name(gate).to_owned()),
            binding: bound.map(|bound| bound.number),
            filter: bound.map(|bound| bound.filter.to_string()),
            action: bound.map(|bound| show::action(&bound.action, model)),
            instance: instance.map(|id| model.plugins.instance_name(id).to_owned()),
            verdict: Some(verdict),
            ..said("gate", format!("{}: {came}", self.names.binding(gate, binding)))
        }
    }

    fn direction(&self, direction: Direction) -> String {
        match direction {
            Direction::Port(port) => format!("port {}", self.names.port(port)),
            Direction::Ports(ports) => {
                let set = (0..64).filter(|port| ports >> port & 1 == 1);
                let names: Vec<String> = set.map(|port| self.names.port(PortId(port))).collect();
                format!("ports {}", names.join(","))
            }
        }
    }

    fn route(&self, taken: RouteTaken, destination: Option<IpAddr>) -> TraceStepView {
        let RouteWords { text, prefix } = self.names.route(taken, destination);
        let step = TraceStepView { stage: "route", text, prefix, ..TraceStepView::default() };
        match taken {
            RouteTaken::None | RouteTaken::Ends(_) => step,
            RouteTaken::Framed(port) => TraceStepView { port: Some(self.names.port(port)), ..step },
            RouteTaken::Sent { port, neighbour, .. } => TraceStepView {
                port: Some(self.names.port(port)),
                next_hop: Some(neighbour.to_string()),
                ..step
            },
        }
    }

    fn queue(&self, port: PortId, leaf: Option<QueueId>, before: u32) -> TraceStepView {
        TraceStepView {
            stage: "queue",
            text: format!("{}, {} ahead", self.names.queue(port, leaf), count(before, "packet")),
            port: Some(self.names.port(port)),
            ..TraceStepView::default()
        }
    }

    fn verdict(&self, events: &[TraceEvent], is_over: bool) -> String {
        let ends = events.iter().filter_map(|event| match event.step {
            TraceStep::End(end) => Some(match end {
                TraceEnd::Sent(port, ..) => self.names.sent(port),
                TraceEnd::Dropped(reason) => dropped(reason),
                TraceEnd::Host => TO_KERNEL.to_owned(),
                TraceEnd::Own => TO_ROUTER.to_owned(),
                TraceEnd::Consumed => "consumed by a plugin".to_owned(),
            }),
            _ => None,
        });
        let mut ends: Vec<String> = ends.collect();
        let count = ends.len();
        ends.dedup();
        if ends.len() == 1 && count > 1 {
            ends[0] += &format!(", in {count} fragments");
        }
        if !is_over {
            ends.push("still in the router when the trace ended".to_owned());
        }
        ends.join("; ")
    }
}

fn said(stage: &'static str, text: String) -> TraceStepView {
    TraceStepView { stage, text, ..TraceStepView::default() }
}

fn classified(found: FlowFound, bindings: u8, is_offloaded: bool) -> TraceStepView {
    let (verdict, how) = match found {
        FlowFound::Hit => ("hit", "flow table hit"),
        FlowFound::Checked => ("checked", "flow table hit, still valid after a change"),
        FlowFound::Rerouted => ("rerouted", "flow table hit, looked up the route again after a change"),
        FlowFound::Reclassified => ("reclassified", "flow table hit, classified again after a change"),
        FlowFound::Miss => ("miss", "flow table miss: looked up filters and route"),
        FlowFound::NotAsked => ("none", "no flow table: looked up filters and route"),
    };
    let bound = match bindings {
        0 => "no binding".to_owned(),
        bindings => count(bindings, "binding"),
    };
    let offload = if is_offloaded { "; the flow is offloaded when not traced" } else { "" };
    let step = said("classify", format!("{how}; {bound}{offload}"));
    TraceStepView { verdict: Some(verdict), ..step }
}

/// Returns the first bytes of a frame, always with a link header. A frame that has no link header gets one
/// with zero addresses.
pub(crate) fn with_link(head: &Head, network: u16, ether_type: u16) -> Vec<u8> {
    let bytes = head.bytes();
    match network {
        0 => [&[0; 12], &ether_type.to_be_bytes()[..], bytes].concat(),
        _ => bytes.to_vec(),
    }
}
