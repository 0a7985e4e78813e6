//! Changes that control sends to the workers.

use std::fmt;

use millrace_plugin_abi::{Instance, Position};
use millrace_units::{GateId, InstanceId};

use crate::connection_state::ConnectionStates;
use crate::{Action, BindingId, CallLimits, GateOrder};

/// Change of the gates, instances and bindings of a worker. `F` is the type of a compiled filter.
pub enum PluginChange<F> {
    /// Adds a gate without bindings.
    AddGate {
        /// Id of the gate.
        gate: GateId,
        /// Position of the gate in the pipeline.
        position: Position,
        /// Order of the gate among the gates of its position.
        order: GateOrder,
    },
    /// Removes a gate and all its bindings.
    RemoveGate {
        /// Id of the gate.
        gate: GateId,
    },
    /// Gives states for connections to the instance that is added next with this id, or that replaces another one next.
    /// Control maps their memory.
    GiveStates {
        /// Id of the instance.
        id: InstanceId,
        /// States of the instance, empty.
        states: ConnectionStates,
    },
    /// Adds an instance without bindings, with one context.
    AddInstance {
        /// Id of the instance.
        id: InstanceId,
        /// The instance.
        instance: Box<dyn Instance>,
    },
    /// Adds a context to an instance.
    AddContext {
        /// Id of the instance.
        id: InstanceId,
        /// Another copy of the instance.
        instance: Box<dyn Instance>,
    },
    /// Puts an instance into quarantine because of an earlier fault: one that happened before the instance
    /// was added, such as a crash of the router.
    Quarantine {
        /// Id of the instance.
        id: InstanceId,
        /// Description of the earlier fault.
        why: String,
    },
    /// Removes an instance. Its bindings are already removed.
    RemoveInstance {
        /// Id of the instance.
        id: InstanceId,
    },
    /// Binds an action to a filter at a gate.
    Bind {
        /// Id of the new binding.
        binding: BindingId,
        /// Gate of the binding.
        gate: GateId,
        /// Filter that selects the packets.
        filter: F,
        /// Priority of the binding; a higher number wins.
        priority: i32,
        /// Action on the matching packets.
        action: Action,
        /// Limits of calls if the action is an instance.
        call_limits: CallLimits,
    },
    /// Removes a binding.
    Unbind {
        /// Id of the binding.
        binding: BindingId,
        /// Gate of the binding.
        gate: GateId,
        /// Filter of the binding.
        filter: F,
    },
    /// Changes a binding in place. Its action is an instance, or gives a principal. Packets that wait at its stage stay
    /// there, and running calls keep their limits and their payer.
    Rebind {
        /// Id of the binding.
        binding: BindingId,
        /// Gate of the binding.
        gate: GateId,
        /// Filter of the binding.
        filter: F,
        /// New priority of the binding.
        priority: i32,
        /// New limits of calls.
        call_limits: CallLimits,
    },
}

impl<F> PluginChange<F> {
    /// Whether waiting packets may have to leave their queues: the change removes bindings, or changes one.
    pub fn requeues(&self) -> bool {
        matches!(self, Self::Unbind { .. } | Self::RemoveGate { .. } | Self::Rebind { .. })
    }

    /// Returns the change in place of a binding that this change adds; any other change unchanged.
    #[must_use]
    pub fn in_place(self) -> Self {
        match self {
            Self::Bind { binding, gate, filter, priority, call_limits, .. } => {
                Self::Rebind { binding, gate, filter, priority, call_limits }
            }
            other => other,
        }
    }

    /// Converts the filter of a binding from type `F` to `G`. `convert` receives the gate and the filter.
    pub fn map<G>(self, convert: impl FnOnce(GateId, F) -> G) -> PluginChange<G> {
        match self {
            Self::AddGate { gate, position, order } => PluginChange::AddGate { gate, position, order },
            Self::RemoveGate { gate } => PluginChange::RemoveGate { gate },
            Self::GiveStates { id, states } => PluginChange::GiveStates { id, states },
            Self::AddInstance { id, instance } => PluginChange::AddInstance { id, instance },
            Self::AddContext { id, instance } => PluginChange::AddContext { id, instance },
            Self::Quarantine { id, why } => PluginChange::Quarantine { id, why },
            Self::RemoveInstance { id } => PluginChange::RemoveInstance { id },
            Self::Bind { binding, gate, filter, priority, action, call_limits } => {
                let filter = convert(gate, filter);
                PluginChange::Bind { binding, gate, filter, priority, action, call_limits }
            }
            Self::Unbind { binding, gate, filter } => {
                PluginChange::Unbind { binding, gate, filter: convert(gate, filter) }
            }
            Self::Rebind { binding, gate, filter, priority, call_limits } => {
                let filter = convert(gate, filter);
                PluginChange::Rebind { binding, gate, filter, priority, call_limits }
            }
        }
    }
}

impl<F: PartialEq> PluginChange<F> {
    /// Whether this change adds the binding that the change `removal` removes, with the same gate and filter. If both
    /// have the same action, one change [in place](Self::in_place) can take their place.
    pub fn renews(&self, removal: &Self) -> bool {
        match (removal, self) {
            (
                Self::Unbind { binding: removed, gate: before, filter: filtered },
                Self::Bind { binding, gate, filter, action, .. },
            ) => {
                let stays = matches!(action, Action::Instance(_) | Action::Principal(_));
                stays && (removed, before) == (binding, gate) && filtered == filter
            }
            _ => false,
        }
    }
}

impl<F: Clone> PluginChange<F> {
    /// Copies the change for another worker. Each copy of an `AddInstance` or `AddContext` takes the next
    /// instance from `instances`. Returns `None` if no instance is left, and for `GiveStates`: each worker gets states of
    /// its own.
    pub fn again(&self, instances: &mut impl Iterator<Item = Box<dyn Instance>>) -> Option<Self> {
        Some(match self {
            Self::AddGate { gate, position, order } => {
                Self::AddGate { gate: *gate, position: *position, order: *order }
            }
            Self::RemoveGate { gate } => Self::RemoveGate { gate: *gate },
            Self::GiveStates { .. } => return None,
            Self::AddInstance { id, .. } => Self::AddInstance { id: *id, instance: instances.next()? },
            Self::AddContext { id, .. } => Self::AddContext { id: *id, instance: instances.next()? },
            Self::Quarantine { id, why } => Self::Quarantine { id: *id, why: why.clone() },
            Self::RemoveInstance { id } => Self::RemoveInstance { id: *id },
            Self::Bind { binding, gate, filter, priority, action, call_limits } => Self::Bind {
                binding: *binding,
                gate: *gate,
                filter: filter.clone(),
                priority: *priority,
                action: action.clone(),
                call_limits: *call_limits,
            },
            Self::Unbind { binding, gate, filter } => {
                Self::Unbind { binding: *binding, gate: *gate, filter: filter.clone() }
            }
            Self::Rebind { binding, gate, filter, priority, call_limits } => Self::Rebind {
                binding: *binding,
                gate: *gate,
                filter: filter.clone(),
                priority: *priority,
                call_limits: *call_limits,
            },
        })
    }
}

impl<F: fmt::Debug> fmt::Debug for PluginChange<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddGate { gate, position, order } => {
                write!(f, "add gate {gate} at {position}, order {order}")
            }
            Self::RemoveGate { gate } => write!(f, "remove gate {gate}"),
            Self::GiveStates { id, .. } => write!(f, "give instance {id} states for connections"),
            Self::AddInstance { id, .. } => write!(f, "add instance {id}"),
            Self::AddContext { id, .. } => write!(f, "add a context to instance {id}"),
            Self::Quarantine { id, why } => write!(f, "instance {id} is in quarantine: {why}"),
            Self::RemoveInstance { id } => write!(f, "remove instance {id}"),
            Self::Bind { binding, gate, filter, priority, action, .. } => {
                write!(f, "bind {binding}: {action:?} at gate {gate} for {filter:?}, priority {priority}")
            }
            Self::Unbind { binding, gate, .. } => write!(f, "unbind {binding} at gate {gate}"),
            Self::Rebind { binding, gate, filter, priority, .. } => {
                write!(f, "change {binding} in place at gate {gate} for {filter:?}, priority {priority}")
            }
        }
    }
}

/// Object left over after a change. Never drop it in the worker, because that may take long: pass it to
/// another thread.
#[must_use = "dropping it on the worker costs the packets that wait"]
pub enum Remains<T> {
    /// No object.
    Nothing,
    /// Copies of a removed instance, one of each context, and its states for connections, with those that were kept
    /// for its upgrades.
    Instance(Vec<Box<dyn Instance>>, Vec<ConnectionStates>),
    /// Filter table of a removed gate.
    Table(T),
}

impl<T> Remains<T> {
    /// Returns the remains of an instance.
    pub(crate) fn of(instance: Option<Vec<Box<dyn Instance>>>, states: Vec<ConnectionStates>) -> Self {
        match instance {
            None if states.is_empty() => Self::Nothing,
            instance => Self::Instance(instance.unwrap_or_default(), states),
        }
    }
}

impl<T> fmt::Debug for Remains<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "nothing",
            Self::Instance(..) => "an instance",
            Self::Table(_) => "a table",
        })
    }
}
