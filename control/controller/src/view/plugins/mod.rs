//! Views of plugins.

mod gates;
mod halves;
mod instances;
mod maps;
mod upgrade;

pub use gates::{
    AmbiguousView, BindingView, CandidateView, GateCheckView, GateExplanationView, GateLinksView, GateView,
    NamedFilterView, ShadowedView,
};
pub use halves::{HostCompanionView, MessagesView};
pub use instances::{HeldView, InstanceView, ReleaseView};
pub use maps::{MapEntryView, MapView};
pub use upgrade::{ShadowView, UpgradeView};

use std::collections::BTreeMap;

use millrace_plugin::{PluginCode, PluginStatement};
use millrace_plugin_abi::binary::ABI_VERSION;
use millrace_plugin_abi::{Features, MapShape};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

/// Interface that the router offers to plugins.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PluginInterfaceView {
    /// Version of the interface.
    pub version: u32,
    /// Features of the interface at the workers.
    pub features: Vec<String>,
}

impl Default for PluginInterfaceView {
    fn default() -> Self {
        Self { version: ABI_VERSION, features: Features::AT_WORKERS.names() }
    }
}

/// Plugin with its whole description.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PluginDetailView {
    /// Description of the plugin in lists.
    #[serde(flatten)]
    pub plugin: PluginView,
    /// JSON Schema of the plugin's settings; absent if it has none.
    pub settings: Option<Map<String, Value>>,
    /// Manual page of the plugin; absent if it has none.
    pub manual: Option<String>,
    /// Shared maps that instances of the plugin write.
    pub maps: Vec<MapShapeView>,
    /// Version of the state that the instances save.
    pub state_version: u32,
    /// Host companion of the plugin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_companion: Option<Box<Self>>,
    /// eBPF variant of the plugin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ebpf_variant: Option<EbpfVariantView>,
    /// Names of the plugin's instances.
    pub instances: Vec<String>,
    /// Version that a rollback restores; absent if the plugin was not upgraded.
    pub previous: Option<&'static str>,
}

/// eBPF variant of a plugin.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct EbpfVariantView {
    /// Number of setting words.
    pub settings: usize,
    /// Number of counter words for each processor.
    pub counters: usize,
    /// Size of its object file in bytes.
    pub bytes: usize,
}

/// Shared map as a plugin declares it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MapShapeView {
    /// Name of the map.
    pub name: String,
    /// Length of each key in bytes.
    pub key: u16,
    /// Length of each value in bytes.
    pub value: u16,
    /// Maximum number of entries at each worker.
    pub entries: u32,
    /// Memory of the map at each worker, in bytes.
    pub memory: usize,
}

impl From<&MapShape> for MapShapeView {
    fn from(shape: &MapShape) -> Self {
        let (key, value, entries) = (shape.key, shape.value, shape.entries);
        Self { name: shape.name.clone(), key, value, entries, memory: shape.memory() }
    }
}

impl PluginDetailView {
    /// Converts the description of a plugin; `view` makes its view for lists.
    pub(crate) fn of(
        statement: PluginStatement,
        view: &impl Fn(millrace_plugin::PluginDescription) -> PluginView,
    ) -> Self {
        let PluginStatement { description, manual, settings, maps, state_version, host_companion } =
            statement;
        Self {
            ebpf_variant: None,
            plugin: view(description),
            settings,
            manual,
            maps: maps.iter().map(MapShapeView::from).collect(),
            state_version,
            host_companion: host_companion.map(|slow| Box::new(Self::of(*slow, view))),
            instances: Vec::new(),
            previous: None,
        }
    }
}

/// Plugin of which instances can be created.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PluginView {
    /// Name of the plugin.
    pub name: &'static str,
    /// Version of the plugin.
    pub version: &'static str,
    /// Summary of the plugin's function.
    pub summary: &'static str,
    /// Positions of the gates at which the plugin may be bound.
    pub positions: Vec<&'static str>,
    /// Code of the plugin at each position: the position's type in the upper 16 bits, the plugin's number in
    /// the lower (*Router Plugins*, section 4).
    #[schemars(with = "BTreeMap<String, u32>")]
    pub codes: BTreeMap<&'static str, PluginCode>,
    /// Control messages of the plugin, with their descriptions.
    pub messages: BTreeMap<&'static str, &'static str>,
    /// Runtime of the plugin, `built in`, `sandboxed` or `trusted`, with an explanation.
    pub runtime: &'static str,
    /// `signed by` and the key's id, or `unsigned`; absent for a built-in plugin.
    pub signature: Option<String>,
    /// Features of the plugin interface that the plugin needs.
    pub features: Vec<String>,
    /// Capabilities that the plugin requests.
    pub capabilities: Vec<&'static str>,
    /// Names of the plugin's counters.
    pub counters: Vec<&'static str>,
}
