//! Tests of packets that fit the MTU in the forward stage, which checks the MTU, but exceed it in the dispose
//! stage.

use std::net::Ipv6Addr;

use millrace_forward::SharedFib;
use millrace_packet::Pool;
use millrace_units::PortId;
use millrace_wire::ipv6;

use super::*;
use crate::parse::tags::Tags;
use crate::ports::PortSettings;
use crate::ports::tests::settings;
use crate::router::Router;

/// Returns an IPv6 packet of 1,500 octets whose bytes also form a valid IPv4 header with options. Its traffic
/// class is 0xb8, its flow label 1,500.
fn packet6(pool: &Pool) -> (Packet, FlowKey) {
    let source = Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 2);
    let destination = Ipv6Addr::new(0xfd00, 9, 0, 0, 0, 0, 0, 2);
    let mut bytes = vec![7; 1500];
    bytes[..8].copy_from_slice(&[0x6b, 0x80, 0x05, 0xdc, 0x05, 0xb4, 17, 64]);
    bytes[8..24].copy_from_slice(&source.octets());
    bytes[24..40].copy_from_slice(&destination.octets());
    let mut packet = pool.packet_from(&bytes).unwrap();
    (packet.port, packet.out_port) = (PortId(0), PortId(1));
    packet.set_network(0);
    packet.set_transport(ipv6::HEADER_LEN);
    (packet, FlowKey::v6(source, destination, 17, (0x707, 0x707), PortId(0)))
}

#[test]
fn ipv6_packet_above_the_mtu_is_dropped_and_no_fragment_leaves() {
    let (pool, fib) = (Pool::new(64).unwrap(), SharedFib::new().unwrap());
    let mut router = Router::new(pool.clone(), fib.reader(), 1).unwrap();
    for (port, mtu) in [(0, 1500), (1, 1400)] {
        let port_settings = PortSettings { mtu, addresses: Vec::new(), ..settings(port, Tags::NONE) };
        router.ports.set(PortId(port), port_settings);
    }
    let (packet, key) = packet6(&pool);
    router.disposal().send(packet, &key, MacAddr([2, 0, 0, 0, 0, 1]), Instant::ZERO);
    assert!(router.ports.get(PortId(1)).unwrap().queue.is_empty());
    assert_eq!(router.ports.get(PortId(0)).unwrap().count.drops.get(DropReason::TooBig), 1);
    assert_eq!((router.observation.totals.dropped, pool.in_use()), (1, 0));
}
