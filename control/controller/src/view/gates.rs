//! Views of gates and their bindings.

use schemars::JsonSchema;
use serde::Serialize;

use super::QueuesView;

/// Binding of an instance, or of another action, to flows.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct BindingView {
    /// Number of the binding. No other binding gets it while the router runs, and older bindings have smaller
    /// numbers.
    pub id: u64,
    /// Action on the packets: `instance NAME`, `drop`, `reject`, `host`, `port NAME`, `ports NAME,NAME` or
    /// `copy-to NAME`.
    pub action: String,
    /// Name of the instance, if the action is one.
    pub instance: Option<String>,
    /// Name of the gate.
    pub gate: String,
    /// Filter of the packets.
    pub filter: String,
    /// Priority of the filter; of several filters that match, the highest priority wins.
    pub priority: i32,
    /// Treatment of packets at which the instance fails; `null` without an instance.
    pub on_fault: Option<&'static str>,
    /// Time limit of an instance's call, in microseconds.
    pub budget: Option<u64>,
    /// Time limit for each packet of a call in microseconds, if there is one.
    pub packet_budget: Option<u64>,
    /// Packets of the binding.
    pub packets: u64,
    /// Bytes of the binding's packets.
    pub bytes: u64,
    /// Packets of the binding that the instance dropped.
    pub drops: u64,
    /// Account of the binding's packets in the queues of ports; at a gate for copies, of the copies.
    #[serde(flatten)]
    pub queues: QueuesView,
    /// Filters that precede a new binding so that it never wins; empty where the binding can win. Absent in
    /// lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shadowed_by: Option<Vec<NamedFilterView>>,
    /// Reason why no arriving packet meets a new binding. Absent where packets can meet it, and in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreached: Option<String>,
}

/// Gate.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GateView {
    /// Name of the gate.
    pub name: String,
    /// Position of the gate in the journey.
    pub position: &'static str,
    /// Filter table of the gate: `linear`, `tuple-space`, `cutting-tree`, `dag`, `dag-patricia` or
    /// `dag-tree-bitmap`.
    pub table: &'static str,
    /// Reason why another kind of table is used at present.
    pub moved: Option<String>,
    /// Memory of the filter table in bytes.
    pub memory: usize,
    /// Links from the filters of the previous gate into this gate's table, where both tables are DAGs.
    pub links: Option<GateLinksView>,
    /// Bindings at the gate.
    pub bindings: Vec<BindingView>,
}

/// Links from the filters of one gate into the DAG of the next.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GateLinksView {
    /// Name of the previous gate.
    pub from: String,
    /// Number of filters of the previous gate.
    pub filters: usize,
    /// Number of links that lead further than to the root.
    pub ahead: usize,
    /// Memory of the links in bytes.
    pub bytes: usize,
}

/// Explanation of a packet's outcome at a gate with filters.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GateExplanationView {
    /// Name of the gate.
    pub gate: String,
    /// Position of the gate in the journey.
    pub position: &'static str,
    /// Filters of the gate in the order in which they win: all that match the packet, and some that do not.
    pub candidates: Vec<CandidateView>,
    /// Number of further filters that do not match.
    pub left_out: usize,
}

/// Filter in the explanation of a packet.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CandidateView {
    /// Number of the filter.
    pub id: u64,
    /// Action of the filter.
    pub action: String,
    /// Expression of the filter.
    #[serde(rename = "match")]
    pub filter: String,
    /// Priority of the filter; of several filters that match, the highest priority wins.
    pub priority: i32,
    /// Whether the filter wins for the packet.
    pub chosen: bool,
    /// Reason why the filter wins or not.
    pub outcome: String,
}

/// Findings about the filters of a gate.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GateCheckView {
    /// Name of the gate.
    pub gate: String,
    /// Number of filters of the gate.
    pub filters: usize,
    /// Filters that never win.
    pub shadowed: Vec<ShadowedView>,
    /// Filters that no single other filter covers. Whether several others cover them together would take too
    /// long to determine.
    pub undecided: Vec<NamedFilterView>,
    /// Pairs of filters of equal priority that overlap although neither contains the other; up to 100.
    pub ambiguous: Vec<AmbiguousView>,
    /// Number of such pairs.
    pub ambiguous_pairs: usize,
    /// Filters that compete with routes and lose to each route because of their priority.
    pub below_routes: Vec<NamedFilterView>,
}

/// Filter as other views refer to it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct NamedFilterView {
    /// Number of the filter.
    pub id: u64,
    /// Expression of the filter.
    #[serde(rename = "match")]
    pub filter: String,
    /// Action of the filter.
    pub action: String,
    /// Priority of the filter; of several filters that match, the highest priority wins.
    pub priority: i32,
}

/// Filter that never wins.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ShadowedView {
    /// Filter.
    pub filter: NamedFilterView,
    /// Preceding filters that together match all packets of the filter; none of them can be left out.
    pub by: Vec<NamedFilterView>,
}

/// Two filters whose winner is hard to see.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AmbiguousView {
    /// Filter that wins.
    pub winner: NamedFilterView,
    /// Filter that loses.
    pub loser: NamedFilterView,
    /// Field in which the winner is more specific; `age` where the winner is only older.
    pub decided_by: String,
}
