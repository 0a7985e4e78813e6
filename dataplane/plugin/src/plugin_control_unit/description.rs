//! Descriptions of plugins, instances, gates and bindings for users.

use std::fmt;
use std::hash::Hash;

use millrace_plugin_abi::{MapShape, Plugin, Position};
use millrace_units::InstanceId;
use serde_json::{Map, Value};

use super::PluginControlUnit;
use super::bindings::Bound;
use super::creation::NamedInstance;
use crate::{Action, BindingId, CallLimits, Gate, GateOrder};

/// Code of a plugin at a position (*Router Plugins*, section 4). The upper 16 bits are the code's type, which
/// stands for the position; the lower 16 bits are the plugin's number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize)]
#[serde(transparent)]
pub struct PluginCode(pub u32);

impl PluginCode {
    /// Returns the code of plugin `number` at gates of `position`.
    pub fn new(position: Position, number: u16) -> Self {
        Self((position as u32 + 1) << 16 | u32::from(number))
    }

    /// Returns the type, which stands for the position: 1 for `early`, up to 5 for `copy`.
    pub fn kind(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// Returns the plugin's number.
    pub fn number(self) -> u16 {
        self.0 as u16
    }
}

/// Description of a plugin for users.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct PluginDescription {
    /// Name of the plugin.
    pub name: &'static str,
    /// Version of the plugin.
    pub version: &'static str,
    /// One-line summary of the plugin.
    pub summary: &'static str,
    /// Name of the plugin's runtime, for display.
    pub runtime: &'static str,
    /// Positions at which the plugin's instances can be bound.
    pub positions: Vec<&'static str>,
    /// Codes of the plugin, one for each of its positions.
    pub codes: Vec<PluginCode>,
    /// Control messages, each with a line of help.
    pub messages: Vec<(&'static str, &'static str)>,
    /// Required interface features.
    pub features: Vec<String>,
    /// Requested capabilities.
    pub capabilities: Vec<&'static str>,
    /// Names of the plugin's counters.
    pub counters: Vec<&'static str>,
    /// Number of contexts of an instance at each worker.
    pub contexts: u8,
}

/// Complete declaration of a plugin for users, with settings, maps and host companion.
#[derive(Clone, PartialEq, Debug)]
pub struct PluginStatement {
    /// Description of the plugin.
    pub description: PluginDescription,
    /// Manual page of the plugin, if it has one.
    pub manual: Option<String>,
    /// JSON Schema of the settings; `None` if the plugin takes none or reads them by itself.
    pub settings: Option<Map<String, Value>>,
    /// Maps that the plugin's instances write.
    pub maps: Vec<MapShape>,
    /// Version of the saved state's format.
    pub state_version: u32,
    /// Declaration of the host companion; `None` if the plugin has none.
    pub host_companion: Option<Box<Self>>,
}

/// Description of an instance for users.
#[derive(Clone, PartialEq, Debug)]
pub struct InstanceDescription {
    /// Name of the instance.
    pub name: String,
    /// Name of the instance's plugin.
    pub plugin: &'static str,
    /// Number of contexts of the instance at each worker.
    pub contexts: u8,
    /// Settings of the instance, as written.
    pub settings: Map<String, Value>,
    /// Bindings of the instance.
    pub bindings: Vec<BindingDescription>,
}

/// Description of a gate for users.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GateDescription {
    /// Name of the gate.
    pub name: String,
    /// Position of the gate in the pipeline.
    pub position: &'static str,
    /// Order of the gate among the gates of its position.
    pub order: GateOrder,
    /// Bindings at the gate, the oldest first.
    pub bindings: Vec<BindingDescription>,
}

/// Description of a binding for users.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BindingDescription {
    /// Id of the binding, under which workers count packets.
    pub id: BindingId,
    /// Name of the instance if the action is an instance.
    pub instance: Option<String>,
    /// Action on matching packets.
    pub action: Action,
    /// Name of the gate.
    pub gate: String,
    /// Filter as written.
    pub filter: String,
    /// Priority of the binding; a higher number wins.
    pub priority: i32,
    /// Limits of calls if the action is an instance.
    pub call_limits: CallLimits,
}

/// Describes an instance with its bindings.
pub(super) fn describe_instance<S: Clone + Eq + Hash + fmt::Display, F: Clone>(
    id: InstanceId,
    named: &NamedInstance,
    unit: &PluginControlUnit<S, F>,
) -> InstanceDescription {
    InstanceDescription {
        name: named.name.clone(),
        plugin: named.plugin.name(),
        contexts: named.plugin.contexts(),
        settings: named.settings.clone(),
        bindings: describe_bindings(unit, |bound| bound.action == Action::Instance(id)),
    }
}

/// Describes a gate with its bindings.
pub(super) fn describe_gate<S: Clone + Eq + Hash + fmt::Display, F: Clone>(
    gate: &Gate,
    unit: &PluginControlUnit<S, F>,
) -> GateDescription {
    GateDescription {
        name: gate.name.clone(),
        position: gate.position.name(),
        order: gate.order,
        bindings: describe_bindings(unit, |bound| bound.gate == gate.id),
    }
}

/// Describes the bindings for which `which` holds, the oldest first.
pub(super) fn describe_bindings<S: Clone + Eq + Hash + fmt::Display, F: Clone>(
    unit: &PluginControlUnit<S, F>,
    which: impl Fn(&Bound<S, F>) -> bool,
) -> Vec<BindingDescription> {
    let describe = |(id, bound): (BindingId, &Bound<S, F>)| BindingDescription {
        id,
        instance: bound.action.instance().map(|id| unit.instance_name(id).to_owned()),
        action: bound.action.clone(),
        gate: unit.gate_name(bound.gate).to_owned(),
        filter: bound.filter.to_string(),
        priority: bound.priority,
        call_limits: bound.call_limits,
    };
    unit.bindings_by_age().filter(|(_, bound)| which(bound)).map(describe).collect()
}

/// Describes a plugin. `number` is the plugin's number, which its codes contain.
pub(super) fn describe(plugin: &dyn Plugin, number: u16) -> PluginDescription {
    PluginDescription {
        name: plugin.name(),
        version: plugin.version(),
        summary: plugin.summary(),
        runtime: plugin.runtime().text(),
        positions: plugin.positions().iter().map(|position| position.name()).collect(),
        codes: plugin.positions().iter().map(|position| PluginCode::new(*position, number)).collect(),
        messages: plugin.messages().to_vec(),
        features: plugin.features().names(),
        capabilities: plugin.capabilities().to_vec(),
        counters: plugin.counters().to_vec(),
        contexts: plugin.contexts(),
    }
}

/// Returns the complete declaration of a plugin. `number` is the plugin's number, which its codes contain.
pub(super) fn state(plugin: &dyn Plugin, number: u16) -> PluginStatement {
    PluginStatement {
        description: describe(plugin, number),
        manual: plugin.manual(),
        settings: plugin.settings_schema().cloned(),
        maps: plugin.maps().to_vec(),
        state_version: plugin.state_version(),
        host_companion: plugin.host_companion().map(|companion| Box::new(state(companion, number))),
    }
}
