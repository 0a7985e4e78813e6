//! Gates, and what is bound there.

use schemars::JsonSchema;
use serde::Serialize;

use super::QueuesView;

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
    /// In the answer to one that is new: filters that come before it, so that it never wins. Empty where it can win; absent in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shadowed_by: Option<Vec<NamedFilterView>>,
    /// In the answer to one that is new: why no packet that arrives meets it. Absent where packets can, and in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreached: Option<String>,
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
    #[serde(rename = "match")]
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
    #[serde(rename = "match")]
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
