//! Filters: conditions on a packet, in the text form for users.
//!
//! A filter has ten fields, each a condition or a wildcard. A packet matches when it meets all conditions.
//! There are two syntaxes. **Keywords** come in any order; a missing field is a wildcard (`*` alone matches
//! every packet):
//!
//! ```text
//! src 129.0.0.0/8 dst 192.94.233.10 proto tcp sport * dport 80 in lan flags syn/syn+ack
//! ```
//!
//! | keyword | value |
//! |---|---|
//! | `src`, `dst` | an address, a prefix, `129.252.*`; either restricts the filter to that family |
//! | `proto` | a name or a number of an IP protocol; in IPv6 that of the upper layer |
//! | `sport`, `dport` | `80`, `1000-2000` |
//! | `in` | name of the incoming port |
//! | `flags` | TCP flags, `value/mask` joined by `+`: `syn/syn+ack` is SYN set and ACK clear; `syn` is SYN set |
//! | `tag` | tag set by a plugin, 0 to 31 |
//! | `exceptions` | `value/mask` of `ttl`, `options`, `fragment`, `cut` joined by `,`; `none` is none of them |
//! | `dscp` | 0 to 63 or a name: `ef`, `af41`, `cs6` |
//!
//! The **six-tuple** is the syntax of *Router Plugins* (section 2), with source, destination, protocol,
//! source port, destination port and incoming port: `<129.*, 192.94.233.10, TCP, *, *, *>`.
//!
//! **Unknown ports.** A condition on ports matches only packets with known ports: the protocol is TCP, UDP,
//! SCTP or UDP-Lite, the packet is no later fragment, and its transport header is not cut. So no later
//! fragment, no TCP header of three bytes and no ESP packet matches `dport 80`, or `dport 0-65535`. A policy
//! that accepts chosen ports accepts none of these packets. A policy that drops chosen ports should have a
//! rule for packets with unreadable ports, which `exceptions cut` and `exceptions fragment` match. Likewise,
//! a condition on flags never matches packets with unknown flags.
//!
//! **Expressions** join such conditions by `or`, `and` and `not`, and accept lists and words of `tcpdump`:
//! see [`FilterExpression`].
//!
//! The parser panics on no text.

mod address;
mod compiled;
mod dscp;
mod error;
mod expression;
mod field;
mod keywords;
mod masked;
mod parse;
mod port_range;
mod protocol;
mod specificity;
mod tuple;
mod words;

#[cfg(test)]
pub(crate) mod tests;

use std::fmt;
use std::str::FromStr;

use ipnet::IpNet;
use millrace_wire::Protocol;

use crate::candidate::{DSCP_SHIFT, EXCEPTIONS_SHIFT, FLAGS_KNOWN, FLAGS_SHIFT, TAG_SHIFT};

pub(crate) use compiled::Masked;
pub use compiled::{CompiledFilter, UnknownPort};
pub use dscp::Dscp;
pub use error::FilterError;
pub use expression::{CompiledExpression, CompiledSelection, FilterExpression, MOST_ALTERNATIVES, Selection};
pub use field::Field;
pub use masked::{ExceptionsMatch, TcpFlagsMatch};
pub use port_range::PortRange;
pub use specificity::Specificity;

/// Conditions on a packet. A filter is made from checked text, so its conditions never contradict each other.
///
/// A filter prints in the keyword form, and the printed text reads back as the same filter. Equal filters
/// match the same packets.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Filter {
    source: Option<IpNet>,
    destination: Option<IpNet>,
    protocol: Option<Protocol>,
    source_port: PortRange,
    destination_port: PortRange,
    incoming: Option<String>,
    tcp_flags: Option<TcpFlagsMatch>,
    tag: Option<u8>,
    exceptions: Option<ExceptionsMatch>,
    dscp: Option<Dscp>,
}

impl Filter {
    /// Returns the filter that matches every packet, written `*`.
    pub fn any() -> Self {
        Self::default()
    }

    /// Whether the filter matches every packet.
    pub fn is_any(&self) -> bool {
        *self == Self::default()
    }

    /// Returns a filter for packets whose [varying fields](crate::Candidate::varying) equal `value` in the
    /// bits of `mask`. Leaves out two conditions that a filter can't express: that the TCP flags are unknown,
    /// and that only some bits of tag or DSCP have given values.
    pub fn of_varying(value: u32, mask: u32) -> Self {
        let part = |shift: u32, bits: u32| (value >> shift & mask >> shift & bits, mask >> shift & bits);
        let number = |(value, mask): (u32, u32), all: u32| (mask == all).then_some(value as u8);
        let named = |(value, mask): (u32, u32)| (mask != 0).then_some((value as u8, mask as u8));
        let flags = named(part(FLAGS_SHIFT, 0xff)).filter(|_| value & FLAGS_KNOWN != 0);
        let exceptions = named(part(EXCEPTIONS_SHIFT, 0xf));
        Self {
            tcp_flags: flags.map(|(value, mask)| TcpFlagsMatch { value, mask }),
            tag: number(part(TAG_SHIFT, 31), 31),
            exceptions: exceptions.map(|(value, mask)| ExceptionsMatch { value, mask }),
            dscp: number(part(DSCP_SHIFT, 63), 63).map(Dscp),
            ..Self::default()
        }
    }

    /// Returns the source prefix; `None` for any source of both families.
    pub fn source(&self) -> Option<IpNet> {
        self.source
    }

    /// Returns the destination prefix; `None` for any destination of both families.
    pub fn destination(&self) -> Option<IpNet> {
        self.destination
    }

    /// Returns the IP protocol, for IPv6 the upper-layer protocol; `None` for any protocol.
    pub fn protocol(&self) -> Option<Protocol> {
        self.protocol
    }

    /// Returns the source port range.
    pub fn source_port(&self) -> PortRange {
        self.source_port
    }

    /// Returns the destination port range.
    pub fn destination_port(&self) -> PortRange {
        self.destination_port
    }

    /// Returns the name of the ingress port; `None` for any port.
    pub fn incoming(&self) -> Option<&str> {
        self.incoming.as_deref()
    }

    /// Returns the condition on TCP flags. `None` means that there is no condition, so packets without a TCP
    /// header match, too.
    pub fn tcp_flags(&self) -> Option<TcpFlagsMatch> {
        self.tcp_flags
    }

    /// Returns the required tag, 0 to 31; `None` for any tag.
    pub fn tag(&self) -> Option<u8> {
        self.tag
    }

    /// Returns the condition on exceptions; `None` for any exceptions.
    pub fn exceptions(&self) -> Option<ExceptionsMatch> {
        self.exceptions
    }

    /// Returns the required DSCP; `None` for any DSCP.
    pub fn dscp(&self) -> Option<Dscp> {
        self.dscp
    }

    /// Whether the filter has a condition on ports.
    fn asks_for_ports(&self) -> bool {
        !self.source_port.is_any() || !self.destination_port.is_any()
    }

    /// Returns the condition on one field, as text; `None` for a wildcard.
    fn condition(&self, field: Field) -> Option<String> {
        let ports = |range: PortRange| (!range.is_any()).then(|| range.to_string());
        match field {
            Field::Source => self.source.as_ref().map(address::print),
            Field::Destination => self.destination.as_ref().map(address::print),
            Field::Protocol => self.protocol.map(|protocol| protocol.to_string()),
            Field::SourcePort => ports(self.source_port),
            Field::DestinationPort => ports(self.destination_port),
            Field::Incoming => self.incoming.clone(),
            Field::Flags => self.tcp_flags.map(|flags| flags.to_string()),
            Field::Tag => self.tag.map(|tag| tag.to_string()),
            Field::Exceptions => self.exceptions.map(|exceptions| exceptions.to_string()),
            Field::Dscp => self.dscp.map(|dscp| dscp.to_string()),
        }
    }
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        expression::parse_single(text)
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let conditions: Vec<_> = Field::ALL
            .into_iter()
            .filter_map(|field| self.condition(field).map(|value| format!("{field} {value}")))
            .collect();
        f.pad(&if conditions.is_empty() { "*".to_owned() } else { conditions.join(" ") })
    }
}

impl serde::Serialize for Filter {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Filter {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
