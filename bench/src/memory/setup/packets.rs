//! Packets through a router in memory.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use millrace_packet::FlowKey;
use millrace_pipeline::Handover;
use millrace_port::memory::Generator;
use millrace_testkit::Random;
use millrace_wire::MacAddr;

use super::{ABREAST, IN, IN_MAC, MTU, ROUTES, Setup};
use crate::family::Family;
use crate::memory::case::Case;
use crate::memory::traffic::Distribution;
use crate::testbed::frame::UdpFrame;

const HOST_MAC: [u8; 6] = [2, 0, 0, 0, 1, 1];
/// IP protocol of all packets. Their destination port is 9, the discard service.
const UDP: u8 = 17;
const DISCARD: u16 = 9;
/// First byte of the flows' source network; the constant below is that of the established flows.
const NET: u8 = 30;
const ESTABLISHED: u8 = 31;
/// Minimum number of packets until the order of flows repeats, if flows have different frequencies.
const FEWEST: usize = 1 << 16;

/// Selection of the flows whose packets a generator makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Chosen {
    All,
    /// Flows that one of several workers owns, and that leave by this worker's port, as with ideal RSS of a
    /// NIC.
    Of {
        worker: usize,
        workers: usize,
        seed: u64,
    },
    /// Flows that one of several workers owns, and that leave by another worker's port.
    Across {
        worker: usize,
        workers: usize,
        seed: u64,
    },
}

/// Returns the address of host `host` in the network of route number `route`.
pub(super) fn destination(family: Family, route: u32, host: u32) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::from((32 << 24) + (route << 8) + host % 256).into(),
        Family::V6 => {
            Ipv6Addr::from((0xfd14_u128 << 112) | (u128::from(route) << 64) | u128::from(host)).into()
        }
    }
}

pub(super) fn source(family: Family, net: u8, flow: u32) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::from((u32::from(net) << 24) | (flow + 1)).into(),
        Family::V6 => {
            let net = 0xfd00 | u128::from(net);
            Ipv6Addr::from((net << 112) | u128::from(flow + 1)).into()
        }
    }
}

/// Returns the network address of a route's prefix.
pub(crate) fn network(family: Family, route: u32) -> IpAddr {
    destination(family, route, 0)
}

/// Returns a packet of flow number `flow` from the network `net`.
pub(crate) fn frame(family: Family, net: u8, flow: u32) -> Vec<u8> {
    udp_frame(family, net, flow, ROUTES).bytes()
}

/// Returns a packet like [`frame`] with a length in bytes, without checksum.
pub(crate) fn frame_of(family: Family, net: u8, flow: u32, length: usize) -> Vec<u8> {
    udp_frame(family, net, flow, ROUTES).bytes_of(length)
}

/// Returns the flow key of the packets of [`frame`]; IPv4 only.
pub(crate) fn flow(net: u8, flow: u32) -> Option<FlowKey> {
    key(&udp_frame(Family::V4, net, flow, ROUTES))
}

fn key(frame: &UdpFrame) -> Option<FlowKey> {
    let ports = (frame.source_port, frame.destination_port);
    match (frame.source, frame.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            Some(FlowKey::v4(source, destination, UDP, ports, IN.port))
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            Some(FlowKey::v6(source, destination, UDP, ports, IN.port))
        }
        _ => None,
    }
}

/// Returns a packet of a flow. The packet's destination is in one of `routes` networks.
fn udp_frame(family: Family, net: u8, flow: u32, routes: u32) -> UdpFrame {
    UdpFrame {
        source_mac: HOST_MAC,
        destination_mac: IN_MAC,
        source: source(family, net, flow),
        destination: destination(family, flow % routes, flow / routes + 1),
        source_port: 1024 + (flow % 50_000) as u16,
        destination_port: DISCARD,
    }
}

/// Returns the first chosen flow: its key, and a packet.
pub(crate) fn first_flow(case: Case, setup: Setup, chosen: Chosen) -> Option<(FlowKey, Vec<u8>)> {
    let flow = *chosen_flows(case, setup, chosen).first()?;
    let frame = udp_frame(case.family, NET, flow, setup.routes);
    Some((key(&frame)?, frame.bytes()))
}

/// Returns a generator of the packets of all chosen flows, in the setup's order.
pub(super) fn generator(case: Case, setup: Setup, chosen: Chosen) -> Generator {
    Generator::new(MacAddr(IN_MAC), MTU, frames(case, setup, chosen), u64::MAX)
}

/// Returns the packets of a case in their order, up to the point from which the order repeats.
pub(crate) fn frames(case: Case, setup: Setup, chosen: Chosen) -> Vec<Vec<u8>> {
    let frame = |net, (place, flow): (usize, u32)| {
        udp_frame(case.family, net, flow, setup.routes).bytes_of(setup.size.of(place))
    };
    let flows = chosen_flows(case, setup, chosen);
    let mut frames: Vec<Vec<u8>> = flows.into_iter().enumerate().map(|flow| frame(NET, flow)).collect();
    Random::new(1).shuffle(&mut frames);
    if setup.distribution == Distribution::Zipf {
        let packets = frames.len().max(FEWEST);
        let order = Distribution::Zipf.order(frames.len() as u32, packets);
        frames = order.into_iter().map(|flow| frames[flow as usize].clone()).collect();
    }
    if setup.flow_packets > 1 {
        let groups = frames.chunks(ABREAST);
        frames = groups.flat_map(|group| vec![group; setup.flow_packets as usize].concat()).collect();
    }
    if setup.established > 0 {
        let established = (0..setup.established).cycle().map(|flow| frame(ESTABLISHED, (0, flow)));
        let mixed = frames.chunks(3).zip(established).map(|(new, known)| [&[known], new].concat());
        frames = mixed.flatten().collect();
    }
    frames
}

fn chosen_flows(case: Case, setup: Setup, chosen: Chosen) -> Vec<u32> {
    let (worker, workers, seed, leaves_here) = match chosen {
        Chosen::All => return (0..case.flows).collect(),
        Chosen::Of { worker, workers, seed } => (worker, workers, seed, true),
        Chosen::Across { worker, workers, seed } => (worker, workers, seed, false),
    };
    let is_of = |flow: &u32| {
        let frame = udp_frame(case.family, NET, *flow, setup.routes);
        let owner = key(&frame).map(|key| Handover::owner_of_flow(&key, seed, workers));
        owner == Some(worker) && ((*flow % setup.routes) as usize % workers == worker) == leaves_here
    };
    (0..).filter(is_of).take((case.flows as usize).div_ceil(workers)).collect()
}
