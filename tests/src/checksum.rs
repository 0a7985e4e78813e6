//! Second, simple implementation of the Internet checksum, as a reference for the router's implementation.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Returns the checksum of `bytes` (RFC 1071): 0 if `bytes` contain a correct checksum.
pub fn checksum(bytes: &[u8]) -> u16 {
    checksum_parts(&[bytes])
}

/// Returns the checksum of the concatenated parts.
pub fn checksum_parts(parts: &[&[u8]]) -> u16 {
    let bytes: Vec<u8> = parts.concat();
    let mut sum: u64 = 0;
    for pair in bytes.chunks(2) {
        sum += u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Returns the checksum of a transport header and its data over IPv4 (RFC 768, RFC 9293).
pub fn transport_checksum4(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, transport: &[u8]) -> u16 {
    let length = (transport.len() as u16).to_be_bytes();
    checksum_parts(&[&source.octets(), &destination.octets(), &[0, protocol], &length, transport])
}

/// Returns the checksum of an upper-layer header and its data over IPv6 (RFC 8200, 8.1).
pub fn transport_checksum6(source: Ipv6Addr, destination: Ipv6Addr, protocol: u8, transport: &[u8]) -> u16 {
    let length = (transport.len() as u32).to_be_bytes();
    checksum_parts(&[&source.octets(), &destination.octets(), &length, &[0, 0, 0, protocol], transport])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071_has_the_checksum_that_is_given_there() {
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
    }

    #[test]
    fn checksum_makes_the_sum_zero() {
        let sum = checksum(&[1, 2, 3, 4]).to_be_bytes();
        assert_eq!(checksum(&[1, 2, 3, 4, sum[0], sum[1]]), 0);
    }
}
