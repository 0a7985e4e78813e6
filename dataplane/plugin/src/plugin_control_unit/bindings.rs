//! Bindings of instances and actions to filters at gates.

use std::fmt;
use std::hash::Hash;

use millrace_plugin_abi::Position;
use millrace_units::GateId;

use super::{Error, MOST_BINDINGS, PluginControlUnit};
use crate::{Action, BindingId, CallLimits, Gate, PluginChange};

/// Gate, action, filter and priority: unique for each binding.
pub(super) type Identity<S> = (GateId, Action, S, i32);

/// Returns the unique identity of a binding.
fn identity<S: Clone>(gate: GateId, action: &Action, filter: &S, priority: i32) -> Identity<S> {
    (gate, action.clone(), filter.clone(), priority)
}

/// Control-side binding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bound<S, F> {
    /// Gate of the binding.
    pub gate: GateId,
    /// Action on matching packets.
    pub action: Action,
    /// Filter as written.
    pub filter: S,
    /// Compiled filter.
    pub compiled: F,
    /// Priority of the binding; a higher number wins.
    pub priority: i32,
    /// Limits of calls if the action is an instance.
    pub call_limits: CallLimits,
    /// Number of the binding for users. Numbers grow with each binding and are never reused, so a smaller
    /// number is an older binding.
    pub number: u64,
}

impl<S: Clone + Eq + Hash + fmt::Display, F: Clone> PluginControlUnit<S, F> {
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
        self.bind_action(action, gate, (filter, compiled), priority, call_limits)
    }

    /// Binds an action to a filter at a gate.
    ///
    /// # Errors
    /// As [`register_instance`](Self::register_instance).
    pub fn add_filter(
        &mut self,
        action: Action,
        gate: &str,
        filter: S,
        compiled: F,
        priority: i32,
    ) -> Result<(BindingId, PluginChange<F>), Error> {
        self.bind_action(action, gate, (filter, compiled), priority, CallLimits::default())
    }

    fn bind_action(
        &mut self,
        action: Action,
        gate: &str,
        (filter, compiled): (S, F),
        priority: i32,
        call_limits: CallLimits,
    ) -> Result<(BindingId, PluginChange<F>), Error> {
        let gate = self.gate(gate)?;
        self.check_position(&action, gate)?;
        let identity = identity(gate.id, &action, &filter, priority);
        if let Some(bound) = self.by_filter.get(&identity).and_then(|binding| self.bindings.get(binding)) {
            return Err(Error::Bound {
                what: self.action_name(&action),
                gate: gate.name.clone(),
                filter: filter.to_string(),
                priority: bound.priority,
            });
        }
        if self.bindings.len() >= MOST_BINDINGS {
            return Err(Error::Full { kind: "binding", limit: MOST_BINDINGS });
        }
        let bound = Bound {
            gate: gate.id,
            action,
            filter,
            compiled,
            priority,
            call_limits,
            number: self.next_number,
        };
        // Take a freed id, or the next id after all ids in use.
        let binding = self.free_bindings.pop().unwrap_or(BindingId(self.bindings.len() as u32));
        self.next_number += 1;
        let change = bind(binding, &bound);
        self.by_number.insert(bound.number, binding);
        self.bindings.insert(binding, bound);
        self.by_filter.insert(identity, binding);
        Ok((binding, change))
    }

    fn check_position(&self, action: &Action, gate: &Gate) -> Result<(), Error> {
        let named = action.instance().and_then(|id| self.instances.get(&id));
        let positions = named.map_or(action.positions(), |named| named.plugin.positions());
        stands_at(gate, positions, || match named {
            Some(named) => format!("plugin {}", named.plugin.name()),
            None => format!("action {}", self.action_name(action)),
        })
    }

    /// Removes the binding of an instance to a filter at a gate. Without a given priority, removes the
    /// binding with the highest priority.
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
            Some(priority) => self.find_binding(&action, id, filter, priority),
            None => self.find_bindings(&action, id, filter).first().map(|(_, binding)| *binding),
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

    /// Returns the binding of an action to a filter at a gate with this priority; `None` if it does not
    /// exist.
    pub fn find_binding(
        &self,
        action: &Action,
        gate: GateId,
        filter: &S,
        priority: i32,
    ) -> Option<BindingId> {
        self.by_filter.get(&identity(gate, action, filter, priority)).copied()
    }

    /// Returns the bindings of an action to a filter at a gate with their priorities, the highest first.
    pub fn find_bindings(&self, action: &Action, gate: GateId, filter: &S) -> Vec<(i32, BindingId)> {
        let is_same =
            |bound: &Bound<S, F>| bound.gate == gate && bound.action == *action && bound.filter == *filter;
        let same = self.bindings.iter().filter(|(_, bound)| is_same(bound));
        let mut found: Vec<_> = same.map(|(binding, bound)| (bound.priority, *binding)).collect();
        found.sort_unstable_by_key(|(priority, _)| std::cmp::Reverse(*priority));
        found
    }

    /// Removes a binding by its id.
    ///
    /// # Errors
    /// [`Unknown`](Error::Unknown).
    pub fn remove_binding(&mut self, binding: BindingId) -> Result<PluginChange<F>, Error> {
        let Some(bound) = self.bindings.remove(&binding) else {
            return Err(Error::Unknown {
                kind: "filter",
                name: binding.to_string(),
                hint: ": `filter list` lists the filters".to_owned(),
            });
        };
        self.free_bindings.push(binding);
        self.by_number.remove(&bound.number);
        let change = unbind(binding, &bound);
        self.by_filter.remove(&identity(bound.gate, &bound.action, &bound.filter, bound.priority));
        Ok(change)
    }
}

/// Rejects a gate at a position that `what` doesn't support.
pub(super) fn stands_at(gate: &Gate, positions: &[Position], what: impl Fn() -> String) -> Result<(), Error> {
    if positions.contains(&gate.position) {
        return Ok(());
    }
    let supported: Vec<_> = positions.iter().map(|position| position.name()).collect();
    Err(Error::Position {
        gate: gate.name.clone(),
        position: gate.position,
        what: what(),
        supported: supported.join(", "),
    })
}

pub(super) fn bind<S, F: Clone>(binding: BindingId, bound: &Bound<S, F>) -> PluginChange<F> {
    PluginChange::Bind {
        binding,
        gate: bound.gate,
        filter: bound.compiled.clone(),
        priority: bound.priority,
        action: bound.action.clone(),
        call_limits: bound.call_limits,
    }
}

pub(super) fn unbind<S, F: Clone>(binding: BindingId, bound: &Bound<S, F>) -> PluginChange<F> {
    PluginChange::Unbind { binding, gate: bound.gate, filter: bound.compiled.clone() }
}
