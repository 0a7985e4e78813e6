//! Registry of the bindings of instances and actions to filters at gates.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use millrace_units::{GateId, InstanceId, PrincipalId};

use super::Error;
use crate::{Action, BindingId, CallLimits, PluginChange};

/// Maximum number of bindings. It bounds the memory of a worker. For this number a linear search would be too
/// slow, so the registry has indexes.
const MOST_BINDINGS: usize = 1 << 20;

/// Gate, action, filter and priority: unique for each binding.
type Identity<S> = (GateId, Action, S, i32);

/// Returns the unique identity of a binding.
fn identity<S: Clone>(gate: GateId, action: &Action, filter: &S, priority: i32) -> Identity<S> {
    (gate, action.clone(), filter.clone(), priority)
}

/// Binding as control knows it.
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
    /// Limits of calls if the action is an instance; payer and queue if it gives a principal.
    pub call_limits: CallLimits,
    /// Number under which users see the binding. Each new binding gets a higher number; another binding never
    /// gets the same.
    pub number: u64,
}

/// Bindings of a router. `S` is a filter as written, `F` a compiled filter.
#[derive(Clone)]
pub struct BindingRegistry<S, F> {
    bindings: BTreeMap<BindingId, Bound<S, F>>,
    /// Index of the bindings by their unique identity.
    by_filter: HashMap<Identity<S>, BindingId>,
    free: Vec<BindingId>,
    /// Index of the bindings by their numbers.
    by_number: HashMap<u64, BindingId>,
    /// Number of bindings that each principal pays for.
    payers: BTreeMap<PrincipalId, usize>,
    next_number: u64,
    /// Numbers of the bindings removed since the last [`begin`](Self::begin); `None` outside of a transaction.
    former: Option<HashMap<Identity<S>, u64>>,
}

impl<S, F> BindingRegistry<S, F> {
    pub(super) fn new() -> Self {
        Self {
            bindings: BTreeMap::new(),
            by_filter: HashMap::new(),
            free: Vec::new(),
            by_number: HashMap::new(),
            payers: BTreeMap::new(),
            next_number: 0,
            former: None,
        }
    }

    /// Begins a transaction: until [`end`](Self::end), a binding that is removed and added again keeps its
    /// number.
    pub(super) fn begin(&mut self) {
        self.former = Some(HashMap::new());
    }

    /// Ends a transaction.
    pub(super) fn end(&mut self) {
        self.former = None;
    }

    /// Returns the number of bindings.
    pub(super) fn len(&self) -> usize {
        self.bindings.len()
    }

    /// Returns the number of bindings that a principal pays for.
    pub fn paid_by(&self, principal: PrincipalId) -> usize {
        self.payers.get(&principal).copied().unwrap_or_default()
    }

    /// Returns the principals that pay for bindings.
    pub fn payers(&self) -> impl Iterator<Item = PrincipalId> {
        self.payers.keys().copied()
    }

    /// Returns the principal that pays for each binding of an instance, with the instance.
    pub fn paid_instances(&self) -> impl Iterator<Item = (InstanceId, PrincipalId)> {
        self.bindings.values().filter_map(|bound| match bound.action {
            Action::Instance(instance) => bound.call_limits.principal.map(|payer| (instance, payer)),
            _ => None,
        })
    }

    fn note_payer(&mut self, bound: &Bound<S, F>) {
        if let Some(principal) = bound.call_limits.principal {
            *self.payers.entry(principal).or_default() += 1;
        }
    }

    fn forget_payer(&mut self, bound: &Bound<S, F>) {
        let Some(principal) = bound.call_limits.principal else { return };
        if let Some(count) = self.payers.get_mut(&principal) {
            *count -= 1;
        }
        self.payers.retain(|_, count| *count > 0);
    }
}

impl<S: Clone + Eq + Hash, F: Clone> BindingRegistry<S, F> {
    /// Returns the binding of an action to a filter at a gate with this priority; `None` if it does not
    /// exist.
    pub fn find(&self, action: &Action, gate: GateId, filter: &S, priority: i32) -> Option<BindingId> {
        self.by_filter.get(&identity(gate, action, filter, priority)).copied()
    }

    /// Returns the bindings of an action to a filter at a gate with their priorities, the highest first.
    pub fn find_all(&self, action: &Action, gate: GateId, filter: &S) -> Vec<(i32, BindingId)> {
        let is_same =
            |bound: &Bound<S, F>| bound.gate == gate && bound.action == *action && bound.filter == *filter;
        let same = self.bindings.iter().filter(|(_, bound)| is_same(bound));
        let mut found: Vec<_> = same.map(|(binding, bound)| (bound.priority, *binding)).collect();
        found.sort_unstable_by_key(|(priority, _)| std::cmp::Reverse(*priority));
        found
    }

    /// Returns the id of the binding with this number if the binding still exists.
    pub fn numbered(&self, number: u64) -> Option<BindingId> {
        self.by_number.get(&number).copied()
    }

    /// Returns the binding with this id; `None` for an unknown id.
    pub(super) fn get(&self, id: BindingId) -> Option<&Bound<S, F>> {
        self.bindings.get(&id)
    }

    /// Returns all bindings, the oldest first. Ids are reused, so their order is not the order of age.
    pub(super) fn by_age(&self) -> impl Iterator<Item = (BindingId, &Bound<S, F>)> {
        let mut bindings: Vec<_> = self.bindings.iter().map(|(id, bound)| (*id, bound)).collect();
        bindings.sort_by_key(|(_, bound)| bound.number);
        bindings.into_iter()
    }

    /// Returns the gates of an instance's bindings.
    pub(super) fn gates_of(&self, instance: InstanceId) -> impl Iterator<Item = GateId> {
        let here = self.bindings.values().filter(move |bound| bound.action == Action::Instance(instance));
        here.map(|bound| bound.gate)
    }

    /// Adds a binding that doesn't exist yet; assigns its number.
    pub(super) fn add(&mut self, bound: Bound<S, F>) -> Result<(BindingId, PluginChange<F>), Error> {
        if self.bindings.len() >= MOST_BINDINGS {
            return Err(Error::Full { kind: "binding", limit: MOST_BINDINGS });
        }
        let identity = bound.identity();
        let number = self.former.as_mut().and_then(|former| former.remove(&identity)).unwrap_or_else(|| {
            self.next_number += 1;
            self.next_number - 1
        });
        let bound = Bound { number, ..bound };
        // Take a freed id, or the next id after all ids in use.
        let binding = self.free.pop().unwrap_or(BindingId(self.bindings.len() as u32));
        let change = bind(binding, &bound);
        self.by_number.insert(bound.number, binding);
        self.note_payer(&bound);
        self.bindings.insert(binding, bound);
        self.by_filter.insert(identity, binding);
        Ok((binding, change))
    }

    /// Removes a binding by its id.
    pub(super) fn remove(&mut self, binding: BindingId) -> Result<PluginChange<F>, Error> {
        let Some(bound) = self.bindings.remove(&binding) else {
            return Err(Error::Unknown {
                kind: "filter",
                name: binding.to_string(),
                hint: ": `filter list` lists the filters".to_owned(),
            });
        };
        self.free.push(binding);
        self.by_number.remove(&bound.number);
        let identity = bound.identity();
        self.by_filter.remove(&identity);
        if let Some(former) = &mut self.former {
            former.insert(identity, bound.number);
        }
        self.forget_payer(&bound);
        Ok(unbind(binding, &bound))
    }

    /// Removes all bindings of an instance, and returns the changes for the workers.
    pub(super) fn remove_instance(&mut self, instance: InstanceId) -> Vec<PluginChange<F>> {
        let goes = |bound: &Bound<S, F>| bound.action == Action::Instance(instance);
        let gone: Vec<BindingId> =
            self.bindings.iter().filter(|(_, bound)| goes(bound)).map(|(id, _)| *id).collect();
        gone.into_iter().filter_map(|binding| self.remove(binding).ok()).collect()
    }
}

impl<S: Clone, F> Bound<S, F> {
    fn identity(&self) -> Identity<S> {
        identity(self.gate, &self.action, &self.filter, self.priority)
    }
}

/// Returns the change that adds a binding to a worker.
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

fn unbind<S, F: Clone>(binding: BindingId, bound: &Bound<S, F>) -> PluginChange<F> {
    PluginChange::Unbind { binding, gate: bound.gate, filter: bound.compiled.clone() }
}
