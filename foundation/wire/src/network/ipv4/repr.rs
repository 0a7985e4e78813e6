//! Representation of an IPv4 header as a plain value.

use std::net::Ipv4Addr;

use super::{HEADER_LEN, Packet};
use crate::Protocol;

/// IPv4 header without options as a value.
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
    /// Offset of this fragment in the payload of the original packet, in octets, a multiple of 8.
    pub fragment_offset: u16,
}

impl Repr {
    /// Writes a header without options, with its checksum. A payload length above 65,515 is reduced to
    /// 65,515.
    pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(&self, packet: &mut Packet<T>) {
        packet.buffer.as_mut().get_mut(..HEADER_LEN).unwrap_or_default().fill(0);
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
