//! Views of plugins.

mod gates;
mod host_companion;
mod instances;
mod maps;
mod upgrade;

pub use gates::{
    AmbiguousView, BindingView, CallsView, CandidateView, GateCheckView, GateExplanationView, GateLinksView,
    GateView, NamedFilterView, ShadowedView,
};
pub use host_companion::{HostCompanionView, MessagesView};
pub use instances::{
    CallCountsView, DeclaredCyclesView, HeldView, InstancePlaceView, InstanceView, PacketCyclesView,
    ReleaseView,
};
pub use maps::{MapEntryView, MapView};
pub use upgrade::{ShadowView, UpgradeView};

use std::collections::BTreeMap;

use millrace_plugin::{PluginCode, PluginStatement};
use millrace_plugin_abi::binary::ABI_VERSION;
use millrace_plugin_abi::{Features, MapShape};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

/// Plugin interface that the router offers.
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

/// Complete description of a plugin.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PluginDetailView {
    /// Description of the plugin as in lists.
    #[serde(flatten)]
    pub plugin: PluginView,
    /// JSON Schema of the settings of instances; absent if the plugin has no settings.
    pub settings: Option<Map<String, Value>>,
    /// Manual page of the plugin; absent if it has none.
    pub manual: Option<String>,
    /// Shared maps that instances of the plugin write.
    pub maps: Vec<MapShapeView>,
    /// Version of the state that the instances save.
    pub state_version: u32,
    /// Host companion of the plugin; absent if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_companion: Option<Box<Self>>,
    /// eBPF variant of the plugin; absent if it has none.
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
    /// Number of 64-bit words of its settings.
    pub settings: usize,
    /// Number of 64-bit words of its counters, for each CPU.
    pub counters: usize,
    /// Size of the variant's object file, in bytes.
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
    /// Converts the description of a plugin. `view` makes the description that appears in lists.
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
            host_companion: host_companion.map(|companion| Box::new(Self::of(*companion, view))),
            instances: Vec::new(),
            previous: None,
        }
    }
}

/// Plugin, in the list of plugins from which instances can be created.
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
    /// Plugin code at each position: number of the position in the upper 16 bits, number of the plugin in the
    /// lower 16 bits (*Router Plugins*, section 4).
    #[schemars(with = "BTreeMap<String, u32>")]
    pub codes: BTreeMap<&'static str, PluginCode>,
    /// Control messages of the plugin, with their descriptions.
    pub messages: BTreeMap<&'static str, &'static str>,
    /// Runtime of the plugin: `built in`, `sandboxed`, `confined` or `trusted`, followed by an explanation.
    pub runtime: &'static str,
    /// `signed by` and the key's id, or `unsigned`; absent for a built-in plugin.
    pub signature: Option<String>,
    /// Features of the plugin interface that the plugin needs.
    pub features: Vec<String>,
    /// Capabilities that the plugin requests.
    pub capabilities: Vec<&'static str>,
    /// Names of the plugin's counters.
    pub counters: Vec<&'static str>,
    /// Number of contexts of an instance at each worker: copies with a call each.
    pub contexts: u8,
}
