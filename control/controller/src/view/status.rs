//! Views of the router as a whole.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;

use super::{ConnectionCountsView, Pending, PluginInterfaceView};

/// Result of clearing the counters.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct Cleared {
    /// Always `true`.
    pub cleared: bool,
}

/// Packet totals of the router.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SummaryView {
    /// Packets received, including packets that the kernel kept at a port.
    pub received: u64,
    /// Packets received from the kernel by host output, to be sent through schedulers.
    pub received_from_host: u64,
    /// Packets that the router created.
    pub created: u64,
    /// Packets sent.
    pub transmitted: u64,
    /// Packets passed to the kernel and to the router's own stack.
    pub to_host: u64,
    /// Packets consumed by plugins.
    pub consumed: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// Packets held inside the router.
    pub held: u64,
    /// Unaccounted packets: received + created - transmitted - to_host - consumed - dropped - held; 0 if no
    /// packet is lost. Under load, packets that move while the counters are read may appear here.
    pub unaccounted: i64,
    /// Packets created, by reason.
    pub created_by: BTreeMap<&'static str, u64>,
    /// Packets dropped, by reason.
    pub dropped_by: BTreeMap<String, u64>,
}

/// Drops for one reason.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DropView {
    /// Drop reason.
    pub reason: String,
    /// Meaning of the reason.
    pub meaning: String,
    /// Number of packets.
    pub packets: u64,
    /// Packets per second since the last request.
    pub rate: f64,
    /// Number of packets by port of arrival; `-` if the port is unknown.
    pub ports: BTreeMap<String, u64>,
    /// Number of packets by EtherType, only for the reason `ether_type`; up to 64 EtherTypes.
    pub ether_types: BTreeMap<String, u64>,
}

/// Status of the router.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StatusView {
    /// Version of the router.
    pub version: &'static str,
    /// Process id of the router.
    pub pid: u32,
    /// Seconds since the start of the router.
    pub uptime: f64,
    /// Poll mode of the workers: `poll`, `interrupt` or `adaptive`.
    pub mode: &'static str,
    /// Treatment of packets after the router has died; absent without kernel ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_death: Option<OnDeathView>,
    /// Number of worker threads.
    pub workers: usize,
    /// Processor time of each worker, in seconds.
    pub worker_cpu: Vec<f64>,
    /// Packet memory.
    pub memory: MemoryView,
    /// Number of routes in the FIB.
    pub routes: usize,
    /// Flow table.
    pub flows: FlowTableView,
    /// Flow state that plugins keep.
    pub flow_states: FlowStatesView,
    /// Connections that the workers track for plugins.
    pub connections: ConnectionCountsView,
    /// Offloaded flows; absent without a flow cache.
    pub offloaded_flows: Option<OffloadedFlowsView>,
    /// Iterations of all workers, summed.
    pub iterations: IterationsView,
    /// Number of times that workers slept.
    pub sleeps: u64,
    /// Progress of the running transaction; absent if none runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applying: Option<ApplyingView>,
    /// Revision that waits for confirmation; absent if none waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<Pending>,
    /// Configured routes that the kernel should have but lacks; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing_routes: Option<MissingRoutesView>,
    /// Worker panics with a stored capture, the oldest first; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crashes: Option<Vec<CrashView>>,
    /// Number of copies of shared objects that no instance uses but that stay in memory; absent if there are
    /// none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leftover_objects: Option<u64>,
    /// Plugin interface that the router offers.
    pub plugin_interface: PluginInterfaceView,
    /// Statistics of the mirror of the kernel; absent without kernel ports.
    pub mirror: Option<MirrorView>,
}

/// Treatment of the kernel ports' packets after the router has died.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct OnDeathView {
    /// Description of the treatment.
    pub packets: &'static str,
    /// Whether the treatment is explicit: set in the configuration, by an option of `run`, or by `router
    /// set`. Bindings and filters require this.
    #[serde(rename = "explicit")]
    pub is_explicit: bool,
}

/// Progress of a transaction.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct ApplyingView {
    /// Number of changes made.
    pub made: usize,
    /// Total number of changes; 0 while the changes are being planned.
    pub of: usize,
}

/// Configured routes that the kernel should have but lacks; packets don't use them. The router installs them
/// again.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MissingRoutesView {
    /// Number of missing routes.
    pub count: usize,
    /// First of the missing routes, up to 10.
    pub first: Vec<MissingRouteView>,
}

/// Configured route that the kernel lacks.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MissingRouteView {
    /// Prefix of the route.
    pub to: String,
    /// Reason why the kernel lacks the route.
    pub why: String,
}

/// Packet memory.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct MemoryView {
    /// Memory frames in use.
    pub used: u32,
    /// Total number of memory frames.
    pub frames: u32,
}

/// Flow state that plugins keep.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct FlowStatesView {
    /// Number of flows with state.
    pub flows: u32,
    /// Memory of the state in bytes.
    pub bytes: usize,
    /// Number of flows for which no flow state could be stored, for lack of room. Plugins see these flows
    /// without state.
    pub refused: u64,
}

/// Iterations of the workers.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct IterationsView {
    /// Number of iterations that found packets.
    pub busy: u64,
    /// Number of iterations that found no packets.
    pub idle: u64,
    /// Duration of the longest iteration that carried out a command, in microseconds. Packets waited up to
    /// this time.
    pub longest_change: u64,
}

/// Flow table.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct FlowTableView {
    /// Number of flow records.
    pub known: u32,
    /// Number of flow records on probation: their flows have had only one packet.
    pub new: u32,
    /// Maximum number of flow records.
    pub limit: u32,
    /// Packets whose flow had a record.
    pub hits: u64,
    /// Packets whose flow had no record.
    pub misses: u64,
    /// Number of times that the route of a known flow was looked up again after a change.
    pub rerouted: u64,
    /// Number of times that a known flow was classified again after a change.
    pub reclassified: u64,
    /// Number of flows that expired because no packet arrived for too long.
    pub expired: u64,
    /// Number of flows that other flows displaced.
    pub displaced: u64,
}

/// Offloaded flows.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct OffloadedFlowsView {
    /// Number of flows in the flow cache.
    pub flows: u64,
    /// Maximum number of flows in the flow cache.
    pub limit: u64,
    /// Number of flows offloaded so far.
    pub inserted: u64,
    /// Number of flow cache entries renewed after a change.
    pub renewed: u64,
    /// Number of flows evicted because they were idle.
    pub idle: u64,
    /// Number of flows evicted in favour of heavier or placed flows.
    pub evicted: u64,
    /// Number of flows for which the flow cache had no room; each flow counts once.
    pub refused: u64,
    /// Flows offloaded per second, since the last request.
    pub inserted_rate: f64,
    /// Idle flows evicted per second, since the last request.
    pub idle_rate: f64,
    /// Flows evicted per second in favour of heavier or placed flows, since the last request.
    pub evicted_rate: f64,
    /// Flows refused per second for lack of room, since the last request.
    pub refused_rate: f64,
}

/// Statistics of the mirror of the kernel.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MirrorView {
    /// Number of netlink messages received.
    pub messages: u64,
    /// Number of overruns of the netlink socket. After each one, all tables are read again.
    pub overruns: u64,
    /// Number of complete readings of the kernel's tables.
    pub dumps: u64,
    /// Number of differences between mirror and kernel that a comparison found and repaired.
    pub divergences_repaired: u64,
}

/// Worker panic with a stored capture.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CrashView {
    /// Time of the crash, UTC.
    pub time: String,
    /// Version of the router.
    pub version: String,
    /// Message of the panic.
    pub message: String,
    /// File, line and column of the panic.
    pub location: String,
    /// Instance whose call panicked; absent if no call was running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Path of the capture with the frames of the last batch. The report is beside it, with the extension
    /// `.json`.
    pub capture: PathBuf,
}
