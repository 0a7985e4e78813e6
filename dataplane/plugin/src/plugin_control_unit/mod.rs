//! Plugin control unit (*Router Plugins*, section 4): creates, binds and addresses instances.
//!
//! The unit implements the standard messages: [`create_instance`](PluginControlUnit::create_instance),
//! [`free_instance`](PluginControlUnit::free_instance),
//! [`register_instance`](PluginControlUnit::register_instance) (bind) and
//! [`deregister_instance`](PluginControlUnit::deregister_instance) (unbind).
//! [`address`](PluginControlUnit::address) checks a plugin's own messages. The unit changes only itself, and
//! returns the changes for the workers. The unit can be cloned: a caller tries several changes on a clone,
//! and replaces the original if all succeed.

mod bindings;
mod checks;
mod description;
mod maps;
mod quarantine;
mod replacement;
#[cfg(test)]
mod tests;

use self::checks::{check_features, check_name, in_use, understood};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use millrace_plugin_abi::{Home, Instance, Message, Plugin, Position, SharedMap};
use millrace_units::{GateId, InstanceId};
use serde_json::{Map, Value};

use crate::declaration::settings::{Numbers, names_instance};
use crate::{Action, BindingId, Gate, GateOrder, PluginChange};

pub use bindings::Bound;
pub use description::{
    BindingDescription, GateDescription, InstanceDescription, PluginCode, PluginDescription, PluginStatement,
};
pub use replacement::{HeldMaps, HostCompanion, Successors};

use crate::PluginControlError as Error;
use bindings::{Identity, bind, unbind};
use maps::Made;

/// Maximum number of gates; gate ids are bytes.
const MOST_GATES: usize = 256;
/// Maximum number of instances and of plugins; their ids are 16 bits wide.
const MOST_INSTANCES: usize = 1 << 16;
/// Maximum number of bindings: too many for a linear search, few enough to keep the memory of a worker small.
const MOST_BINDINGS: usize = 1 << 20;

#[derive(Clone)]
struct Registered {
    plugin: Arc<dyn Plugin>,
    number: u16,
    /// Whether the plugin is built in, even if a file replaced it later.
    is_built_in: bool,
}

#[derive(Clone)]
struct NamedInstance {
    name: String,
    plugin: Arc<dyn Plugin>,
    settings: Map<String, Value>,
    /// Reason for quarantine since creation, if any; no code of the plugin has run in that case.
    held: Option<String>,
    /// Maps of the instance.
    maps: Vec<Arc<SharedMap>>,
    /// Maps of other instances that its settings name.
    reads: Vec<Arc<SharedMap>>,
}

/// Control side of plugins: plugin types, names and bindings. `S` is a filter as written, `F` a compiled
/// filter.
#[derive(Clone)]
pub struct PluginControlUnit<S, F> {
    plugins: Vec<Registered>,
    next_plugin: usize,
    instances: BTreeMap<InstanceId, NamedInstance>,
    /// Gates in the order in which packets pass them.
    gates: Vec<Gate>,
    bindings: BTreeMap<BindingId, Bound<S, F>>,
    /// Index of the bindings by their unique identity.
    by_filter: HashMap<Identity<S>, BindingId>,
    free_bindings: Vec<BindingId>,
    /// Index of the bindings by their numbers.
    by_number: HashMap<u64, BindingId>,
    next_number: u64,
    /// Port numbers by name.
    ports: BTreeMap<String, u16>,
    /// Number of workers.
    workers: usize,
}

impl<S, F> fmt::Debug for PluginControlUnit<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PluginControlUnit")
            .field("plugins", &self.plugins.len())
            .field("instances", &self.instances.len())
            .field("gates", &self.gates)
            .field("bindings", &self.bindings.len())
            .finish_non_exhaustive()
    }
}

impl<S: Clone + Eq + Hash + fmt::Display, F: Clone> Default for PluginControlUnit<S, F> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Clone + Eq + Hash + fmt::Display, F: Clone> PluginControlUnit<S, F> {
    /// Creates a unit with the default gates and without plugins and instances.
    pub fn new() -> Self {
        Self {
            plugins: Vec::new(),
            next_plugin: 0,
            instances: BTreeMap::new(),
            gates: Gate::defaults(),
            bindings: BTreeMap::new(),
            by_filter: HashMap::new(),
            free_bindings: Vec::new(),
            by_number: HashMap::new(),
            next_number: 0,
            ports: BTreeMap::new(),
            workers: 1,
        }
    }

    /// Returns the changes that bring the worker with the highest number to this state: gates, instances
    /// created from their settings, and bindings, the oldest first.
    ///
    /// # Errors
    /// Error of a plugin about the settings of an instance.
    pub fn populate(&self) -> Result<Vec<PluginChange<F>>, Error> {
        let mut changes: Vec<_> = self.gates.iter().map(add_gate).collect();
        for (id, named) in &self.instances {
            changes.extend(self.add_instance(*id, named, self.workers - 1)?);
        }
        changes.extend(self.bindings_by_age().map(|(id, bound)| bind(id, bound)));
        Ok(changes)
    }

    /// Creates the instances for [`PluginChange::again`] at another worker: one for each instance that
    /// `changes` add, from its settings.
    ///
    /// # Errors
    /// Error of a plugin about the settings of an instance.
    pub fn further_instances<G>(
        &self,
        changes: &[PluginChange<G>],
        worker: usize,
    ) -> Result<Vec<Box<dyn Instance>>, Error> {
        let added = changes.iter().filter_map(|change| match change {
            PluginChange::AddInstance { id, .. } => self.instances.get(id),
            _ => None,
        });
        added.map(|named| Ok(self.make_named(named, worker)?.instance)).collect()
    }

    /// Merges the replies of the workers' instances to a message into one answer.
    pub fn merge_replies(&self, id: InstanceId, message: &Message, replies: Vec<Value>) -> Value {
        match self.instances.get(&id) {
            Some(named) => named.plugin.merge(message, replies),
            None => Value::Null,
        }
    }

    /// Checks that no plugin has this name.
    ///
    /// # Errors
    /// [`Taken`](Error::Taken) if a plugin has the name.
    pub fn check_new(&self, name: &str) -> Result<(), Error> {
        match self.plugin(name) {
            Ok(_) => Err(Error::Taken { kind: "plugin", name: name.to_owned() }),
            Err(_) => Ok(()),
        }
    }

    /// Registers a plugin.
    ///
    /// # Errors
    /// [`Taken`](Error::Taken) for a name in use, [`Features`](Error::Features) for required features that
    /// are not offered, [`Full`](Error::Full) after 65,536 plugins.
    pub fn add_plugin(&mut self, plugin: Arc<dyn Plugin>) -> Result<(), Error> {
        self.check_new(plugin.name())?;
        check_features(&*plugin)?;
        let number = u16::try_from(self.next_plugin)
            .map_err(|_| Error::Full { kind: "plugin", limit: MOST_INSTANCES })?;
        self.next_plugin += 1;
        let is_built_in = plugin.home() == Home::BuiltIn;
        self.plugins.push(Registered { plugin, number, is_built_in });
        Ok(())
    }

    /// Removes a plugin.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown), or [`InUse`](Error::InUse) while the plugin has instances.
    pub fn remove_plugin(&mut self, name: &str) -> Result<(), Error> {
        self.plugin(name)?;
        let users: Vec<_> = self
            .instances
            .values()
            .filter(|named| named.plugin.name() == name)
            .map(|named| format!("instance {:?}", named.name))
            .collect();
        in_use("plugin", name, &users)?;
        self.plugins.retain(|registered| registered.plugin.name() != name);
        Ok(())
    }

    /// Whether a plugin is built in, even if a file replaced it later.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown).
    pub fn is_built_in(&self, name: &str) -> Result<bool, Error> {
        Ok(self.plugin(name)?.is_built_in)
    }

    /// Returns the plugin with this name.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown).
    pub fn plugin_named(&self, name: &str) -> Result<Arc<dyn Plugin>, Error> {
        Ok(self.plugin(name)?.plugin.clone())
    }

    /// Creates an instance without bindings, for the worker with the highest number.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown) for the plugin, [`Taken`](Error::Taken) or [`Name`](Error::Name) for the
    /// name, [`Plugin`](Error::Plugin) for the settings, [`Full`](Error::Full) after 65,536 instances.
    pub fn create_instance(
        &mut self,
        plugin: &str,
        name: &str,
        settings: Map<String, Value>,
    ) -> Result<(InstanceId, PluginChange<F>), Error> {
        let (id, mut named) = self.name_instance(plugin, name, settings)?;
        let Made { instance, reads } = self.make_named(&named, self.workers - 1)?;
        named.reads = reads;
        self.instances.insert(id, named);
        Ok((id, PluginChange::AddInstance { id, instance }))
    }

    /// Returns a free id and the record of a future instance with this name.
    fn name_instance(
        &self,
        plugin: &str,
        name: &str,
        settings: Map<String, Value>,
    ) -> Result<(InstanceId, NamedInstance), Error> {
        let plugin = self.plugin(plugin)?.plugin.clone();
        check_name("instance", name)?;
        if self.instance(name).is_ok() {
            return Err(Error::Taken { kind: "instance", name: name.to_owned() });
        }
        let id =
            InstanceId(free(self.instances.keys().map(|id| id.0.into()), MOST_INSTANCES, "instance")? as u16);
        let maps = self.new_maps(&*plugin);
        let name = name.to_owned();
        Ok((id, NamedInstance { name, plugin, settings, held: None, maps, reads: Vec::new() }))
    }

    /// Sets the ports that settings may name.
    pub fn set_ports(&mut self, ports: BTreeMap<String, u16>) {
        self.ports = ports;
    }

    /// Removes all bindings of an instance, then the instance.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown), or [`InUse`](Error::InUse) while another instance reads its maps or names
    /// it in its settings.
    pub fn free_instance(&mut self, name: &str) -> Result<Vec<PluginChange<F>>, Error> {
        let id = self.instance(name)?;
        in_use("instance", name, &self.users(name)?)?;
        let mut changes = Vec::new();
        self.bindings.retain(|binding, bound| {
            let goes = bound.action == Action::Instance(id);
            if goes {
                changes.push(unbind(*binding, bound));
                self.free_bindings.push(*binding);
                self.by_number.remove(&bound.number);
            }
            !goes
        });
        self.by_filter.retain(|(_, action, ..), _| *action != Action::Instance(id));
        self.instances.remove(&id);
        changes.push(PluginChange::RemoveInstance { id });
        Ok(changes)
    }

    /// Returns the instances that refer to another instance: they read its maps or name it in their settings.
    fn users(&self, name: &str) -> Result<Vec<String>, Error> {
        let mut users = self.readers(name, self.maps(name)?);
        let others = self.instances.values().filter(|named| named.name != name);
        users.extend(others.filter_map(|named| {
            let schema = named.plugin.settings_schema()?;
            let setting = names_instance(schema, &named.settings, name)?;
            Some(format!("instance {:?}, whose setting {setting:?} names it", named.name))
        }));
        Ok(users)
    }

    /// Checks that the instance's plugin has a control message. Returns the id of the instance.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown), or [`Plugin`](Error::Plugin) with [`PluginError::UnknownMessage`].
    pub fn address(&self, instance: &str, message: &Message) -> Result<InstanceId, Error> {
        let id = self.instance(instance)?;
        let Some(named) = self.instances.get(&id) else { return Ok(id) };
        understood(&*named.plugin, message)?;
        Ok(id)
    }

    /// Creates a gate at a position: after the last gate there, or at the given `order`.
    ///
    /// # Errors
    /// [`Name`](Error::Name), [`Taken`](Error::Taken), [`OrderTaken`](Error::OrderTaken),
    /// [`NoOrderLeft`](Error::NoOrderLeft), [`Full`](Error::Full) after 256 gates.
    pub fn create_gate(
        &mut self,
        name: &str,
        position: Position,
        order: Option<GateOrder>,
    ) -> Result<(GateId, PluginChange<F>), Error> {
        check_name("gate", name)?;
        if self.gate(name).is_ok() {
            return Err(Error::Taken { kind: "gate", name: name.to_owned() });
        }
        let order = self.order(position, order)?;
        let id = GateId(free(self.gates.iter().map(|gate| gate.id.index()), MOST_GATES, "gate")? as u8);
        let gate = Gate { id, name: name.to_owned(), position, order };
        let change = add_gate(&gate);
        let place = self.gates.partition_point(|other| other.place() < gate.place());
        self.gates.insert(place, gate);
        Ok((id, change))
    }

    fn order(&self, position: Position, order: Option<GateOrder>) -> Result<GateOrder, Error> {
        let mut here = self.gates.iter().filter(|gate| gate.position == position);
        let Some(order) = order else {
            let last = here.next_back().map_or(0, |gate| gate.order.0);
            return last.checked_add(GateOrder::STEP).map(GateOrder).ok_or(Error::NoOrderLeft { position });
        };
        match here.find(|gate| gate.order == order) {
            Some(gate) => Err(Error::OrderTaken { position, order, gate: gate.name.clone() }),
            None => Ok(order),
        }
    }

    /// Removes a gate.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown), or [`InUse`](Error::InUse) while the gate has bindings.
    pub fn remove_gate(&mut self, name: &str) -> Result<PluginChange<F>, Error> {
        let id = self.gate(name)?.id;
        let users: Vec<_> = self
            .bindings_by_age()
            .filter(|(_, bound)| bound.gate == id)
            .map(|(_, bound)| {
                format!("{} bound to {:?}", self.action_name(&bound.action), bound.filter.to_string())
            })
            .collect();
        in_use("gate", name, &users)?;
        self.gates.retain(|gate| gate.id != id);
        Ok(PluginChange::RemoveGate { gate: id })
    }

    /// Returns the id of the instance with this name.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown), with the nearest name.
    pub fn instance(&self, name: &str) -> Result<InstanceId, Error> {
        self.instances.iter().find(|(_, named)| named.name == name).map(|(id, _)| *id).ok_or_else(|| {
            Error::unknown("instance", name, self.instances.values().map(|named| named.name.as_str()))
        })
    }

    /// Returns the gate with this name.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown), with the nearest name.
    pub fn gate(&self, name: &str) -> Result<&Gate, Error> {
        self.gates
            .iter()
            .find(|gate| gate.name == name)
            .ok_or_else(|| Error::unknown("gate", name, self.gates.iter().map(|gate| gate.name.as_str())))
    }

    fn plugin(&self, name: &str) -> Result<&Registered, Error> {
        self.plugins.iter().find(|registered| registered.plugin.name() == name).ok_or_else(|| {
            Error::unknown("plugin", name, self.plugins.iter().map(|registered| registered.plugin.name()))
        })
    }

    /// Returns the name of an instance; empty for an unknown id.
    pub fn instance_name(&self, id: InstanceId) -> &str {
        self.instances.get(&id).map_or("", |named| &named.name)
    }

    /// Returns all instances with their names and the names of their plugins.
    pub fn instance_names(&self) -> impl Iterator<Item = (InstanceId, &str, &'static str)> {
        self.instances.iter().map(|(id, named)| (*id, &*named.name, named.plugin.name()))
    }

    /// Describes an action in words, without the ports that it names.
    pub fn action_name(&self, action: &Action) -> String {
        match action {
            Action::Instance(id) => format!("instance {:?}", self.instance_name(*id)),
            Action::Accept => "accept".to_owned(),
            Action::Drop => "drop".to_owned(),
            Action::Reject => "reject".to_owned(),
            Action::Send(_) => "port".to_owned(),
            Action::Host => "host".to_owned(),
            Action::Copy(_) => "copy".to_owned(),
            Action::Queue(queue) => format!("queue {queue}"),
            Action::Police(_) => "police".to_owned(),
        }
    }

    /// Returns the name of a gate; empty for an unknown id.
    pub fn gate_name(&self, id: GateId) -> &str {
        self.gates.iter().find(|gate| gate.id == id).map_or("", |gate| &gate.name)
    }

    /// Returns the binding with this id; `None` for an unknown id.
    pub fn binding(&self, id: BindingId) -> Option<&Bound<S, F>> {
        self.bindings.get(&id)
    }

    /// Returns the id of the binding with this number if the binding still exists.
    pub fn binding_numbered(&self, number: u64) -> Option<BindingId> {
        self.by_number.get(&number).copied()
    }

    /// Returns all bindings, the oldest first. Ids are reused, so their order is not the order of age.
    pub fn bindings_by_age(&self) -> impl Iterator<Item = (BindingId, &Bound<S, F>)> {
        let mut bindings: Vec<_> = self.bindings.iter().map(|(id, bound)| (*id, bound)).collect();
        bindings.sort_by_key(|(_, bound)| bound.number);
        bindings.into_iter()
    }
}

impl<S: Clone + Eq + Hash + fmt::Display, F: Clone> Numbers for PluginControlUnit<S, F> {
    fn port(&self, name: &str) -> Result<u16, Error> {
        let unknown = || Error::unknown("port", name, self.ports.keys().map(String::as_str));
        self.ports.get(name).copied().ok_or_else(unknown)
    }

    fn instance(&self, name: &str) -> Result<u16, Error> {
        PluginControlUnit::instance(self, name).map(|id| id.0)
    }

    fn map(&self, name: &str) -> Result<Arc<SharedMap>, Error> {
        match name.split_once('/') {
            Some((instance, map)) => self.map_named(instance, map),
            None => Err(Error::NoMapName { name: name.to_owned() }),
        }
    }
}

fn add_gate<F>(gate: &Gate) -> PluginChange<F> {
    PluginChange::AddGate { gate: gate.id, position: gate.position, order: gate.order }
}

/// Returns the smallest number below `limit` that is not taken.
fn free(taken: impl Iterator<Item = usize>, limit: usize, kind: &'static str) -> Result<usize, Error> {
    let mut taken: Vec<_> = taken.collect();
    taken.sort_unstable();
    let free = (0..).zip(&taken).find(|(index, id)| *index != **id).map_or(taken.len(), |(index, _)| index);
    if free < limit { Ok(free) } else { Err(Error::Full { kind, limit }) }
}
