//! Views of plugin instances.

use millrace_plugin::CostHistogram;
use millrace_plugin_abi::DeclaredCycles;
use std::collections::BTreeMap;

use millrace_config::Service;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::{BindingView, HostCompanionView};

/// Plugin instance.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct InstanceView {
    /// Name of the instance.
    pub name: String,
    /// Number of the instance, by which plugins send packets to it.
    pub number: u16,
    /// Name of the plugin.
    pub plugin: &'static str,
    /// Number of contexts of the instance at each worker: copies with a call each.
    pub contexts: u8,
    /// Settings of the instance.
    pub settings: Value,
    /// Health of the instance: `well`, `pausing` after a fault, or `quarantined` after repeated faults.
    pub health: &'static str,
    /// Faults and processor time of the instance's calls.
    #[serde(flatten)]
    pub calls: CallCountsView,
    /// Number of packets dropped, by drop reason. The instance defines these reasons by number.
    pub drops: BTreeMap<u8, u64>,
    /// Counters that the plugin defines, by name.
    pub counters: BTreeMap<&'static str, u64>,
    /// Host companion of the instance; absent if the plugin has none.
    pub host_companion: Option<HostCompanionView>,
    /// Level of the instance.
    #[serde(flatten)]
    pub place: InstancePlaceView,
    /// Packets of the instance's bindings.
    pub packets: u64,
    /// Packets per second since the last request.
    pub packet_rate: f64,
    /// Bindings of the instance.
    pub bindings: Vec<BindingView>,
}

/// Level of an instance, and its declared load.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct InstancePlaceView {
    /// Lowest level at which the instance treats packets: `offload` if the plugin's eBPF variant is loaded
    /// and may be called; else `host` if the plugin runs in processes, or `worker`.
    pub level: &'static str,
    /// Reason why packets of the instance are not offloaded; absent if they may be offloaded.
    pub why_worker: Option<String>,
    /// Declared load of the instance, and its configured level; absent without either.
    pub service: Option<Service>,
}

/// Faults, processor time and memory of an instance.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CallCountsView {
    /// Number of faults, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Text of the last fault.
    pub last_fault: Option<String>,
    /// Number of times that a call was suspended at the end of its slice.
    pub suspensions: u64,
    /// Number of calls that the router cut because it had misjudged them as short. The instance started again
    /// without its earlier state; such a call is no fault.
    pub misjudged: u64,
    /// Processor time of the packets that principals paid for, in seconds.
    pub cpu_seconds: f64,
    /// Memory of a sandboxed instance in bytes, at all workers.
    pub memory: u64,
    /// Cycles per packet of calls that principals paid for; absent before the first packet.
    pub packet_cycles: Option<PacketCyclesView>,
    /// Cycles that the plugin declares for its calls at a worker; absent if it declares none.
    pub declared_cycles: Option<DeclaredCyclesView>,
}

/// Measured cycles per packet. Each packet has the mean of its call.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct PacketCyclesView {
    /// Number of measured packets.
    pub packets: u64,
    /// Mean.
    pub mean: f64,
    /// Cycles per packet that half of the packets don't exceed, to 12.5 %.
    pub median: f64,
    /// 95th percentile, to 12.5 %.
    pub p95: f64,
    /// 99th percentile, to 12.5 %.
    pub p99: f64,
}

impl PacketCyclesView {
    pub(crate) fn of(costs: &CostHistogram) -> Option<Self> {
        let packets = costs.packets();
        Some(Self {
            packets,
            mean: costs.cycles() as f64 / packets.max(1) as f64,
            median: costs.percentile(50)?,
            p95: costs.percentile(95)?,
            p99: costs.percentile(99)?,
        })
    }
}

/// Cycles that a plugin declares for its calls at a worker.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct DeclaredCyclesView {
    /// Cycles per call, whatever its number of packets.
    pub call: f64,
    /// Cycles per second, without packets.
    pub fixed: f64,
    /// Cycles per packet, on average.
    pub packet: f64,
    /// Cycles per byte.
    pub byte: f64,
}

impl DeclaredCyclesView {
    pub(crate) fn of(DeclaredCycles { fixed, call, packet, byte }: DeclaredCycles) -> Self {
        Self { fixed, call, packet, byte }
    }
}

/// Quarantine entry for the next start. A call of the instance ended the router, or the instance was freed in
/// quarantine.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct HeldView {
    /// Name of the instance.
    pub instance: String,
    /// Name of the plugin.
    pub plugin: String,
    /// Time of the quarantine entry: date and time, UTC.
    pub since: String,
    /// Reason of the quarantine.
    pub why: String,
    /// Whether this router has an instance of that name and plugin.
    pub exists: bool,
}

/// Instance released from quarantine.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ReleaseView {
    /// Name of the instance.
    pub instance: String,
    /// Whether this router has the instance, so that it runs again.
    pub exists: bool,
}
