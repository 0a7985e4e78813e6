//! Attributes of a netlink message.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::NlasIterator;

/// Returns the attributes in `bytes` as (kind, value), without the flags of the kind; ends at the first
/// malformed attribute.
pub(crate) fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    NlasIterator::new(bytes).map_while(Result::ok).map(|attribute| {
        let (kind, length) = (attribute.kind(), attribute.length() as usize);
        (kind, &attribute.into_inner()[4..length])
    })
}

/// Returns the attributes after a fixed header of `header` bytes.
pub(crate) fn attributes_after(payload: &[u8], header: usize) -> impl Iterator<Item = (u16, &[u8])> {
    attributes(payload.get(header.next_multiple_of(4)..).unwrap_or_default())
}

/// Returns the value of the first attribute of a kind.
pub(crate) fn find(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    find_after(bytes, 0, kind)
}

/// Returns the value of the first attribute of a kind after a fixed header of `header` bytes.
pub(crate) fn find_after(payload: &[u8], header: usize, kind: u16) -> Option<&[u8]> {
    attributes_after(payload, header).find(|(found, _)| *found == kind).map(|(_, value)| value)
}

/// Reads a number of one, two or four bytes in the machine's byte order.
pub(crate) fn number(value: &[u8]) -> Option<u32> {
    match *value {
        [a] => Some(u32::from(a)),
        [a, b] => Some(u32::from(u16::from_ne_bytes([a, b]))),
        [a, b, c, d, ..] => Some(u32::from_ne_bytes([a, b, c, d])),
        _ => None,
    }
}

/// Reads a number of four bytes in network byte order.
pub(crate) fn network_number(value: &[u8]) -> Option<u32> {
    value.get(..4).map(|bytes| u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

/// Reads text up to its terminating zero.
pub(crate) fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

/// Reads an address of four or sixteen bytes.
pub(crate) fn ip(value: &[u8]) -> Option<IpAddr> {
    if let Ok(octets) = <[u8; 4]>::try_from(value) {
        return Some(Ipv4Addr::from(octets).into());
    }
    <[u8; 16]>::try_from(value).ok().map(|octets| Ipv6Addr::from(octets).into())
}

/// Reads an Ethernet address.
pub(crate) fn mac(value: &[u8]) -> Option<[u8; 6]> {
    value.try_into().ok()
}

/// Reads a field of four bytes of a fixed header, in the machine's byte order.
pub(crate) fn word(payload: &[u8], offset: usize) -> Option<u32> {
    payload.get(offset..offset + 4).and_then(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_by_their_width() {
        assert_eq!(number(&[7]), Some(7));
        assert_eq!(number(&513u16.to_ne_bytes()), Some(513));
        assert_eq!(number(&70000u32.to_ne_bytes()), Some(70000));
        assert_eq!(number(&[]), None);
    }

    #[test]
    fn a_truncated_attribute_ends_the_list() {
        let good = [8, 0, 1, 0, 1, 2, 3, 4];
        let bytes = [&good[..], &[200, 0, 2, 0, 9]].concat();
        let found: Vec<_> = attributes(&bytes).collect();
        assert_eq!(found, vec![(1, &good[4..])]);
    }
}
