//! Sanity check: whether a router may forward an IPv4 packet (RFC 1812, 5.2.2), with one fault per rule.

use std::fmt;

use super::{HEADER_LEN, Packet};

/// Faults for which a router must not forward an IPv4 packet (RFC 1812, 5.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ipv4Fault {
    /// The frame has fewer than 20 octets after the link header.
    Short,
    /// The version is not 4.
    Version,
    /// The header length is below 20 octets.
    HeaderLength,
    /// The total length is below the header length.
    TotalLength,
    /// The total length exceeds the number of octets in the frame.
    Truncated,
    /// The header checksum is wrong.
    Checksum,
}

impl fmt::Display for Ipv4Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Short => "ipv4: less than 20 octets",
            Self::Version => "ipv4: version is not 4",
            Self::HeaderLength => "ipv4: header length is below 5 words",
            Self::TotalLength => "ipv4: total length is below the header length",
            Self::Truncated => "ipv4: total length exceeds the received octets",
            Self::Checksum => "ipv4: header checksum is wrong",
        })
    }
}

impl std::error::Error for Ipv4Fault {}

/// Checks an IPv4 packet by RFC 1812, 5.2.2. `data`: octets from the IPv4 header on, at least the whole
/// header. `frame_len`: number of octets in the frame from the IPv4 header on, padding included.
///
/// The RFC lists the checksum second. Here it is last, because its range depends on the header length. The
/// same packets pass. The error is the first rule broken, in the order of [`Ipv4Fault`].
#[inline]
pub fn sanity(data: &[u8], frame_len: usize) -> Result<(), Ipv4Fault> {
    let packet = Packet::new_unchecked(data);
    if data.len() < HEADER_LEN || frame_len < HEADER_LEN {
        return Err(Ipv4Fault::Short);
    }
    if packet.version() != 4 {
        return Err(Ipv4Fault::Version);
    }
    let (header_len, total_len) = (packet.header_len(), usize::from(packet.total_len()));
    if header_len < HEADER_LEN {
        return Err(Ipv4Fault::HeaderLength);
    }
    if total_len < header_len {
        return Err(Ipv4Fault::TotalLength);
    }
    if total_len > frame_len || header_len > data.len() {
        return Err(Ipv4Fault::Truncated);
    }
    if !packet.verify_checksum() {
        return Err(Ipv4Fault::Checksum);
    }
    Ok(())
}
