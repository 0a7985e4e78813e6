//! Candidate: the fields of a packet that filters match.

use millrace_packet::{Exceptions, Family, FlowKey};
use millrace_wire::Protocol;

/// Fields of a packet that filters match: its flow key, and fields that may differ between packets of one
/// flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Six-tuple of the packet's flow.
    pub key: FlowKey,
    /// Lower eight TCP flags: FIN is 1, CWR is 128. `None` if the packet has no TCP header, or if its flags
    /// can't be read.
    pub tcp_flags: Option<u8>,
    /// Tag set by a plugin, 0 to 31.
    pub tag: u8,
    /// Exceptions of the packet. With [`FRAGMENT`](Exceptions::FRAGMENT) or [`CUT`](Exceptions::CUT) its
    /// transport ports are unknown.
    pub exceptions: Exceptions,
    /// Differentiated services code point, 0 to 63.
    pub dscp: u8,
}

impl Candidate {
    /// Returns a candidate of flow `key` with unknown TCP flags. Its tag, exceptions and DSCP are 0.
    pub fn plain(key: FlowKey) -> Self {
        Self { key, tcp_flags: None, tag: 0, exceptions: Exceptions::NONE, dscp: 0 }
    }

    /// Whether the ports in the key were read from the packet. They were if the protocol has ports, the
    /// packet is not a later fragment, and its transport header is not cut.
    #[inline]
    pub fn ports_known(&self) -> bool {
        self.exceptions.bits() & PORTS_UNKNOWN.bits() == 0 && Protocol(self.key.protocol).has_ports()
    }

    /// Returns the bits of [`varying`](Self::varying) that separate packets with unreadable ports from
    /// packets whose ports are 0: both have the same flow key. Returns 0 if the flow can't have packets of
    /// both kinds.
    #[inline]
    pub fn unread_ports_mask(key: &FlowKey) -> u32 {
        if (key.source_port, key.destination_port) == (0, 0) && Protocol(key.protocol).has_ports() {
            u32::from(PORTS_UNKNOWN.bits()) << EXCEPTIONS_SHIFT
        } else {
            0
        }
    }

    /// Returns the flow keys that packets of this key may really have, if their ports couldn't be read.
    ///
    /// If the key's protocol has ports, the packets have this protocol. If the key's protocol is an IPv6
    /// extension header, the readable headers end there, and the packet may have any protocol with ports.
    /// Other keys yield none.
    pub fn hidden_keys(key: &FlowKey) -> impl Iterator<Item = FlowKey> + use<> {
        let key = *key;
        let own = Protocol(key.protocol).has_ports();
        let any = key.family() == Family::V6 && is_extension(key.protocol);
        let unread = (key.source_port, key.destination_port) == (0, 0);
        WITH_PORTS.into_iter().filter_map(move |protocol| {
            let possible = unread && (any || own && protocol.0 == key.protocol);
            possible.then_some({
                let mut hidden = key;
                hidden.protocol = protocol.0;
                hidden
            })
        })
    }

    /// Packs the fields that may differ between packets of one flow into one word.
    ///
    /// A filter treats two packets alike if their keys are equal and their words agree under its
    /// [`varying_mask`](crate::CompiledFilter::varying_mask). Therefore a flow table stores this word beside
    /// the key, under the union of all filters' masks.
    #[inline]
    pub fn varying(&self) -> u32 {
        let flags = self.tcp_flags.map_or(0, |flags| u32::from(flags) << FLAGS_SHIFT | FLAGS_KNOWN);
        flags
            | u32::from(self.tag & 31) << TAG_SHIFT
            | u32::from(self.exceptions.bits()) << EXCEPTIONS_SHIFT
            | u32::from(self.dscp & 63) << DSCP_SHIFT
    }
}

/// Protocols with transport ports.
const WITH_PORTS: [Protocol; 4] = [Protocol::TCP, Protocol::UDP, Protocol::SCTP, Protocol::UDP_LITE];

/// Whether `protocol` is an IPv6 extension header that the walk to the upper layer skips.
fn is_extension(protocol: u8) -> bool {
    matches!(
        Protocol(protocol),
        Protocol::HOP_BY_HOP
            | Protocol::ROUTING
            | Protocol::FRAGMENT
            | Protocol::AH
            | Protocol::DESTINATION_OPTIONS
    )
}

/// Exceptions of packets whose transport ports are unknown.
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
    fn varying_fields_have_separate_bits() {
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
    fn packet_with_hidden_ports_may_hide_its_protocol() {
        let protocols =
            |key: FlowKey| Candidate::hidden_keys(&key).map(|key| key.protocol).collect::<Vec<_>>();
        assert!(
            (0..=255).all(|protocol| {
                WITH_PORTS.contains(&Protocol(protocol)) == Protocol(protocol).has_ports()
            })
        );
        let v6 = |protocol| {
            let address = std::net::Ipv6Addr::LOCALHOST;
            FlowKey::v6(address, address, protocol, (0, 0), PortId(0))
        };
        assert_eq!((protocols(candidate(17).key), protocols(v6(6))), (vec![17], vec![6]));
        assert_eq!(protocols(v6(60)), [6, 17, 132, 136]);
        // IPv4 has no extension headers, ESP and ICMP have no ports, and the ports of `known` are readable.
        let mut known = v6(6);
        known.source_port = 1;
        assert!([candidate(60).key, v6(50), v6(58), known].iter().all(|key| protocols(*key).is_empty()));
    }

    #[test]
    fn ports_are_known_only_if_readable() {
        assert!(candidate(17).ports_known());
        assert!(!candidate(50).ports_known());
        for exceptions in [Exceptions::FRAGMENT, Exceptions::CUT] {
            assert!(!Candidate { exceptions, ..candidate(17) }.ports_known());
        }
        assert!(Candidate { exceptions: Exceptions::TTL, ..candidate(17) }.ports_known());
    }
}
