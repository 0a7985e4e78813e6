//! IP protocol numbers, which are also IPv6 next-header values (IANA, *Assigned Internet Protocol Numbers*).

use std::fmt;

use crate::bytes::field_types;

/// Protocol number of the header after an IPv4 header, an IPv6 header or an IPv6 extension header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Protocol(pub u8);

impl Protocol {
    /// IPv6 hop-by-hop options (RFC 8200, 4.3).
    pub const HOP_BY_HOP: Self = Self(0);
    /// ICMP for IPv4 (RFC 792).
    pub const ICMP: Self = Self(1);
    /// IGMP (RFC 3376).
    pub const IGMP: Self = Self(2);
    /// IPv4 in IP (RFC 2003).
    pub const IPV4: Self = Self(4);
    /// TCP (RFC 9293).
    pub const TCP: Self = Self(6);
    /// UDP (RFC 768).
    pub const UDP: Self = Self(17);
    /// IPv6 in IP (RFC 2473).
    pub const IPV6: Self = Self(41);
    /// IPv6 routing header (RFC 8200, 4.4).
    pub const ROUTING: Self = Self(43);
    /// IPv6 fragment header (RFC 8200, 4.5).
    pub const FRAGMENT: Self = Self(44);
    /// Generic routing encapsulation (RFC 2784).
    pub const GRE: Self = Self(47);
    /// Encapsulating security payload (RFC 4303).
    pub const ESP: Self = Self(50);
    /// Authentication header (RFC 4302).
    pub const AH: Self = Self(51);
    /// ICMP for IPv6 (RFC 4443).
    pub const ICMPV6: Self = Self(58);
    /// No next header (RFC 8200, 4.7).
    pub const NO_NEXT_HEADER: Self = Self(59);
    /// IPv6 destination options (RFC 8200, 4.6).
    pub const DESTINATION_OPTIONS: Self = Self(60);
    /// OSPF (RFC 2328).
    pub const OSPF: Self = Self(89);
    /// VRRP (RFC 9568).
    pub const VRRP: Self = Self(112);
    /// SCTP (RFC 9260).
    pub const SCTP: Self = Self(132);
    /// UDP-Lite (RFC 3828).
    pub const UDP_LITE: Self = Self(136);

    /// Returns the name in filters and traces; `None` if the protocol has no name here.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::HOP_BY_HOP => "hop-by-hop",
            Self::ICMP => "icmp",
            Self::IGMP => "igmp",
            Self::IPV4 => "ipip",
            Self::TCP => "tcp",
            Self::UDP => "udp",
            Self::IPV6 => "ipv6",
            Self::ROUTING => "ipv6-route",
            Self::FRAGMENT => "ipv6-frag",
            Self::GRE => "gre",
            Self::ESP => "esp",
            Self::AH => "ah",
            Self::ICMPV6 => "icmpv6",
            Self::NO_NEXT_HEADER => "ipv6-nonxt",
            Self::DESTINATION_OPTIONS => "ipv6-opts",
            Self::OSPF => "ospf",
            Self::VRRP => "vrrp",
            Self::SCTP => "sctp",
            Self::UDP_LITE => "udplite",
            _ => return None,
        })
    }

    /// Returns the protocol of a [`name`](Self::name), in lower case; `None` for an unknown name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        (0..=u8::MAX).map(Self).find(|protocol| protocol.name() == Some(name))
    }

    /// Returns whether the protocol's header begins with a source port and a destination port of 16 bits
    /// each.
    #[inline]
    #[must_use]
    pub const fn has_ports(self) -> bool {
        matches!(self, Self::TCP | Self::UDP | Self::SCTP | Self::UDP_LITE)
    }
}

field_types! {
    Protocol: |[number]: [u8; 1]| Self(number), |protocol: Self| [protocol.0];
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_protocol_name_maps_back_to_its_number() {
        for number in 0..=u8::MAX {
            let protocol = Protocol(number);
            if let Some(name) = protocol.name() {
                assert_eq!(Protocol::from_name(name), Some(protocol));
            } else {
                assert_eq!(protocol.to_string(), number.to_string());
            }
        }
        assert_eq!(Protocol::from_name("no such"), None);
    }
}
