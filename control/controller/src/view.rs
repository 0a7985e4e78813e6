//! What control shows: the nouns of the interface, as they stand in JSON.

use std::collections::BTreeMap;

use millrace_plugin::{Inherited, PluginCode};
use millrace_plugin_abi::Plugin;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::upgrade::Succeeded;

mod configuration;
mod counters;
mod halves;
mod hardware;
mod maps;
mod placement;
mod plugins;
mod schedulers;
mod tokens;
mod trace;

pub use configuration::{AppliedView, ConfigurationView, DifferenceView, RevisionTextView, RevisionView};
pub use counters::{CountersView, PortCountersView};
pub use halves::{MessagesView, SlowHalfView};
pub use hardware::{CpuView, HardwarePortView, HardwareView, ProcessorView, SwitchView};
pub use maps::{MapEntryView, MapView};
pub use placement::{DriverBudgetView, PlacementView, PlacementsView};
pub use plugins::{MapShapeView, PluginDetailView, PluginInterfaceView};
pub use schedulers::{
    FlowQueueView, HostOutputView, QueueView, RemovedNodeView, SchedulerNodeView, SchedulerView,
};
pub use tokens::{CreatedTokenView, TokenView};
pub use trace::{DroppedView, RawFrame, TraceStepView, TraceView};

/// A port and its counters.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PortView {
    /// Its name.
    pub name: String,
    /// The kernel device below, if there is one.
    pub device: Option<String>,
    /// `af_xdp`, `af_packet`, `tap`, `pcap`, `memory`, `vlan`.
    pub driver: String,
    /// How the driver works here: `zero-copy`, `native`, `generic`, `ring`, `call`, `in-process`.
    pub mode: String,
    /// Why it works in no better mode; empty when it is the best.
    pub why: String,
    /// `up` or `down`.
    pub state: &'static str,
    /// Its MAC address.
    pub mac: String,
    /// Largest network packet in bytes.
    pub mtu: u16,
    /// Its addresses.
    pub addresses: Vec<String>,
    /// `kernel` or `drop`: what happens to its packets when the router has died.
    pub on_death: Option<&'static str>,
    /// `off`, `strict` or `loose`: whether the way back to a packet's source is looked at.
    pub reverse_path: &'static str,
    /// Packets that are taken from it in a round, at most.
    pub input_weight: u16,
    /// Frames received, those that the kernel kept included.
    pub rx_packets: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Frames sent by the router.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Of the frames received, those that the driver forwarded by itself.
    pub driver_packets: u64,
    /// Frames received per second since the last look.
    pub rx_rate: f64,
    /// Frames sent per second since the last look.
    pub tx_rate: f64,
    /// Bits received per second since the last look.
    pub rx_bits: f64,
    /// Bits sent per second since the last look.
    pub tx_bits: f64,
    /// Frames that the kernel or the router's own stack got.
    pub to_host: u64,
    /// Frames that wait inside the port and its queue.
    pub held: u64,
    /// Frames dropped, by reason.
    pub drops: BTreeMap<String, u64>,
}

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

/// A route.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RouteView {
    /// Destination prefix.
    pub to: String,
    /// `forward`, `local`, `kernel`, `broadcast`, `blackhole`, `unreachable`, `prohibit`.
    pub kind: &'static str,
    /// Next hops; empty unless it forwards.
    pub next_hops: Vec<NextHopView>,
    /// `kernel` for mirrored routes, else `millrace`.
    pub source: &'static str,
    /// Who made it, in the kernel's words: `static`, `kernel`, `bgp`…; `millrace` for ours.
    pub protocol: String,
    /// What was sent by it; left out where that is not counted: it leads to no port, or too many routes came before it.
    #[serde(flatten)]
    pub queues: Option<QueuesView>,
}

/// What a route or a filter gave to the queues of ports, and what became of it: queued = sent + lost + waiting. Bytes are those
/// of whole frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct QueuesView {
    /// Packets that were given to the queues of ports; each copy and each fragment is one.
    pub queued_packets: u64,
    /// Their bytes.
    pub queued_bytes: u64,
    /// Packets that went on to devices.
    pub sent_packets: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Packets that were dropped in queues or behind, before a device took them.
    pub lost_packets: u64,
    /// Their bytes.
    pub lost_bytes: u64,
    /// Packets that wait.
    pub waiting_packets: u64,
    /// Their bytes.
    pub waiting_bytes: u64,
}

/// A next hop of a route.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct NextHopView {
    /// Its address; none when the destinations are neighbours themselves.
    pub via: Option<String>,
    /// The port to leave by.
    pub port: String,
    /// Its share among the route's next hops.
    pub weight: u16,
}

/// A neighbour.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct NeighbourView {
    /// The port it is behind.
    pub port: String,
    /// Its address.
    pub address: String,
    /// Its MAC address, if known.
    pub mac: Option<String>,
    /// The state: the kernel's word for it, or `own`.
    pub state: String,
}

/// A plugin that instances can be made of.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PluginView {
    /// Its name.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// What it does.
    pub summary: &'static str,
    /// Positions of the gates that it may be bound at.
    pub positions: Vec<&'static str>,
    /// Its code at each of them (*Router Plugins*, section 4): the type, which stands for the position, in the upper 16 bits,
    /// and the plugin's number in the lower.
    #[schemars(with = "BTreeMap<String, u32>")]
    pub codes: BTreeMap<&'static str, PluginCode>,
    /// Its control messages.
    pub messages: BTreeMap<&'static str, &'static str>,
    /// `built in`, `contained` or `trusted`, and what that is.
    pub home: &'static str,
    /// `signed by` and the key's id, or `unsigned`; nothing for what is built in.
    pub signature: Option<String>,
    /// What it needs of the interface between plugins and router.
    pub features: Vec<String>,
    /// The capabilities that it asks for.
    pub capabilities: Vec<&'static str>,
    /// The names of its counters.
    pub counters: Vec<&'static str>,
}

/// A plugin instance.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct InstanceView {
    /// Its name.
    pub name: String,
    /// Its number, by which plugins send packets to it.
    pub number: u16,
    /// Its plugin.
    pub plugin: &'static str,
    /// Its settings.
    pub settings: Value,
    /// `well`, `pausing` after a fault, or `quarantined` after many.
    pub health: &'static str,
    /// Faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// What happened last.
    pub last_fault: Option<String>,
    /// How often it was stopped in the middle, for others to have their turn.
    pub suspensions: u64,
    /// Packets that it dropped, by its own reasons.
    pub drops: BTreeMap<u8, u64>,
    /// Its plugin's own counters, by name.
    pub counters: BTreeMap<&'static str, u64>,
    /// Its slow half; nothing where its plugin has none.
    pub slow_half: Option<SlowHalfView>,
    /// Where it is bound.
    pub bindings: Vec<BindingView>,
}

/// An instance in quarantine, because a call of it has ended the router.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct HeldView {
    /// Its name.
    pub instance: String,
    /// Its plugin.
    pub plugin: String,
    /// When it happened: date and time, UTC.
    pub since: String,
    /// What happened.
    pub why: String,
    /// Whether this router has an instance of that name.
    pub is_here: bool,
}

/// An instance that was let out of quarantine.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ReleaseView {
    /// Its name.
    pub instance: String,
    /// Whether this router has it, so that it runs now.
    pub is_here: bool,
}

/// A binding of an instance, or of another action, to flows.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct BindingView {
    /// Its number, which no other one ever has while the router runs: the smaller is the older.
    pub id: u64,
    /// What is done with the packets: `instance NAME`, `drop`, `reject`, `host`, `port NAME`, `ports NAME,NAME` or
    /// `copy-to NAME`.
    pub action: String,
    /// The instance, if the action is one.
    pub instance: Option<String>,
    /// The gate.
    pub gate: String,
    /// Which packets.
    pub filter: String,
    /// Of several filters that match, the highest priority wins.
    pub priority: i32,
    /// What becomes of packets that the instance fails at; `null` where there is none.
    pub on_fault: Option<&'static str>,
    /// Microseconds that a call of the instance may take.
    pub budget: Option<u64>,
    /// The same for each packet of a call, if that is less.
    pub packet_budget: Option<u64>,
    /// Packets that it got.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets of these that the instance dropped.
    pub drops: u64,
    /// What of them went to the queues of ports. At a gate for copies, copies.
    #[serde(flatten)]
    pub queues: QueuesView,
}

/// A gate.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GateView {
    /// Its name.
    pub name: String,
    /// Its position in the journey.
    pub position: &'static str,
    /// How its filters are searched: `linear`, `tuple-space`, `cutting-tree`, `dag`, `dag-patricia` or `dag-tree-bitmap`.
    pub table: &'static str,
    /// Why they are searched in another way for now.
    pub moved: Option<String>,
    /// Bytes that its filters take, in the form in which they are searched.
    pub memory: usize,
    /// What leads from the filters of the gate before into its table, where both are DAGs.
    pub links: Option<GateLinksView>,
    /// What is bound there.
    pub bindings: Vec<BindingView>,
}

/// Links from the filters of one gate into the DAG of the next.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GateLinksView {
    /// The gate before.
    pub from: String,
    /// Its filters.
    pub filters: usize,
    /// How many of them lead further than to the root.
    pub ahead: usize,
    /// Bytes that the links take.
    pub bytes: usize,
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
    /// Copies of shared objects that no instance uses any longer, which stay in memory; nothing where there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leftover_objects: Option<u64>,
    /// The interface that plugins are offered.
    pub plugin_interface: PluginInterfaceView,
    /// What the mirror of the kernel saw.
    pub mirror: Option<MirrorView>,
}

/// Changes that are being made together.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct ApplyingView {
    /// How many are made.
    pub made: usize,
    /// How many there are; 0 as long as that isn't known.
    pub of: usize,
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
    /// Flows that found no room.
    pub refused: u64,
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

/// What would happen to a packet.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LookupView {
    /// Stage by stage.
    pub steps: Vec<StepView>,
    /// What becomes of it in the end.
    pub verdict: String,
}

/// A stage of a packet's journey.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StepView {
    /// The stage.
    pub stage: &'static str,
    /// What happens there, and why.
    pub text: String,
}

/// What becomes of a packet at a gate with filters.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GateExplanationView {
    /// The gate.
    pub gate: String,
    /// Its position in the journey.
    pub position: &'static str,
    /// Its filters in the order in which they win: all that match, and some that don't.
    pub candidates: Vec<CandidateView>,
    /// How many more don't match.
    pub left_out: usize,
}

/// A filter beside others, for a packet.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CandidateView {
    /// Its number.
    pub id: u64,
    /// What it does.
    pub action: String,
    /// Which packets.
    pub filter: String,
    /// Of several filters that match, the highest priority wins.
    pub priority: i32,
    /// Whether the packet is treated by it.
    pub chosen: bool,
    /// Why it was chosen or not.
    pub outcome: String,
}

/// What is odd about the filters of a gate.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GateCheckView {
    /// The gate.
    pub gate: String,
    /// How many filters it has.
    pub filters: usize,
    /// Filters that never win.
    pub shadowed: Vec<ShadowedView>,
    /// Filters that no other outdoes, and of which it would take too long to find out whether several do together.
    pub undecided: Vec<NamedFilterView>,
    /// Pairs of filters of one priority, neither a special case of the other, that some packets match both; up to 100.
    pub ambiguous: Vec<AmbiguousView>,
    /// How many such pairs there are.
    pub ambiguous_pairs: usize,
    /// Filters that compete with routes, and lose against each for their priority.
    pub below_routes: Vec<NamedFilterView>,
}

/// A filter as it is spoken of.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct NamedFilterView {
    /// Its number.
    pub id: u64,
    /// Which packets.
    pub filter: String,
    /// What it does.
    pub action: String,
    /// Of several filters that match, the highest priority wins.
    pub priority: i32,
}

/// A filter that never wins.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ShadowedView {
    /// The filter.
    pub filter: NamedFilterView,
    /// Those that come before it, and match whatever it matches: one, or several together, of which none can be left out.
    pub by: Vec<NamedFilterView>,
}

/// Two filters of which it is hard to see which wins.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AmbiguousView {
    /// The one that wins.
    pub winner: NamedFilterView,
    /// The other one.
    pub loser: NamedFilterView,
    /// The field in which the winner is more specific; `age` when it is only older.
    pub decided_by: String,
}

/// Flows out of those that there are.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FlowsView {
    /// How many there are, those that are not shown included.
    pub found: usize,
    /// The first of them.
    pub flows: Vec<FlowView>,
}

/// A flow.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FlowView {
    /// The filter that only its packets match.
    pub flow: String,
    /// Source address.
    pub source: String,
    /// Destination address.
    pub destination: String,
    /// IP protocol: its name, or its number.
    pub protocol: String,
    /// Source port; 0 where the protocol has none.
    pub source_port: u16,
    /// Destination port; 0 where the protocol has none.
    pub destination_port: u16,
    /// The port that it comes in by; `-` for packets of the router's own.
    pub port: String,
    /// Packets since the router came to know it.
    pub packets: u64,
    /// Their bytes, link headers included.
    pub bytes: u64,
    /// Packets per second, where that was asked for.
    pub packet_rate: Option<f64>,
    /// Bits per second, where the rate was asked for.
    pub bit_rate: Option<f64>,
    /// Seconds since the router came to know it.
    pub age: f64,
    /// Seconds since its last packet.
    pub idle: f64,
    /// `driver` where the driver forwards it by itself, else `worker`.
    pub level: &'static str,
    /// Why it is not in the driver; nothing when it is.
    pub why_not_driver: Option<String>,
    /// Whether somebody has said where it is to be.
    pub placed: bool,
    /// The number of the worker that it belongs to: 0 where there is only one.
    pub worker: usize,
    /// `new` while it may be displaced by other new flows, then `established`; `reserved` while a rate is reserved for it, so that
    /// no other displaces it.
    pub state: &'static str,
    /// What it is bound to, in the order of the journey.
    pub bindings: Vec<String>,
    /// Where it goes.
    pub route: String,
}

/// What became of a plugin that was replaced by another version.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct UpgradeView {
    /// The plugin.
    pub name: &'static str,
    /// The version that it had.
    pub from: &'static str,
    /// The version that it has.
    pub to: &'static str,
    /// Its instances, which are of the new version now.
    pub instances: Vec<String>,
    /// Bytes of state that they took over, at all workers.
    pub state: u64,
    /// What was lost of what they knew, instance by instance.
    pub lost: Vec<String>,
    /// What came of the trial, if there was one.
    pub shadow: Option<ShadowView>,
}

impl UpgradeView {
    pub(crate) fn new(from: &dyn Plugin, to: &dyn Plugin) -> Self {
        let (name, from, to) = (to.name(), from.version(), to.version());
        Self { name, from, to, instances: Vec::new(), state: 0, lost: Vec::new(), shadow: None }
    }

    /// Notes what became of what an instance knew.
    pub(crate) fn add(&mut self, Succeeded { name: instance, inherited, of_flows }: &Succeeded) {
        let mut lost: BTreeMap<&str, usize> = BTreeMap::new();
        for of_worker in inherited {
            match of_worker {
                Inherited::Bytes(bytes) => self.state += *bytes as u64,
                Inherited::Nothing => {}
                Inherited::Lost(why) => *lost.entry(why).or_default() += 1,
            }
        }
        let all = inherited.len();
        self.lost.extend(lost.into_iter().map(|(why, count)| match count {
            count if count == all => format!("{instance}: {why}"),
            count => format!("{instance}, at {count} of {all} workers: {why}"),
        }));
        self.lost.extend(of_flows.iter().map(|why| format!("{instance}: {why}")));
    }
}

/// What came of the trial of a new version on copies of packets.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct ShadowView {
    /// Packets that both versions had.
    pub packets: u64,
    /// Packets of these that they treated differently.
    pub different: u64,
    /// The first of those, in a sentence.
    pub first: Option<String>,
    /// What the new version did wrong.
    pub fault: Option<String>,
}

impl ShadowView {
    /// Whether the new version did as the old one.
    pub(crate) fn is_clean(&self) -> bool {
        self.different == 0 && self.fault.is_none()
    }
}

impl std::fmt::Display for ShadowView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} packets", self.different, self.packets)?;
        let said = self.first.iter().chain(&self.fault);
        said.into_iter().try_for_each(|text| write!(f, "; {text}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_is_said_once_for_all_workers() {
        let (name, from, to) = ("p", "1.0.0", "1.0.1");
        let (instances, lost) = (Vec::new(), Vec::new());
        let mut view = UpgradeView { name, from, to, instances, state: 0, lost, shadow: None };
        let gone = |why: &str| Inherited::Lost(why.into());
        let succeeded = |name: &str, inherited: &[Inherited], of_flows: Option<&str>| Succeeded {
            name: name.to_owned(),
            inherited: inherited.to_vec(),
            of_flows: of_flows.map(str::to_owned),
        };
        view.add(&succeeded("a", &[gone("it is pausing"), gone("it is pausing")], None));
        let mixed = [Inherited::Bytes(5), gone("it is pausing"), Inherited::Bytes(4), gone("no")];
        view.add(&succeeded("b", &mixed, None));
        view.add(&succeeded("c", &[Inherited::Nothing], Some("its flows")));
        let lost = [
            "a: it is pausing",
            "b, at 1 of 4 workers: it is pausing",
            "b, at 1 of 4 workers: no",
            "c: its flows",
        ];
        assert_eq!((view.lost, view.state), (lost.map(str::to_owned).to_vec(), 9));
    }
}
