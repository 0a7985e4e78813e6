//! Views of gates and their bindings.

use schemars::JsonSchema;
use serde::Serialize;

use crate::view::QueuesView;

/// Binding of an instance, or of another action, to flows.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct BindingView {
    /// Number of the binding. It is not reused while the router runs, and newer bindings have larger numbers.
    pub id: u64,
    /// Action on the packets: `instance NAME`, `drop`, `reject`, `host`, `port NAME`, `ports NAME,NAME` or
    /// `copy-to NAME`.
    pub action: String,
    /// Name of the instance; absent unless the action is an instance.
    pub instance: Option<String>,
    /// Name of the gate.
    pub gate: String,
    /// Filter of the packets.
    pub filter: String,
    /// Priority of the filter; of several filters that match, the highest priority wins.
    pub priority: i32,
    /// Settings of the instance's calls.
    #[serde(flatten)]
    pub calls: CallsView,
    /// Number of packets for which the binding won.
    pub packets: u64,
    /// Bytes of the binding's packets.
    pub bytes: u64,
    /// Number of these packets that the instance dropped.
    pub drops: u64,
    /// Queue account of the binding's packets, or of the copies if the gate treats copies.
    #[serde(flatten)]
    pub queues: QueuesView,
    /// Filters that shadow a new binding, so that the binding never wins; empty if it can win. Absent in
    /// lists, or if the gate has too many filters to compare.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shadowed_by: Option<Vec<NamedFilterView>>,
    /// Reason why a new binding can apply to no received packet. Absent in lists, or if there is no such
    /// reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreached: Option<String>,
}

/// Settings of a binding for the calls of its instance.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CallsView {
    /// Treatment of a packet when the instance's call fails; `null` without an instance.
    pub on_fault: Option<&'static str>,
    /// Time limit of the instance's call, in microseconds; `null` without an instance.
    pub budget: Option<u64>,
    /// Time limit of the instance's call per packet, in microseconds: a call with N packets may take N times
    /// as long, but at most `budget`. `null` without such a limit.
    pub packet_budget: Option<u64>,
    /// Principal that pays for the instance's calls; `null` if the workers call the instance at once.
    pub principal: Option<String>,
    /// Weight of the queue of its own in which packets wait before the instance; `null` without such a queue.
    pub queue_weight: Option<u16>,
}

/// Gate with its filter table and bindings.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GateView {
    /// Name of the gate.
    pub name: String,
    /// Position of the gate in the pipeline.
    pub position: &'static str,
    /// Kind of the gate's filter table: `linear`, `tuple-space`, `cutting-tree`, `dag`, `dag-patricia` or
    /// `dag-tree-bitmap`.
    pub table: &'static str,
    /// Reason why the gate uses another kind of table than configured; `null` if it uses the configured kind.
    pub table_reason: Option<String>,
    /// Memory of the filter table in bytes.
    pub memory: usize,
    /// Links from the filters of the previous gate into this gate's table; `null` unless both tables are
    /// DAGs.
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
    /// Number of links that lead below the root of the DAG.
    pub ahead: usize,
    /// Memory of the links in bytes.
    pub bytes: usize,
}

/// Explanation of which filter a gate chooses for a packet.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GateExplanationView {
    /// Name of the gate.
    pub gate: String,
    /// Position of the gate in the pipeline.
    pub position: &'static str,
    /// Filters of the gate in the order of precedence: all filters that match the packet, and some others.
    pub candidates: Vec<CandidateView>,
    /// Number of omitted filters; none of them matches.
    pub left_out: usize,
}

/// Filter in an explanation.
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
    /// Reason why the filter wins, or why it does not.
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
    /// Filters for which the check gave up, because it would take too long: no single other filter shadows
    /// them, but several filters together may.
    pub undecided: Vec<NamedFilterView>,
    /// Pairs of filters with equal priority that overlap only in part: each filter also matches packets that
    /// the other filter does not match. Up to 100 pairs.
    pub ambiguous: Vec<AmbiguousView>,
    /// Total number of ambiguous pairs.
    pub ambiguous_pairs: usize,
    /// Filters that every route wins against, because they have a lower priority than routes.
    pub below_routes: Vec<NamedFilterView>,
}

/// Filter, with the fields that identify it in other views.
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
    /// Filters with higher precedence that together match all packets of the shadowed filter. Without any one
    /// of them, the shadowed filter could win.
    pub by: Vec<NamedFilterView>,
}

/// Two overlapping filters whose winner is hard to predict.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AmbiguousView {
    /// Filter that wins.
    pub winner: NamedFilterView,
    /// Filter that loses.
    pub loser: NamedFilterView,
    /// Field in which the winner is more specific; `age` if the winner is only older.
    pub decided_by: String,
}
