//! Tests of the sender of ICMP errors.

use millrace_forward::SharedFib;
use millrace_packet::DropReason;

use super::*;
use crate::parse::tags::Tags;
use crate::ports::tests::settings;
use crate::ports::{PortSettings, Stack};
use crate::router::Router;

/// Returns a UDP datagram from 10.1.0.2 to 192.0.2.1.
fn datagram() -> Vec<u8> {
    let mut header = vec![0x45, 0, 0, 28, 0, 7, 0, 0, 64, 17, 0, 0, 10, 1, 0, 2, 192, 0, 2, 1];
    let sum = millrace_wire::checksum::sum(&header).checksum();
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header.extend([0, 53, 0, 54, 0, 8, 0, 0]);
    header
}

/// The kernel has a route of its own to the source of the packets. It knows no filters, so it would forward rejected
/// packets.
#[test]
fn kernel_gets_no_packet_that_a_filter_rejects() {
    let (pool, mut fib) = (Pool::new(64).unwrap(), SharedFib::new().unwrap());
    let mut router = Router::new(pool.clone(), fib.reader(), 1).unwrap();
    let (number, mut route) = (fib.intern(Route::Kernel).0, Route::Kernel);
    fib.store("10.1.0.0/16".parse().unwrap(), number).unwrap();
    router.forwarding.fib.exchange(number, &mut route);
    let port = PortSettings { stack: Stack::Kernel { ifindex: 7 }, ..settings(0, Tags::NONE) };
    router.ports.set(PortId(1), port);
    let mut refused = |error, reason| {
        let mut packet = pool.packet_from(&datagram()).unwrap();
        packet.port = PortId(1);
        packet.set_network(0);
        packet.set_transport(20);
        router.disposal().refuse(packet, error, reason, Instant::ZERO);
        (router.punt.for_kernel.len(), router.ports.get(PortId(1)).unwrap().count.drops.get(reason))
    };
    assert_eq!(refused(IcmpError::NetUnreachable, DropReason::NoRoute), (1, 0));
    assert_eq!(refused(IcmpError::AdminProhibited, DropReason::Filter), (1, 1));
    assert_eq!(refused(IcmpError::AdminProhibited, DropReason::Plugin), (1, 1));
}
