//! Why the plugin control unit refuses.

use millrace_plugin_abi::{NotOffered, PluginError, Position};

use crate::GateOrder;

/// Why a plugin, an instance, a gate or a binding could not be made, changed or removed. Nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PluginControlError {
    /// There is no such thing.
    #[error("no {kind} {name:?}{hint}")]
    Unknown {
        /// `plugin`, `instance`, `gate`, `port` or `filter`.
        kind: &'static str,
        /// The name that was given.
        name: String,
        /// What might have been meant.
        hint: String,
    },
    /// The plugin of the instance has no host companion.
    #[error("instance {name:?} has no host companion: leave out that the message is for it")]
    NoHostCompanion {
        /// The instance.
        name: String,
    },
    /// The plugin of the instance declares no maps.
    #[error("instance {name:?} has no maps: its plugin declares none")]
    NoMaps {
        /// The instance.
        name: String,
    },
    /// What should name a map names none.
    #[error("{name:?} names no map: give INSTANCE/MAP")]
    NoMapName {
        /// What was given.
        name: String,
    },
    /// The name is in use.
    #[error("there is {kind} {name:?} already: {}", if *kind == "plugin" { "upgrade it to put another version in its place, or unload it first" } else { "take another name" })]
    Taken {
        /// `plugin`, `instance` or `gate`.
        kind: &'static str,
        /// The name that was given.
        name: String,
    },
    /// The name has characters that a name can't have.
    #[error("{kind} name {name:?}: take 1 to 64 letters, digits, `-`, `_` or `.`")]
    Name {
        /// `instance` or `gate`.
        kind: &'static str,
        /// The name that was given.
        name: String,
    },
    /// As many as there can be.
    #[error("{limit} {kind}s are there already, and there can't be more: remove one first")]
    Full {
        /// `plugin`, `instance`, `gate` or `binding`.
        kind: &'static str,
        /// How many there can be.
        limit: usize,
    },
    /// Another gate of the position has the same order.
    #[error("at position {position}, order {order} is taken by gate {gate:?}: take another number")]
    OrderTaken {
        /// The position.
        position: Position,
        /// The order.
        order: GateOrder,
        /// The gate that has it.
        gate: String,
    },
    /// No number is left behind the last gate of the position.
    #[error(
        "at position {position} no order is left behind the last gate: state one that lies between two gates"
    )]
    NoOrderLeft {
        /// The position.
        position: Position,
    },
    /// The plugin can't stand at the gate's position.
    #[error("gate {gate:?} stands at position {position}, where {what} can't be: it takes {supported}")]
    Position {
        /// The gate.
        gate: String,
        /// Its position.
        position: Position,
        /// The plugin or the action.
        what: String,
        /// The positions that it takes, separated by commas.
        supported: String,
    },
    /// The action is bound to the same filter at the same gate already.
    #[error("{what} is already bound at gate {gate:?} to {filter:?}, with priority {priority}")]
    Bound {
        /// The action.
        what: String,
        /// The gate.
        gate: String,
        /// The filter as written.
        filter: String,
        /// The priority of the binding that there is.
        priority: i32,
    },
    /// There is no such binding.
    #[error(
        "instance {instance:?} is not bound at gate {gate:?} to {filter:?}; there it is bound to {bound}"
    )]
    NotBound {
        /// The instance.
        instance: String,
        /// The gate.
        gate: String,
        /// The filter that was given.
        filter: String,
        /// The filters that the instance is bound to at the gate.
        bound: String,
    },
    /// It can't be removed while something depends on it.
    #[error("{kind} {name:?} is in use by {users}: remove these users first")]
    InUse {
        /// `plugin` or `gate`.
        kind: &'static str,
        /// Its name.
        name: String,
        /// Who uses it.
        users: String,
    },
    /// It needs features of the interface that it is not offered.
    #[error("plugin {name}: {problem}")]
    Features {
        /// The plugin.
        name: &'static str,
        /// What is missing.
        problem: NotOffered,
    },
    /// The plugin refused.
    #[error(transparent)]
    Plugin(#[from] PluginError),
}

impl PluginControlError {
    /// The setting that is wrong or missing, where it is one.
    pub fn setting(&self) -> Option<&str> {
        match self {
            Self::Plugin(PluginError::Setting { setting, .. }) => Some(setting),
            _ => None,
        }
    }

    /// No `kind` has the name, but these have others.
    pub(crate) fn unknown<'a>(kind: &'static str, name: &str, known: impl Iterator<Item = &'a str>) -> Self {
        Self::Unknown { kind, name: name.to_owned(), hint: millrace_units::remedy(kind, name, known) }
    }
}
