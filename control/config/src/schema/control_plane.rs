//! Control-plane policing: rate limits for packets to the router itself.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Rate limits for packets to the router itself, at each port and by class, in packets per second: 1 to
/// 10,000,000. The burst is a tenth of a second at the rate, but at least 32 packets. Excess packets are
/// dropped. Forwarded packets are not policed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ControlPlane {
    /// Whether packets to the router itself are policed. Default true.
    pub police: bool,
    /// TCP packets of connections that the kernel knows. Default 1,000,000.
    pub established: u32,
    /// TCP packets from or to port 179 (BGP) outside known connections. Default 1,000.
    pub bgp: u32,
    /// OSPF packets. Default 2,000.
    pub ospf: u32,
    /// Packets of BFD, RIP, LDP hellos, EIGRP, PIM and VRRP, and LLC frames such as IS-IS. Default 2,000.
    pub routing: u32,
    /// ICMP and ICMPv6 packets, except for neighbour discovery. Default 1,000.
    pub icmp: u32,
    /// IPv4 packets with options (such as Router Alert), IPv6 packets with hop-by-hop options, IGMP and MLD.
    /// Default 500.
    pub options: u32,
    /// ARP packets, and neighbour discovery from the link. Default 5,000.
    pub neighbours: u32,
    /// All other packets, including tunnels that end at the router. Default 300,000.
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
    /// Returns the rates with their keys, in the order of the fields.
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
