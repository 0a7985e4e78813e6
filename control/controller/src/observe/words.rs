//! Texts that traces and lookups share, with names that only control knows.

use std::net::IpAddr;

use millrace_classify::Candidate;
use millrace_forward::IcmpError;
use millrace_packet::{DropReason, Exceptions, Family};
use millrace_pipeline::RouteTaken;
use millrace_plugin::{BindingId, ProcessorWait};
use millrace_units::{GateId, PortId, PrincipalId, QueueId};
use millrace_wire::Protocol;

use crate::model::Model;
use crate::show;
use crate::workers::route_table::RouteTable;

/// Verdict of a packet that is punted to the kernel.
pub(crate) const TO_KERNEL: &str = "punted to the kernel";
/// Verdict of a packet for the router's own stack.
pub(crate) const TO_ROUTER: &str = "delivered to the router itself";
/// Text of the step that delivers a packet to the router's own stack.
pub(crate) const TO_OWN_STACK: &str = "delivered to the router's own stack";

/// Sources of the names in the texts of steps.
pub(crate) struct Names<'a> {
    pub model: &'a Model,
    pub routes: &'a RouteTable,
}

/// Text of a route, with the prefix of the FIB entry.
pub(crate) struct RouteWords {
    pub text: String,
    /// Prefix of the route. `None` without a route, for a filter route, or for a frame of the kernel.
    pub prefix: Option<String>,
}

impl Names<'_> {
    /// Returns the name of a port.
    pub fn port(&self, id: PortId) -> String {
        self.model.port_name(id).to_owned()
    }

    /// Returns the text of a binding: its gate, filter and action.
    pub fn binding(&self, gate: GateId, binding: BindingId) -> String {
        let name = self.model.plugins.gate_name(gate);
        match self.model.plugins.binding(binding) {
            Some(bound) => {
                let (filter, action) = (bound.filter.to_string(), show::action(&bound.action, self.model));
                format!("gate {name}, filter {} {filter:?}, {action}", bound.number)
            }
            None => format!("gate {name}, a removed binding"),
        }
    }

    /// Returns the text of the route that a packet to `destination` took.
    pub fn route(&self, taken: RouteTaken, destination: Option<IpAddr>) -> RouteWords {
        let prefix = || {
            let (prefix, _) = self.routes.prefix_of(destination?)?;
            Some(prefix.to_string())
        };
        let (by_filter, text) = match taken {
            RouteTaken::None => return RouteWords { text: "no route".to_owned(), prefix: None },
            RouteTaken::Framed(port) => {
                let text = format!("frame of the kernel, unchanged, to port {}", self.port(port));
                return RouteWords { text, prefix: None };
            }
            RouteTaken::Ends(end) => (end.is_filter(), end.name().to_owned()),
            RouteTaken::Sent { by_filter, hops, port, neighbour, mac, noted } => {
                let among = if hops > 1 { format!(", one of {hops} next hops") } else { String::new() };
                let link = mac.map(|mac| format!(" ({mac})")).unwrap_or_default();
                let how = if noted { ", from the flow record" } else { "" };
                (by_filter, format!("to {neighbour}{link} at port {}{among}{how}", self.port(port)))
            }
        };
        let prefix = if by_filter { None } else { prefix() };
        let whose = match &prefix {
            _ if by_filter => "route of the filter: ".to_owned(),
            Some(prefix) => format!("{prefix}: "),
            None => String::new(),
        };
        RouteWords { text: whose + &text, prefix }
    }

    /// Returns the text of the queue where a packet waits at its egress port. `leaf` is a leaf of the port's
    /// scheduler; `None` without a scheduler.
    pub fn queue(&self, port: PortId, leaf: Option<QueueId>) -> String {
        let place = match leaf {
            Some(leaf) => self.model.schedulers.describe(port, leaf),
            None => "FIFO".to_owned(),
        };
        format!("port {}, {place}", self.port(port))
    }

    /// Returns the text of a drop reason: its name, and its meaning for the packet.
    pub fn drop(&self, reason: DropReason, packet: Option<&Candidate>) -> String {
        let meaning = match (reason, packet) {
            (DropReason::ReversePath, Some(Candidate { key, .. })) => {
                format!("no route to the source {} leads out of port {}", key.source(), self.port(key.port))
            }
            (DropReason::ForwardingOff, Some(Candidate { key, .. })) => {
                let family = if key.family() == Family::V4 { "IPv4" } else { "IPv6" };
                format!("{family} forwarding is off at port {}", self.port(key.port))
            }
            _ => reason.meaning().to_owned(),
        };
        format!("{}: {meaning}", reason.name())
    }

    /// Returns the text of a wait for the MAC address of a neighbour.
    pub fn wait(&self, port: PortId, address: IpAddr) -> String {
        format!("for the MAC address of {address} at port {}", self.port(port))
    }

    /// Returns the text of a wait for the processor.
    pub fn processor(&self, wait: ProcessorWait) -> String {
        show::processor_wait(wait, self.model)
    }

    /// Returns the text of a call in line that a principal pays for.
    pub fn in_line(&self, payer: PrincipalId) -> String {
        show::in_line(payer, self.model)
    }

    /// Returns the verdict of a packet that is sent.
    pub fn sent(&self, port: PortId) -> String {
        format!("sent out of port {}", self.port(port))
    }
}

/// Returns the verdict of a dropped packet.
pub(crate) fn dropped(reason: DropReason) -> String {
    format!("dropped: {}", reason.name())
}

/// Returns the text of a packet's header fields.
pub(crate) fn parsed(candidate: &Candidate) -> String {
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

/// Returns the name of an ICMP error.
pub(crate) fn icmp(error: IcmpError) -> String {
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

/// Returns the text for a packet that a route drops, with an ICMP error to the packet's source.
pub(crate) fn refused(error: IcmpError) -> String {
    format!("send the source an ICMP error: {}", icmp(error))
}
