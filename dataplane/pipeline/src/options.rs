//! What holds for the whole router, and may be changed while it runs.

use std::time::Duration;

use millrace_forward::MartianPolicy;
use millrace_plugin::Limits;

use crate::control_plane::ClassLimits;

/// Settings of the pipeline.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Which odd addresses are forwarded all the same.
    pub martians: MartianPolicy,
    /// ICMP errors per second and type, 1 or more.
    pub icmp_rate: u32,
    /// ICMP errors of one type that may go out at once.
    pub icmp_burst: u32,
    /// DSCP of ICMP errors (RFC 1812, 4.3.2.5: precedence 6).
    pub icmp_dscp: u8,
    /// Whether hosts are told of a better first hop (RFC 1812, 5.2.7.2).
    pub redirects: bool,
    /// The one priority of all routes: a filter at a gate of the position `route` that has a lower one loses against
    /// a route that there is.
    pub route_priority: i32,
    /// Flows that are remembered at most, up to 16,777,216. With 0 every packet is classified by itself.
    pub flows_max: u32,
    /// New flows that are classified in a batch while more comes than the router bears. Packets of others are dropped
    /// then; those of known flows go on.
    pub new_flows: u16,
    /// Packets of those that instances made which are taken up in a round, at most, 1 to 256: like the
    /// [weight](crate::PortSettings::input_weight) of a port's input.
    pub plugin_weight: u16,
    /// How long a flow is remembered without a packet.
    pub flow_idle: Duration,
    /// The address that ICMP errors bear where the way out has none of its own family.
    pub router_id: std::net::Ipv4Addr,
    /// What instances are granted.
    pub instances: Limits,
    /// How much of what is for the router itself ports without a kernel let through, by class.
    pub control_plane: ClassLimits,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            martians: MartianPolicy::default(),
            icmp_rate: 1000,
            icmp_burst: 50,
            icmp_dscp: 48,
            redirects: true,
            route_priority: 0,
            flows_max: 1 << 20,
            new_flows: 128,
            plugin_weight: 256,
            flow_idle: Duration::from_secs(30),
            // The dummy address of RFC 7600.
            router_id: std::net::Ipv4Addr::new(192, 0, 0, 8),
            instances: Limits::default(),
            control_plane: ClassLimits::default(),
        }
    }
}
