//! Changes of a running router. Each is one difference between two configurations, and has an inverse.

pub(crate) mod commands;
pub(crate) mod difference;
pub(crate) mod nodes;

use std::fmt;

use serde_json::{Map, Value};

use crate::schema::scheduler::Scheduler;
use crate::schema::{
    Admission, Bind, ControlPlane, Filter, Gate, GateTable, Instance, Neighbour, Placement, Plugin, Port,
    Principal, Route, Router, Service,
};
use commands::changed;

/// Change of the running router. It holds the previous state, from which its inverse is made.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Change of settings of the whole router.
    Router {
        /// Previous settings.
        from: Box<Router>,
        /// New settings.
        to: Box<Router>,
    },
    /// Change of the control-plane policing rates.
    ControlPlane {
        /// Previous rates.
        from: Box<ControlPlane>,
        /// New rates.
        to: Box<ControlPlane>,
    },
    /// Change of how much may be promised.
    Admission {
        /// Previous settings.
        from: Admission,
        /// New settings.
        to: Admission,
    },
    /// Load of a plugin file.
    AddPlugin(Plugin),
    /// Unload of a plugin file.
    RemovePlugin(Plugin),
    /// Change of those settings of a port that can change while its device stays open: addresses,
    /// reverse-path check and input weight.
    SetPort {
        /// Previous port.
        from: Box<Port>,
        /// New port.
        to: Box<Port>,
    },
    /// Change, addition or removal of a port's scheduler.
    SetScheduler {
        /// Name of the port.
        port: String,
        /// Previous scheduler.
        from: Option<Box<Scheduler>>,
        /// New scheduler.
        to: Option<Box<Scheduler>>,
        /// Leaf that gets the packets that wait in removed nodes.
        heir: Heir,
    },
    /// Creation of a gate.
    AddGate(Gate),
    /// Removal of a gate.
    RemoveGate(Gate),
    /// Change of the kind of a gate's filter table.
    SetGate {
        /// Name of the gate.
        gate: String,
        /// Previous kind of table.
        from: GateTable,
        /// New kind of table.
        to: GateTable,
    },
    /// Creation of an instance.
    AddInstance(Instance),
    /// Removal of an instance.
    RemoveInstance(Instance),
    /// Change of an instance's declared load or level.
    SetService {
        /// Name of the instance.
        instance: String,
        /// Previous load and level.
        from: Option<Service>,
        /// New load and level.
        to: Option<Service>,
    },
    /// Change of an instance's settings.
    SetInstance {
        /// Previous instance.
        from: Instance,
        /// New instance.
        to: Instance,
    },
    /// Addition of a binding.
    Bind(Bind),
    /// Removal of a binding.
    Unbind(Bind),
    /// Addition of a filter.
    AddFilter(Filter),
    /// Removal of a filter.
    RemoveFilter(Filter),
    /// Addition of a route.
    AddRoute(Route),
    /// Removal of a route.
    RemoveRoute(Route),
    /// Atomic replacement of the route of a prefix.
    SetRoute {
        /// Previous route.
        from: Route,
        /// New route.
        to: Route,
    },
    /// Addition of a static neighbour.
    AddNeighbour(Neighbour),
    /// Removal of a static neighbour.
    RemoveNeighbour(Neighbour),
    /// Addition of a principal.
    AddPrincipal(Principal),
    /// Removal of a principal.
    RemovePrincipal(Principal),
    /// Removal of a principal. Packets that wait in its queues at ports are dropped.
    ReleasePrincipal(Principal),
    /// Change of a principal's shares and limits.
    SetPrincipal {
        /// Previous principal.
        from: Box<Principal>,
        /// New principal.
        to: Box<Principal>,
    },
    /// Change of the flow placements.
    Place {
        /// Previous placements.
        from: Vec<Placement>,
        /// New placements.
        to: Vec<Placement>,
    },
}

/// Destination of packets that wait in removed nodes of a scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heir {
    /// Any leaf that stays, preferably the default leaf. If no leaf stays, the packets are dropped.
    Any,
    /// This leaf.
    Leaf(String),
    /// The packets are dropped.
    Nobody,
}

impl Heir {
    /// Returns the leaf that gets the packets of removed nodes when scheduler `to` replaces scheduler `from`;
    /// `None` if the packets are dropped.
    #[must_use]
    pub fn of<'s>(&'s self, from: &'s Scheduler, to: &'s Scheduler) -> Option<&'s str> {
        match self {
            Self::Any => nodes::heir(from, to),
            Self::Leaf(leaf) => Some(leaf),
            Self::Nobody => None,
        }
    }
}

impl Change {
    /// Whether this change removes a binding or filter, and `next` adds one with the same gate and filter.
    /// Workers make both changes between the same two batches.
    pub fn is_followed_by(&self, next: &Self) -> bool {
        matches!(self, Self::Unbind(_) | Self::RemoveFilter(_)) && self.place() == next.place()
    }

    /// Whether this change removes a binding or filter, and `next` adds it again: with the same gate and filter, and the
    /// same instance or action. Its other properties may differ.
    pub fn is_renewed_by(&self, next: &Self) -> bool {
        let is_same = match (self, next) {
            (Self::Unbind(before), Self::Bind(bind)) => *before.instance == *bind.instance,
            (Self::RemoveFilter(before), Self::AddFilter(filter)) => {
                before.action.written() == filter.action.written()
            }
            _ => false,
        };
        is_same && self.is_followed_by(next)
    }

    /// Returns the gate and the filter of a changed binding or filter; `None` for other changes.
    fn place(&self) -> Option<(&str, &str)> {
        match self {
            Self::Bind(bind) | Self::Unbind(bind) => Some(bind.place()),
            Self::AddFilter(filter) | Self::RemoveFilter(filter) => Some(filter.place()),
            _ => None,
        }
    }
}

/// Kind of changes that are made together. A group of bindings and filters changes between the same two
/// batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Together {
    /// Bindings and filters.
    Bindings,
    /// Routes.
    Routes,
    /// Change that is made alone.
    Alone,
}

impl Change {
    /// Returns the change that undoes this change.
    pub fn inverse(self) -> Self {
        match self {
            Self::Router { from, to } => Self::Router { from: to, to: from },
            Self::ControlPlane { from, to } => Self::ControlPlane { from: to, to: from },
            Self::Admission { from, to } => Self::Admission { from: to, to: from },
            Self::AddPlugin(plugin) => Self::RemovePlugin(plugin),
            Self::RemovePlugin(plugin) => Self::AddPlugin(plugin),
            Self::SetPort { from, to } => Self::SetPort { from: to, to: from },
            Self::SetScheduler { port, from, to, .. } => {
                Self::SetScheduler { port, from: to, to: from, heir: Heir::Any }
            }
            Self::AddGate(gate) => Self::RemoveGate(gate),
            Self::RemoveGate(gate) => Self::AddGate(gate),
            Self::SetGate { gate, from, to } => Self::SetGate { gate, from: to, to: from },
            Self::AddInstance(instance) => Self::RemoveInstance(instance),
            Self::RemoveInstance(instance) => Self::AddInstance(instance),
            Self::SetService { instance, from, to } => Self::SetService { instance, from: to, to: from },
            Self::SetInstance { from, to } => Self::SetInstance { from: to, to: from },
            Self::Bind(bind) => Self::Unbind(bind),
            Self::Unbind(bind) => Self::Bind(bind),
            Self::AddFilter(filter) => Self::RemoveFilter(filter),
            Self::RemoveFilter(filter) => Self::AddFilter(filter),
            Self::AddRoute(route) => Self::RemoveRoute(route),
            Self::RemoveRoute(route) => Self::AddRoute(route),
            Self::SetRoute { from, to } => Self::SetRoute { from: to, to: from },
            Self::AddNeighbour(neighbour) => Self::RemoveNeighbour(neighbour),
            Self::RemoveNeighbour(neighbour) => Self::AddNeighbour(neighbour),
            Self::AddPrincipal(principal) => Self::RemovePrincipal(principal),
            Self::RemovePrincipal(principal) | Self::ReleasePrincipal(principal) => {
                Self::AddPrincipal(principal)
            }
            Self::SetPrincipal { from, to } => Self::SetPrincipal { from: to, to: from },
            Self::Place { from, to } => Self::Place { from: to, to: from },
        }
    }

    /// Returns the kind of changes with which this change is grouped.
    pub fn together(&self) -> Together {
        match self {
            Self::Bind(_) | Self::Unbind(_) | Self::AddFilter(_) | Self::RemoveFilter(_) => {
                Together::Bindings
            }
            Self::AddRoute(_) | Self::RemoveRoute(_) | Self::SetRoute { .. } => Together::Routes,
            _ => Together::Alone,
        }
    }

    /// Returns the equivalent commands, without the leading `millrace`. Most changes are a single command.
    pub fn commands(&self) -> Vec<String> {
        vec![match self {
            Self::Router { from, to } => format!("router set{}", settings(&changed(from, to))),
            Self::ControlPlane { from, to } => {
                format!("control-plane set{}", settings(&changed(&**from, &**to)))
            }
            Self::Admission { from, to } => return commands::admission(from, to),
            Self::AddPlugin(plugin) => commands::add_plugin(plugin),
            Self::RemovePlugin(plugin) => {
                format!("plugin unload {}", commands::quoted(&plugin.file.display()))
            }
            Self::SetPort { from, to } => {
                format!("port set {}{}", &*to.name, settings(&changed(from, to)))
            }
            Self::SetScheduler { port, from, to, heir } => {
                let none = Scheduler::default();
                let (from, to) = (from.as_deref().unwrap_or(&none), to.as_deref().unwrap_or(&none));
                return commands::scheduler(port, from, to, heir.of(from, to));
            }
            Self::AddGate(gate) => commands::add_gate(gate),
            Self::RemoveGate(gate) => format!("gate remove {}", &*gate.name),
            Self::SetGate { gate, to, .. } => format!("gate set {gate} --table {}", commands::text(to)),
            Self::AddInstance(instance) => format!(
                "instance create {} {}{}{}",
                &*instance.plugin,
                &*instance.name,
                settings(&instance.settings),
                commands::service(None, instance.service.as_ref())
            ),
            Self::RemoveInstance(instance) => format!("instance free {}", &*instance.name),
            Self::SetService { instance, from, to } => {
                format!("instance move {instance}{}", commands::service(from.as_ref(), to.as_ref()))
            }
            Self::SetInstance { from, to } => {
                format!("instance set {}{}", &*to.name, settings(&from.settings_to(to)))
            }
            Self::Bind(bind) => commands::bind("bind", bind),
            Self::Unbind(bind) => commands::bind("unbind", bind),
            Self::AddFilter(filter) => commands::filter("add", filter),
            Self::RemoveFilter(filter) => commands::filter("remove", filter),
            Self::AddRoute(route) => commands::route("add", route),
            Self::RemoveRoute(route) => format!("route remove {}", route.to.value()),
            Self::SetRoute { to, .. } => commands::route("replace", to),
            Self::AddNeighbour(neighbour) => commands::neighbour("add", neighbour),
            Self::RemoveNeighbour(neighbour) => commands::neighbour("remove", neighbour),
            Self::AddPrincipal(principal) => commands::add_principal(principal),
            Self::RemovePrincipal(principal) | Self::ReleasePrincipal(principal) => {
                format!("principal remove {}", &*principal.name)
            }
            Self::SetPrincipal { from, to } => commands::set_principal(from, to),
            Self::Place { from, to } => return commands::places(from, to),
        }]
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.commands().join("; "))
    }
}

impl Instance {
    /// Returns the changes of settings that turn this instance into `to`; `null` removes a setting.
    pub fn settings_to(&self, to: &Self) -> Map<String, Value> {
        commands::difference(&self.settings, &to.settings)
    }
}

/// Formats settings as command arguments. Each argument follows a blank.
fn settings(settings: &Map<String, Value>) -> String {
    settings.iter().map(|(key, value)| format!(" {}", commands::setting(key, value))).collect()
}
