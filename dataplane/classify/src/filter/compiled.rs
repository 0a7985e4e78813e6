//! Compiled filter: its port name is resolved to an id, and it matches packets by values and masks.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use millrace_packet::{Family, FlowKey};
use millrace_units::PortId;
use millrace_wire::Protocol;

use crate::Candidate;
use crate::candidate::{DSCP_SHIFT, EXCEPTIONS_SHIFT, FLAGS_KNOWN, FLAGS_SHIFT, PORTS_UNKNOWN, TAG_SHIFT};

use super::{Field, Filter, PortRange, Specificity};

/// Error: the filter names an ingress port that doesn't exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("filter names the unknown port {name:?} after `in`: `show ports` lists the ports")]
pub struct UnknownPort {
    /// Unknown name.
    pub name: String,
}

/// Compiled filter: ids, values and masks. The filter tables of this crate read its fields.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CompiledFilter {
    pub(crate) source: Masked,
    pub(crate) destination: Masked,
    pub(crate) protocol: Option<u8>,
    pub(crate) source_port: PortRange,
    pub(crate) destination_port: PortRange,
    pub(crate) incoming: Option<PortId>,
    pub(crate) varying_value: u32,
    pub(crate) varying_mask: u32,
    specificity: Specificity,
}

/// Address prefix as value and mask. An IPv4 prefix is in the upper 32 bits, as in a [`FlowKey`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct Masked {
    /// Family of the prefix; `None` for both families.
    pub(crate) family: Option<Family>,
    pub(crate) value: u128,
    pub(crate) mask: u128,
}

impl Masked {
    pub(super) fn of(net: Option<IpNet>) -> Self {
        let Some(net) = net else { return Self::default() };
        let (family, value) = match net.addr() {
            IpAddr::V4(address) => (Family::V4, u128::from(address.to_bits()) << 96),
            IpAddr::V6(address) => (Family::V6, address.to_bits()),
        };
        let mask = u128::MAX.checked_shl(128 - u32::from(net.prefix_len())).unwrap_or(0);
        Self { family: Some(family), value, mask }
    }

    #[inline]
    pub(super) fn holds(self, family: Family, bytes: &[u8; 16]) -> bool {
        self.family.is_none_or(|own| own == family) && u128::from_be_bytes(*bytes) & self.mask == self.value
    }
}

impl Filter {
    /// Compiles the filter. `resolve` returns the id of a port name.
    pub fn compile(
        &self,
        resolve: impl FnOnce(&str) -> Option<PortId>,
    ) -> Result<CompiledFilter, UnknownPort> {
        let incoming = match &self.incoming {
            Some(name) => Some(resolve(name).ok_or_else(|| UnknownPort { name: name.clone() })?),
            None => None,
        };
        Ok(self.compile_at(incoming))
    }

    /// Compiles the filter with the id of its ingress port; `None` for any port.
    pub(super) fn compile_at(&self, incoming: Option<PortId>) -> CompiledFilter {
        let (varying_value, varying_mask) = self.varying();
        CompiledFilter {
            source: Masked::of(self.source),
            destination: Masked::of(self.destination),
            protocol: self.protocol.map(|protocol| protocol.0),
            source_port: self.source_port,
            destination_port: self.destination_port,
            incoming,
            varying_value,
            varying_mask,
            specificity: Specificity::of(self),
        }
    }

    /// Returns the filter's conditions on the word [`Candidate::varying`], as value and mask.
    fn varying(&self) -> (u32, u32) {
        let (mut value, mut mask) = (0, 0);
        if self.asks_for_ports() {
            mask |= u32::from(PORTS_UNKNOWN.bits()) << EXCEPTIONS_SHIFT;
        }
        if let Some(flags) = self.tcp_flags {
            value |= u32::from(flags.value) << FLAGS_SHIFT | FLAGS_KNOWN;
            mask |= u32::from(flags.mask) << FLAGS_SHIFT | FLAGS_KNOWN;
        }
        if let Some(tag) = self.tag {
            value |= u32::from(tag) << TAG_SHIFT;
            mask |= 31 << TAG_SHIFT;
        }
        if let Some(exceptions) = self.exceptions {
            value |= u32::from(exceptions.value) << EXCEPTIONS_SHIFT;
            mask |= u32::from(exceptions.mask) << EXCEPTIONS_SHIFT;
        }
        if let Some(dscp) = self.dscp {
            value |= u32::from(dscp.value()) << DSCP_SHIFT;
            mask |= 63 << DSCP_SHIFT;
        }
        (value, mask)
    }
}

impl CompiledFilter {
    /// Whether the packet meets all conditions.
    #[inline]
    pub fn matches(&self, candidate: &Candidate) -> bool {
        self.matches_key(&candidate.key) && candidate.varying() & self.varying_mask == self.varying_value
    }

    /// Whether some packet of the flow can match, judged by the flow key alone. Ignores conditions on varying
    /// fields, with one exception: if the key has ports, the flow's packets are no later fragments, and their
    /// transport headers are not cut.
    #[inline]
    pub fn may_match_flow(&self, key: &FlowKey) -> bool {
        let unknown = u32::from(PORTS_UNKNOWN.bits()) << EXCEPTIONS_SHIFT;
        self.matches_key(key)
            && (self.varying_value & unknown == 0 || (key.source_port, key.destination_port) == (0, 0))
    }

    /// Whether the key meets all conditions of the filter on fields of the key.
    #[inline]
    fn matches_key(&self, key: &FlowKey) -> bool {
        self.source.holds(key.family(), key.source_bytes())
            && self.destination.holds(key.family(), key.destination_bytes())
            && self.protocol.is_none_or(|protocol| protocol == key.protocol)
            && self.incoming.is_none_or(|port| port == key.port)
            && holds(self.source_port, key.source_port, key.protocol)
            && holds(self.destination_port, key.destination_port, key.protocol)
    }

    /// Returns the most significant field whose condition the packet fails; `None` if the packet matches.
    pub fn mismatch(&self, candidate: &Candidate) -> Option<Field> {
        let key = &candidate.key;
        let unknown = self.asks_for_ports() && !candidate.ports_known();
        let varying = (candidate.varying() ^ self.varying_value) & self.varying_mask;
        let differs = |shift: u32, bits: u32| varying >> shift & bits != 0;
        let missed = |field| match field {
            Field::Source => !self.source.holds(key.family(), key.source_bytes()),
            Field::Destination => !self.destination.holds(key.family(), key.destination_bytes()),
            Field::Protocol => self.protocol.is_some_and(|protocol| protocol != key.protocol),
            Field::SourcePort => {
                !self.source_port.is_any()
                    && (unknown || !holds(self.source_port, key.source_port, key.protocol))
            }
            Field::DestinationPort => {
                !self.destination_port.is_any()
                    && (unknown || !holds(self.destination_port, key.destination_port, key.protocol))
            }
            Field::Incoming => self.incoming.is_some_and(|port| port != key.port),
            Field::Flags => differs(FLAGS_SHIFT, 0x1ff),
            Field::Tag => differs(TAG_SHIFT, 31),
            Field::Exceptions => differs(EXCEPTIONS_SHIFT, 15),
            Field::Dscp => differs(DSCP_SHIFT, 63),
        };
        Field::ALL.into_iter().find(|field| missed(*field))
    }

    /// Returns the specificity of the filter. Among filters with equal priority, the one with the greater
    /// specificity wins.
    #[inline]
    pub fn specificity(&self) -> Specificity {
        self.specificity
    }

    /// Returns the bits of [`Candidate::varying`] on which the filter has a condition.
    #[inline]
    pub fn varying_mask(&self) -> u32 {
        self.varying_mask
    }

    /// Returns the filter without its conditions on varying fields; `None` if it has no such condition.
    pub fn without_varying(&self) -> Option<Self> {
        let ports =
            if self.asks_for_ports() { u32::from(PORTS_UNKNOWN.bits()) << EXCEPTIONS_SHIFT } else { 0 };
        (self.varying_mask != ports).then_some(Self { varying_mask: ports, varying_value: 0, ..*self })
    }

    /// Returns the filter without its conditions on ports and TCP flags; `None` if it has no such condition.
    pub fn without_transport(&self) -> Option<Self> {
        let flags = 0xff << FLAGS_SHIFT | FLAGS_KNOWN;
        let mut hidden = flags;
        if self.asks_for_ports() {
            hidden |= u32::from(PORTS_UNKNOWN.bits()) << EXCEPTIONS_SHIFT;
        }
        (self.asks_for_ports() || self.varying_mask & flags != 0).then_some(Self {
            source_port: PortRange::Any,
            destination_port: PortRange::Any,
            varying_mask: self.varying_mask & !hidden,
            varying_value: self.varying_value & !hidden,
            ..*self
        })
    }

    /// Whether the filter has a condition on protocol, ports or TCP flags.
    pub fn names_transport(&self) -> bool {
        self.protocol.is_some() || self.without_transport().is_some()
    }

    fn asks_for_ports(&self) -> bool {
        !self.source_port.is_any() || !self.destination_port.is_any()
    }
}

/// Whether `range` admits `port` in a flow key of `protocol`.
#[inline]
fn holds(range: PortRange, port: u16, protocol: u8) -> bool {
    match range {
        PortRange::Any => true,
        PortRange::Ports { first, last } => (first..=last).contains(&port) && Protocol(protocol).has_ports(),
    }
}

impl fmt::Debug for CompiledFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompiledFilter")
            .field("source", &format_args!("{:x}/{:x}", self.source.value, self.source.mask))
            .field("destination", &format_args!("{:x}/{:x}", self.destination.value, self.destination.mask))
            .field("protocol", &self.protocol)
            .field("source_port", &format_args!("{}", self.source_port))
            .field("destination_port", &format_args!("{}", self.destination_port))
            .field("incoming", &self.incoming)
            .field("varying", &format_args!("{:x}/{:x}", self.varying_value, self.varying_mask))
            .finish()
    }
}
