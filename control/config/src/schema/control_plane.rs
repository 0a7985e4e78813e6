//! Control-plane policing: how much of what is for the router itself gets there.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Packets for the router itself that each port lets through, by class, in packets per second: 1 to 10,000,000. What comes in a tenth of a
/// second at that rate may come at once, 32 packets at least; further ones are dropped. What is forwarded is not concerned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ControlPlane {
    /// Whether they are policed at all. Default true.
    pub police: bool,
    /// TCP of connections that the kernel has. Default 1,000,000.
    pub established: u32,
    /// TCP from and to port 179 of no such connection. Default 1,000.
    pub bgp: u32,
    /// OSPF. Default 2,000.
    pub ospf: u32,
    /// BFD, RIP, LDP's hellos, EIGRP, PIM, VRRP, and what comes over LLC, as IS-IS does. Default 2,000.
    pub routing: u32,
    /// ICMP and ICMPv6, but for neighbour discovery. Default 1,000.
    pub icmp: u32,
    /// IPv4 with options, Router Alert among them, IPv6 with options of each hop, IGMP and MLD. Default 500.
    pub options: u32,
    /// ARP, and neighbour discovery that comes from the link. Default 5,000.
    pub neighbours: u32,
    /// Everything else, tunnels that end at the router included. Default 300,000.
    pub other: u32,
}

impl Default for ControlPlane {
    fn default() -> Self {
        Self {
            police: true,
            established: 1_000_000,
            bgp: 1000,
            ospf: 2000,
            routing: 2000,
            icmp: 1000,
            options: 500,
            neighbours: 5000,
            other: 300_000,
        }
    }
}

impl ControlPlane {
    /// The rates with their keys, in the order of the classes.
    pub fn rates(&self) -> [(&'static str, u32); 8] {
        [
            ("established", self.established),
            ("bgp", self.bgp),
            ("ospf", self.ospf),
            ("routing", self.routing),
            ("icmp", self.icmp),
            ("options", self.options),
            ("neighbours", self.neighbours),
            ("other", self.other),
        ]
    }
}
