//! Flow key: the six-tuple that identifies a flow.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use millrace_units::PortId;

/// Address family of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Family {
    /// IPv4.
    V4 = 4,
    /// IPv6.
    V6 = 6,
}

/// Flow key: source, destination, protocol, transport ports and ingress port of a packet.
///
/// IPv4 addresses are in the first four bytes, followed by zeros. Transport ports are 0 for ICMP and other
/// protocols without ports, and if they can't be read.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct FlowKey {
    source: [u8; 16],
    destination: [u8; 16],
    /// Source port of TCP, UDP or another protocol with ports.
    pub source_port: u16,
    /// Destination port of TCP, UDP or another protocol with ports.
    pub destination_port: u16,
    /// IP protocol number; for IPv6 the protocol of the upper layer.
    pub protocol: u8,
    family: Family,
    /// Ingress port of the packet.
    pub port: PortId,
}

impl FlowKey {
    /// Makes the key of an IPv4 packet.
    #[inline]
    pub fn v4(
        source: Ipv4Addr,
        destination: Ipv4Addr,
        protocol: u8,
        ports: (u16, u16),
        port: PortId,
    ) -> Self {
        let mut key = Self {
            source: [0; 16],
            destination: [0; 16],
            source_port: ports.0,
            destination_port: ports.1,
            protocol,
            family: Family::V4,
            port,
        };
        key.source[..4].copy_from_slice(&source.octets());
        key.destination[..4].copy_from_slice(&destination.octets());
        key
    }

    /// Makes the key of an IPv4 packet. `addresses` holds the source in its lower half and the destination in
    /// its upper half, each with its first byte as lowest byte. `last` is the key's
    /// [`last_word`](Self::last_word), which includes the family.
    #[inline(always)]
    pub fn v4_of_words(addresses: u64, last: u64) -> Self {
        Self {
            source: u128::from(addresses as u32).to_le_bytes(),
            destination: u128::from(addresses >> 32).to_le_bytes(),
            source_port: last as u16,
            destination_port: (last >> 16) as u16,
            protocol: (last >> 32) as u8,
            family: Family::V4,
            port: PortId((last >> 48) as u16),
        }
    }

    /// Makes the key of an IPv6 packet.
    #[inline]
    pub fn v6(
        source: Ipv6Addr,
        destination: Ipv6Addr,
        protocol: u8,
        ports: (u16, u16),
        port: PortId,
    ) -> Self {
        Self {
            source: source.octets(),
            destination: destination.octets(),
            source_port: ports.0,
            destination_port: ports.1,
            protocol,
            family: Family::V6,
            port,
        }
    }

    /// Returns the address family.
    #[inline]
    pub fn family(&self) -> Family {
        self.family
    }

    /// Returns the source address.
    #[inline]
    pub fn source(&self) -> IpAddr {
        address(self.family, &self.source)
    }

    /// Returns the destination address.
    #[inline]
    pub fn destination(&self) -> IpAddr {
        address(self.family, &self.destination)
    }

    /// Returns the source address as 16 bytes, IPv4 in the first four.
    #[inline]
    pub fn source_bytes(&self) -> &[u8; 16] {
        &self.source
    }

    /// Returns the destination address as 16 bytes, IPv4 in the first four.
    #[inline]
    pub fn destination_bytes(&self) -> &[u8; 16] {
        &self.destination
    }

    /// Returns all fields except the addresses, packed into one word as in the key's last eight bytes, with
    /// the source port lowest.
    #[inline(always)]
    pub fn last_word(&self) -> u64 {
        u64::from(self.source_port)
            | u64::from(self.destination_port) << 16
            | u64::from(self.protocol) << 32
            | u64::from(self.family as u8) << 40
            | u64::from(self.port.0) << 48
    }
}

#[inline]
fn address(family: Family, bytes: &[u8; 16]) -> IpAddr {
    match family {
        Family::V4 => {
            let [a, b, c, d, ..] = *bytes;
            Ipv4Addr::new(a, b, c, d).into()
        }
        Family::V6 => Ipv6Addr::from(*bytes).into(),
    }
}

impl fmt::Display for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "src {} dst {} proto {} sport {} dport {} in {}",
            self.source(),
            self.destination(),
            self.protocol,
            self.source_port,
            self.destination_port,
            self.port
        )
    }
}

impl fmt::Debug for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{self}>")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip() {
        let (source, destination) = (Ipv4Addr::new(1, 2, 3, 4), Ipv4Addr::new(5, 6, 7, 8));
        let key = FlowKey::v4(source, destination, 17, (1, 2), PortId(3));
        assert_eq!(key.source(), IpAddr::V4(source));
        assert_eq!(key.destination(), IpAddr::V4(destination));
        assert_eq!(key.to_string(), "src 1.2.3.4 dst 5.6.7.8 proto 17 sport 1 dport 2 in 3");
    }

    #[test]
    fn a_key_is_made_of_words_as_of_fields() {
        let key = FlowKey::v4([1, 2, 3, 4].into(), [5, 6, 7, 8].into(), 17, (9, 1000), PortId(3));
        assert_eq!(FlowKey::v4_of_words(0x0807_0605_0403_0201, key.last_word()), key);
    }

    #[test]
    fn the_key_fills_forty_bytes_without_holes() {
        assert_eq!(size_of::<FlowKey>(), 40);
    }
}
