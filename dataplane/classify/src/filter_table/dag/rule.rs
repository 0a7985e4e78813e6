//! Rule: a filter in the form for the DAG, with a condition per level, and the whole filter in one cache
//! line.

use millrace_packet::{Family, FlowKey};
use millrace_wire::Protocol;

use crate::candidate::{DSCP_SHIFT, TAG_SHIFT};
use crate::prefix_match::{AddressBits, Prefix};
use crate::{Candidate, CompiledFilter, FilterId, PortRange};

/// Fields with a level: those of *Router Plugins*, in the order of the paper, then tag and DSCP, whose
/// conditions are a value or a wildcard.
///
/// Flags and exceptions have no level. Their masks may overlap in any way, so no mask is the longest match,
/// and a level would copy filters again and again. The lookup checks both fields at its end, in the order of
/// ranks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(super) enum Level {
    Source,
    Destination,
    Protocol,
    SourcePort,
    DestinationPort,
    Incoming,
    Tag,
    Dscp,
}

impl Level {
    pub const ALL: [Self; 8] = [
        Self::Source,
        Self::Destination,
        Self::Protocol,
        Self::SourcePort,
        Self::DestinationPort,
        Self::Incoming,
        Self::Tag,
        Self::Dscp,
    ];

    /// Returns the levels behind this one.
    pub fn behind(self) -> &'static [Self] {
        &Self::ALL[self as usize + 1..]
    }
}

/// Condition of a filter on one field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Condition {
    /// Wildcard.
    Any,
    /// IPv4 prefix, with a length above 0.
    Four(Prefix<u32>),
    /// IPv6 prefix, with a length above 0.
    Six(Prefix<u128>),
    /// Exact value.
    Exact(u16),
    /// Range of ports, both ends included. Unknown ports don't meet the condition.
    Ports(u16, u16),
}

/// Fields of a packet that levels and rules read, extracted once per lookup.
pub(super) struct Seen<'a> {
    pub key: &'a FlowKey,
    pub source: u128,
    pub destination: u128,
    pub varying: u32,
    pub has_ports: bool,
    pub ports_known: bool,
}

impl<'a> Seen<'a> {
    #[inline]
    pub fn new(candidate: &'a Candidate) -> Self {
        let key = &candidate.key;
        Self {
            key,
            source: u128::from_be_bytes(*key.source_bytes()),
            destination: u128::from_be_bytes(*key.destination_bytes()),
            varying: candidate.varying(),
            has_ports: Protocol(key.protocol).has_ports(),
            ports_known: candidate.ports_known(),
        }
    }

    /// Returns the value of a field that a level matches exactly.
    #[inline]
    pub fn exact(&self, level: Level) -> u16 {
        match level {
            Level::Protocol => self.key.protocol.into(),
            Level::Tag => (self.varying >> TAG_SHIFT & 31) as u16,
            Level::Dscp => (self.varying >> DSCP_SHIFT & 63) as u16,
            _ => self.key.port.0,
        }
    }
}

/// Filter in one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Rule {
    source: u128,
    destination: u128,
    pub id: FilterId,
    varying_value: u32,
    varying_mask: u32,
    /// First and last source port; 0 and 65535 for any port.
    source_port: (u16, u16),
    destination_port: (u16, u16),
    incoming: u16,
    source_length: u8,
    destination_length: u8,
    protocol: u8,
    /// Bits for the conditions that the rule has, such as [`FAMILY_4`].
    asks: u8,
}

const FAMILY_4: u8 = 1;
const FAMILY_6: u8 = 2;
const PROTOCOL: u8 = 4;
const SOURCE_PORT: u8 = 8;
const DESTINATION_PORT: u8 = 16;
const INCOMING: u8 = 32;

impl Rule {
    pub fn new(id: FilterId, filter: &CompiledFilter) -> Self {
        let mut asks = match filter.source.family.or(filter.destination.family) {
            Some(Family::V4) => FAMILY_4,
            Some(Family::V6) => FAMILY_6,
            None => 0,
        };
        let mut given = |condition: bool, bit: u8| asks |= if condition { bit } else { 0 };
        given(filter.protocol.is_some(), PROTOCOL);
        given(!filter.source_port.is_any(), SOURCE_PORT);
        given(!filter.destination_port.is_any(), DESTINATION_PORT);
        given(filter.incoming.is_some(), INCOMING);
        Self {
            source: filter.source.value,
            destination: filter.destination.value,
            id,
            varying_value: filter.varying_value,
            varying_mask: filter.varying_mask,
            source_port: ends(filter.source_port),
            destination_port: ends(filter.destination_port),
            incoming: filter.incoming.map_or(0, |port| port.0),
            source_length: filter.source.mask.count_ones() as u8,
            destination_length: filter.destination.mask.count_ones() as u8,
            protocol: filter.protocol.unwrap_or(0),
            asks,
        }
    }

    /// Whether the packet meets all conditions, as in [`CompiledFilter::matches`].
    #[inline]
    pub fn matches(&self, seen: &Seen<'_>) -> bool {
        let key = seen.key;
        let family = match key.family() {
            Family::V4 => FAMILY_4,
            Family::V6 => FAMILY_6,
        };
        let within = |(first, last): (u16, u16), port| first <= port && port <= last;
        let asks = |bit| self.asks & bit != 0;
        seen.source.masked(self.source_length) == self.source
            && seen.destination.masked(self.destination_length) == self.destination
            && within(self.source_port, key.source_port)
            && within(self.destination_port, key.destination_port)
            && seen.varying & self.varying_mask == self.varying_value
            && (!asks(FAMILY_4 | FAMILY_6) || asks(family))
            && (!asks(PROTOCOL) || self.protocol == key.protocol)
            && (!asks(SOURCE_PORT | DESTINATION_PORT) || seen.has_ports)
            && (!asks(INCOMING) || self.incoming == key.port.0)
    }

    /// Returns the condition of the rule at a level. A prefix of length 0 counts as a wildcard here, although
    /// it restricts the family: [`matches`](Self::matches) compares the family.
    pub fn condition(&self, level: Level) -> Condition {
        let asks = |bit| self.asks & bit != 0;
        let prefix = |bits: u128, length| match length {
            0 => Condition::Any,
            _ if asks(FAMILY_4) => Condition::Four(Prefix::new((bits >> 96) as u32, length)),
            _ => Condition::Six(Prefix::new(bits, length)),
        };
        let exact = |given, value| if given { Condition::Exact(value) } else { Condition::Any };
        let ports =
            |bit, (first, last)| if asks(bit) { Condition::Ports(first, last) } else { Condition::Any };
        let varying = |shift: u32, bits: u32| {
            exact(self.varying_mask >> shift & bits == bits, (self.varying_value >> shift & bits) as u16)
        };
        match level {
            Level::Source => prefix(self.source, self.source_length),
            Level::Destination => prefix(self.destination, self.destination_length),
            Level::Protocol => exact(asks(PROTOCOL), self.protocol.into()),
            Level::SourcePort => ports(SOURCE_PORT, self.source_port),
            Level::DestinationPort => ports(DESTINATION_PORT, self.destination_port),
            Level::Incoming => exact(asks(INCOMING), self.incoming),
            Level::Tag => varying(TAG_SHIFT, 31),
            Level::Dscp => varying(DSCP_SHIFT, 63),
        }
    }
}

fn ends(range: PortRange) -> (u16, u16) {
    match range {
        PortRange::Any => (0, u16::MAX),
        PortRange::Ports { first, last } => (first, last),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::filter::tests::{any_candidate, any_filter, resolve};

    #[test]
    fn a_rule_is_one_cache_line() {
        assert_eq!(size_of::<Rule>(), 64);
    }

    proptest! {
        #[test]
        fn rule_matches_like_its_filter(filter in any_filter(), candidate in any_candidate()) {
            let filter = filter.compile(resolve).unwrap();
            let rule = Rule::new(FilterId(0), &filter);
            prop_assert_eq!(rule.matches(&Seen::new(&candidate)), filter.matches(&candidate));
        }
    }
}
