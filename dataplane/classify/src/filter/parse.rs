//! Construction of a filter field by field, for keyword and six-tuple syntax.

use super::error::{FilterError, Refusal, Token};
use super::port_range::{PortRange, number};
use super::{Dscp, ExceptionsMatch, Field, Filter, TcpFlagsMatch, address, protocol};

/// Filter under construction, with the text of each given value.
#[derive(Default)]
pub(super) struct Draft<'a> {
    filter: Filter,
    values: [Option<Token<'a>>; Field::ALL.len()],
}

impl<'a> Draft<'a> {
    /// Whether the text has given this field already.
    pub fn has(&self, field: Field) -> bool {
        self.value(field).is_some()
    }

    fn value(&self, field: Field) -> Option<Token<'a>> {
        self.values.get(field as usize).copied().flatten()
    }

    /// Reads and sets the value of a field.
    pub fn set(&mut self, field: Field, value: Token<'a>) -> Result<(), FilterError> {
        if let Some(place) = self.values.get_mut(field as usize) {
            *place = Some(value);
        }
        self.read(field, value.text).map_err(|refusal| refusal.at(value))
    }

    fn read(&mut self, field: Field, text: &str) -> Result<(), Refusal> {
        let filter = &mut self.filter;
        match field {
            Field::Source => filter.source = address::parse(text)?,
            Field::Destination => filter.destination = address::parse(text)?,
            Field::Protocol => filter.protocol = protocol::parse(text)?,
            Field::SourcePort => filter.source_port = PortRange::parse(text)?,
            Field::DestinationPort => filter.destination_port = PortRange::parse(text)?,
            Field::Incoming => filter.incoming = unless_star(text, port_name)?,
            Field::Flags => filter.tcp_flags = unless_star(text, TcpFlagsMatch::parse)?,
            Field::Tag => filter.tag = unless_star(text, tag)?,
            Field::Exceptions => filter.exceptions = unless_star(text, ExceptionsMatch::parse)?,
            Field::Dscp => filter.dscp = unless_star(text, Dscp::parse)?,
        }
        Ok(())
    }

    /// Returns the filter. Its conditions may contradict each other.
    pub fn unchecked(self) -> Filter {
        self.filter
    }

    /// Returns the filter if its conditions don't contradict each other.
    pub fn finish(self) -> Result<Filter, FilterError> {
        let contradiction = self
            .families()
            .or_else(|| self.ports())
            .or_else(|| self.unknown_ports())
            .or_else(|| self.flags());
        match contradiction {
            // The refused field was given in the text, so its position is known.
            Some((field, refusal)) => {
                Err(refusal.at(self.value(field).unwrap_or(Token { text: "", offset: 0 })))
            }
            None => Ok(self.filter),
        }
    }

    fn families(&self) -> Option<(Field, Refusal)> {
        let (source, destination) = (self.filter.source?, self.filter.destination?);
        let family = |v4| if v4 { "IPv4" } else { "IPv6" };
        let (from, to) = (source.addr().is_ipv4(), destination.addr().is_ipv4());
        (from != to).then(|| {
            let problem = format!(
                "destination is {} and source is {}, so that no packet matches",
                family(to),
                family(from)
            );
            (Field::Destination, Refusal::new(problem, "give both of one family, or remove one"))
        })
    }

    /// Returns the first field with a condition on ports.
    fn port_field(&self) -> Option<Field> {
        match (self.filter.source_port, self.filter.destination_port) {
            (PortRange::Any, PortRange::Any) => None,
            (PortRange::Any, _) => Some(Field::DestinationPort),
            _ => Some(Field::SourcePort),
        }
    }

    fn ports(&self) -> Option<(Field, Refusal)> {
        let field = self.port_field()?;
        let protocol = self.filter.protocol.filter(|protocol| !protocol.has_ports())?;
        let problem = format!("protocol {protocol} has no ports");
        let help = format!("remove {field}, or write proto tcp, udp, sctp or udplite");
        Some((field, Refusal::new(problem, help)))
    }

    fn unknown_ports(&self) -> Option<(Field, Refusal)> {
        let field = self.port_field()?;
        let unknown = self.filter.exceptions?.value & crate::candidate::PORTS_UNKNOWN.bits();
        (unknown != 0).then(|| {
            let problem = format!(
                "later fragments and truncated packets have no readable ports, so that {field} never matches"
            );
            (Field::Exceptions, Refusal::new(problem, format!("remove {field} or this exception")))
        })
    }

    fn flags(&self) -> Option<(Field, Refusal)> {
        self.filter.tcp_flags?;
        if self.filter.protocol == Some(millrace_wire::Protocol::TCP) {
            return None;
        }
        Some((Field::Flags, Refusal::new("flags match TCP packets only", "add proto tcp, or remove flags")))
    }
}

fn unless_star<T>(text: &str, parse: fn(&str) -> Result<T, Refusal>) -> Result<Option<T>, Refusal> {
    if text == "*" { Ok(None) } else { parse(text).map(Some) }
}

fn tag(text: &str) -> Result<u8, Refusal> {
    number(text, 31)
        .and_then(|tag| u8::try_from(tag).ok())
        .ok_or_else(|| Refusal::new(format!("{text:?} is not a tag"), "write a number from 0 to 31"))
}

/// Reads a port name without characters that have a meaning in the two syntaxes. Whether the port exists is
/// checked later, by compilation.
fn port_name(text: &str) -> Result<String, Refusal> {
    let strange = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '*' | '<' | '>' | ',');
    if text.is_empty() || text.contains(strange) {
        return Err(Refusal::new(
            format!("{text:?} is not a valid port name"),
            "write the name of a port, as in `in lan`",
        ));
    }
    Ok(text.to_owned())
}
