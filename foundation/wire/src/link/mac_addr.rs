//! MAC addresses: 48-bit link-layer addresses (IEEE 802, EUI-48).

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::bytes::field_types;

/// MAC address, written `02:00:5e:10:00:01`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// Unknown address: all zeros.
    pub const ZERO: Self = Self([0; 6]);
    /// Broadcast address: all ones.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Returns the multicast address for an IPv4 multicast destination (RFC 1112, 6.4).
    #[must_use]
    pub fn from_ipv4_multicast(group: Ipv4Addr) -> Self {
        let [_, b, c, d] = group.octets();
        Self([0x01, 0x00, 0x5e, b & 0x7f, c, d])
    }

    /// Returns the multicast address for an IPv6 multicast destination (RFC 2464, 7).
    #[must_use]
    pub fn from_ipv6_multicast(group: Ipv6Addr) -> Self {
        let [.., a, b, c, d] = group.octets();
        Self([0x33, 0x33, a, b, c, d])
    }

    /// Returns whether the group bit is set: a multicast address, or the broadcast address.
    #[inline]
    #[must_use]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Returns whether this is the broadcast address.
    #[inline]
    #[must_use]
    pub fn is_broadcast(self) -> bool {
        self == Self::BROADCAST
    }

    /// Returns whether the address is all zeros.
    #[inline]
    #[must_use]
    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }

    /// Returns whether this is a unicast address: neither multicast nor broadcast nor zero.
    #[inline]
    #[must_use]
    pub fn is_unicast(self) -> bool {
        !self.is_multicast() && !self.is_zero()
    }
}

field_types! {
    MacAddr: Self, |address: Self| address.0;
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// Error returned for a text that is no MAC address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseMacAddrError(String);

impl fmt::Display for ParseMacAddrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "\"{}\" is not a MAC address: give six two-digit hexadecimal octets, as in 02:00:5e:10:00:01",
            self.0
        )
    }
}

impl std::error::Error for ParseMacAddrError {}

impl FromStr for MacAddr {
    type Err = ParseMacAddrError;

    /// Reads six octets, all separated by `:` or all by `-`, in upper or lower case.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fail = || ParseMacAddrError(text.to_owned());
        let separator = if text.contains('-') { '-' } else { ':' };
        let mut octets = [0; 6];
        let mut parts = text.split(separator);
        for octet in &mut octets {
            *octet = parts.next().and_then(hex_octet).ok_or_else(fail)?;
        }
        if parts.next().is_some() { Err(fail()) } else { Ok(Self(octets)) }
    }
}

/// Reads two hexadecimal digits. Refuses a sign, which `from_str_radix` would accept.
fn hex_octet(part: &str) -> Option<u8> {
    let all_digits = part.len() == 2 && part.bytes().all(|c| c.is_ascii_hexdigit());
    all_digits.then(|| u8::from_str_radix(part, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn classes_of_addresses() {
        assert!(MacAddr::BROADCAST.is_broadcast() && MacAddr::BROADCAST.is_multicast());
        assert!(MacAddr::ZERO.is_zero() && !MacAddr::ZERO.is_unicast());
        assert!(MacAddr([2, 0, 0, 0, 0, 1]).is_unicast());
        assert!(!MacAddr([3, 0, 0, 0, 0, 1]).is_unicast());
    }

    #[test]
    fn multicast_groups_map_to_their_link_addresses() {
        let v4 = MacAddr::from_ipv4_multicast(Ipv4Addr::new(239, 129, 2, 3));
        assert_eq!(v4.to_string(), "01:00:5e:01:02:03");
        let v6 = MacAddr::from_ipv6_multicast("ff02::1:ff28:9c5a".parse().unwrap());
        assert_eq!(v6.to_string(), "33:33:ff:28:9c:5a");
    }

    #[test]
    fn text_that_is_no_address_is_refused() {
        for text in [
            "",
            "02",
            "02:00:5e:10:00",
            "02:00:5e:10:00:01:02",
            "02:00:5e:10:00:1",
            "02:00:5e:10:00:+1",
            "02-00:5e:10:00:01",
            "é2:00:5e:10:00:01",
        ] {
            assert!(text.parse::<MacAddr>().is_err(), "{text}");
        }
        assert_eq!("02-AB-5e-10-00-01".parse(), Ok(MacAddr([2, 0xab, 0x5e, 0x10, 0, 1])));
    }

    proptest! {
        #[test]
        fn display_and_parse_are_inverse(octets: [u8; 6]) {
            prop_assert_eq!(MacAddr(octets).to_string().parse(), Ok(MacAddr(octets)));
        }
    }
}
