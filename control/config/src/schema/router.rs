//! Router-wide settings.

use std::net::Ipv4Addr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::quantity::Time;
use crate::values::share::CoreCeiling;
use crate::values::worker_policy::WorkerPolicy;

/// Router-wide settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Router {
    /// Source of the configuration at a start: the file, or the last good revision if there is one. Default
    /// `file`.
    pub boot: Boot,
    /// Mode in which workers wait for packets. Default `adaptive`.
    pub mode: PollMode,
    /// Number of worker threads, 1 to 16. Each worker forwards a part of the flows. Default 1.
    pub workers: usize,
    /// Processors of the workers, by number as in `/proc/cpuinfo`: one for each worker, in order. The router's
    /// other threads run on the other processors. Default: the kernel chooses.
    pub worker_processors: Vec<u16>,
    /// Scheduling policy of the workers: `other`, `other NICE`, `fifo PRIORITY` or `round-robin PRIORITY`.
    /// Default: that of the process.
    pub worker_policy: Option<WorkerPolicy>,
    /// Number of memory frames in the packet memory of each worker, 1,024 to 4,194,304. A memory frame has
    /// 2,048 bytes. Default 32,768 (64 MiB).
    pub frames: u32,
    /// Treatment of packets after the router has died, for ports without their own setting: `kernel` or
    /// `drop`. Required with bindings or filters; otherwise the default is `kernel`.
    pub on_death: Option<OnDeath>,
    /// Whether to forward even if the router bypasses nftables, policy rules, xfrm or tc of the kernel at a
    /// port.
    pub ignore_kernel_policy: bool,
    /// Whether kernel ports always forward, or follow the kernel's forwarding switches. Default `on`.
    pub forwarding: Forwarding,
    /// Maximum number of ICMP errors of each type per second. Default 1,000.
    pub icmp_rate: u32,
    /// Maximum burst of ICMP errors of each type. Default 50.
    pub icmp_burst: u32,
    /// DSCP of the router's ICMP errors, 0 to 63. Default 48 (CS6).
    pub icmp_dscp: u8,
    /// Whether to send ICMP redirects, which tell hosts a better first hop. Default true.
    pub redirects: bool,
    /// Source address of ICMP errors at a port without an IPv4 address. Default 192.0.0.8.
    pub router_id: Ipv4Addr,
    /// Whether to forward packets with addresses in 240.0.0.0/4. Default false.
    pub forward_class_e: bool,
    /// Whether to forward packets with addresses in 169.254.0.0/16. Default false.
    pub forward_link_local: bool,
    /// Whether to forward packets with addresses in 0.0.0.0/8. Default false.
    pub forward_zero_net: bool,
    /// Priority of all routes. A filter at a gate of position `route` overrides a route only if its priority
    /// is at least this value. Default 0.
    pub route_priority: i32,
    /// Maximum number of flows in the flow table, 1,024 to 16,777,216. Default 1,048,576. With 0 there is no
    /// flow table: filters and routes are looked up for each packet, instances keep no flow state, and no
    /// flow is offloaded.
    pub flows_max: u32,
    /// Under overload, maximum number of new flows classified in a batch of 256 packets, 1 to 256. Packets of
    /// further new flows are dropped. Default 128.
    pub new_flows: u16,
    /// Maximum number of packets emitted by instances that a worker takes in an iteration, 1 to 256. It is
    /// for instances what `input-weight` is for a port. Default 256.
    pub plugin_weight: u16,
    /// Weight of forwarding inside core with `core = "share-by-function"`, 1 to 4,096, beside `input-weight` and
    /// `output-weight` of the ports. Default 1,024.
    pub forwarding_weight: u16,
    /// Processor time of a worker for receiving, forwarding and sending packets when principals need the rest.
    /// Principals can reserve this rest with `cpu`. Default 50 %.
    pub core_ceiling: CoreCeiling,
    /// Whether a worker forwards packets first, up to `core-ceiling`, or in turn with principals, with one
    /// share, one for each input port, or one for each function. Default `first`.
    pub core: CoreOrder,
    /// Packets that a worker drops at reception, as `core_ceiling`, when it receives more than it can forward
    /// and principals have shares. Default `plain`.
    pub shed: Shed,
    /// Discipline that divides the processor time of a worker among principals. Default `sfq`.
    pub cpu_scheduler: CpuScheduler,
    /// Idle time after which a flow record is evicted, 1 s to 24 h. Default 30 s.
    pub flow_idle: Time<1_000_000, 86_400_000_000>,
    /// Maximum number of offloaded flows, 0 to 4,194,304; 0 turns the offload off. Default 131,072.
    pub offloaded_flows: u32,
}

impl Default for Router {
    fn default() -> Self {
        Self {
            boot: Boot::default(),
            mode: PollMode::default(),
            workers: 1,
            worker_processors: Vec::new(),
            worker_policy: None,
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
            forwarding_weight: 1024,
            core_ceiling: CoreCeiling::clamped(500_000),
            core: CoreOrder::default(),
            shed: Shed::default(),
            cpu_scheduler: CpuScheduler::default(),
            flow_idle: Time::clamped(30_000_000),
            offloaded_flows: 131_072,
        }
    }
}

/// Place of core, which forwards packets, among the principals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CoreOrder {
    /// Core comes first, up to `core-ceiling`. Packets wait for one slice of a principal at most.
    #[default]
    First,
    /// Core has the share `core-ceiling`, and takes turns with principals. Inside core, the parts of the input ports,
    /// of forwarding and of the output ports follow the load.
    Share,
    /// As `share`. In addition, each input port has a part of core's share by its `input-weight`: an overloaded worker
    /// drops only packets of ports beyond their part.
    ShareByInput,
    /// As `share`. In addition, each input port has a part of core's share by its `input-weight`, forwarding by
    /// `forwarding-weight`, and each output port by its `output-weight`: an overloaded worker drops only packets of
    /// functions beyond their part.
    ShareByFunction,
}

/// Packets that an overloaded worker drops at reception. Each value includes the values before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Shed {
    /// None: receive rings overflow, and lose packets of all flows.
    Nothing,
    /// Packets of new flows that no principal pays for.
    NewFlows,
    /// Then also all other packets that no principal pays for.
    #[default]
    Plain,
    /// Then also packets of principals without `cpu`, those of the lowest weight first.
    ByWeight,
}

/// Discipline that divides the processor time of a worker among principals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CpuScheduler {
    /// Start-time fair queueing.
    #[default]
    #[serde(rename = "sfq")]
    StartTimeFair,
    /// Worst-case fair weighted fair queueing: no principal runs ahead of its share by more than a quantum.
    #[serde(rename = "wf2q+")]
    WorstCaseFair,
    /// Stride scheduling.
    #[serde(rename = "stride")]
    Stride,
    /// Earliest deadline first, with a constant-bandwidth server for each principal.
    #[serde(rename = "edf")]
    EarliestDeadline,
}

/// Source of the configuration at a start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Boot {
    /// The configuration file.
    #[default]
    File,
    /// The last good revision; without one, the configuration file.
    LastGood,
}

/// Condition for forwarding at kernel ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Forwarding {
    /// Kernel ports always forward. Exception: a device with `net.ipv4.conf.DEVICE.forwarding` off while
    /// `net.ipv4.ip_forward` is on.
    #[default]
    On,
    /// Kernel ports forward where the kernel does, according to `net.ipv4.conf.DEVICE.forwarding` and
    /// `net.ipv6.conf.all.forwarding`.
    Kernel,
}

/// Mode in which workers wait for packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PollMode {
    /// Workers never sleep: lowest latency, and one processor per worker is always busy.
    Poll,
    /// Workers sleep whenever there is no work.
    Interrupt,
    /// Workers poll under load, and sleep when idle.
    #[default]
    Adaptive,
}

/// Treatment of packets after the router has died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnDeath {
    /// The kernel continues to forward.
    Kernel,
    /// Packets are dropped until a router runs again.
    Drop,
}
