//! Settings that hold for the whole router.

use std::net::Ipv4Addr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::Time;

/// What holds for the whole router.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Router {
    /// From what the router starts: from this file, or from the last revision that counts, if there is one. Default `file`.
    pub boot: Boot,
    /// How the worker waits for packets. Default `adaptive`.
    pub mode: PollMode,
    /// Threads that forward, 1 to 16: flows are spread over them, and each has devices of its own. Default 1.
    pub workers: usize,
    /// Frames of packet memory of each worker, 2,048 bytes each: 1,024 to 4,194,304. Default 32,768 (64 MiB).
    pub frames: u32,
    /// What forwards when the router has died: `kernel` or `drop`, for ports that don't say. Without bindings the
    /// default is `kernel`; with bindings it must be said.
    pub on_death: Option<OnDeath>,
    /// Forward although nftables, policy rules, xfrm or tc apply to a port and will be passed by.
    pub ignore_kernel_policy: bool,
    /// Whether kernel ports forward: always, or as the kernel's forwarding switches say. Default `on`.
    pub forwarding: Forwarding,
    /// ICMP errors per second and type. Default 1,000.
    pub icmp_rate: u32,
    /// ICMP errors of one type that may go out at once. Default 50.
    pub icmp_burst: u32,
    /// DSCP of ICMP errors, 0 to 63. Default 48 (CS6).
    pub icmp_dscp: u8,
    /// Whether hosts are told of a better first hop. Default true.
    pub redirects: bool,
    /// Source of ICMP errors that leave by a port without an IPv4 address. Default 192.0.0.8.
    pub router_id: Ipv4Addr,
    /// Forward 240.0.0.0/4. Default false.
    pub forward_class_e: bool,
    /// Forward 169.254.0.0/16. Default false.
    pub forward_link_local: bool,
    /// Forward 0.0.0.0/8. Default false.
    pub forward_zero_net: bool,
    /// The one priority of all routes: where a packet has a route, filters at gates of the position `route` need at least
    /// this one. Default 0.
    pub route_priority: i32,
    /// Flows that the flow table holds, 1,024 to 16,777,216. Default 1,048,576. With 0 there is none: filters and routes are looked up
    /// for each packet, instances keep nothing of flows, and the driver forwards none.
    pub flows_max: u32,
    /// New flows that are classified in a batch of 256 packets while more comes than the router bears, 1 to 256; packets
    /// of others are dropped then. Default 128.
    pub new_flows: u16,
    /// Packets of those that instances made which are taken up in a round, at most, 1 to 256: like `input-weight` of a port. Default
    /// 256.
    pub plugin_weight: u16,
    /// Time without a packet after which a flow is forgotten, 1 s to 24 h. Default 30 s.
    pub flow_idle: Time<1_000_000, 86_400_000_000>,
    /// Plain flows that the driver forwards by itself, at most; 0 to have all flows forwarded by the worker.
    pub driver_flows: u32,
}

impl Default for Router {
    fn default() -> Self {
        Self {
            boot: Boot::default(),
            mode: PollMode::default(),
            workers: 1,
            frames: 32_768,
            on_death: None,
            ignore_kernel_policy: false,
            forwarding: Forwarding::default(),
            icmp_rate: 1000,
            icmp_burst: 50,
            icmp_dscp: 48,
            redirects: true,
            router_id: Ipv4Addr::new(192, 0, 0, 8),
            forward_class_e: false,
            forward_link_local: false,
            forward_zero_net: false,
            route_priority: 0,
            flows_max: 1 << 20,
            new_flows: 128,
            plugin_weight: 256,
            flow_idle: Time::clamped(30_000_000),
            driver_flows: 131_072,
        }
    }
}

/// From what a router starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Boot {
    /// From its file.
    #[default]
    File,
    /// From the last revision that counts; without one, from its file.
    LastGood,
}

/// Whether kernel ports forward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Forwarding {
    /// They do, but where `net.ipv4.conf.DEVICE.forwarding` is off and `net.ipv4.ip_forward` is on.
    #[default]
    On,
    /// They do where the kernel does: as `net.ipv4.conf.DEVICE.forwarding` and `net.ipv6.conf.all.forwarding` say.
    Kernel,
}

/// How the worker waits for packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PollMode {
    /// It never sleeps: lowest latency, one processor always busy.
    Poll,
    /// It sleeps whenever there is nothing to do.
    Interrupt,
    /// It polls under load and sleeps when idle.
    #[default]
    Adaptive,
}

/// What happens to packets when the router has died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnDeath {
    /// The kernel forwards on.
    Kernel,
    /// They are dropped until a router starts again.
    Drop,
}
