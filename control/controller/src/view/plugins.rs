//! All that a plugin says of itself.

use std::collections::BTreeMap;

use millrace_plugin::{PluginCode, PluginStatement};
use millrace_plugin_abi::binary::ABI_VERSION;
use millrace_plugin_abi::{Features, MapShape};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

/// The interface that plugins are offered.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PluginInterfaceView {
    /// Its version.
    pub version: u32,
    /// Its features at the workers.
    pub features: Vec<String>,
}

impl Default for PluginInterfaceView {
    fn default() -> Self {
        Self { version: ABI_VERSION, features: Features::AT_WORKERS.names() }
    }
}

/// A plugin, and all that it says of itself.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PluginDetailView {
    /// What the list of plugins has of it.
    #[serde(flatten)]
    pub plugin: PluginView,
    /// The JSON Schema of its settings; nothing when it takes none.
    pub settings: Option<Map<String, Value>>,
    /// Its manual page; nothing where it has none.
    pub manual: Option<String>,
    /// The maps that its instances write.
    pub maps: Vec<MapShapeView>,
    /// The version of what its instances save.
    pub state_version: u32,
    /// Its host companion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_companion: Option<Box<Self>>,
    /// Its form for the driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver_form: Option<DriverFormView>,
    /// The instances of it.
    pub instances: Vec<String>,
    /// The version to which a rollback would go back; nothing when it was not upgraded.
    pub previous: Option<&'static str>,
}

/// The form of a plugin for the driver.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DriverFormView {
    /// Words of settings that it is given.
    pub settings: usize,
    /// Words that it counts, on each processor.
    pub counters: usize,
    /// Bytes of its object file.
    pub bytes: usize,
}

/// A map as a plugin declares it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MapShapeView {
    /// Its name.
    pub name: String,
    /// Bytes of each key.
    pub key: u16,
    /// Bytes of each value.
    pub value: u16,
    /// Entries at most, at each worker.
    pub entries: u32,
    /// Bytes of memory that it takes at each worker.
    pub memory: usize,
}

impl From<&MapShape> for MapShapeView {
    fn from(shape: &MapShape) -> Self {
        let (key, value, entries) = (shape.key, shape.value, shape.entries);
        Self { name: shape.name.clone(), key, value, entries, memory: shape.memory() }
    }
}

impl PluginDetailView {
    /// What a plugin says, with the list's view of a plugin made by `view`.
    pub(crate) fn of(
        statement: PluginStatement,
        view: &impl Fn(millrace_plugin::PluginDescription) -> PluginView,
    ) -> Self {
        let PluginStatement { description, manual, settings, maps, state_version, host_companion } =
            statement;
        Self {
            driver_form: None,
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
