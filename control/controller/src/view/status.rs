//! The router as a whole.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::PluginInterfaceView;

/// What became of all packets.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SummaryView {
    /// Packets received, those that the kernel kept at a port included.
    pub received: u64,
    /// Of these, packets that the kernel itself sent by ports that have a scheduler.
    pub received_from_host: u64,
    /// Packets that the router made.
    pub created: u64,
    /// Packets sent.
    pub transmitted: u64,
    /// Packets for the kernel and for the router's own stack.
    pub to_host: u64,
    /// Packets used up by plugins.
    pub consumed: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// Packets inside the router.
    pub held: u64,
    /// received + created less all the others: 0 when nothing was lost or invented. While packets flow it may be off
    /// by those that pass between two readings.
    pub imbalance: i64,
    /// Packets made, by reason.
    pub created_by: BTreeMap<&'static str, u64>,
    /// Packets dropped, by reason.
    pub dropped_by: BTreeMap<String, u64>,
}

/// What was dropped.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DropView {
    /// The reason.
    pub reason: String,
    /// What it means.
    pub meaning: String,
    /// How many packets.
    pub packets: u64,
    /// How many per second since the last look.
    pub rate: f64,
    /// How many by port; `-` stands for none.
    pub ports: BTreeMap<String, u64>,
    /// How many by EtherType, for the reason `ether_type`: up to 64 of them.
    pub ether_types: BTreeMap<String, u64>,
}

/// The daemon.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StatusView {
    /// Its version.
    pub version: &'static str,
    /// Its process.
    pub pid: u32,
    /// Seconds since it started.
    pub uptime: f64,
    /// `poll`, `interrupt` or `adaptive`.
    pub mode: &'static str,
    /// What becomes of packets when the router has died; nothing where no port is the kernel's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_death: Option<OnDeathView>,
    /// Threads that forward.
    pub workers: usize,
    /// Seconds that each of them has run on a processor.
    pub worker_cpu: Vec<f64>,
    /// Packet memory.
    pub memory: MemoryView,
    /// Routes in the forwarding table.
    pub routes: usize,
    /// The flow table.
    pub flows: FlowTableView,
    /// What plugins keep for flows.
    pub flow_states: FlowStatesView,
    /// Flows in the driver; nothing where the driver forwards none.
    pub driver_flows: Option<DriverFlowsView>,
    /// Rounds of the workers.
    pub turns: TurnsView,
    /// How often the worker slept.
    pub sleeps: u64,
    /// How far a configuration is that is being applied, or a list of changes; nothing when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applying: Option<ApplyingView>,
    /// What was applied and waits to be confirmed; nothing when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<crate::Pending>,
    /// Configured routes that the kernel is to have, and does not; nothing when there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing_routes: Option<MissingRoutesView>,
    /// Crashes of workers whose captures are kept, the oldest first; nothing where there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crashes: Option<Vec<crate::CrashView>>,
    /// Copies of shared objects that no instance uses any longer, which stay in memory; nothing where there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leftover_objects: Option<u64>,
    /// The interface that plugins are offered.
    pub plugin_interface: PluginInterfaceView,
    /// What the mirror of the kernel saw.
    pub mirror: Option<MirrorView>,
}

/// What becomes of packets of the kernel's ports when the router has died.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct OnDeathView {
    /// In words.
    pub packets: &'static str,
    /// Whether the configuration, `run` or `router set` says so. Filters that drop, reject or police need that.
    #[serde(rename = "said")]
    pub is_said: bool,
}

/// Changes that are being made together.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct ApplyingView {
    /// How many are made.
    pub made: usize,
    /// How many there are; 0 as long as that isn't known.
    pub of: usize,
}

/// Configured routes that the kernel is to have, and does not: no packet takes them. It is given them again.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MissingRoutesView {
    /// How many.
    pub count: usize,
    /// The first of them, up to 10.
    pub first: Vec<MissingRouteView>,
}

/// A configured route that the kernel does not have.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MissingRouteView {
    /// Its prefix.
    pub to: String,
    /// Why it doesn't have it.
    pub why: String,
}

/// Packet memory.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct MemoryView {
    /// Frames in use.
    pub used: u32,
    /// All frames.
    pub frames: u32,
}

/// What plugins keep for flows.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct FlowStatesView {
    /// Flows that have state.
    pub flows: u32,
    /// Bytes of memory for it.
    pub bytes: usize,
    /// Flows so far that found no room for theirs: plugins see them without state.
    pub refused: u64,
}

/// Rounds of the workers.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct TurnsView {
    /// Those that found packets.
    pub busy: u64,
    /// Those that found none.
    pub empty: u64,
    /// Microseconds of the longest one in which a worker was told of a change, or asked: packets waited for it as long.
    pub longest_change: u64,
}

/// The flow table.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct FlowTableView {
    /// Flows.
    pub known: u32,
    /// Of these, those whose second packet is still awaited.
    pub new: u32,
    /// Most flows that there may be.
    pub most: u32,
    /// Packets whose flow was known.
    pub hits: u64,
    /// Packets whose flow was not.
    pub misses: u64,
    /// Flows whose route was looked up again after a change.
    pub rerouted: u64,
    /// Flows that were classified again after a change.
    pub reclassified: u64,
    /// Flows that were forgotten because no packet came for too long.
    pub expired: u64,
    /// Flows that were displaced by others.
    pub displaced: u64,
}

/// Flows that the driver forwards by itself.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DriverFlowsView {
    /// Flows that the driver knows.
    pub flows: u64,
    /// Most that it can know.
    pub most: u64,
    /// Flows that it was told of.
    pub inserted: u64,
    /// Flows that it was told of again after a change.
    pub renewed: u64,
    /// Flows that were taken back because no packet came for a time.
    pub idle: u64,
    /// Flows that were taken back because heavier ones, or such as somebody wants there, asked for their places.
    pub evicted: u64,
    /// Flows that found no room, each once.
    pub refused: u64,
    /// Flows that it was told of per second since the last look.
    pub inserted_rate: f64,
    /// Flows that were taken back per second since then because no packet came.
    pub idle_rate: f64,
    /// Flows that were taken back per second since then for others.
    pub evicted_rate: f64,
    /// Flows that found no room per second since then.
    pub refused_rate: f64,
}

/// What the mirror of the kernel saw.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MirrorView {
    /// Messages.
    pub messages: u64,
    /// Overruns, after each of which everything was read again.
    pub overruns: u64,
    /// Complete readings.
    pub dumps: u64,
    /// Differences that a comparison found and repaired.
    pub divergences_repaired: u64,
}
