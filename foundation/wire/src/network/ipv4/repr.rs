//! Representation of an IPv4 header: a plain value.

use std::fmt;
use std::net::Ipv4Addr;

use super::{HEADER_LEN, Ipv4Fault, Packet, sanity};
use crate::Protocol;
use crate::bytes::octets_mut;

/// An IPv4 header without options as a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repr {
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
    /// Protocol of the payload.
    pub protocol: Protocol,
    /// Length of the payload in octets, up to 65,515.
    pub payload_len: u16,
    /// Number of hops that the packet may make.
    pub ttl: u8,
    /// Octet of DSCP and ECN.
    pub tos: u8,
    /// Identification, which all fragments of a packet share.
    pub identification: u16,
    /// Whether routers must not fragment the packet.
    pub dont_fragment: bool,
    /// Whether more fragments follow.
    pub more_fragments: bool,
    /// Offset of the payload in the original payload, in octets, a multiple of 8.
    pub fragment_offset: u16,
}

impl Repr {
    /// Reads the header; leaves out options and the reserved flag. The packet must be sane and completely in
    /// the buffer.
    ///
    /// # Errors
    /// The first broken rule of RFC 1812, 5.2.2.
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Result<Self, Ipv4Fault> {
        sanity(packet.data(), packet.data().len())?;
        Ok(Self::from_fields(packet))
    }

    pub(super) fn from_fields<T: AsRef<[u8]>>(packet: &Packet<T>) -> Self {
        Self {
            src: packet.src(),
            dst: packet.dst(),
            protocol: packet.protocol(),
            payload_len: packet.total_len().saturating_sub(packet.header_len() as u16),
            ttl: packet.ttl(),
            tos: packet.tos(),
            identification: packet.identification(),
            dont_fragment: packet.dont_fragment(),
            more_fragments: packet.more_fragments(),
            fragment_offset: packet.fragment_offset(),
        }
    }

    /// Returns the length of the header, which [`emit`](Self::emit) writes, in octets.
    #[must_use]
    pub const fn buffer_len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes a header without options, with its checksum. A payload length above 65,515 is cut to that.
    pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(&self, packet: &mut Packet<T>) {
        octets_mut(packet.buffer.as_mut(), ..HEADER_LEN).fill(0);
        packet.set_header_len(HEADER_LEN);
        packet.set_tos(self.tos);
        packet.set_total_len(self.payload_len.saturating_add(HEADER_LEN as u16));
        packet.set_identification(self.identification);
        packet.set_fragment_offset(self.fragment_offset);
        packet.set_dont_fragment(self.dont_fragment);
        packet.set_more_fragments(self.more_fragments);
        packet.set_ttl(self.ttl);
        packet.set_protocol(self.protocol);
        packet.set_src(self.src);
        packet.set_dst(self.dst);
        packet.fill_checksum();
    }
}

impl fmt::Display for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { src, dst, protocol, ttl, tos, payload_len, identification, .. } = self;
        write!(
            f,
            "ipv4 {src} > {dst} {protocol} ttl {ttl} tos {tos:#04x} id {identification} payload {payload_len}"
        )?;
        if self.dont_fragment {
            f.write_str(" df")?;
        }
        if self.more_fragments || self.fragment_offset != 0 {
            write!(f, " fragment {}{}", self.fragment_offset, if self.more_fragments { "+" } else { "" })?;
        }
        Ok(())
    }
}
