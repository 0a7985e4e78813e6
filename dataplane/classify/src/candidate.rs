//! What a filter sees of a packet.

use millrace_packet::{Exceptions, FlowKey};

/// A packet as filters see it: its flow key, and the fields that may differ between packets of one flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Six-tuple of the packet's flow.
    pub key: FlowKey,
    /// The lower eight TCP flags, FIN being 1 and CWR 128; `None` when the packet has no TCP header or its flags
    /// can't be read.
    pub tcp_flags: Option<u8>,
    /// Tag set by a plugin, 0 to 31.
    pub tag: u8,
    /// What is exceptional about the packet. With [`FRAGMENT`](Exceptions::FRAGMENT) or [`CUT`](Exceptions::CUT)
    /// its transport ports are unknown.
    pub exceptions: Exceptions,
    /// Differentiated services code point, 0 to 63.
    pub dscp: u8,
}

impl Candidate {
    /// A packet of flow `key` with nothing special about it: no TCP flags known, tag, exceptions and DSCP zero.
    pub fn plain(key: FlowKey) -> Self {
        Self { key, tcp_flags: None, tag: 0, exceptions: Exceptions::NONE, dscp: 0 }
    }

    /// Whether the ports in the key were read from the packet: its protocol has some, and neither is it a fragment
    /// behind the first nor is its transport header cut.
    #[inline]
    pub fn ports_known(&self) -> bool {
        self.exceptions.bits() & PORTS_UNKNOWN.bits() == 0
            && millrace_wire::Protocol(self.key.protocol).has_ports()
    }

    /// The fields that may differ between packets of one flow, packed into one word.
    ///
    /// Two packets of equal keys whose words agree under a filter's
    /// [`varying_mask`](crate::CompiledFilter::varying_mask) are the same to that filter. A flow table that keeps the
    /// word, under the union of all filters' masks, beside the key never hides such a field.
    #[inline]
    pub fn varying(&self) -> u32 {
        let flags = self.tcp_flags.map_or(0, |flags| u32::from(flags) << FLAGS_SHIFT | FLAGS_KNOWN);
        flags
            | u32::from(self.tag & 31) << TAG_SHIFT
            | u32::from(self.exceptions.bits()) << EXCEPTIONS_SHIFT
            | u32::from(self.dscp & 63) << DSCP_SHIFT
    }
}

/// Exceptions under which a packet's transport ports are unknown.
pub(crate) const PORTS_UNKNOWN: Exceptions = Exceptions::FRAGMENT.with(Exceptions::CUT);

pub(crate) const FLAGS_SHIFT: u32 = 0;
pub(crate) const FLAGS_KNOWN: u32 = 1 << 8;
pub(crate) const TAG_SHIFT: u32 = 9;
pub(crate) const EXCEPTIONS_SHIFT: u32 = 14;
pub(crate) const DSCP_SHIFT: u32 = 18;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use millrace_units::PortId;

    use super::*;

    fn candidate(protocol: u8) -> Candidate {
        let address = Ipv4Addr::LOCALHOST;
        Candidate::plain(FlowKey::v4(address, address, protocol, (0, 0), PortId(0)))
    }

    #[test]
    fn every_varying_field_has_bits_of_its_own() {
        let plain = candidate(6);
        let words = [
            Candidate { tcp_flags: Some(255), ..plain }.varying(),
            Candidate { tag: 31, ..plain }.varying(),
            Candidate { exceptions: Exceptions::from_bits(15), ..plain }.varying(),
            Candidate { dscp: 63, ..plain }.varying(),
        ];
        assert_eq!(words.iter().fold(0, |all, word| all ^ word), (1 << 24) - 1);
        assert_eq!(words.iter().map(|word| word.count_ones()).sum::<u32>(), 24);
        assert_ne!(Candidate { tcp_flags: Some(0), ..plain }.varying(), plain.varying());
    }

    #[test]
    fn ports_are_known_only_where_they_could_be_read() {
        assert!(candidate(17).ports_known());
        assert!(!candidate(50).ports_known());
        for exceptions in [Exceptions::FRAGMENT, Exceptions::CUT] {
            assert!(!Candidate { exceptions, ..candidate(17) }.ports_known());
        }
        assert!(Candidate { exceptions: Exceptions::TTL, ..candidate(17) }.ports_known());
    }
}
