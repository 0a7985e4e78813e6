//! Planned schedulers of ports: their checks, the numbers of their nodes, and the changes that turn one
//! scheduler into another.

pub(crate) mod changes;
pub(crate) mod links;
mod names;
mod node_settings;
pub(crate) mod tree;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use millrace_config::{FlowQueue, Principal, Scheduler, SchedulerNode};
use millrace_schedule::{NodeId, ScheduleError};
use millrace_units::{PortId, QueueId};

use crate::ControlError;
use crate::model::schedulers::names::Names;
use crate::model::schedulers::tree::{Part, Unplanned};

/// Planned schedulers of all ports, and the numbers of their nodes. A node name has the same number at every
/// port. So filters and plugins can name a queue before the egress port is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Schedulers {
    ports: BTreeMap<PortId, Scheduler>,
    names: Arc<Names>,
    /// Numbers of queues that filters name. They are collected only when no unused number is left.
    kept: HashSet<QueueId>,
}

impl Schedulers {
    pub fn plan(&mut self, port: PortId, name: &str, scheduler: &Scheduler) -> Result<(), Unplanned> {
        let at_port = |Unplanned { part, error }| Unplanned {
            part,
            error: ControlError::invalid(format!("scheduler of port {name:?}: {error}")),
        };
        let mut planned = self.clone();
        planned.number_all(scheduler).map_err(at_port)?;
        planned.check(scheduler).map_err(at_port)?;
        let before = planned.ports.remove(&port);
        let there = before.iter().flat_map(|before| &before.node).chain(&scheduler.node);
        Arc::make_mut(&mut planned.names).note(there.map(|node| &*node.name));
        planned.ports.insert(port, scheduler.clone());
        *self = planned;
        Ok(())
    }

    /// Stores the settings of a flow at a leaf; `None` removes them.
    pub fn note_flow(&mut self, port: PortId, queue: &str, flow: &str, treated: Option<FlowQueue>) {
        let Some(scheduler) = self.ports.get_mut(&port) else { return };
        scheduler.flow.retain(|own| own.queue != queue || own.flow != flow);
        scheduler.flow.extend(treated);
    }

    /// Returns the settings of single flows at all ports.
    pub fn flows(&self) -> impl Iterator<Item = &FlowQueue> {
        self.ports.values().flat_map(|scheduler| &scheduler.flow)
    }

    /// Returns the scheduler of a port, with the queues of principals.
    pub fn of(&self, port: PortId) -> Option<&Scheduler> {
        self.ports.get(&port)
    }

    /// Returns the scheduler of a port as it is configured.
    pub fn configured(&self, port: PortId) -> Option<Scheduler> {
        self.of(port).map(links::without_links)
    }

    /// Assigns numbers to the queues of all principals. A binding keeps the number of its principal's queue,
    /// also while no port has such a queue.
    ///
    /// # Errors
    /// All numbers are in use.
    pub fn number_principals(&mut self, principals: &[Principal]) -> Result<(), ControlError> {
        let none = Scheduler::default();
        principals.iter().try_for_each(|one| self.number(&links::queue_name(&one.name), &none))
    }

    /// Returns the number of a principal's queue; 0 for a principal without one.
    pub fn queue_of_principal(&self, name: &str) -> QueueId {
        self.known(&links::queue_name(name)).unwrap_or_default()
    }

    /// Returns the number of a node name; `None` if no port has or had a node of this name.
    pub fn known(&self, name: &str) -> Option<QueueId> {
        self.names.known(name)
    }

    /// Returns the name that has a number; `?` for an unknown number.
    pub fn name(&self, number: QueueId) -> &str {
        self.names.name(number)
    }

    pub fn all(&self) -> impl Iterator<Item = (PortId, &Scheduler)> {
        self.ports.iter().map(|(port, scheduler)| (*port, scheduler))
    }

    /// Stores the numbers of queues that filters name, because these numbers must not be reassigned. Does
    /// nothing while unused numbers are left.
    pub fn keep(&mut self, named: impl Iterator<Item = QueueId>) {
        self.kept = if self.names.are_all_given() { named.collect() } else { HashSet::new() };
    }

    /// Removes the scheduler of a port.
    pub fn remove(&mut self, port: PortId) {
        let gone = self.ports.remove(&port);
        let names = gone.iter().flat_map(|gone| &gone.node).map(|node| &*node.name);
        Arc::make_mut(&mut self.names).note(names);
    }

    /// Assigns numbers to the nodes of a scheduler.
    fn number_all(&mut self, scheduler: &Scheduler) -> Result<(), Unplanned> {
        for (index, node) in scheduler.node.iter().enumerate() {
            check_name(&node.name)
                .and_then(|()| self.number(&node.name, scheduler))
                .map_err(|error| Unplanned { part: Part::Node(index, "name"), error })?;
        }
        Ok(())
    }

    /// Assigns a number to a name that has none yet.
    fn number(&mut self, name: &str, planned: &Scheduler) -> Result<(), ControlError> {
        if self.known(name).is_some() {
            return Ok(());
        }
        let Self { ports, names, kept } = self;
        let in_use = |numbers: &HashMap<String, QueueId>| {
            let there = ports.values().chain([planned]).flat_map(|scheduler| &scheduler.node);
            there.filter_map(|node| numbers.get(&node.name).copied()).chain(kept.iter().copied()).collect()
        };
        Arc::make_mut(names).number(name, in_use).map(drop)
    }

    /// Returns the description of a leaf of a port, for texts about packets.
    pub fn describe(&self, port: PortId, leaf: QueueId) -> String {
        let name = self.name(leaf);
        let node = self.ports.get(&port).and_then(|scheduler| find(scheduler, name).ok());
        let kind = node.map_or_else(String::new, |node| format!(" ({})", node.kind.name()));
        format!("node {name:?}{kind} of the scheduler")
    }

    /// Returns the number of the leaf of this name. Returns an error if no port has a leaf of this name.
    pub fn queue(&self, name: &str) -> Result<QueueId, ControlError> {
        let leaf = |node: &&SchedulerNode| node.kind.is_leaf();
        let leaves = || self.ports.values().flat_map(|scheduler| scheduler.node.iter().filter(leaf));
        match self.known(name).filter(|_| leaves().any(|node| node.name == name)) {
            Some(number) => Ok(number),
            None => Err(ControlError::unknown("queue", name, leaves().map(|node| node.name.as_str()))),
        }
    }

    /// Returns the names of the leaves at or below a node of a port's scheduler, without the names that
    /// leaves of other ports have too.
    pub fn leaves_alone(&self, port: PortId, node: &str) -> HashSet<&str> {
        let Some(own) = self.ports.get(&port) else { return HashSet::new() };
        let gone = below(own, node);
        let others =
            self.ports.iter().filter(|(other, _)| **other != port).flat_map(|(_, other)| &other.node);
        let elsewhere: HashSet<&str> =
            others.filter(|node| node.kind.is_leaf()).map(|node| &*node.name).collect();
        let leaves = own.node.iter().filter(|node| node.kind.is_leaf() && gone.contains(&*node.name));
        leaves.map(|node| &*node.name).filter(|name| !elsewhere.contains(name)).collect()
    }

    /// Returns the number and the settings of a leaf of a port.
    pub fn leaf(
        &self,
        port: PortId,
        name: &str,
        queue: &str,
    ) -> Result<(QueueId, &SchedulerNode), ControlError> {
        let scheduler = self.ports.get(&port).ok_or_else(|| ControlError::no_scheduler(name))?;
        let node = find(scheduler, leaf(scheduler, queue)?)?;
        Ok((self.known(queue).unwrap_or_default(), node))
    }

    /// Converts the error of a scheduler tree to an error of control. The text names nodes instead of
    /// numbers.
    pub fn refusal(&self, error: ScheduleError) -> ControlError {
        let name = |node: NodeId| {
            let number = u16::try_from(node.0).unwrap_or_default();
            format!("{:?}", self.name(QueueId(number)))
        };
        ControlError::invalid(error.named(name).to_string())
    }
}

/// Returns the leaf for packets that no filter assigns to a queue: the configured default, or the first leaf.
pub(crate) fn default_leaf(scheduler: &Scheduler) -> Result<Option<&str>, ControlError> {
    millrace_config::default_leaf(scheduler).map(|default| leaf(scheduler, default)).transpose()
}

/// Returns the name of a leaf; refuses a node that is not a leaf.
pub(crate) fn leaf<'s>(scheduler: &'s Scheduler, name: &str) -> Result<&'s str, ControlError> {
    let node = find(scheduler, name)?;
    if node.kind.is_leaf() {
        return Ok(&node.name);
    }
    Err(ControlError::invalid(format!(
        "node {name:?} holds no packets itself: it is a {}; name a leaf",
        node.kind.name()
    )))
}

pub(crate) fn find<'s>(scheduler: &'s Scheduler, name: &str) -> Result<&'s SchedulerNode, ControlError> {
    let found = scheduler.node.iter().find(|node| node.name == name);
    found.ok_or_else(|| {
        ControlError::unknown("node", name, scheduler.node.iter().map(|node| node.name.as_str()))
    })
}

fn check_name(name: &str) -> Result<(), ControlError> {
    let name = name.strip_prefix(Principal::QUEUE_PREFIX).unwrap_or(name);
    if name.is_empty() || name.len() > 64 || name.contains(char::is_whitespace) {
        return Err(ControlError::invalid(format!(
            "{name:?} is not a valid node name: use 1 to 64 characters without blanks"
        )));
    }
    Ok(())
}

/// Returns a copy of a scheduler from which a node and all nodes below it are removed. If the default leaf is
/// among the removed nodes, `to` becomes the default leaf.
///
/// # Errors
/// Returns an error if there is no scheduler or no such node, or if `to` is no remaining leaf.
pub(crate) fn without(
    scheduler: &Scheduler,
    port: &str,
    name: &str,
    to: Option<&str>,
) -> Result<Scheduler, ControlError> {
    find(unless_empty(scheduler, port)?, name)?;
    let (gone, mut left) = (below(scheduler, name), scheduler.clone());
    left.node.retain(|node| !gone.contains(&*node.name));
    left.flow.retain(|flow| !gone.contains(&*flow.queue));
    match to {
        Some(to) if gone.contains(to) => {
            return Err(ControlError::invalid(format!(
                "packets can't move to {to:?}, which is removed with {name:?}: choose a leaf that stays"
            )));
        }
        Some(to) => drop(leaf(&left, to)?),
        None => {}
    }
    // Packets of a removed default leaf move to `to`. New packets go to `to` as well, so that they don't
    // overtake the moved packets.
    if default_leaf(scheduler)?.is_some_and(|default| gone.contains(default)) {
        left.default = to.map(str::to_owned);
    }
    Ok(left)
}

pub(crate) fn unless_empty<'s>(scheduler: &'s Scheduler, port: &str) -> Result<&'s Scheduler, ControlError> {
    if scheduler.node.is_empty() {
        return Err(ControlError::no_scheduler(port));
    }
    Ok(scheduler)
}

/// Returns the names of a node and of all nodes below it. One pass suffices, because each node follows its
/// parent.
fn below<'s>(scheduler: &'s Scheduler, name: &str) -> HashSet<&'s str> {
    let mut names = HashSet::new();
    for node in &scheduler.node {
        if node.name == name || node.under.as_deref().is_some_and(|under| names.contains(under)) {
            names.insert(&*node.name);
        }
    }
    names
}

#[cfg(test)]
mod tests;
