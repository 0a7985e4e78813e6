//! Descriptions of plugins, instances, gates and bindings for users.

use std::fmt;
use std::hash::Hash;

use millrace_plugin_abi::{MapShape, Plugin, Position};
use millrace_units::InstanceId;
use serde_json::{Map, Value};

use super::{Bound, Error, NamedInstance, PluginControlUnit, Registered};
use crate::{Action, BindingId, CallLimits, Gate, GateOrder};

/// Code of a plugin (*Router Plugins*, section 4). The upper 16 bits hold the type, which stands for a
/// position of gates. The lower 16 bits hold the plugin's number. A plugin has one code for each of its
/// positions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize)]
#[serde(transparent)]
pub struct PluginCode(pub u32);

impl PluginCode {
    /// Returns the code of plugin `number` at gates of `position`.
    pub fn new(position: Position, number: u16) -> Self {
        Self((position as u32 + 1) << 16 | u32::from(number))
    }

    /// Returns the type: 1 for `early`, up to 5 for `copy`.
    pub fn kind(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// Returns the plugin's number.
    pub fn number(self) -> u16 {
        self.0 as u16
    }
}

/// Description of a plugin.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct PluginDescription {
    /// Name of the plugin.
    pub name: &'static str,
    /// Version of the plugin.
    pub version: &'static str,
    /// One-line summary of the plugin.
    pub summary: &'static str,
    /// Runtime of the plugin, in words.
    pub home: &'static str,
    /// Positions at which its instances can be bound.
    pub positions: Vec<&'static str>,
    /// Codes of the plugin, one per position.
    pub codes: Vec<PluginCode>,
    /// Control messages, each with a line of help.
    pub messages: Vec<(&'static str, &'static str)>,
    /// Required interface features.
    pub features: Vec<String>,
    /// Requested capabilities.
    pub capabilities: Vec<&'static str>,
    /// Names of its counters.
    pub counters: Vec<&'static str>,
}

/// Complete declaration of a plugin.
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
    /// Declaration of the host companion.
    pub host_companion: Option<Box<Self>>,
}

/// Description of an instance.
#[derive(Clone, PartialEq, Debug)]
pub struct InstanceDescription {
    /// Name of the instance.
    pub name: String,
    /// Name of its plugin.
    pub plugin: &'static str,
    /// Settings of the instance.
    pub settings: Map<String, Value>,
    /// Bindings of the instance.
    pub bindings: Vec<BindingDescription>,
}

/// Description of a gate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GateDescription {
    /// Name of the gate.
    pub name: String,
    /// Position of the gate in the journey.
    pub position: &'static str,
    /// Order of the gate among the gates of its position.
    pub order: GateOrder,
    /// Bindings at the gate, the oldest first.
    pub bindings: Vec<BindingDescription>,
}

/// Description of a binding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BindingDescription {
    /// Id of the binding, under which the worker counts.
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

impl<S: Clone + Eq + Hash + fmt::Display, F: Clone> PluginControlUnit<S, F> {
    /// Returns all plugins, in the order of registration.
    pub fn plugins(&self) -> Vec<PluginDescription> {
        self.plugins.iter().map(Registered::describe).collect()
    }

    /// Returns the complete declaration of a plugin.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown).
    pub fn state_plugin(&self, name: &str) -> Result<PluginStatement, Error> {
        let registered = self.plugin(name)?;
        Ok(state(&*registered.plugin, registered.number))
    }

    /// Returns all instances, in ascending order of ids.
    pub fn instances(&self) -> Vec<InstanceDescription> {
        let describe = |(id, named): (&InstanceId, &NamedInstance)| InstanceDescription {
            name: named.name.clone(),
            plugin: named.plugin.name(),
            settings: named.settings.clone(),
            bindings: self.describe_bindings(|bound| bound.action == Action::Instance(*id)),
        };
        self.instances.iter().map(describe).collect()
    }

    /// Returns the gates, without their bindings, in the order in which packets pass them.
    pub fn gates_in_order(&self) -> &[Gate] {
        &self.gates
    }

    /// Returns the settings of an instance as written; `None` for an unknown id.
    pub fn settings_of(&self, id: InstanceId) -> Option<&Map<String, Value>> {
        self.instances.get(&id).map(|named| &named.settings)
    }

    /// Returns all gates, each with its bindings, in the order in which packets pass them.
    pub fn gates(&self) -> Vec<GateDescription> {
        let describe = |gate: &Gate| GateDescription {
            name: gate.name.clone(),
            position: gate.position.name(),
            order: gate.order,
            bindings: self.describe_bindings(|bound| bound.gate == gate.id),
        };
        self.gates.iter().map(describe).collect()
    }

    /// Returns all bindings, the oldest first.
    pub fn bindings(&self) -> Vec<BindingDescription> {
        self.describe_bindings(|_| true)
    }

    fn describe_bindings(&self, which: impl Fn(&Bound<S, F>) -> bool) -> Vec<BindingDescription> {
        let describe = |(id, bound): (BindingId, &Bound<S, F>)| BindingDescription {
            id,
            instance: bound.action.instance().map(|id| self.instance_name(id).to_owned()),
            action: bound.action.clone(),
            gate: self.gate_name(bound.gate).to_owned(),
            filter: bound.filter.to_string(),
            priority: bound.priority,
            call_limits: bound.call_limits,
        };
        self.bindings_by_age().filter(|(_, bound)| which(bound)).map(describe).collect()
    }
}

impl Registered {
    fn describe(&self) -> PluginDescription {
        describe(&*self.plugin, self.number)
    }
}

fn describe(plugin: &dyn Plugin, number: u16) -> PluginDescription {
    PluginDescription {
        name: plugin.name(),
        version: plugin.version(),
        summary: plugin.summary(),
        home: plugin.home().text(),
        positions: plugin.positions().iter().map(|position| position.name()).collect(),
        codes: plugin.positions().iter().map(|position| PluginCode::new(*position, number)).collect(),
        messages: plugin.messages().to_vec(),
        features: plugin.features().names(),
        capabilities: plugin.capabilities().to_vec(),
        counters: plugin.counters().to_vec(),
    }
}

fn state(plugin: &dyn Plugin, number: u16) -> PluginStatement {
    PluginStatement {
        description: describe(plugin, number),
        manual: plugin.manual(),
        settings: plugin.settings_schema().cloned(),
        maps: plugin.maps().to_vec(),
        state_version: plugin.state_version(),
        host_companion: plugin.host_companion().map(|slow| Box::new(state(slow, number))),
    }
}
