//! What the control side can say to the worker side.

use std::fmt;

use millrace_plugin_abi::{Instance, Position};
use millrace_units::{GateId, InstanceId};

use crate::{Action, BindingId, CallLimits, GateOrder};

/// One change of the worker side's gates, instances and bindings. `F` is a filter in the form that is matched.
pub enum PluginChange<F> {
    /// A new gate, with no bindings.
    AddGate {
        /// Its id.
        gate: GateId,
        /// Where in the journey it stands.
        position: Position,
        /// Where among the gates of that position it stands.
        order: GateOrder,
    },
    /// The gate and all bindings at it go.
    RemoveGate {
        /// Its id.
        gate: GateId,
    },
    /// A new instance, bound to nothing.
    AddInstance {
        /// Its id.
        id: InstanceId,
        /// The instance.
        instance: Box<dyn Instance>,
    },
    /// The instance is in quarantine from now on, for something that it did before it was here.
    Quarantine {
        /// Its id.
        id: InstanceId,
        /// What that was.
        why: String,
    },
    /// The instance goes; its bindings went before.
    RemoveInstance {
        /// Its id.
        id: InstanceId,
    },
    /// The action is taken on what the filter matches at the gate.
    Bind {
        /// The new binding's id.
        binding: BindingId,
        /// The gate.
        gate: GateId,
        /// Which packets.
        filter: F,
        /// Higher wins.
        priority: i32,
        /// What is done.
        action: Action,
        /// Limits of calls, if the action is an instance.
        call_limits: CallLimits,
    },
    /// The binding goes.
    Unbind {
        /// Its id.
        binding: BindingId,
        /// Its gate.
        gate: GateId,
        /// Its filter.
        filter: F,
    },
}

impl<F> PluginChange<F> {
    /// The same change with its filter, of that gate, in another form.
    pub fn map<G>(self, convert: impl FnOnce(GateId, F) -> G) -> PluginChange<G> {
        match self {
            Self::AddGate { gate, position, order } => PluginChange::AddGate { gate, position, order },
            Self::RemoveGate { gate } => PluginChange::RemoveGate { gate },
            Self::AddInstance { id, instance } => PluginChange::AddInstance { id, instance },
            Self::Quarantine { id, why } => PluginChange::Quarantine { id, why },
            Self::RemoveInstance { id } => PluginChange::RemoveInstance { id },
            Self::Bind { binding, gate, filter, priority, action, call_limits } => {
                let filter = convert(gate, filter);
                PluginChange::Bind { binding, gate, filter, priority, action, call_limits }
            }
            Self::Unbind { binding, gate, filter } => {
                PluginChange::Unbind { binding, gate, filter: convert(gate, filter) }
            }
        }
    }
}

impl<F: Clone> PluginChange<F> {
    /// The same change for another worker; where it adds an instance, that is the next of `instances`. `None` where there
    /// is none left.
    pub fn again(&self, instances: &mut impl Iterator<Item = Box<dyn Instance>>) -> Option<Self> {
        Some(match self {
            Self::AddGate { gate, position, order } => {
                Self::AddGate { gate: *gate, position: *position, order: *order }
            }
            Self::RemoveGate { gate } => Self::RemoveGate { gate: *gate },
            Self::AddInstance { id, .. } => Self::AddInstance { id: *id, instance: instances.next()? },
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
            Self::AddInstance { id, .. } => write!(f, "add instance {id}"),
            Self::Quarantine { id, why } => write!(f, "instance {id} is in quarantine: {why}"),
            Self::RemoveInstance { id } => write!(f, "remove instance {id}"),
            Self::Bind { binding, gate, filter, priority, action, .. } => {
                write!(f, "bind {binding}: {action:?} at gate {gate} for {filter:?}, priority {priority}")
            }
            Self::Unbind { binding, gate, .. } => write!(f, "unbind {binding} at gate {gate}"),
        }
    }
}

/// What is left over after a change. It is to be dropped where time doesn't matter, and not by the worker.
#[must_use = "dropping it on the worker costs the packets that wait"]
pub enum Remains<T> {
    /// Nothing.
    Nothing,
    /// An instance that was removed.
    Instance(Box<dyn Instance>),
    /// The table of a gate that was removed.
    Table(T),
}

impl<T> fmt::Debug for Remains<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "nothing",
            Self::Instance(_) => "an instance",
            Self::Table(_) => "a table",
        })
    }
}
