//! Plugin control unit (PCU; *Router Plugins*, section 4): creates, binds and addresses instances.
//!
//! The unit implements the standard messages: [`create_instance`](PluginControlUnit::create_instance),
//! [`free_instance`](PluginControlUnit::free_instance),
//! [`register_instance`](PluginControlUnit::register_instance) (bind) and
//! [`deregister_instance`](PluginControlUnit::deregister_instance) (unbind).
//! [`address`](InstanceRegistry::address) checks a plugin's own messages. Plugins, instances, gates and
//! bindings have a registry each.
//!
//! The unit changes only its own state, and returns the changes for the workers. To try several changes, a
//! caller makes them on a clone of the unit, and replaces the original if all succeed.

mod bindings;
mod checks;
mod creation;
mod creation_order;
mod description;
mod gates;
mod instances;
mod plugins;
#[cfg(test)]
mod tests;

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use millrace_plugin_abi::{Plugin, Position};
use millrace_units::{GateId, InstanceId};
use serde_json::{Map, Value};

use crate::declaration::settings::prepare;
use crate::{Action, BindingId, CallLimits, Gate, GateOrder, PluginChange};

pub use bindings::{BindingRegistry, Bound};
pub use creation::{HeldMaps, Successors};
pub use creation_order::{CreationOrder, InstanceNames, cycle_error};
pub use description::{
    BindingDescription, GateDescription, InstanceDescription, PluginCode, PluginDescription, PluginStatement,
};
pub use instances::{HostCompanion, InstanceRegistry};
pub use plugins::PluginRegistry;

use crate::PluginControlError as Error;
use bindings::bind;
use checks::{check_position, in_use};
use creation::Added;
use description::{describe_bindings, describe_gate, describe_instance};
use gates::GateRegistry;

/// Maximum number of instances, and also maximum number of plugins: the ids of both have 16 bits.
const MOST_INSTANCES: usize = 1 << 16;

/// Control side of plugins: plugin types, names and bindings. `S` is a filter as written, `F` a compiled
/// filter.
#[derive(Clone)]
pub struct PluginControlUnit<S, F> {
    plugins: PluginRegistry,
    instances: InstanceRegistry,
    gates: GateRegistry,
    bindings: BindingRegistry<S, F>,
}

impl<S, F> fmt::Debug for PluginControlUnit<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PluginControlUnit")
            .field("plugins", &self.plugins.len())
            .field("instances", &self.instances.iter().len())
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
            plugins: PluginRegistry::default(),
            instances: InstanceRegistry::default(),
            gates: GateRegistry::default(),
            bindings: BindingRegistry::new(),
        }
    }

    /// Begins a transaction, or ends it. In a transaction, a binding or gate that is removed and added again keeps its
    /// number or order.
    pub fn set_transaction(&mut self, is_running: bool) {
        if is_running {
            self.bindings.begin();
            self.gates.begin();
        } else {
            self.bindings.end();
            self.gates.end();
        }
    }

    /// Returns the registered plugins.
    pub fn plugin_registry(&self) -> &PluginRegistry {
        &self.plugins
    }

    /// Returns the instances with their settings and maps.
    pub fn instance_registry(&self) -> &InstanceRegistry {
        &self.instances
    }

    /// Returns the instances, to record changes of their names, settings and maps.
    pub fn instance_registry_mut(&mut self) -> &mut InstanceRegistry {
        &mut self.instances
    }

    /// Returns the bindings, to find one by its filter or number.
    pub fn binding_registry(&self) -> &BindingRegistry<S, F> {
        &self.bindings
    }

    /// Returns the changes that give a new worker all gates, instances and bindings. The new worker is the
    /// one with the highest number. Bindings come in the order of age, the oldest first.
    pub fn populate(&self) -> Result<Vec<PluginChange<F>>, Error> {
        let mut changes: Vec<_> = self.gates.all().iter().map(gates::add).collect();
        for (id, named) in self.instances.iter() {
            changes.extend(named.add(id, self.instances.last_worker(), &self.instances)?.changes);
        }
        changes.extend(self.bindings.by_age().map(|(id, bound)| bind(id, bound)));
        Ok(changes)
    }

    /// Registers a plugin.
    ///
    /// # Errors
    /// [`Taken`](Error::Taken) for a name in use, [`Features`](Error::Features) for required features that
    /// are not offered, [`Full`](Error::Full) after 65,536 plugins.
    pub fn add_plugin(&mut self, plugin: Arc<dyn Plugin>) -> Result<(), Error> {
        self.plugins.add(plugin)
    }

    /// Removes a plugin.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown), or [`InUse`](Error::InUse) while the plugin has instances.
    pub fn remove_plugin(&mut self, name: &str) -> Result<(), Error> {
        self.plugins.get(name)?;
        let users = self.instances.iter().filter(|(_, named)| named.plugin.name() == name);
        let users: Vec<_> = users.map(|(_, named)| format!("instance {:?}", named.name)).collect();
        in_use("plugin", name, &users)?;
        self.plugins.remove(name);
        Ok(())
    }

    /// Replaces the plugin of the same name, for present and future instances. Returns the replaced plugin.
    pub fn replace_plugin(&mut self, plugin: Arc<dyn Plugin>) -> Result<Arc<dyn Plugin>, Error> {
        let replaced = self.plugins.replace(plugin.clone())?;
        self.instances.replace_plugin(&plugin);
        Ok(replaced)
    }

    /// Returns the plugin with this name.
    pub fn plugin_named(&self, name: &str) -> Result<Arc<dyn Plugin>, Error> {
        self.plugins.get(name).cloned()
    }

    /// Returns the plugin of an instance.
    pub fn plugin_of(&self, instance: &str) -> Result<Arc<dyn Plugin>, Error> {
        Ok(self.instances.named(instance)?.1.plugin.clone())
    }

    /// Creates an instance without bindings. The returned changes add it to the worker with the highest
    /// number.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown) for the plugin, [`Taken`](Error::Taken) or [`Name`](Error::Name) for the
    /// name, [`Plugin`](Error::Plugin) or [`SettingNames`](Error::SettingNames) for the settings,
    /// [`Full`](Error::Full) after 65,536 instances.
    pub fn create_instance(
        &mut self,
        plugin: &str,
        name: &str,
        settings: Map<String, Value>,
    ) -> Result<(InstanceId, Vec<PluginChange<F>>), Error> {
        let (id, mut named) = self.instances.prepare(self.plugin_named(plugin)?, name, settings)?;
        let Added { changes, reads } = named.add(id, self.instances.last_worker(), &self.instances)?;
        named.reads = reads;
        self.instances.insert(id, named);
        Ok((id, changes))
    }

    /// Creates an instance in quarantine, without bindings, for the reason `why`. No code of the plugin runs.
    /// The instance can be bound; the call limits of its bindings decide whether its packets are dropped or
    /// pass.
    ///
    /// # Errors
    /// Those of [`create_instance`](Self::create_instance), except errors from code of the plugin.
    pub fn create_quarantined(
        &mut self,
        plugin: &str,
        name: &str,
        settings: Map<String, Value>,
        why: String,
    ) -> Result<(InstanceId, Vec<PluginChange<F>>), Error> {
        let (id, mut named) = self.instances.prepare(self.plugin_named(plugin)?, name, settings)?;
        named.reads = prepare(&*named.plugin, &named.settings, &self.instances)?.maps;
        named.held = Some(why);
        let Added { changes, .. } = named.add(id, self.instances.last_worker(), &self.instances)?;
        self.instances.insert(id, named);
        Ok((id, changes))
    }

    /// Whether an instance has been in quarantine since its creation.
    pub fn is_held(&self, id: InstanceId) -> bool {
        self.instances.get(id).is_some_and(|named| named.held.is_some())
    }

    /// Removes all bindings of an instance, then the instance.
    ///
    /// # Errors
    /// The errors of [`InstanceRegistry::check_unused`].
    pub fn free_instance(&mut self, name: &str) -> Result<Vec<PluginChange<F>>, Error> {
        let id = self.instances.remove(name)?;
        let mut changes = self.bindings.remove_instance(id);
        changes.push(PluginChange::RemoveInstance { id });
        Ok(changes)
    }

    /// Creates the successors of all instances of a plugin for an upgrade to `plugin`, one for each of
    /// `workers` workers. Skips instances in quarantine since their creation.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown) if no plugin has this name. [`Position`](Error::Position) if the new
    /// version doesn't support a gate where an instance is bound. [`InUse`](Error::InUse) if another instance
    /// reads a map that the new version lacks. An error about the settings.
    pub fn successors(&self, plugin: &dyn Plugin, workers: usize) -> Result<Vec<Successors>, Error> {
        self.copies(plugin, (workers, plugin.contexts()))
    }

    /// Creates instances of `plugin` that run as shadows of the instances of the plugin with the same name, one
    /// for each context of these at each of `workers` workers. Skips instances in quarantine since their
    /// creation.
    ///
    /// # Errors
    /// Those of [`successors`](Self::successors).
    pub fn shadows(&self, plugin: &dyn Plugin, workers: usize) -> Result<Vec<Successors>, Error> {
        self.copies(plugin, (workers, self.plugins.get(plugin.name())?.contexts()))
    }

    fn copies(
        &self,
        plugin: &dyn Plugin,
        (workers, contexts): (usize, u8),
    ) -> Result<Vec<Successors>, Error> {
        self.plugins.get(plugin.name())?;
        let mut successors = Vec::new();
        for (id, named) in self.instances.running_of(plugin.name()) {
            for gate in self.bindings.gates_of(id).filter_map(|gate| self.gates.get(gate)) {
                check_position(gate, plugin.positions(), || {
                    format!("plugin {} {}", plugin.name(), plugin.version())
                })?;
            }
            let own = self.instances.maps_under(named, plugin)?;
            let mut new = Successors::new(id, &named.name, HeldMaps { own, reads: Vec::new() });
            new.create(plugin, &named.settings, (workers, contexts), &self.instances)?;
            successors.push(new);
        }
        Ok(successors)
    }

    /// Creates a gate at a position, with the given `order`, or after the last gate of the position.
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
        self.gates.create(name, position, order)
    }

    /// Removes a gate.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown), or [`InUse`](Error::InUse) while the gate has bindings.
    pub fn remove_gate(&mut self, name: &str) -> Result<PluginChange<F>, Error> {
        let id = self.gate(name)?.id;
        let here = self.bindings.by_age().filter(|(_, bound)| bound.gate == id);
        let name_of = |bound: &Bound<S, F>| {
            format!("{} bound to {:?}", self.action_name(&bound.action), bound.filter.to_string())
        };
        let users: Vec<_> = here.map(|(_, bound)| name_of(bound)).collect();
        in_use("gate", name, &users)?;
        self.gates.remove(id);
        Ok(PluginChange::RemoveGate { gate: id })
    }

    /// Binds an instance to a filter at a gate. The same instance may be bound many times.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown) for instance or gate, [`Position`](Error::Position) if the plugin doesn't
    /// support the gate's position, [`Bound`](Error::Bound) for an existing binding, [`Full`](Error::Full)
    /// after 1,048,576 bindings.
    pub fn register_instance(
        &mut self,
        instance: &str,
        gate: &str,
        filter: S,
        compiled: F,
        priority: i32,
        call_limits: CallLimits,
    ) -> Result<(BindingId, PluginChange<F>), Error> {
        let action = Action::Instance(self.instance(instance)?);
        let gate = self.gate(gate)?.id;
        self.bind(Bound { gate, action, filter, compiled, priority, call_limits, number: 0 })
    }

    /// Binds an action other than an instance to a filter at a gate. `call_limits`: the payer and the queue of an
    /// action that gives a principal; otherwise the default.
    ///
    /// # Errors
    /// Those of [`register_instance`](Self::register_instance).
    pub fn add_filter(
        &mut self,
        action: Action,
        gate: &str,
        filter: S,
        compiled: F,
        priority: i32,
        call_limits: CallLimits,
    ) -> Result<(BindingId, PluginChange<F>), Error> {
        let gate = self.gate(gate)?.id;
        self.bind(Bound { gate, action, filter, compiled, priority, call_limits, number: 0 })
    }

    fn bind(&mut self, bound: Bound<S, F>) -> Result<(BindingId, PluginChange<F>), Error> {
        let Bound { gate, action, filter, priority, .. } = &bound;
        if let Some(gate) = self.gates.get(*gate) {
            let named = action.instance().and_then(|id| self.instances.get(id));
            let positions = named.map_or(action.positions(), |named| named.plugin.positions());
            check_position(gate, positions, || match named {
                Some(named) => format!("plugin {}", named.plugin.name()),
                None => format!("action {}", self.action_name(action)),
            })?;
        }
        if self.bindings.find(action, *gate, filter, *priority).is_some() {
            return Err(Error::Bound {
                what: self.action_name(action),
                gate: self.gate_name(*gate).to_owned(),
                filter: filter.to_string(),
                priority: *priority,
            });
        }
        self.bindings.add(bound)
    }

    /// Removes the binding of an instance to a filter at a gate. If `priority` is `None`, removes the binding
    /// with the highest priority.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown) for instance or gate, [`NotBound`](Error::NotBound).
    pub fn deregister_instance(
        &mut self,
        instance: &str,
        gate: &str,
        filter: &S,
        priority: Option<i32>,
    ) -> Result<(BindingId, PluginChange<F>), Error> {
        let action = Action::Instance(self.instance(instance)?);
        let gate = self.gate(gate)?;
        let id = gate.id;
        let found = match priority {
            Some(priority) => self.bindings.find(&action, id, filter, priority),
            None => self.bindings.find_all(&action, id, filter).first().map(|(_, binding)| *binding),
        };
        let Some(binding) = found else {
            let here = self.bindings_by_age().filter(|(_, bound)| bound.gate == id && bound.action == action);
            let bound: Vec<_> = here.map(|(_, bound)| format!("{:?}", bound.filter.to_string())).collect();
            return Err(Error::NotBound {
                instance: instance.to_owned(),
                gate: gate.name.clone(),
                filter: filter.to_string(),
                bound: if bound.is_empty() { "nothing".to_owned() } else { bound.join(", ") },
            });
        };
        let change = self.remove_binding(binding)?;
        Ok((binding, change))
    }

    /// Removes a binding by its id.
    pub fn remove_binding(&mut self, binding: BindingId) -> Result<PluginChange<F>, Error> {
        self.bindings.remove(binding)
    }

    /// Returns the id of the instance with this name.
    pub fn instance(&self, name: &str) -> Result<InstanceId, Error> {
        self.instances.named(name).map(|(id, _)| id)
    }

    /// Returns the gate with this name.
    pub fn gate(&self, name: &str) -> Result<&Gate, Error> {
        self.gates.named(name)
    }

    /// Returns the name of an instance; empty for an unknown id.
    pub fn instance_name(&self, id: InstanceId) -> &str {
        self.instances.get(id).map_or("", |named| &named.name)
    }

    /// Returns all instances with their names and the names of their plugins.
    pub fn instance_names(&self) -> impl Iterator<Item = (InstanceId, &str, &'static str)> {
        self.instances.iter().map(|(id, named)| (id, &*named.name, named.plugin.name()))
    }

    /// Returns the name of an action for users. The name doesn't contain the ports to which the action sends
    /// packets.
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
            Action::Principal(_) => "principal".to_owned(),
        }
    }

    /// Returns the name of a gate; empty for an unknown id.
    pub fn gate_name(&self, id: GateId) -> &str {
        self.gates.name(id)
    }

    /// Returns the binding with this id; `None` for an unknown id.
    pub fn binding(&self, id: BindingId) -> Option<&Bound<S, F>> {
        self.bindings.get(id)
    }

    /// Returns all bindings, the oldest first. Ids are reused, so their order is not the order of age.
    pub fn bindings_by_age(&self) -> impl Iterator<Item = (BindingId, &Bound<S, F>)> {
        self.bindings.by_age()
    }

    /// Returns the gates, without their bindings, in the order in which packets pass them.
    pub fn gates_in_order(&self) -> &[Gate] {
        self.gates.all()
    }

    /// Returns the descriptions of all instances, in ascending order of ids.
    pub fn instances(&self) -> Vec<InstanceDescription> {
        let describe = |(id, named)| describe_instance(id, named, self);
        self.instances.iter().map(describe).collect()
    }

    /// Returns the descriptions of all gates, each with its bindings, in the order in which packets pass
    /// them.
    pub fn gates(&self) -> Vec<GateDescription> {
        self.gates.all().iter().map(|gate| describe_gate(gate, self)).collect()
    }

    /// Returns the descriptions of all bindings, the oldest first.
    pub fn bindings(&self) -> Vec<BindingDescription> {
        describe_bindings(self, |_| true)
    }
}
