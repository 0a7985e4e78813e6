//! Check of packets after an instance may have changed them.
//!
//! Later stages rely on the results of the parse stage: a complete network header of the flow's family, a
//! length that matches the header, and correct header offsets.

use millrace_packet::{Exceptions, Family, FlowKey, Packet};
use millrace_plugin_abi::{Position, Verdict};
use millrace_wire::ipv6_ext::{self, End};
use millrace_wire::{EtherType, Ipv4Fault, Ipv6Fault, ipv4, ipv6};

/// Octets of an Ethernet header without VLAN tags.
const LINK: usize = 14;
/// Largest size of a reassembled IPv4 packet, in octets.
const LONGEST: usize = 65_535;

/// Rule that a packet violates after an instance's call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Malformed {
    /// Link header of a complete frame that doesn't end at the network header.
    #[error("the link header of a complete frame does not end at its network header")]
    Link,
    /// IP version that differs from the flow key's.
    #[error("the IP version of the network header differs from the packet's flow")]
    Family,
    /// IPv4 header that violates RFC 1812, 5.2.2.
    #[error("{0}")]
    V4(Ipv4Fault),
    /// IPv6 header that violates RFC 8200.
    #[error("{0}")]
    V6(Ipv6Fault),
    /// IPv4 fragment that ends beyond octet 65,535 of its packet.
    #[error("ipv4: the fragment ends beyond octet 65535 of its packet")]
    Fragment,
    /// Packet longer than its network header states, in shared memory frames that can't be truncated.
    #[error(
        "the network header gives a shorter length than the packet, whose frames are shared and can't be \
         truncated"
    )]
    Shared,
    /// TTL or hop limit of 0 at position `queue`. The forward stage, which checks the TTL, comes before this
    /// position.
    #[error("the TTL (hop limit) is 0 at a gate of position queue")]
    Hops,
}

/// Checks a packet that an instance at `position` may have changed. Updates the offsets, length and
/// exceptions that later stages read. `family` is the required address family; `None` accepts any.
///
/// # Errors
/// The first rule that the packet violates. The caller must drop the packet.
fn recheck(packet: &mut Packet, family: Option<Family>, position: Position) -> Result<(), Malformed> {
    if packet.is_framed && !leads_to_network(packet.data(), packet.network_offset()) {
        return Err(Malformed::Link);
    }
    let own = match packet.network().first().map_or(0, |first| first >> 4) {
        6 => Family::V6,
        _ => Family::V4,
    };
    if family.is_some_and(|family| family != own) {
        return Err(Malformed::Family);
    }
    let headers = match own {
        Family::V4 => check4(packet)?,
        Family::V6 => check6(packet)?,
    };
    if position == Position::Queue && headers.hops == 0 && !packet.is_framed {
        return Err(Malformed::Hops);
    }
    let (network, length) = (packet.network_offset(), packet.network_offset() + headers.length);
    if packet.len() > length && !packet.truncate(length) {
        return Err(Malformed::Shared);
    }
    packet.set_network(network);
    packet.set_transport(network + headers.transport);
    note_exceptions(packet, &headers, position);
    Ok(())
}

/// Checks a packet that an instance at `position` may have changed, after the instance gave `verdict`.
/// Accepts any packet if the verdict drops or consumes it.
pub(crate) fn recheck_behind(
    packet: &mut Packet,
    key: &FlowKey,
    verdict: Verdict,
    position: Position,
) -> Result<(), Malformed> {
    match verdict {
        Verdict::Drop(_) | Verdict::Consume => Ok(()),
        // The packet gets a new flow key, so its address family may have changed.
        Verdict::Classify => recheck(packet, None, position),
        _ => recheck(packet, Some(key.family()), position),
    }
}

/// Fields of the network header.
struct Headers {
    /// Octets of the packet from the start of the network header.
    length: usize,
    /// Offset of the transport header from the start of the network header.
    transport: usize,
    hops: u8,
    options: bool,
    /// Whether the extension headers end without a transport header.
    cut: bool,
}

fn check4(packet: &Packet) -> Result<Headers, Malformed> {
    ipv4::sanity(packet.network(), packet.network_len()).map_err(Malformed::V4)?;
    let header = ipv4::Packet::new_unchecked(packet.network());
    let (transport, length) = (header.header_len(), usize::from(header.total_len()));
    if usize::from(header.fragment_offset()) + length - transport > LONGEST {
        return Err(Malformed::Fragment);
    }
    let options = transport > ipv4::HEADER_LEN;
    Ok(Headers { length, transport, hops: header.ttl(), options, cut: false })
}

fn check6(packet: &Packet) -> Result<Headers, Malformed> {
    ipv6::sanity(packet.network(), packet.network_len()).map_err(Malformed::V6)?;
    let header = ipv6::Packet::new_unchecked(packet.network());
    let walk = ipv6_ext::walk(&header);
    let cut =
        matches!(walk.end, End::Truncated | End::Limit | End::MisplacedHopByHop | End::RepeatedFragment);
    let options = walk.hop_by_hop;
    Ok(Headers { length: header.total_len(), transport: walk.offset, hops: header.hop_limit(), options, cut })
}

/// Sets the exceptions of a packet from its headers. Keeps the exceptions that depend on fragments.
///
/// At position `queue`, behind the forward stage, a hop limit of 1 is no exception.
fn note_exceptions(packet: &mut Packet, headers: &Headers, position: Position) {
    let kept = packet.exceptions.bits() & (Exceptions::FRAGMENT.bits() | Exceptions::CUT.bits());
    let mut exceptions = Exceptions::from_bits(kept);
    if headers.hops <= 1 && position != Position::Queue {
        exceptions = exceptions.with(Exceptions::TTL);
    }
    if headers.options {
        exceptions = exceptions.with(Exceptions::OPTIONS);
    }
    if headers.cut {
        exceptions = exceptions.with(Exceptions::CUT);
    }
    packet.exceptions = exceptions;
}

/// Whether the Ethernet header with its VLAN tags ends at offset `network`.
fn leads_to_network(frame: &[u8], network: usize) -> bool {
    let is_tag = |at: usize| {
        let ether_type = frame.get(at..).and_then(|bytes| bytes.first_chunk().copied());
        ether_type.is_some_and(|bytes| EtherType(u16::from_be_bytes(bytes)).is_vlan())
    };
    let mut end = LINK;
    while end < network && is_tag(end - 2) {
        end += 4;
    }
    end == network
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_packet::Pool;

    fn header(total_len: u16) -> Vec<u8> {
        let mut header = vec![0x45, 0, 0, 0, 0, 7, 0, 0, 64, 17, 0, 0, 10, 1, 0, 2, 10, 2, 0, 2];
        header[2..4].copy_from_slice(&total_len.to_be_bytes());
        let sum = millrace_wire::checksum::sum(&header).checksum();
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        header
    }

    #[test]
    fn frames_that_copies_share_are_cut_behind_the_first_only() {
        let pool = Pool::new(16).unwrap();
        let whole = [header(5000), vec![7; 4980]].concat();
        let packet = pool.packet_from(&whole).unwrap();
        for (total_len, expected) in
            [(5000, Ok(())), (4999, Err(Malformed::Shared)), (3000, Err(Malformed::Shared)), (1000, Ok(()))]
        {
            let mut copy = packet.copy(&pool).unwrap();
            copy.data_mut()[..20].copy_from_slice(&header(total_len));
            assert_eq!(recheck(&mut copy, Some(Family::V4), Position::Late), expected, "{total_len}");
            assert_eq!(copy.len(), if expected.is_ok() { total_len.into() } else { 5000 });
            assert_eq!(packet.to_vec(), whole);
        }
    }
}
