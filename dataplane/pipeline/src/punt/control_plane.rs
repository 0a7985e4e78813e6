//! Control-plane policing for ports without a kernel stack: limits the packets for the router's own stack,
//! each class at its own rate.
//!
//! For ports of kernel devices, the XDP program polices with the same classes
//! (dataplane/offload/bpf/control_plane.h).

use millrace_packet::{CONTROL_CLASSES, ControlClass, Packet};
use millrace_units::{Instant, PortId, TokenBucket, TokenRate};
use millrace_wire::{EtherType, Protocol, ipv4, ipv6};

use crate::options::{ClassLimit, ClassLimits};
use crate::ports::PortTable;
use crate::punt::own_stack::ether_type;

/// Token buckets of a worker: one for each policed class at each port.
#[derive(Debug, Default)]
pub(crate) struct ControlPlane {
    /// Full buckets, with which a port starts.
    full: [Option<TokenBucket>; CONTROL_CLASSES],
    ports: Vec<[Option<TokenBucket>; CONTROL_CLASSES]>,
}

impl ControlPlane {
    /// Sets the limits and fills all buckets. Each of `workers` workers gets a share of the rates. But each
    /// gets the whole burst, because all packets of a burst may arrive at one worker.
    pub fn set(&mut self, limits: &ClassLimits, workers: u32) {
        let bucket = |limit: ClassLimit| {
            let share = limit.per_second.div_ceil(workers).max(1);
            TokenBucket::new(TokenRate::of_events(share, limit.burst))
        };
        self.full = limits.map(|limit| limit.map(bucket));
        self.ports.clear();
    }

    /// Takes a token for a packet of a class at a port. Returns whether the packet is within the limit.
    pub fn takes(&mut self, port: PortId, class: ControlClass, now: Instant) -> bool {
        if self.full.get(class.index()).is_none_or(Option::is_none) {
            return true;
        }
        if self.ports.len() <= port.index() {
            self.ports.resize(port.index() + 1, self.full);
        }
        let bucket = self.ports.get_mut(port.index()).and_then(|port| port.get_mut(class.index())?.as_mut());
        bucket.is_none_or(|bucket| bucket.take(now))
    }

    /// Returns whether a packet may enter the own stack; `false` if the packets of its class exceed the rate
    /// of the class. Counts the packet in its class.
    pub fn enters(&mut self, packet: &Packet, ports: &mut PortTable, now: Instant) -> bool {
        let Some(class) = class_of(packet, ether_type(packet)) else { return true };
        let enters = self.takes(packet.port, class, now);
        if let Some(entry) = ports.get_mut(packet.port) {
            let counts =
                if enters { &mut entry.count.classes.passed } else { &mut entry.count.classes.dropped };
            if let Some(count) = counts.get_mut(class.index()) {
                *count += 1;
            }
        }
        enters
    }
}

/// Whether a packet for the router itself is a neighbour message: ARP or neighbour discovery.
pub(crate) fn is_neighbour_message(packet: &Packet) -> bool {
    class_of(packet, ether_type(packet)) == Some(ControlClass::Neighbours)
}

/// Returns the class of a packet for the router itself, whose network offset is set; `None` for multicast
/// beyond link scope, which may be in transit.
fn class_of(packet: &Packet, ether_type: EtherType) -> Option<ControlClass> {
    match ether_type {
        EtherType::ARP => Some(ControlClass::Neighbours),
        EtherType::IPV4 => class_of_ipv4(packet),
        _ => class_of_ipv6(packet),
    }
}

fn class_of_ipv4(packet: &Packet) -> Option<ControlClass> {
    let bytes = packet.network();
    let Ok(header) = ipv4::Packet::new_checked(bytes) else { return Some(ControlClass::Other) };
    let (destination, protocol) = (header.dst(), header.protocol());
    if destination.is_multicast() && destination.octets()[..3] != [224, 0, 0] {
        return None;
    }
    if header.header_len() > ipv4::HEADER_LEN || protocol == Protocol(2) {
        return Some(ControlClass::Options);
    }
    let is_later = header.fragment_offset() > 0;
    let ports = bytes.get(ipv4::HEADER_LEN..).filter(|_| !is_later);
    Some(class_of_transport(protocol, ports))
}

fn class_of_ipv6(packet: &Packet) -> Option<ControlClass> {
    let bytes = packet.network();
    let Ok(header) = ipv6::Packet::new_checked(bytes) else { return Some(ControlClass::Other) };
    let (destination, next) = (header.dst().octets(), header.next_header());
    if destination[0] == 0xff && destination[1] & 0x0f > 2 {
        return None;
    }
    let payload = bytes.get(ipv6::HEADER_LEN..);
    let kind = payload.and_then(|payload| payload.first());
    Some(match next {
        Protocol(0) => ControlClass::Options,
        Protocol::ICMPV6
            if header.hop_limit() == 255 && kind.is_some_and(|kind| (133..=137).contains(kind)) =>
        {
            ControlClass::Neighbours
        }
        _ => class_of_transport(next, payload),
    })
}

/// Returns the class of a packet by its IP protocol and, for TCP and UDP, its ports.
fn class_of_transport(protocol: Protocol, header: Option<&[u8]>) -> ControlClass {
    let ports = header.and_then(|header| header.first_chunk::<4>());
    let ports = ports.map(|&[a, b, c, d]| (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])));
    match (protocol, ports) {
        (Protocol::TCP, Some((179, _) | (_, 179))) => ControlClass::Bgp,
        (Protocol::UDP, Some((_, 520 | 521 | 646 | 3784 | 3785 | 4784))) => ControlClass::Routing,
        (Protocol::ICMP | Protocol::ICMPV6, _) => ControlClass::Icmp,
        (Protocol(89), _) => ControlClass::Ospf,
        (Protocol(88 | 103 | 112), _) => ControlClass::Routing,
        _ => ControlClass::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limited(class: ControlClass, per_second: u32, burst: u32) -> ControlPlane {
        let mut limits = ClassLimits::default();
        limits[class.index()] = Some(ClassLimit { per_second, burst });
        let mut policing = ControlPlane::default();
        policing.set(&limits, 1);
        policing
    }

    #[test]
    fn class_gets_burst_and_rate_without_affecting_other_classes() {
        let (port, icmp) = (PortId(3), ControlClass::Icmp);
        let mut policing = limited(icmp, 1000, 10);
        let mut passed = 0;
        // Sends ten times the rate for one second.
        for turn in 0..10_000_u64 {
            let now = Instant::from_nanos(turn * 100_000);
            passed += u64::from(policing.takes(port, icmp, now));
            assert!(policing.takes(port, ControlClass::Neighbours, now));
        }
        assert_eq!(passed, 10 + 999, "the burst, and a packet each millisecond");
        assert!(policing.takes(PortId(4), icmp, Instant::from_millis(1000)), "each port has its own");
    }

    #[test]
    fn protocols_are_distinguished() {
        let ports = |from: u16, to: u16| [from.to_be_bytes(), to.to_be_bytes()].concat();
        for (protocol, header, class) in [
            (Protocol::TCP, ports(179, 4), ControlClass::Bgp),
            (Protocol::TCP, ports(4, 179), ControlClass::Bgp),
            (Protocol::TCP, ports(4, 22), ControlClass::Other),
            (Protocol::UDP, ports(4, 3784), ControlClass::Routing),
            (Protocol::UDP, ports(3784, 4), ControlClass::Other),
            (Protocol::ICMP, ports(0, 0), ControlClass::Icmp),
            (Protocol(89), Vec::new(), ControlClass::Ospf),
            (Protocol(112), Vec::new(), ControlClass::Routing),
        ] {
            assert_eq!(class_of_transport(protocol, Some(&header)), class, "{protocol:?} {header:?}");
        }
        assert_eq!(class_of_transport(Protocol::TCP, None), ControlClass::Other, "a later fragment");
    }
}
