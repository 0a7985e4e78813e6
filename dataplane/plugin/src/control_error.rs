//! Errors of the plugin control unit (PCU).

use millrace_plugin_abi::{NotOffered, PluginError, Position};

use crate::GateOrder;

/// Error of a request to create, change or remove a plugin, an instance, a gate or a binding. The request has
/// changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PluginControlError {
    /// Unknown plugin, instance, gate, port or filter.
    #[error("no {kind} {name:?}{hint}")]
    Unknown {
        /// Kind of the object: `plugin`, `instance`, `gate`, `port` or `filter`.
        kind: &'static str,
        /// Requested name.
        name: String,
        /// End of the error text: a similar name, or the known names.
        hint: String,
    },
    /// Message to a host companion, sent to an instance whose plugin has no companion.
    #[error(
        "instance {name:?} has no host companion: send the message without --companion (`companion` in the \
         request)"
    )]
    NoHostCompanion {
        /// Name of the instance.
        name: String,
    },
    /// Map request to an instance whose plugin declares no maps.
    #[error("instance {name:?} has no maps: its plugin declares none")]
    NoMaps {
        /// Name of the instance.
        name: String,
    },
    /// Map name that doesn't have the form `INSTANCE/MAP`.
    #[error("{name:?} is not a map name: give INSTANCE/MAP")]
    NoMapName {
        /// Given text.
        name: String,
    },
    /// Name that is already in use.
    #[error("{kind} {name:?} already exists: {}", if *kind == "plugin" { "upgrade it to replace its version, or unload it first" } else { "use another name" })]
    Taken {
        /// Kind of the object: `plugin`, `instance` or `gate`.
        kind: &'static str,
        /// Requested name.
        name: String,
    },
    /// Name with invalid characters or length.
    #[error("{kind} name {name:?} is invalid: use 1 to 64 letters, digits, `-`, `_` or `.`")]
    Name {
        /// Kind of the object: `instance` or `gate`.
        kind: &'static str,
        /// Requested name.
        name: String,
    },
    /// Request for a new object when the maximum number of objects of its kind exists.
    #[error("there are {limit} {kind}s already, and there can't be more: remove a {kind} first")]
    Full {
        /// Kind of the object: `plugin`, `instance`, `gate` or `binding`.
        kind: &'static str,
        /// Maximum number of objects of the kind.
        limit: usize,
    },
    /// Requested order number that another gate of the same position already has.
    #[error("order {order} at position {position} is taken by gate {gate:?}: use another order")]
    OrderTaken {
        /// Position of the gates.
        position: Position,
        /// Requested order.
        order: GateOrder,
        /// Name of the gate with this order.
        gate: String,
    },
    /// Request for a gate behind the last gate of a position, whose order number is too high for a further
    /// gate.
    #[error(
        "the order number of the last gate at position {position} is too high for a gate behind it: give an \
         order number between those of two gates"
    )]
    NoOrderLeft {
        /// Position of the gates.
        position: Position,
    },
    /// Plugin or action that can't be bound at the gate's position.
    #[error(
        "gate {gate:?} is at position {position}, which does not support {what}: use a gate at one of the \
         positions {supported}"
    )]
    Position {
        /// Name of the gate.
        gate: String,
        /// Position of the gate.
        position: Position,
        /// Name of the plugin or action.
        what: String,
        /// Supported positions, separated by commas.
        supported: String,
    },
    /// Action that is already bound to the same filter at the same gate.
    #[error("{what} is already bound at gate {gate:?} to {filter:?}, with priority {priority}")]
    Bound {
        /// Name of the action.
        what: String,
        /// Name of the gate.
        gate: String,
        /// Filter as written.
        filter: String,
        /// Priority of the existing binding.
        priority: i32,
    },
    /// Request to remove a binding that doesn't exist.
    #[error(
        "instance {instance:?} is not bound at gate {gate:?} to {filter:?}; at this gate it is bound to \
         {bound}"
    )]
    NotBound {
        /// Name of the instance.
        instance: String,
        /// Name of the gate.
        gate: String,
        /// Given filter.
        filter: String,
        /// Filters that the instance is bound to at the gate.
        bound: String,
    },
    /// Request to remove an object that is in use.
    #[error("{kind} {name:?} is in use by {users}: remove these users first")]
    InUse {
        /// Kind of the object: `plugin` or `gate`.
        kind: &'static str,
        /// Name of the object.
        name: String,
        /// Names of the objects that use the object.
        users: String,
    },
    /// Plugin that needs interface features that the router doesn't offer.
    #[error("plugin {name}: {problem}")]
    Features {
        /// Name of the plugin.
        name: &'static str,
        /// Missing features.
        problem: NotOffered,
    },
    /// Setting that names an unknown port, instance or map.
    #[error("plugin {plugin}: {setting}: {problem}")]
    SettingNames {
        /// Name of the plugin.
        plugin: &'static str,
        /// Name of the setting.
        setting: String,
        /// Error about the unknown name.
        problem: Box<PluginControlError>,
    },
    /// Instances whose settings name each other in a cycle, so that none can be created first.
    #[error("instances name each other in a cycle: {names}; let one of these settings name another instance")]
    Cycle {
        /// Instances of the cycle, each with the instance that it names.
        names: String,
    },
    /// Error that the plugin reported.
    #[error(transparent)]
    Plugin(#[from] PluginError),
}

impl PluginControlError {
    /// Returns the name of the wrong or missing setting if the error concerns a setting.
    pub fn setting(&self) -> Option<&str> {
        match self {
            Self::Plugin(PluginError::Setting { setting, .. }) | Self::SettingNames { setting, .. } => {
                Some(setting)
            }
            _ => None,
        }
    }

    /// Whether the error concerns a setting that names an unknown port, instance or map.
    pub fn names_unknown(&self) -> bool {
        match self {
            Self::SettingNames { problem, .. } => {
                matches!(**problem, Self::Unknown { kind: "port" | "instance", .. })
            }
            _ => false,
        }
    }

    /// Builds the error for an unknown `name`, with a hint from the `known` names.
    pub(crate) fn unknown<'a>(kind: &'static str, name: &str, known: impl Iterator<Item = &'a str>) -> Self {
        Self::Unknown { kind, name: name.to_owned(), hint: millrace_units::remedy(kind, name, known) }
    }
}
