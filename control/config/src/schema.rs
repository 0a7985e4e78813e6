//! What a configuration holds. One TOML table per noun; keys are the names of the fields, with hyphens.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use ipnet::IpNet;
use millrace_plugin_abi::Position;
use millrace_wire::MacAddr;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::action::FilterAction;
use crate::api::Api;
use crate::origin::Origin;
use crate::scheduler::Scheduler;
use crate::values::{Named, Text, VlanIds};

/// A router.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Config {
    /// What holds for the whole router.
    pub router: Router,
    /// The HTTP interface.
    #[serde(skip_serializing_if = "is_default")]
    pub api: Api,
    /// Its ports.
    pub port: Vec<Port>,
    /// Routes beside those mirrored from the kernel.
    pub route: Vec<Route>,
    /// Neighbours that are known for good.
    pub neighbour: Vec<Neighbour>,
    /// Gates beside the default ones.
    pub gate: Vec<Gate>,
    /// What holds for all plugins that are files.
    pub plugins: Plugins,
    /// Plugins that are files, loaded at the start.
    pub plugin: Vec<Plugin>,
    /// Plugin instances.
    pub instance: Vec<Instance>,
    /// Which flows which instance gets, at which gate.
    pub bind: Vec<Bind>,
    /// What is done with which packets.
    pub filter: Vec<Filter>,
    /// At which level which flows are treated.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub place: Vec<Placement>,
    /// The file that it was read from.
    #[serde(skip)]
    pub origin: Origin,
}

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
    /// Seconds without a packet after which a flow is forgotten, 1 to 86,400. Default 30.
    pub flow_idle: u32,
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
            flow_idle: 30,
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

/// A port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Port {
    /// Its name, by which everything else speaks of it.
    #[schemars(with = "String")]
    pub name: Named,
    /// The kernel device below. For kinds `device` (the default) and sub-interfaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// What the port is. Default `device`.
    #[serde(default)]
    #[serde(skip_serializing_if = "is_default")]
    pub kind: PortKind,
    /// How the kernel device is used. Default `auto`.
    #[serde(default)]
    #[serde(skip_serializing_if = "is_default")]
    pub driver: Device,
    /// VLAN id, or outer and inner id, of a sub-interface of `device` with addresses, ARP and ND of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<VlanIds>,
    /// Addresses with the prefix length of their subnet; only for ports without a kernel device, and sub-interfaces.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub address: Vec<Text<IpNet>>,
    /// MAC address, for ports without a kernel device. Default: made from the name.
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<Text<MacAddr>>,
    /// Largest network packet in bytes, 68 to 65,535, for ports without a kernel device. Default 1,500.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// What happens to the port's packets when the router has died.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_death: Option<OnDeath>,
    /// File whose frames a `pcap` port receives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<PathBuf>,
    /// File that a `pcap` port sends to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<PathBuf>,
    /// Plays `input` as fast as it can be read, not at the recorded times.
    #[serde(default)]
    #[serde(skip_serializing_if = "is_default")]
    pub fast: bool,
    /// Makes the port worse, for tests and labs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub impair: Option<Impair>,
    /// File that records all frames of the port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<PathBuf>,
    /// Whether the way back to a packet's source must lead by the port that it came in by. Default `off`.
    #[serde(default)]
    #[serde(skip_serializing_if = "is_default")]
    pub reverse_path: ReversePath,
    /// Packets that are taken from the port in a round, at most, 1 to 256: where not all that comes can be taken, ports are served
    /// in these proportions. Default 256.
    #[serde(default)]
    #[schemars(with = "u16")]
    #[serde(skip_serializing_if = "is_default")]
    pub input_weight: InputWeight,
    /// In which order and at which rates it sends. Default: at once, first in first out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<Scheduler>,
}

/// How many packets are taken from a port in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u64")]
pub struct InputWeight(pub u16);

impl Default for InputWeight {
    fn default() -> Self {
        Self(256)
    }
}

impl TryFrom<u64> for InputWeight {
    type Error = String;

    fn try_from(weight: u64) -> Result<Self, String> {
        match u16::try_from(weight) {
            Ok(weight @ 1..=256) => Ok(Self(weight)),
            _ => Err(format!("{weight} is no weight of a port's input: give 1 to 256 packets")),
        }
    }
}

/// Whether the way back to a packet's source is looked at (RFC 3704).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReversePath {
    /// It is not.
    #[default]
    Off,
    /// The route to the source must lead by the port that the packet came in by.
    Strict,
    /// There must be some route to the source.
    Loose,
}

/// What a port is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PortKind {
    /// A kernel device.
    #[default]
    Device,
    /// A TAP device that the router makes.
    Tap,
    /// Capture files.
    Pcap,
    /// Memory, for replay and tests.
    Memory,
}

/// How a kernel device is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Device {
    /// The best that works: AF_XDP in the driver, AF_XDP behind it, AF_PACKET.
    #[default]
    #[serde(rename = "auto")]
    Auto,
    /// AF_XDP, in the driver if it can.
    #[serde(rename = "af_xdp")]
    AfXdp,
    /// AF_XDP behind the driver.
    #[serde(rename = "af_xdp-generic")]
    AfXdpGeneric,
    /// AF_PACKET rings.
    #[serde(rename = "af_packet")]
    AfPacket,
}

/// What an impaired port does to its frames.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Impair {
    /// Delay in milliseconds.
    pub delay_ms: f64,
    /// Random addition to the delay, up to so many milliseconds.
    pub jitter_ms: f64,
    /// Part of the frames that is lost, 0 to 1.
    pub loss: f64,
    /// Part that comes twice, 0 to 1.
    pub duplicate: f64,
    /// Part that overtakes the others, 0 to 1.
    pub reorder: f64,
    /// Part in which one bit is flipped, 0 to 1.
    pub corrupt: f64,
    /// Seed of the random decisions: the same seed does the same again.
    pub seed: u64,
}

/// A route of our own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Route {
    /// Destination prefix.
    #[schemars(with = "String")]
    pub to: Text<IpNet>,
    /// Next hop; several share the flows.
    #[serde(default, deserialize_with = "one_or_many")]
    #[schemars(with = "OneOrMany")]
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "one_alone")]
    pub via: Vec<IpAddr>,
    /// Port to leave by; without `via` the destinations are neighbours there.
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<Named>,
    /// What the route does. Default `forward`.
    #[serde(default)]
    #[serde(skip_serializing_if = "is_default")]
    pub kind: RouteKind,
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum OneOrMany {
    One(IpAddr),
    Many(Vec<IpAddr>),
}

/// One address as it is, several as a list.
fn one_alone<S: serde::Serializer>(addresses: &[IpAddr], serializer: S) -> Result<S::Ok, S::Error> {
    match addresses {
        [address] => address.serialize(serializer),
        addresses => addresses.serialize(serializer),
    }
}

/// Whether a value is the one that holds if nothing is said.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn one_or_many<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<IpAddr>, D::Error> {
    let one_or_many = OneOrMany::deserialize(deserializer)
        .map_err(|_| serde::de::Error::custom("not an address, nor a list of addresses"))?;
    Ok(match one_or_many {
        OneOrMany::One(address) => vec![address],
        OneOrMany::Many(addresses) => addresses,
    })
}

/// What a route does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RouteKind {
    /// It leads to the next hop.
    #[default]
    Forward,
    /// Packets vanish.
    Blackhole,
    /// Packets are refused as unreachable.
    Unreachable,
    /// Packets are refused as prohibited.
    Prohibit,
}

impl RouteKind {
    /// Its name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Blackhole => "blackhole",
            Self::Unreachable => "unreachable",
            Self::Prohibit => "prohibit",
        }
    }
}

/// A neighbour that is known for good, at a port without a kernel device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Neighbour {
    /// The port it is behind.
    #[schemars(with = "String")]
    pub port: Named,
    /// Its address.
    pub address: IpAddr,
    /// Its MAC address.
    #[schemars(with = "String")]
    pub mac: Text<MacAddr>,
}

/// A gate beside the default ones, or the table of one of these.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Gate {
    /// Its name.
    #[schemars(with = "String")]
    pub name: Named,
    /// Its position: early, route, late, queue or copy. Those of the default gates are given.
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<Text<Position>>,
    /// How its filters are searched. Default `auto`.
    #[serde(default)]
    #[serde(skip_serializing_if = "is_default")]
    pub table: GateTable,
}

/// How the filters of a gate are searched. All find the same; they differ in time and memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GateTable {
    /// As the router thinks best, which is by tuple space search.
    #[default]
    Auto,
    /// One after the other.
    Linear,
    /// By a hash table for each combination of prefix lengths.
    TupleSpace,
    /// By a tree that cuts addresses and ports into parts, as long as it stays small enough.
    CuttingTree,
    /// By a graph with a node for each decision, as long as it stays small enough; addresses by binary search on the
    /// lengths of their prefixes.
    Dag,
    /// The same with addresses in PATRICIA tries.
    DagPatricia,
    /// The same with addresses in tree bitmaps.
    DagTreeBitmap,
}

/// A plugin that is a file, loaded at the start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Plugin {
    /// The file, by its whole path: a WebAssembly module or a shared object. Its signature, if it has one, stands beside it.
    pub file: PathBuf,
    /// Load it also when it is signed and older than one that was loaded before. Default `false`.
    #[serde(default)]
    #[serde(skip_serializing_if = "is_default")]
    pub allow_downgrade: bool,
}

/// What holds for all plugins that are files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Plugins {
    /// Public keys, as `millrace plugin keygen` or `minisign -G` show them: `RW` and 54 more characters. What is signed
    /// with one of them is loaded.
    pub keys: Vec<String>,
    /// Whether plugins are loaded that are not signed with one of the keys. Default `allow` without keys, and `refuse`
    /// with keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsigned: Option<Unsigned>,
    /// The directory that keeps compiled plugins, or `none`. Default: `/var/cache/millrace/plugins` for root, else
    /// `millrace/plugins` in the user's cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<PathBuf>,
    /// Whether plugins are loaded that are shared objects: they are trusted with the whole router.
    pub shared_objects: SharedObjects,
    /// Calls in a row that have to end within their slice before a function of a contained plugin is called on the worker's
    /// stack, on which it can't be stopped and gone on with. 0: never. Default 1024.
    pub short_calls: u32,
    /// Microseconds that a call of a contained plugin runs before others get their turn, 10 to 10,000. Default 50.
    pub slice: u32,
    /// Memory of an instance of a contained plugin in MiB, at each worker: 1 to 1,024. Default 4.
    pub memory: u32,
    /// So many faults of an instance within `fault-window` bring quarantine: 1 to 1,000. Default 8.
    pub faults: u32,
    /// Seconds that faults count, 1 to 86,400. Default 60.
    pub fault_window: u32,
    /// The directory in which the router remembers what has to outlive it: versions of plugins, and instances in quarantine; or
    /// `none`. Default: `/var/lib/millrace` for root, else `millrace` in the user's state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<PathBuf>,
    /// Milliseconds that a call of an instance may run or sleep on a worker before the router is ended for it. 0: nobody
    /// watches. Default 1000.
    #[schemars(with = "u32")]
    pub watchdog: Watchdog,
}

impl Default for Plugins {
    fn default() -> Self {
        let (keys, unsigned, cache, shared_objects, state, watchdog) = Default::default();
        Self {
            keys,
            unsigned,
            cache,
            shared_objects,
            short_calls: 1024,
            slice: 50,
            memory: 4,
            faults: 8,
            fault_window: 60,
            state,
            watchdog,
        }
    }
}

/// How long a call of an instance may take before the router is ended for it: 100 to 60,000 milliseconds, or 0 for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u64")]
pub struct Watchdog(u32);

impl Default for Watchdog {
    fn default() -> Self {
        Self(1000)
    }
}

impl Watchdog {
    /// The same as a duration; zero: for ever.
    pub fn duration(self) -> Duration {
        Duration::from_millis(self.0.into())
    }
}

impl TryFrom<u64> for Watchdog {
    type Error = String;

    fn try_from(milliseconds: u64) -> Result<Self, String> {
        match u32::try_from(milliseconds) {
            Ok(time @ (0 | 100..=60_000)) => Ok(Self(time)),
            _ => Err(format!(
                "{milliseconds} is no time for the watchdog: give 100 to 60000 milliseconds, or 0"
            )),
        }
    }
}

/// What is done with plugins that nobody signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Unsigned {
    /// They are loaded.
    Allow,
    /// They are not.
    Refuse,
}

/// What is done with plugins that are shared objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SharedObjects {
    /// They are loaded.
    Allow,
    /// They are not.
    #[default]
    Refuse,
}

/// A plugin instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Instance {
    /// The plugin's name.
    #[schemars(with = "String")]
    pub plugin: Named,
    /// The instance's own name.
    #[schemars(with = "String")]
    pub name: Named,
    /// Its settings, as the plugin's manual page lists them.
    #[serde(default)]
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub settings: Map<String, Value>,
}

/// Which flows an instance gets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Bind {
    /// The instance's name.
    #[schemars(with = "String")]
    pub instance: Named,
    /// The gate's name.
    #[schemars(with = "String")]
    pub gate: Named,
    /// Which packets. Empty: all.
    #[schemars(with = "String")]
    pub filter: Text<millrace_classify::Filter>,
    /// Of several filters that match, the highest priority wins. Default 0.
    #[serde(default)]
    #[serde(skip_serializing_if = "is_default")]
    pub priority: i32,
    /// What becomes of packets that the instance fails at, and while it pauses after that. Default `drop`.
    #[serde(default)]
    #[serde(skip_serializing_if = "is_default")]
    pub on_fault: OnFault,
    /// Microseconds that a call of the instance may take in all before it counts as a fault. Default 1,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// The same for each packet of a call, if that is less. A call always has 50. No default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packet_budget: Option<Budget>,
}

/// What becomes of packets that an instance fails at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnFault {
    /// They are dropped.
    #[default]
    Drop,
    /// They go on, as if the instance had let them pass.
    Bypass,
}

/// Microseconds, 1 to 1,000,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "u64")]
pub struct Budget(#[schemars(range(min = 1, max = 1_000_000))] u32);

impl Budget {
    /// The same as a duration.
    pub fn duration(self) -> Duration {
        Duration::from_micros(self.0.into())
    }
}

impl TryFrom<u64> for Budget {
    type Error = String;

    fn try_from(microseconds: u64) -> Result<Self, String> {
        match u32::try_from(microseconds) {
            Ok(budget @ 1..=1_000_000) => Ok(Self(budget)),
            _ => Err(format!("{microseconds} is no budget: give 1 to 1000000 microseconds")),
        }
    }
}

/// What is done with the packets that match.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Filter {
    /// Which packets; `*` is all.
    #[schemars(with = "String")]
    pub r#match: Text<millrace_classify::Filter>,
    /// What is done with them.
    #[schemars(with = "String")]
    pub action: Text<FilterAction>,
    /// The gate's name. Default: `tap` for copies, `schedule` for queues, else `route`; for an instance it must be said.
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate: Option<Named>,
    /// Of several filters that match, the highest priority wins. Default 0.
    #[serde(default)]
    #[serde(skip_serializing_if = "is_default")]
    pub priority: i32,
}

/// What can be placed: written as a filter, or as `instance NAME`.
#[derive(Clone, Debug, PartialEq)]
pub enum Placeable {
    /// Flows.
    Flows(millrace_classify::Filter),
    /// The packets of an instance that has a form for the driver.
    Instance(String),
}

impl fmt::Display for Placeable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flows(filter) => filter.fmt(f),
            Self::Instance(name) => write!(f, "instance {name}"),
        }
    }
}

impl FromStr for Placeable {
    type Err = <millrace_classify::Filter as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim().strip_prefix("instance ") {
            Some(name) => Ok(Self::Instance(name.trim().to_owned())),
            None => text.parse().map(Self::Flows),
        }
    }
}

/// At which level flows are treated; the first that concerns a flow counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Placement {
    /// Which flows; `*` is all, and `instance NAME` those of an instance that has a form for the driver.
    #[schemars(with = "String")]
    pub flow: Text<Placeable>,
    /// Where.
    pub level: PlacementLevel,
}

/// A level that flows can be placed at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PlacementLevel {
    /// In the driver, as soon as they can be there, and also while they are idle.
    Xdp,
    /// At a worker.
    Worker,
}
