//! Specificity: order of filters with equal priority.

use std::cmp::Reverse;

use super::{Field, Filter};

/// Specificity of a filter; the greater value is more specific.
///
/// Two filters are compared field by field in the order of [`Field::ALL`]; the first field that differs
/// decides:
///
/// - Address: a longer prefix is more specific. No prefix (both families) is the least specific.
/// - Protocol and ingress port: a given value is more specific than any value.
/// - Port range: a narrower range is more specific. Any port is the least specific.
/// - Flags, tag, exceptions and DSCP: more bits in the mask are more specific.
///
/// Different filters may have equal specificity. Among these, the oldest wins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Specificity {
    /// Prefix length plus 1; 0 without a prefix.
    source: u8,
    destination: u8,
    protocol: bool,
    source_port: Reverse<u32>,
    destination_port: Reverse<u32>,
    incoming: bool,
    /// Number of bits in the mask.
    flags: u32,
    tag: bool,
    exceptions: u32,
    dscp: bool,
}

impl Specificity {
    pub(super) fn of(filter: &Filter) -> Self {
        // The result fits into a byte: it is at most 129.
        let length = |net: Option<ipnet::IpNet>| net.map_or(0, |net| net.prefix_len() + 1);
        Self {
            source: length(filter.source),
            destination: length(filter.destination),
            protocol: filter.protocol.is_some(),
            source_port: Reverse(filter.source_port.width()),
            destination_port: Reverse(filter.destination_port.width()),
            incoming: filter.incoming.is_some(),
            flags: filter.tcp_flags.map_or(0, |flags| flags.mask.count_ones()),
            tag: filter.tag.is_some(),
            exceptions: filter.exceptions.map_or(0, |exceptions| exceptions.mask.count_ones()),
            dscp: filter.dscp.is_some(),
        }
    }

    /// Packs the specificity into 62 bits. The greater number is more specific.
    pub(crate) fn packed(self) -> u64 {
        const WIDEST: u32 = 1 << 16 | 1;
        let fields = [
            (u32::from(self.source), 8),
            (u32::from(self.destination), 8),
            (u32::from(self.protocol), 1),
            (WIDEST - self.source_port.0, 17),
            (WIDEST - self.destination_port.0, 17),
            (u32::from(self.incoming), 1),
            (self.flags, 4),
            (u32::from(self.tag), 1),
            (self.exceptions, 4),
            (u32::from(self.dscp), 1),
        ];
        fields.into_iter().fold(0, |packed, (field, bits)| packed << bits | u64::from(field))
    }

    /// Returns the field that decides between two specificities; `None` if they are equal.
    pub fn decided_by(&self, other: &Self) -> Option<Field> {
        let differs = [
            self.source != other.source,
            self.destination != other.destination,
            self.protocol != other.protocol,
            self.source_port != other.source_port,
            self.destination_port != other.destination_port,
            self.incoming != other.incoming,
            self.flags != other.flags,
            self.tag != other.tag,
            self.exceptions != other.exceptions,
            self.dscp != other.dscp,
        ];
        Field::ALL.into_iter().zip(differs).find(|(_, differs)| *differs).map(|(field, _)| field)
    }
}

#[cfg(test)]
mod tests {
    use millrace_units::PortId;
    use proptest::prelude::*;

    use super::*;
    use crate::filter::tests::any_filter;

    fn specificity(text: &str) -> Specificity {
        text.parse::<Filter>().unwrap().compile(|_| Some(PortId(0))).unwrap().specificity()
    }

    #[test]
    fn the_first_field_that_differs_decides() {
        // Each filter is more specific than the next one.
        let falling = [
            "src 1.2.3.4",
            "src 1.2.3.0/24 dst 1.2.3.4",
            "src 1.2.3.0/24 dst 1.0.0.0/8 proto tcp",
            "src 1.2.3.0/24 dst 1.0.0.0/8 sport 7 dport 7",
            "src 1.2.3.0/24 proto tcp sport 7 dport 7 in lan flags syn tag 1 exceptions none dscp ef",
            "src 1.0.0.0/8",
            "src 0.0.0.0/0",
            "dst 0.0.0.0/0 proto tcp",
            "dst 0.0.0.0/0 sport 9",
            "proto udp sport 9",
            "proto udp sport 8-9",
            "proto udp sport 5-9 dport 9",
            "proto udp sport 5-9",
            "proto udp sport 0-65535",
            "proto udp dport 9",
            "proto udp dport 9-10 in lan",
            "proto udp dport 9-10 tag 1",
            "proto udp dport 9-10",
            "proto udp in lan",
            "proto tcp flags syn/syn+ack",
            "proto tcp flags syn tag 1",
            "proto udp tag 1",
            "proto udp exceptions ttl,cut",
            "proto udp exceptions ttl dscp ef",
            "proto udp exceptions ttl",
            "proto udp dscp ef",
            "proto udp",
            "sport 9",
            "in lan",
            "*",
        ];
        for pair in falling.windows(2) {
            assert!(specificity(pair[0]) > specificity(pair[1]), "{} > {}", pair[0], pair[1]);
        }
    }

    #[test]
    fn values_do_not_decide() {
        for (a, b) in [
            ("src 1.2.3.4", "src 4.3.2.1"),
            ("sport 1-9", "sport 11-19"),
            ("proto tcp", "proto udp"),
            ("tag 0", "tag 31"),
        ] {
            assert_eq!(specificity(a), specificity(b), "{a} = {b}");
            assert_eq!(specificity(a).decided_by(&specificity(b)), None);
        }
    }

    proptest! {
        #[test]
        fn the_order_is_total(a in any_filter(), b in any_filter(), c in any_filter()) {
            let [a, b, c] = [a, b, c].map(|filter| Specificity::of(&filter));
            prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
            prop_assert!(!(a >= b && b >= c) || a >= c);
            prop_assert_eq!(a == b, a.decided_by(&b).is_none());
        }
    }
}
