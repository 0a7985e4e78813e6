//! Traffic of the benchmark: frames and their flows.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};

use millrace_offload::Flows;

use crate::testbed::frame::udp;
use crate::testbed::network::{SINK, SINK6};

const ROUTES: u32 = 500_000;
/// Number of destinations among the routes: one per template of the generator.
const DESTINATIONS: u32 = 256;
/// Number of source ports per destination. Each frame advances port and destination; since both counts are
/// coprime, all pairs occur.
const PORTS: u32 = 501;
/// Promised minimum: rate of the offload with plain traffic, as a multiple of the kernel's rate.
const PLAIN: f64 = 2.0;
const ROUTED: f64 = 1.5;

/// Frames and flows of one case, with the promised ratio.
pub(super) struct Traffic {
    pub case: &'static str,
    pub frames: Vec<Vec<u8>>,
    pub flows: Flows,
    /// Number of flows.
    pub count: u64,
    pub promise: f64,
}

impl Traffic {
    /// Returns traffic to one destination address, with one flow, 256 flows (IPv4 only) and 128 K flows. IPv4
    /// cases come before IPv6 cases.
    pub fn plain() -> Vec<Self> {
        let one = Flows::default();
        let few = Flows { ports: 256, ..one };
        let many = Flows { addresses: 200, ports: 640, ..one };
        let cases = [
            ("one flow", SINK.into(), one, 1),
            ("256 flows", SINK.into(), few, 256),
            ("128 K flows", SINK.into(), many, 128_000),
            ("one IPv6 flow", SINK6.into(), one, 1),
            ("128 K IPv6 flows", SINK6.into(), many, 128_000),
        ];
        let traffic = |(case, to, flows, count): (&'static str, IpAddr, _, _)| Self {
            case,
            frames: vec![udp(to).bytes()],
            flows,
            count,
            promise: PLAIN,
        };
        cases.map(traffic).into()
    }

    /// Returns flows to many addresses, each of which has its own route of [`routes`].
    pub fn routed() -> Self {
        let frame = |number| udp(destination(number).into()).bytes();
        Self {
            case: "128 K flows, 256 of 500 K routes",
            frames: (0..DESTINATIONS).map(frame).collect(),
            flows: Flows { ports: PORTS, ..Flows::default() },
            count: u64::from(DESTINATIONS * PORTS),
            promise: ROUTED,
        }
    }
}

/// Returns the /24 prefix of a route. The prefixes are scattered above 20.0.0.0.
fn prefix(number: u32) -> Ipv4Addr {
    // Multiplying by an odd number keeps all numbers below 2^19 different.
    let scattered = number.wrapping_mul(0x9e37_79b1) & 0x7_ffff;
    Ipv4Addr::from(u32::from(Ipv4Addr::new(20, 0, 0, 0)) + (scattered << 8))
}

fn destination(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(prefix(number * (ROUTES / DESTINATIONS))) + 7)
}

/// Returns the routes as a batch of `ip` commands.
pub(super) fn routes() -> String {
    (0..ROUTES).fold(String::new(), |mut lines, number| {
        let _ = writeln!(lines, "route add {}/24 via {SINK} dev r2", prefix(number));
        lines
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn routes_have_distinct_prefixes_and_one_destination_each() {
        let prefixes: HashSet<Ipv4Addr> = (0..ROUTES).map(prefix).collect();
        assert_eq!(prefixes.len(), ROUTES as usize);
        let destinations: HashSet<Ipv4Addr> = (0..DESTINATIONS).map(destination).collect();
        assert_eq!(destinations.len(), DESTINATIONS as usize);
        let network = |address: &Ipv4Addr| Ipv4Addr::from(u32::from(*address) & !0xff);
        assert!(destinations.iter().all(|address| prefixes.contains(&network(address))));
    }

    #[test]
    fn ttl_is_written_with_its_checksum() {
        let [plain, ended] = [64, 1].map(|ttl| udp(SINK.into()).with_ttl(ttl));
        assert_eq!((plain[22], ended[22]), (64, 1));
        for frame in [plain, ended] {
            let sum = millrace_wire::checksum::Sum::new().bytes(&frame[14..34]).checksum();
            assert_eq!(sum, 0);
        }
    }
}
