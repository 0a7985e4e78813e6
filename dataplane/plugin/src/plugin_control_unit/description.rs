//! What the plugin control unit tells about plugins, instances, gates and bindings.

use std::fmt;
use std::hash::Hash;

use millrace_plugin_abi::{MapShape, Plugin, Position};
use millrace_units::InstanceId;
use serde_json::{Map, Value};

use super::{Bound, Error, NamedInstance, PluginControlUnit, Registered};
use crate::{Action, BindingId, CallLimits, Gate, GateOrder};

/// A plugin's code (*Router Plugins*, section 4): the type, which stands for a position of gates, in the upper 16 bits,
/// and the plugin's number in the lower. A plugin that takes several positions has as many codes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize)]
#[serde(transparent)]
pub struct PluginCode(pub u32);

impl PluginCode {
    /// The code of plugin `number` at gates of `position`.
    pub fn new(position: Position, number: u16) -> Self {
        Self((position as u32 + 1) << 16 | u32::from(number))
    }

    /// The type: 1 for `early`, up to 5 for `copy`.
    pub fn kind(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// The plugin's number.
    pub fn number(self) -> u16 {
        self.0 as u16
    }
}

/// A type of plugin.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct PluginDescription {
    /// Its name.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// What it does.
    pub summary: &'static str,
    /// Where its code lives, and what that means.
    pub home: &'static str,
    /// The positions that its instances can be bound at.
    pub positions: Vec<&'static str>,
    /// Its codes, one per position.
    pub codes: Vec<PluginCode>,
    /// Its control messages, with what they do.
    pub messages: Vec<(&'static str, &'static str)>,
    /// What it needs of the interface.
    pub features: Vec<String>,
    /// The capabilities that it asks for.
    pub capabilities: Vec<&'static str>,
    /// Its counters.
    pub counters: Vec<&'static str>,
}

/// All that a plugin says of itself.
#[derive(Clone, PartialEq, Debug)]
pub struct PluginStatement {
    /// What is told of each plugin.
    pub description: PluginDescription,
    /// Its manual page, where it has one.
    pub manual: Option<String>,
    /// The JSON Schema of its settings; `None` when it takes none, or reads them by itself.
    pub settings: Option<Map<String, Value>>,
    /// The maps that its instances write.
    pub maps: Vec<MapShape>,
    /// The version of what its instances save.
    pub state_version: u32,
    /// Its host companion.
    pub host_companion: Option<Box<Self>>,
}

/// An instance.
#[derive(Clone, PartialEq, Debug)]
pub struct InstanceDescription {
    /// Its name.
    pub name: String,
    /// The name of its plugin.
    pub plugin: &'static str,
    /// The settings that it was created with.
    pub settings: Map<String, Value>,
    /// What it is bound to.
    pub bindings: Vec<BindingDescription>,
}

/// A gate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GateDescription {
    /// Its name.
    pub name: String,
    /// Where in the journey it stands.
    pub position: &'static str,
    /// Where among the gates of that position it stands.
    pub order: GateOrder,
    /// What is bound at it, oldest first.
    pub bindings: Vec<BindingDescription>,
}

/// A binding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BindingDescription {
    /// Its id, by which the worker counts.
    pub id: BindingId,
    /// The instance's name, if the action is one.
    pub instance: Option<String>,
    /// What is done.
    pub action: Action,
    /// The gate's name.
    pub gate: String,
    /// The filter as written.
    pub filter: String,
    /// Higher wins.
    pub priority: i32,
    /// Limits of calls, if the action is an instance.
    pub call_limits: CallLimits,
}

impl<S: Clone + Eq + Hash + fmt::Display, F: Clone> PluginControlUnit<S, F> {
    /// All types of plugins, in the order in which they became known.
    pub fn plugins(&self) -> Vec<PluginDescription> {
        self.plugins.iter().map(Registered::describe).collect()
    }

    /// All that a plugin says of itself.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown).
    pub fn state_plugin(&self, name: &str) -> Result<PluginStatement, Error> {
        let registered = self.plugin(name)?;
        Ok(state(&*registered.plugin, registered.number))
    }

    /// All instances, by age of their ids.
    pub fn instances(&self) -> Vec<InstanceDescription> {
        let describe = |(id, named): (&InstanceId, &NamedInstance)| InstanceDescription {
            name: named.name.clone(),
            plugin: named.plugin.name(),
            settings: named.settings.clone(),
            bindings: self.describe_bindings(|bound| bound.action == Action::Instance(*id)),
        };
        self.instances.iter().map(describe).collect()
    }

    /// The gates alone, in the order in which packets meet them.
    pub fn gates_in_order(&self) -> &[Gate] {
        &self.gates
    }

    /// The settings of an instance, as they were written.
    pub fn settings_of(&self, id: InstanceId) -> Option<&Map<String, Value>> {
        self.instances.get(&id).map(|named| &named.settings)
    }

    /// All gates, in the order in which packets meet them.
    pub fn gates(&self) -> Vec<GateDescription> {
        let describe = |gate: &Gate| GateDescription {
            name: gate.name.clone(),
            position: gate.position.name(),
            order: gate.order,
            bindings: self.describe_bindings(|bound| bound.gate == gate.id),
        };
        self.gates.iter().map(describe).collect()
    }

    /// All bindings, oldest first.
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
