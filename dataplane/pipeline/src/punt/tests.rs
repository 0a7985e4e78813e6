//! Tests of frames punted to the kernel.

use std::time::Duration;

use millrace_forward::SharedFib;
use millrace_packet::Pool;
use millrace_units::Instant;
use millrace_wire::MacAddr;

use super::*;
use crate::observe::trace::{TraceEnd, TraceOrder, TraceStep, Tracer, trace};
use crate::parse::tags::Tags;
use crate::ports::tests::settings;
use crate::router::Router;
use crate::work::{Fate, Work};

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x0a]);
const PEER: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xa2]);

fn kernel_port(tags: Tags) -> PortSettings {
    PortSettings { stack: Stack::Kernel { ifindex: 7 }, mac: MAC, ..settings(0, tags) }
}

fn router(tags: Tags) -> (Pool, Router) {
    let (pool, fib) = (Pool::new(64).unwrap(), SharedFib::new().unwrap());
    let mut router = Router::new(pool.clone(), fib.reader(), 1).unwrap();
    router.ports.set(PortId(1), kernel_port(tags));
    (pool, router)
}

/// Returns a UDP datagram to an address of the test port, or to a link-local multicast group.
fn datagram(destination: [u8; 4]) -> Vec<u8> {
    let mut header = vec![0x45, 0, 0, 28, 0, 7, 0, 0, 1, 17, 0, 0, 10, 1, 0, 2];
    header.extend(destination);
    let sum = millrace_wire::checksum::sum(&header).checksum();
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header.extend([0, 53, 0, 54, 0, 8, 0, 0]);
    header
}

/// Disposes of a packet for the kernel.
fn punt(router: &mut Router, packet: Packet) {
    let mut work = Work::default();
    work.packets.push(packet).unwrap();
    work.fates[0] = Fate::Host;
    router.disposal().dispose(&mut work, (), Instant::ZERO);
}

fn frames(router: &mut Router) -> Vec<Vec<u8>> {
    let mut given = Vec::new();
    router.punt_stage().hand_back(|ifindex, frames| {
        assert_eq!(ifindex, 7);
        given.extend(frames.iter().map(|frame| frame.to_vec()));
        frames.len()
    });
    given
}

fn headed(destination: MacAddr, source: MacAddr, tail: &[u8], content: &[u8]) -> Vec<u8> {
    [&destination.0[..], &source.0, tail, content].concat()
}

#[test]
fn packet_made_by_a_plugin_for_the_kernel_gets_a_link_header_of_its_family() {
    let (_pool, mut router) = router(Tags::NONE);
    let packet = datagram([224, 0, 0, 5]);
    assert!(router.gate_run().begin_made(&packet, PortId(1), 0, None));
    router.run_timers(Instant::ZERO);
    router.follow_up(Instant::ZERO);
    assert_eq!(frames(&mut router), [headed(MAC, MAC, &[8, 0], &packet)]);
}

#[test]
fn wrong_link_header_is_replaced_and_a_received_one_stays() {
    let content = datagram([10, 1, 0, 1]);
    let tagged: &[u8] = &[0x81, 0, 0, 10, 8, 0];
    let group = MacAddr([1, 0, 0x5e, 0, 0, 5]);
    let cases: [(Tags, MacAddr, &[u8], bool); 9] = [
        (Tags::NONE, MAC, &[8, 0], true),
        (Tags::NONE, group, &[8, 0], true),
        (Tags::single(10), MAC, tagged, true),
        // Frame with a priority tag (VLAN id 0).
        (Tags::NONE, MAC, &[0x81, 0, 0xe0, 0, 8, 0], true),
        // Frames with ARP, IPv6, LLDP, a foreign VLAN or another station's address, as a plugin may write
        // them.
        (Tags::NONE, MAC, &[8, 6], false),
        (Tags::NONE, MAC, &[0x86, 0xdd], false),
        (Tags::NONE, MAC, &[0x88, 0xcc], false),
        (Tags::single(11), MAC, tagged, false),
        (Tags::NONE, PEER, &[8, 0], false),
    ];
    for (tags, destination, tail, stays) in cases {
        let (pool, mut router) = router(tags);
        let whole = headed(destination, PEER, tail, &content);
        let mut packet = pool.packet_from(&whole).unwrap();
        packet.port = PortId(1);
        packet.set_network(12 + tail.len());
        punt(&mut router, packet);
        let given = frames(&mut router);
        if stays {
            assert_eq!(given, [whole], "{tail:x?}");
        } else {
            let own: &[u8] = if tags == Tags::NONE { &[8, 0] } else { &[0x81, 0, 0, 11, 8, 0] };
            assert_eq!(given, [headed(MAC, MAC, own, &content)], "{tail:x?}");
        }
    }
}

#[test]
fn packet_without_a_link_header_gets_one_and_a_non_packet_is_dropped() {
    let (pool, mut router) = router(Tags::NONE);
    let content = datagram([10, 1, 0, 1]);
    let mut packet = pool.packet_from(&headed(MAC, PEER, &[8, 0], &content)).unwrap();
    packet.port = PortId(1);
    packet.set_network(14);
    assert!(packet.trim_front(14));
    punt(&mut router, packet);
    assert_eq!(frames(&mut router), [headed(MAC, MAC, &[8, 0], &content)]);
    let mut nothing = pool.packet_from(&[0; 60]).unwrap();
    nothing.port = PortId(1);
    nothing.set_network(0);
    punt(&mut router, nothing);
    assert_eq!(frames(&mut router), [[0_u8; 0]; 0]);
    let drops = &router.ports.get(PortId(1)).unwrap().count.drops;
    assert_eq!(drops.get(DropReason::PluginFailed), 1);
}

#[test]
fn arp_frame_is_punted_unchanged() {
    let (pool, mut router) = router(Tags::NONE);
    let whole = headed(MacAddr([0xff; 6]), PEER, &[8, 6], &[0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 0xa2]);
    let mut packet = pool.packet_from(&whole).unwrap();
    packet.port = PortId(1);
    packet.set_network(14);
    punt(&mut router, packet);
    assert_eq!(frames(&mut router), [whole]);
}

#[test]
fn packet_refused_by_the_kernel_is_dropped_and_not_counted_as_punted() {
    let (pool, mut router) = router(Tags::NONE);
    let mut packets: Vec<Packet> = (0..3).map(|_| pool.packet_from(&[0; 60]).unwrap()).collect();
    let order = TraceOrder { filter: None, every: 1, count: 10, time: Duration::MAX };
    let (sink, mut source) = trace(1, order);
    router.observation.trace = Some(Box::new(Tracer::new(sink, 0, 1, Instant::ZERO)));
    for (mark, packet) in [4, 0, 6].into_iter().zip(&mut packets) {
        (packet.trace, packet.port) = (mark, PortId(1));
    }
    router.punt.for_kernel = packets;
    router.punt_stage().hand_back(|_, frames| {
        assert_eq!(frames.len(), 3);
        2
    });
    let ends: Vec<_> =
        std::iter::from_fn(|| source.next_event()).map(|event| (event.mark, event.step)).collect();
    let is_right = matches!(
        ends[..],
        [
            (4, TraceStep::End(TraceEnd::Host)),
            (6, TraceStep::End(TraceEnd::Dropped(DropReason::HostRefused)))
        ]
    );
    assert!(is_right, "{ends:?}");
}
