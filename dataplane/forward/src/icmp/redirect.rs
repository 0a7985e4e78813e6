//! ICMP redirects, which report a better first hop to a host: RFC 1812, 5.2.7.2; RFC 4861, 8.2.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use millrace_packet::{Packet, Pool};
use millrace_units::PortId;
use millrace_wire::{MacAddr, Protocol, checksum, ipv6, ndp};

use crate::NextHop;

/// Packet about which a redirect may be sent, with its ingress port and next hop.
#[derive(Clone, Copy, Debug)]
pub struct RedirectQuery<'a> {
    /// Ingress port.
    pub arrival: PortId,
    /// Subnet of the ingress port that contains the source; `None` if there is none.
    pub subnet: Option<IpNet>,
    /// Next hop of the packet.
    pub next_hop: &'a NextHop,
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Whether the packet carries a source route. Its sender has then chosen the path, and gets no redirect.
    pub source_routed: bool,
}

/// Returns the first hop that the packet's sender should use instead of this router: the gateway, or the
/// destination itself if it is on the link. Returns `None` if the router must not send a redirect (RD-01,
/// RD-02):
///
/// - the packet leaves by another port than its ingress port
/// - its source or the first hop is not on the ingress port's subnet
/// - it is source-routed
pub fn redirect_target(query: &RedirectQuery<'_>) -> Option<IpAddr> {
    if query.arrival != query.next_hop.port || query.source_routed {
        return None;
    }
    let target = query.next_hop.neighbour(query.destination);
    let subnet = query.subnet?;
    // IPv6 gateways have link-local addresses, and every link-local address is on its link (RFC 4861, 8.2).
    let target_near =
        subnet.contains(&target) || matches!(target, IpAddr::V6(a) if a.is_unicast_link_local());
    // A host ignores an IPv6 redirect to another router unless it names that router's link-local address (RFC
    // 4861, 8.1).
    let believed = match target {
        IpAddr::V4(_) => true,
        IpAddr::V6(address) => address.is_unicast_link_local() || target == query.destination,
    };
    (target_near && believed && target != query.source).then_some(target)
}

/// Maximum length in octets of the quote of `original` in an IPv6 redirect: 1,280 minus the headers and a
/// link-layer address option, in whole units of 8.
const MAX_QUOTE6: usize = ipv6::MIN_MTU - ipv6::HEADER_LEN - ndp::REDIRECT_LEN - 8 - 8;

/// Builds the IPv6 redirect (RFC 4861, 4.5) that directs `original`'s sender to `target`, with the target's
/// link-layer address if known. `source` is the router's link-local address on that link. `original` has its
/// network offset set and passed the sanity checks. The redirect begins at the network header. Returns `None`
/// if the pool is empty.
///
/// The IPv4 redirect is [`IcmpError::Redirect`](crate::IcmpError::Redirect). Both are subject to
/// [`may_send_error`](crate::may_send_error) and to a rate limit.
pub fn build_redirect6(
    pool: &Pool,
    original: &Packet,
    source: Ipv6Addr,
    target: Ipv6Addr,
    target_link: Option<MacAddr>,
) -> Option<Packet> {
    let network = original.network();
    let quoted = ipv6::Packet::new_checked(network).ok()?;
    let quote = quoted.total_len().min(network.len()).min(MAX_QUOTE6) / 8 * 8;
    let message =
        ndp::Repr::Redirect { target, destination: quoted.dst(), target_link, quote: network.get(..quote)? };
    let length = message.buffer_len();
    let header = ipv6::Repr {
        src: source,
        dst: quoted.src(),
        next_header: Protocol::ICMPV6,
        payload_len: length as u16,
        hop_limit: ndp::HOP_LIMIT,
        traffic_class: 0xc0,
        flow_label: 0,
    };
    let mut octets = [0; ipv6::MIN_MTU];
    header.emit(&mut ipv6::Packet::new_unchecked(&mut octets[..]));
    let pseudo = checksum::pseudo_header_v6(source, quoted.src(), Protocol::ICMPV6, length as u32);
    let end = ipv6::HEADER_LEN + length;
    message.emit(&mut ndp::Packet::new_unchecked(octets.get_mut(ipv6::HEADER_LEN..end)?), pseudo);
    let mut packet = pool.packet_from(octets.get(..end)?)?;
    packet.set_network(0);
    packet.set_transport(ipv6::HEADER_LEN);
    Some(packet)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_packets::{HOST_A6, HOST_B6, udp6};

    fn target(source: &str, gateway: Option<&str>, out: u16, source_routed: bool) -> Option<IpAddr> {
        let source: IpAddr = source.parse().unwrap();
        let destination = if source.is_ipv4() { "10.1.0.77" } else { "2001:db8:9::1" }.parse().unwrap();
        let next_hop = NextHop::new(PortId(out), gateway.map(|gateway| gateway.parse().unwrap()));
        let subnets = ["10.1.0.0/24", "2001:db8:1::/64"].map(|net| net.parse::<IpNet>().unwrap());
        let subnet = subnets.into_iter().find(|net| net.contains(&source));
        let arrival = PortId(1);
        redirect_target(&RedirectQuery {
            arrival,
            subnet,
            next_hop: &next_hop,
            source,
            destination,
            source_routed,
        })
    }

    /// Test cases RD-01 and ND-07.
    #[test]
    fn host_is_redirected_to_a_gateway_on_its_subnet() {
        assert_eq!(target("10.1.0.5", Some("10.1.0.254"), 1, false), Some("10.1.0.254".parse().unwrap()));
        assert_eq!(target("10.1.0.5", None, 1, false), Some("10.1.0.77".parse().unwrap()));
        assert_eq!(target("2001:db8:1::5", Some("fe80::9"), 1, false), Some("fe80::9".parse().unwrap()));
    }

    /// Test case RD-02.
    #[test]
    fn other_hosts_are_not_redirected() {
        assert_eq!(target("10.1.0.5", Some("10.2.0.254"), 2, false), None, "leaves by another port");
        assert_eq!(target("10.2.0.5", Some("10.1.0.254"), 1, false), None, "source on another subnet");
        assert_eq!(target("10.9.0.5", Some("10.1.0.254"), 1, false), None, "source behind a router");
        assert_eq!(target("10.1.0.5", Some("10.1.0.254"), 1, true), None, "source-routed");
        assert_eq!(target("10.1.0.5", Some("10.3.0.1"), 1, false), None, "gateway not on the subnet");
        assert_eq!(target("10.1.0.254", Some("10.1.0.254"), 1, false), None, "the gateway itself");
    }

    /// Test case ND-07.
    #[test]
    fn ipv6_redirect_is_valid_for_hosts() {
        let pool = Pool::new(8).unwrap();
        let (router, better) = ("fe80::1".parse().unwrap(), "fe80::9".parse().unwrap());
        let mac = MacAddr([2, 0, 0, 0, 0, 9]);
        for (len, link) in [(3, Some(mac)), (1100, None), (1400, Some(mac)), (5000, None)] {
            let original = pool.packet_from(&udp6(&vec![7; len])).unwrap();
            let redirect = build_redirect6(&pool, &original, router, better, link).unwrap();
            let octets = redirect.to_vec();
            let header = ipv6::Packet::new_checked(&octets[..]).unwrap();
            assert_eq!(ipv6::sanity(&octets, octets.len()), Ok(()));
            assert!(octets.len() <= 1280 && header.dst() == HOST_A6);
            let message = ndp::validate(header.hop_limit(), router, HOST_A6, header.payload()).unwrap();
            assert_eq!((message.target(), message.destination()), (better, Some(HOST_B6)));
            assert_eq!(message.link_address(ndp::option::TARGET_LINK_ADDRESS), link);
        }
    }
}
