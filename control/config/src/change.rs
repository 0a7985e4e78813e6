//! One difference between two configurations, as a change that can be made while the router runs, and unmade.

use std::fmt;

use serde_json::{Map, Value};

use crate::scheduler::Scheduler;
use crate::schema::{
    Bind, ControlPlane, Filter, Gate, GateTable, Instance, Neighbour, Placement, Plugin, Port, Route, Router,
};
use crate::words::{self, changed};

/// A change of what runs. It knows what was there before, so that it can be undone.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Other settings that hold for the whole router.
    Router {
        /// Those before.
        from: Box<Router>,
        /// Those after.
        to: Box<Router>,
    },
    /// Other rates of what is for the router itself.
    ControlPlane {
        /// Those before.
        from: Box<ControlPlane>,
        /// Those after.
        to: Box<ControlPlane>,
    },
    /// A plugin that is a file is loaded.
    AddPlugin(Plugin),
    /// It is forgotten.
    RemovePlugin(Plugin),
    /// A port gets other addresses, or another setting that needs no other device.
    SetPort {
        /// As it was.
        from: Box<Port>,
        /// As it becomes.
        to: Box<Port>,
    },
    /// A port gets a scheduler, another one or none.
    SetScheduler {
        /// The port's name.
        port: String,
        /// The one before.
        from: Option<Box<Scheduler>>,
        /// The one after.
        to: Option<Box<Scheduler>>,
        /// Who gets what waits in nodes that go away.
        heir: Heir,
    },
    /// A gate is created.
    AddGate(Gate),
    /// It is removed.
    RemoveGate(Gate),
    /// The filters of a gate are searched in another way.
    SetGate {
        /// The gate's name.
        gate: String,
        /// The way before.
        from: GateTable,
        /// The way after.
        to: GateTable,
    },
    /// An instance is created.
    AddInstance(Instance),
    /// It is freed.
    RemoveInstance(Instance),
    /// An instance gets other settings.
    SetInstance {
        /// As it was.
        from: Instance,
        /// As it becomes.
        to: Instance,
    },
    /// An instance is bound.
    Bind(Bind),
    /// It is no longer.
    Unbind(Bind),
    /// A filter is added.
    AddFilter(Filter),
    /// It is removed.
    RemoveFilter(Filter),
    /// A route is added.
    AddRoute(Route),
    /// It is removed.
    RemoveRoute(Route),
    /// A prefix gets another route; no packet is without one.
    SetRoute {
        /// The one before.
        from: Route,
        /// The one after.
        to: Route,
    },
    /// A neighbour is known for good.
    AddNeighbour(Neighbour),
    /// It is no longer.
    RemoveNeighbour(Neighbour),
    /// Flows are treated elsewhere.
    Place {
        /// What was said of flows before.
        from: Vec<Placement>,
        /// What is said after.
        to: Vec<Placement>,
    },
}

/// What becomes of packets that wait in nodes of a scheduler that go away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heir {
    /// A leaf that stays gets them, where there is one: the default one first.
    Any,
    /// This leaf gets them.
    Leaf(String),
    /// They are dropped.
    Nobody,
}

impl Heir {
    /// The leaf that it is, when one scheduler makes place for another.
    #[must_use]
    pub fn of<'s>(&'s self, from: &'s Scheduler, to: &'s Scheduler) -> Option<&'s str> {
        match self {
            Self::Any => crate::nodes::heir(from, to),
            Self::Leaf(leaf) => Some(leaf),
            Self::Nobody => None,
        }
    }
}

impl Change {
    /// Whether the next change must be made with this one, so that no packet comes between: it takes its place.
    pub fn is_followed_by(&self, next: &Self) -> bool {
        matches!(self, Self::Unbind(_) | Self::RemoveFilter(_)) && self.place() == next.place()
    }

    /// The gate and the packets that it is about, if it is about such.
    fn place(&self) -> Option<(&str, &str)> {
        match self {
            Self::Bind(bind) | Self::Unbind(bind) => Some(bind.place()),
            Self::AddFilter(filter) | Self::RemoveFilter(filter) => Some(filter.place()),
            _ => None,
        }
    }
}

/// Changes that are made together, between two batches of packets where that matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Together {
    /// Bindings and filters.
    Bindings,
    /// Routes.
    Routes,
    /// Each alone.
    Alone,
}

impl Change {
    /// The change that undoes it.
    pub fn inverse(self) -> Self {
        match self {
            Self::Router { from, to } => Self::Router { from: to, to: from },
            Self::ControlPlane { from, to } => Self::ControlPlane { from: to, to: from },
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
            Self::Place { from, to } => Self::Place { from: to, to: from },
        }
    }

    /// With which others it is made.
    pub fn together(&self) -> Together {
        match self {
            Self::Bind(_) | Self::Unbind(_) | Self::AddFilter(_) | Self::RemoveFilter(_) => {
                Together::Bindings
            }
            Self::AddRoute(_) | Self::RemoveRoute(_) | Self::SetRoute { .. } => Together::Routes,
            _ => Together::Alone,
        }
    }

    /// The commands that do the same, each without the `millrace` before it. Most changes are one.
    pub fn commands(&self) -> Vec<String> {
        match self {
            Self::SetScheduler { port, from, to, heir } => {
                let none = Scheduler::default();
                let (from, to) = (from.as_deref().unwrap_or(&none), to.as_deref().unwrap_or(&none));
                words::scheduler(port, from, to, heir.of(from, to))
            }
            Self::RemoveNeighbour(neighbour) => vec![words::neighbour("remove", neighbour)],
            Self::Place { from, to } => words::places(from, to),
            other => vec![other.command()],
        }
    }

    fn command(&self) -> String {
        match self {
            Self::Router { from, to } => format!("router set{}", settings(&changed(from, to))),
            Self::ControlPlane { from, to } => {
                format!("control-plane set{}", settings(&changed(&**from, &**to)))
            }
            Self::AddPlugin(plugin) => words::add_plugin(plugin),
            Self::RemovePlugin(plugin) => format!("plugin unload {}", words::quoted(&plugin.file.display())),
            Self::SetPort { from, to } => {
                format!("port set {}{}", &*to.name, settings(&changed(from, to)))
            }
            Self::SetScheduler { port, .. } => format!("scheduler of {port}"),
            Self::AddGate(gate) => words::add_gate(gate),
            Self::RemoveGate(gate) => format!("gate remove {}", &*gate.name),
            Self::SetGate { gate, to, .. } => format!("gate set {gate} --table {}", words::text(to)),
            Self::AddInstance(instance) => format!(
                "instance create {} {}{}",
                &*instance.plugin,
                &*instance.name,
                settings(&instance.settings)
            ),
            Self::RemoveInstance(instance) => format!("instance free {}", &*instance.name),
            Self::SetInstance { from, to } => {
                format!("instance set {}{}", &*to.name, settings(&from.settings_to(to)))
            }
            Self::Bind(bind) => words::bind("bind", bind),
            Self::Unbind(bind) => words::bind("unbind", bind),
            Self::AddFilter(filter) => words::filter("add", filter),
            Self::RemoveFilter(filter) => words::filter("remove", filter),
            Self::AddRoute(route) => words::route("add", route),
            Self::RemoveRoute(route) => format!("route remove {}", route.to.value()),
            Self::SetRoute { to, .. } => words::route("replace", to),
            Self::AddNeighbour(neighbour) => words::neighbour("add", neighbour),
            Self::RemoveNeighbour(neighbour) => words::neighbour("remove", neighbour),
            Self::Place { from, to } => words::places(from, to).join("; "),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.commands().join("; "))
    }
}

impl Instance {
    /// The settings that make another instance's of this one's: `null` takes one away.
    pub fn settings_to(&self, to: &Self) -> Map<String, Value> {
        let gone = self.settings.keys().filter(|key| !to.settings.contains_key(*key));
        let new = to.settings.iter().filter(|(key, value)| self.settings.get(*key) != Some(value));
        gone.map(|key| (key.clone(), Value::Null))
            .chain(new.map(|(key, value)| (key.clone(), value.clone())))
            .collect()
    }
}

/// Settings as they are given to a command, with a blank before each.
fn settings(settings: &Map<String, Value>) -> String {
    settings.iter().map(|(key, value)| format!(" {}", words::setting(key, value))).collect()
}
