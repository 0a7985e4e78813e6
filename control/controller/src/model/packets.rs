//! Descriptions of packets and flows, which have the form of a filter.

use std::net::IpAddr;

use millrace_classify::{Candidate, Filter, PortRange};
use millrace_packet::{Exceptions, FlowKey};
use millrace_pipeline::Question;
use millrace_units::PortId;
use millrace_wire::Protocol;

use crate::ControlError;
use crate::model::Model;

/// Default length of a packet, in bytes.
const LENGTH: u16 = 64;

/// Parsed description of a packet, before its port name is looked up. Parsing needs no lock, so a long
/// description blocks no other request.
pub(crate) struct ReadPacket<'a> {
    filter: Filter,
    text: &'a str,
}

impl<'a> ReadPacket<'a> {
    /// Reads the description of a packet.
    ///
    /// # Errors
    /// Returns an error if the text is not a filter with exactly one alternative.
    pub fn read(text: &'a str) -> Result<Self, ControlError> {
        let filter = text.parse();
        let filter = filter.map_err(|error| ControlError::invalid(format!("packet {text:?}: {error}")))?;
        Ok(Self { filter, text })
    }

    /// Returns the packet with its port name looked up.
    ///
    /// # Errors
    /// Returns an error for a wildcard source or destination, or an unknown port.
    pub fn question(&self, model: &Model) -> Result<Question, ControlError> {
        question(&self.filter, self.text, model)
    }

    /// Returns the fields of the packet that filters match.
    pub fn candidate(&self, model: &Model) -> Result<Candidate, ControlError> {
        Ok(self.question(model)?.candidate)
    }
}

/// Parses a packet from a filter that has no wildcards for source and destination.
pub(crate) fn parse_packet(text: &str, model: &Model) -> Result<Question, ControlError> {
    ReadPacket::read(text)?.question(model)
}

fn question(filter: &Filter, text: &str, model: &Model) -> Result<Question, ControlError> {
    let host = |net: Option<ipnet::IpNet>, side: &str| match net {
        Some(net) if net.prefix_len() == net.max_prefix_len() => Ok(net.addr()),
        _ => Err(ControlError::invalid(format!(
            "packet {text:?}: a packet has one {side} address: say `{side} ADDRESS`, without a prefix length"
        ))),
    };
    let (source, destination) = (host(filter.source(), "src")?, host(filter.destination(), "dst")?);
    let protocol = filter.protocol().map_or(17, |protocol| protocol.0);
    let one = |range: PortRange, side: &str| match range {
        PortRange::Any => Ok(0),
        PortRange::Ports { first, last } if first == last => Ok(first),
        PortRange::Ports { .. } => Err(ControlError::invalid(format!(
            "packet {text:?}: a packet has one {side}: say `{side} NUMBER`, without a range"
        ))),
    };
    let ports = (one(filter.source_port(), "sport")?, one(filter.destination_port(), "dport")?);
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
            return Err(ControlError::invalid(format!(
                "packet {text:?}: source and destination are of different address families"
            )));
        }
    };
    let candidate = Candidate {
        key,
        tcp_flags: filter.tcp_flags().map(|flags| flags.value()),
        tag: filter.tag().unwrap_or(0),
        exceptions: filter.exceptions().map_or(Exceptions::NONE, |exceptions| exceptions.value()),
        dscp: filter.dscp().map_or(0, |dscp| dscp.value()),
    };
    Ok(Question { candidate, length: LENGTH, dont_fragment: false })
}

/// Returns the filter that only packets of this flow match.
pub(crate) fn selector(key: &FlowKey, model: &Model) -> String {
    let protocol = Protocol(key.protocol);
    let mut text = format!("src {} dst {} proto {protocol}", key.source(), key.destination());
    if protocol.has_ports() {
        text += &format!(" sport {} dport {}", key.source_port, key.destination_port);
    }
    if key.port != PortId::NONE {
        text += &format!(" in {}", model.port_name(key.port));
    }
    text
}
