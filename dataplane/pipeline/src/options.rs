//! Options of the whole router, which may change at run time.

use std::time::Duration;

use millrace_forward::MartianPolicy;
use millrace_packet::CONTROL_CLASSES;
use millrace_plugin::Limits;

/// Options of the pipeline.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Special-purpose addresses that are forwarded although they are martians by default.
    pub martians: MartianPolicy,
    /// Maximum rate of ICMP errors of one type, in messages per second, 1 or more.
    pub icmp_rate: u32,
    /// Burst of ICMP errors of one type, in messages.
    pub icmp_burst: u32,
    /// DSCP of ICMP errors (RFC 1812, 4.3.2.5: precedence 6).
    pub icmp_dscp: u8,
    /// Whether hosts get ICMP redirects to a better first hop (RFC 1812, 5.2.7.2).
    pub redirects: bool,
    /// Priority of all FIB routes: a packet's route overrides filters of lower priority at gates of position
    /// `route`.
    pub route_priority: i32,
    /// Maximum number of flow records, up to 16,777,216. 0: no flow table, each packet is classified
    /// separately.
    pub flows_max: u32,
    /// Maximum number of new flows classified per batch during an overload. Packets of further new flows are
    /// dropped; packets of known flows are not.
    pub new_flows: u16,
    /// Maximum number of packets made by instances that enter the pipeline per iteration, 1 to 256. Ports
    /// have a [similar limit](crate::PortSettings::input_weight) for received packets.
    pub plugin_weight: u16,
    /// Time without a packet after which a flow record expires.
    pub flow_idle: Duration,
    /// Source address of ICMPv4 errors that leave by a port without an IPv4 address.
    pub router_id: std::net::Ipv4Addr,
    /// Limits of instances.
    pub instances: Limits,
    /// Rate limits of packets for the router itself at ports without a kernel stack, by class.
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
            // IPv4 dummy address for ICMP errors (RFC 7600).
            router_id: std::net::Ipv4Addr::new(192, 0, 0, 8),
            instances: Limits::default(),
            control_plane: ClassLimits::default(),
        }
    }
}

/// Rate limit of a class of packets for the router itself, at each port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClassLimit {
    /// Packets per second, 1 or more.
    pub per_second: u32,
    /// Burst in packets, 1 or more.
    pub burst: u32,
}

/// Limits of all classes, by class number; a class without a limit is not policed.
pub type ClassLimits = [Option<ClassLimit>; CONTROL_CLASSES];
