//! The plugin control unit (*Router Plugins*, section 4): the one way to create, bind and address instances.
//!
//! It answers the standard messages: [`create_instance`](PluginControlUnit::create_instance),
//! [`free_instance`](PluginControlUnit::free_instance), [`register_instance`](PluginControlUnit::register_instance)
//! (bind) and [`deregister_instance`](PluginControlUnit::deregister_instance) (unbind); a plugin's own messages are
//! checked by [`address`](PluginControlUnit::address). It changes nothing but itself: what the worker has to do is
//! returned. As it can be cloned, several changes are tried on a clone, which takes the original's place when all succeed.

mod bindings;
mod description;
mod maps;
mod quarantine;
mod replacement;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use millrace_plugin_abi::{Home, Instance, Message, Plugin, PluginError, Position, SharedMap};
use millrace_units::{GateId, InstanceId};
use serde_json::{Map, Value};

use crate::settings::{Numbers, names_instance};
use crate::{Action, BindingId, Gate, GateOrder, PluginChange};

pub use bindings::Bound;
pub use description::{
    BindingDescription, GateDescription, InstanceDescription, PluginCode, PluginDescription, PluginStatement,
};
pub use replacement::{HeldMaps, HostCompanion, Successors};

use crate::PluginControlError as Error;
use bindings::{Identity, bind, unbind};
use maps::Made;

/// Ids of gates are bytes.
const MOST_GATES: usize = 256;
/// Ids of instances, and numbers of plugins, are 16 bits wide.
const MOST_INSTANCES: usize = 1 << 16;
/// Far more than a linear search bears, and little enough that a worker's memory for them stays small.
const MOST_BINDINGS: usize = 1 << 20;

#[derive(Clone)]
struct Registered {
    plugin: Arc<dyn Plugin>,
    number: u16,
    /// Whether it is part of the router, even if a file has taken its place since.
    is_built_in: bool,
}

#[derive(Clone)]
struct NamedInstance {
    name: String,
    plugin: Arc<dyn Plugin>,
    settings: Map<String, Value>,
    /// Why it is in quarantine from its creation on; no code of its plugin has run then.
    held: Option<String>,
    /// Its maps.
    maps: Vec<Arc<SharedMap>>,
    /// Maps of others that its settings name.
    reads: Vec<Arc<SharedMap>>,
}

/// The control side: types of plugins, names, and what is bound where. `S` is a filter as written, `F` one in the form
/// that workers match.
#[derive(Clone)]
pub struct PluginControlUnit<S, F> {
    plugins: Vec<Registered>,
    next_plugin: usize,
    instances: BTreeMap<InstanceId, NamedInstance>,
    /// In the order in which packets meet them.
    gates: Vec<Gate>,
    bindings: BTreeMap<BindingId, Bound<S, F>>,
    /// The same bindings, by what no two of them share.
    by_filter: HashMap<Identity<S>, BindingId>,
    free_bindings: Vec<BindingId>,
    /// The same bindings, by their numbers.
    by_number: HashMap<u64, BindingId>,
    next_number: u64,
    /// Numbers of ports by name.
    ports: BTreeMap<String, u16>,
    /// How many workers there are.
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
    /// The default gates, no plugins, no instances.
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

    /// The changes that bring the last worker to what is known here: gates, instances made anew from their settings, and
    /// bindings, oldest first.
    ///
    /// # Errors
    /// What a plugin says against the settings of one of its instances.
    pub fn populate(&self) -> Result<Vec<PluginChange<F>>, Error> {
        let mut changes: Vec<_> = self.gates.iter().map(add_gate).collect();
        for (id, named) in &self.instances {
            changes.extend(self.add_instance(*id, named, self.workers - 1)?);
        }
        changes.extend(self.bindings_by_age().map(|(id, bound)| bind(id, bound)));
        Ok(changes)
    }

    /// For another worker than the last, an instance for each that `changes` add, made anew from its settings: what
    /// [`PluginChange::again`] wants.
    ///
    /// # Errors
    /// What a plugin says against the settings.
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

    /// The one answer out of those that the workers' instances gave to a message.
    pub fn merge_replies(&self, id: InstanceId, message: &Message, replies: Vec<Value>) -> Value {
        match self.instances.get(&id) {
            Some(named) => named.plugin.merge(message, replies),
            None => Value::Null,
        }
    }

    /// Whether there is no plugin of a name yet.
    ///
    /// # Errors
    /// [`Taken`](Error::Taken) when there is.
    pub fn check_new(&self, name: &str) -> Result<(), Error> {
        match self.plugin(name) {
            Ok(_) => Err(Error::Taken { kind: "plugin", name: name.to_owned() }),
            Err(_) => Ok(()),
        }
    }

    /// Makes a type of plugin known.
    ///
    /// # Errors
    /// [`Taken`](Error::Taken) when there is one of its name, [`Features`](Error::Features) for what it is not offered,
    /// [`Full`](Error::Full) after 65,536.
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

    /// Forgets a type of plugin.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown), or [`InUse`](Error::InUse) while there are instances of it.
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

    /// Whether the plugin of a name is part of the router, even if a file has taken its place since.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown).
    pub fn is_built_in(&self, name: &str) -> Result<bool, Error> {
        Ok(self.plugin(name)?.is_built_in)
    }

    /// The plugin of a name.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown).
    pub fn plugin_named(&self, name: &str) -> Result<Arc<dyn Plugin>, Error> {
        Ok(self.plugin(name)?.plugin.clone())
    }

    /// A new instance, bound to nothing, for the last worker.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown) for the plugin, [`Taken`](Error::Taken) or [`Name`](Error::Name) for the name,
    /// [`Plugin`](Error::Plugin) for the settings, [`Full`](Error::Full) after 65,536 instances.
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

    /// A free id, and an instance of that name to be.
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

    /// Says which ports there are: settings may name them.
    pub fn set_ports(&mut self, ports: BTreeMap<String, u16>) {
        self.ports = ports;
    }

    /// Removes an instance, and before it all of its bindings.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown), or [`InUse`](Error::InUse) while another instance reads its maps or names it in its
    /// settings.
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

    /// Instances that know another one by its name: they read its maps, or their settings name it.
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

    /// The instance that a control message goes to, once its plugin is known to have such a message.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown), or [`Plugin`](Error::Plugin) with [`PluginError::UnknownMessage`].
    pub fn address(&self, instance: &str, message: &Message) -> Result<InstanceId, Error> {
        let id = self.instance(instance)?;
        let Some(named) = self.instances.get(&id) else { return Ok(id) };
        understood(&*named.plugin, message)?;
        Ok(id)
    }

    /// A new gate at a position: behind the last one there, or where `order` says.
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
    /// [`Unknown`](Error::Unknown), or [`InUse`](Error::InUse) while instances are bound at it.
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

    /// The instance of a name.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown), with the nearest name.
    pub fn instance(&self, name: &str) -> Result<InstanceId, Error> {
        self.instances.iter().find(|(_, named)| named.name == name).map(|(id, _)| *id).ok_or_else(|| {
            Error::unknown("instance", name, self.instances.values().map(|named| named.name.as_str()))
        })
    }

    /// The gate of a name.
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

    /// The name of an instance; empty when there is none of that id.
    pub fn instance_name(&self, id: InstanceId) -> &str {
        self.instances.get(&id).map_or("", |named| &named.name)
    }

    /// All instances, with their names and those of their plugins.
    pub fn instance_names(&self) -> impl Iterator<Item = (InstanceId, &str, &'static str)> {
        self.instances.iter().map(|(id, named)| (*id, &*named.name, named.plugin.name()))
    }

    /// An action in words, without the ports that it names.
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

    /// The name of a gate; empty when there is none of that id.
    pub fn gate_name(&self, id: GateId) -> &str {
        self.gates.iter().find(|gate| gate.id == id).map_or("", |gate| &gate.name)
    }

    /// The binding of an id.
    pub fn binding(&self, id: BindingId) -> Option<&Bound<S, F>> {
        self.bindings.get(&id)
    }

    /// The binding of a number, if it wasn't removed.
    pub fn binding_numbered(&self, number: u64) -> Option<BindingId> {
        self.by_number.get(&number).copied()
    }

    /// All bindings, the oldest first. (Ids are used again, so that their order says nothing of age.)
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

fn in_use(kind: &'static str, name: &str, users: &[String]) -> Result<(), Error> {
    if users.is_empty() {
        return Ok(());
    }
    Err(Error::InUse { kind, name: name.to_owned(), users: users.join(", ") })
}

/// Whether a plugin has a control message.
fn understood(plugin: &dyn Plugin, message: &Message) -> Result<(), Error> {
    let known = plugin.messages();
    if known.iter().any(|(name, _)| *name == message.name) {
        return Ok(());
    }
    Err(PluginError::unknown_message(plugin.name(), &message.name, known).into())
}

/// Refuses a plugin, or a host companion, that needs what it is not offered where it would run.
fn check_features(plugin: &dyn Plugin) -> Result<(), Error> {
    let refused = |problem| Error::Features { name: plugin.name(), problem };
    plugin.features().check_at_workers().map_err(refused)?;
    let slow = plugin.host_companion().map(Plugin::features).unwrap_or_default();
    slow.check_on_host_level().map_err(refused)
}

fn check_name(kind: &'static str, name: &str) -> Result<(), Error> {
    let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if (1..=64).contains(&name.len()) && name.chars().all(valid) {
        return Ok(());
    }
    Err(Error::Name { kind, name: name.to_owned() })
}

/// The smallest number below `limit` that is not taken.
fn free(taken: impl Iterator<Item = usize>, limit: usize, kind: &'static str) -> Result<usize, Error> {
    let mut taken: Vec<_> = taken.collect();
    taken.sort_unstable();
    let free = (0..).zip(&taken).find(|(index, id)| *index != **id).map_or(taken.len(), |(index, _)| index);
    if free < limit { Ok(free) } else { Err(Error::Full { kind, limit }) }
}
