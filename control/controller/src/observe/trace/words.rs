//! Texts of a journey's steps, with names that only control knows.

use std::net::IpAddr;
use std::time::Duration;

use millrace_classify::Candidate;
use millrace_forward::IcmpError;
use millrace_packet::Exceptions;
use millrace_pipeline::{FlowFound, Head, RouteTaken, StageOutcome, TraceEnd, TraceEvent, TraceStep, Waits};
use millrace_plugin::{BindingId, Direction};
use millrace_telemetry::utc_milliseconds;
use millrace_units::{GateId, PortId, QueueId, count};
use millrace_wire::Protocol;

use crate::model::Model;
use crate::ports::headers::Headers;
use crate::show::{self, hexadecimal};
use crate::view::{RawFrame, TraceStepView, TraceView};
use crate::workers::route_table::RouteTable;

/// Names and clock for the texts of steps.
pub(super) struct Words<'a> {
    pub model: &'a Model,
    pub routes: &'a RouteTable,
    /// Offset to be added to the workers' clock to get the time since 1970.
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
            let step = self.step(event, parsed.map(|candidate| candidate.key.destination()));
            steps.push(TraceStepView { worker: event.worker, cycles: event.cycles, ..step });
        }
        let (port, length, first) = match arrived {
            Some((event, port, length)) => (self.port(port), length, event),
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

    fn port(&self, id: PortId) -> String {
        self.model.port_name(id).to_owned()
    }

    fn step(&self, event: &TraceEvent, destination: Option<IpAddr>) -> TraceStepView {
        let at = |stage, port: PortId, text: String| TraceStepView {
            port: Some(self.port(port)),
            ..said(stage, text)
        };
        let worker = event.worker;
        match event.step {
            TraceStep::Arrived(port, length) => {
                let text = format!("port {}, {length} bytes, by worker {worker}", self.port(port));
                at("receive", port, text)
            }
            TraceStep::TakenOver => {
                said("worker", format!("received from another worker, by worker {worker}"))
            }
            TraceStep::Parsed(candidate) => said("parse", parsed(&candidate)),
            TraceStep::Classified { found, bindings, is_offloaded } => {
                classified(found, bindings, is_offloaded)
            }
            TraceStep::Gate(gate, binding, outcome) => self.gate(gate, binding, outcome),
            TraceStep::Copied(copies) => said("copy", format!("{} made", count(copies, "copy"))),
            TraceStep::Routed(taken) => self.route(taken, destination),
            TraceStep::Refused(error) => {
                said("error", format!("send the source an ICMP error: {}", icmp(error)))
            }
            TraceStep::Fragmented(pieces) => {
                said("fragment", format!("longer than the MTU: {pieces} fragments"))
            }
            TraceStep::Queued { port, leaf, before } => self.queue(port, leaf, before),
            TraceStep::HandedOver => said("worker", "handed over to another worker".to_owned()),
            TraceStep::Waits(Waits::Neighbour(port, address)) => {
                let text = format!("for the MAC address of {address} at port {}", self.port(port));
                at("wait", port, text)
            }
            TraceStep::Waits(Waits::Instance) => said("wait", "for the instance, which is busy".to_owned()),
            TraceStep::GoesOn => said("wait", "ended; forwarding resumes".to_owned()),
            TraceStep::Again => said("classify", "classify again, after a change".to_owned()),
            TraceStep::End(TraceEnd::Sent(port, length)) => {
                at("transmit", port, format!("port {}, {length} bytes", self.port(port)))
            }
            TraceStep::End(TraceEnd::Dropped(reason)) => TraceStepView {
                reason: Some(reason.name()),
                ..said("drop", format!("{}: {}", reason.name(), reason.meaning()))
            },
            TraceStep::End(TraceEnd::Host) => said("host", "punted to the kernel".to_owned()),
            TraceStep::End(TraceEnd::Own) => said("own", "delivered to the router's own stack".to_owned()),
            TraceStep::End(TraceEnd::Consumed) => said("plugin", "consumed by the instance".to_owned()),
        }
    }

    fn gate(&self, gate: GateId, binding: BindingId, outcome: StageOutcome) -> TraceStepView {
        let model = self.model;
        let name = model.plugins.gate_name(gate).to_owned();
        let (verdict, came) = match outcome {
            StageOutcome::Passed => ("pass", "pass".to_owned()),
            StageOutcome::Queue(queue) => {
                ("queue", format!("pass, to queue {}", model.schedulers.name(queue)))
            }
            StageOutcome::Sent(direction) => ("send", format!("pass, to {}", self.direction(direction))),
            StageOutcome::Dropped(reason) => ("drop", format!("drop: {}", reason.name())),
            StageOutcome::Consumed => ("consume", "consumed".to_owned()),
            StageOutcome::Kept => ("hold", "held by the instance".to_owned()),
            StageOutcome::Again => ("classify", "classify again".to_owned()),
        };
        let Some(bound) = model.plugins.binding(binding) else {
            let gone = said("gate", format!("gate {name}, a removed binding: {came}"));
            return TraceStepView { gate: Some(name), verdict: Some(verdict), ..gone };
        };
        let (action, filter) = (show::action(&bound.action, model), bound.filter.to_string());
        let instance = bound.action.instance().map(|id| model.plugins.instance_name(id).to_owned());
        let text = format!("gate {name}, filter {} {filter:?}, {action}: {came}", bound.number);
        TraceStepView {
            gate: Some(name),
            binding: Some(bound.number),
            filter: Some(filter),
            action: Some(action),
            instance,
            verdict: Some(verdict),
            ..said("gate", text)
        }
    }

    fn direction(&self, direction: Direction) -> String {
        match direction {
            Direction::Port(port) => format!("port {}", self.port(port)),
            Direction::Ports(ports) => {
                let set = (0..64).filter(|port| ports >> port & 1 == 1);
                let names: Vec<String> = set.map(|port| self.port(PortId(port))).collect();
                format!("ports {}", names.join(","))
            }
        }
    }

    fn route(&self, taken: RouteTaken, destination: Option<IpAddr>) -> TraceStepView {
        let found = destination.and_then(|address| self.routes.prefix_of(address));
        let prefix = found.map(|(prefix, _)| prefix.to_string());
        let step = |text, prefix| TraceStepView { prefix, ..said("route", text) };
        let of_prefix = prefix.clone().map(|prefix| format!("{prefix}: ")).unwrap_or_default();
        match taken {
            RouteTaken::None => step("no route".to_owned(), None),
            RouteTaken::Ends(kind) => step(format!("{of_prefix}{kind}"), prefix),
            RouteTaken::Framed(port) => TraceStepView {
                port: Some(self.port(port)),
                ..step(format!("frame of the kernel, unchanged, to port {}", self.port(port)), None)
            },
            RouteTaken::Sent { by_filter, hops, port, neighbour, mac, noted } => {
                let whose = if by_filter { "route of the filter: ".to_owned() } else { of_prefix };
                let among = if hops > 1 { format!(", one of {hops} next hops") } else { String::new() };
                let link = mac.map(|mac| format!(" ({mac})")).unwrap_or_default();
                let how = if noted { ", from the flow record" } else { "" };
                let name = self.port(port);
                let text = format!("{whose}to {neighbour}{link} at port {name}{among}{how}");
                let step = step(text, prefix.filter(|_| !by_filter));
                TraceStepView { port: Some(name), next_hop: Some(neighbour.to_string()), ..step }
            }
        }
    }

    fn queue(&self, port: PortId, leaf: Option<QueueId>, before: u32) -> TraceStepView {
        let place = match leaf {
            Some(leaf) => self.model.schedulers.describe(port, leaf),
            None => "FIFO".to_owned(),
        };
        let name = self.port(port);
        let text = format!("port {name}, {place}, {} ahead", count(before, "packet"));
        TraceStepView { port: Some(name), ..said("queue", text) }
    }

    fn verdict(&self, events: &[TraceEvent], is_over: bool) -> String {
        let ends = events.iter().filter_map(|event| match event.step {
            TraceStep::End(end) => Some(match end {
                TraceEnd::Sent(port, ..) => format!("sent out of port {}", self.port(port)),
                TraceEnd::Dropped(reason) => format!("dropped: {}", reason.name()),
                TraceEnd::Host => "punted to the kernel".to_owned(),
                TraceEnd::Own => "delivered to the router itself".to_owned(),
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

fn parsed(candidate: &Candidate) -> String {
    let key = &candidate.key;
    let (source, destination) = (key.source(), key.destination());
    let protocol = Protocol(key.protocol);
    let mut text = match protocol.has_ports() {
        true => {
            let (from, to) = (key.source_port, key.destination_port);
            format!("{source} port {from} to {destination} port {to}, {protocol}, dscp {}", candidate.dscp)
        }
        false => format!("{source} to {destination}, {protocol}, dscp {}", candidate.dscp),
    };
    if let Some(flags) = candidate.tcp_flags {
        text += &format!(", flags {flags:#04x}");
    }
    if candidate.exceptions != Exceptions::NONE {
        text += &format!(", exceptions {}", candidate.exceptions);
    }
    text
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

fn icmp(error: IcmpError) -> String {
    match error {
        IcmpError::TtlExpired => "time exceeded".to_owned(),
        IcmpError::ReassemblyTimeExceeded => "reassembly time exceeded".to_owned(),
        IcmpError::NetUnreachable => "network unreachable".to_owned(),
        IcmpError::HostUnreachable => "host unreachable".to_owned(),
        IcmpError::ProtocolUnreachable => "protocol unreachable".to_owned(),
        IcmpError::PortUnreachable => "port unreachable".to_owned(),
        IcmpError::TooBig { mtu } => format!("packet too big, MTU {mtu} bytes"),
        IcmpError::AdminProhibited => "administratively prohibited".to_owned(),
        IcmpError::SourcePolicy => "source address not allowed".to_owned(),
        IcmpError::RejectRoute => "rejected by the route".to_owned(),
        IcmpError::BeyondScope => "beyond the scope of the source address".to_owned(),
        IcmpError::ParameterProblem { pointer, .. } => format!("parameter problem at byte {pointer}"),
        IcmpError::Redirect { gateway } => format!("redirect to {gateway}"),
    }
}

/// Returns the first bytes of a frame, with a link header. A frame without one gets a header with zero
/// addresses.
pub(crate) fn with_link(head: &Head, network: u16, ether_type: u16) -> Vec<u8> {
    let bytes = head.bytes();
    match network {
        0 => [&[0; 12], &ether_type.to_be_bytes()[..], bytes].concat(),
        _ => bytes.to_vec(),
    }
}
