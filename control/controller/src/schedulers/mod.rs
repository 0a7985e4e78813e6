//! Schedulers of ports: planning, checks, changes while packets are queued, and views.

pub(crate) mod changes;
pub(crate) mod names;
pub(crate) mod node_changes;
pub(crate) mod node_removal;
pub(crate) mod node_settings;
pub(crate) mod queueing;
pub(crate) mod queues;
pub(crate) mod tree;
pub(crate) mod view;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use millrace_config::{Fate, Fates, FlowQueue, Scheduler, SchedulerNode};
use millrace_pipeline::{Piece, ScheduleChange, SchedulerCommand};
use millrace_plugin::Action;
use millrace_schedule::ScheduleError;
use millrace_units::{PortId, QueueId};

use crate::ControlError;
use crate::model::Model;
use crate::router::Inner;
use crate::schedulers::names::Names;
use crate::schedulers::queues::tell_reserved;
use crate::schedulers::tree::{Part, Unplanned};
use crate::schedulers::view::{say_beyond_link, say_beyond_room};
use crate::workers::Workers;
use crate::workers::handle::WorkerHandle;

/// Maximum number of scheduler changes that a worker makes between two batches.
const CHANGES_AT_ONCE: usize = 64;

/// Planned schedulers of all ports, and the numbers of their nodes. A name has the same number at every port,
/// so filters and plugins can name a queue independently of the egress port.
#[derive(Clone, Debug, Default)]
pub(crate) struct Schedulers {
    ports: BTreeMap<PortId, Scheduler>,
    names: Arc<Names>,
    /// Numbers of queues that filters name. Filled only when no unused number is left.
    kept: HashSet<QueueId>,
}

impl Schedulers {
    /// Plans the scheduler of a port.
    pub fn plan(&mut self, port: PortId, name: &str, scheduler: &Scheduler) -> Result<(), Unplanned> {
        let at_port = |Unplanned { part, error }| Unplanned {
            part,
            error: ControlError::Invalid(format!("scheduler of port {name:?}: {error}")),
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

    /// Stores the settings of a flow's queue; `None` removes them.
    pub fn note_flow(&mut self, port: PortId, queue: &str, flow: &str, treated: Option<FlowQueue>) {
        let Some(scheduler) = self.ports.get_mut(&port) else { return };
        scheduler.flow.retain(|own| own.queue != queue || own.flow != flow);
        scheduler.flow.extend(treated);
    }

    /// Returns the settings of flows' queues at all ports.
    pub fn flows(&self) -> impl Iterator<Item = &FlowQueue> {
        self.ports.values().flat_map(|scheduler| &scheduler.flow)
    }

    /// Returns the scheduler of a port.
    pub fn of(&self, port: PortId) -> Option<&Scheduler> {
        self.ports.get(&port)
    }

    /// Returns the number of a node name that some port has, or had.
    pub fn known(&self, name: &str) -> Option<QueueId> {
        self.names.known(name)
    }

    /// Returns the name that has a number; `?` for an unknown number.
    pub fn name(&self, number: QueueId) -> &str {
        self.names.name(number)
    }

    /// Returns the schedulers of all ports that have one.
    pub fn all(&self) -> impl Iterator<Item = (PortId, &Scheduler)> {
        self.ports.iter().map(|(port, scheduler)| (*port, scheduler))
    }

    /// Stores the numbers of queues that filters name, if no unused number is left: they must not be
    /// reassigned.
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

    /// Returns a description of a leaf of a port, for explanations of packets.
    pub fn describe(&self, port: PortId, leaf: QueueId) -> String {
        let name = self.name(leaf);
        let node = self.ports.get(&port).and_then(|scheduler| find(scheduler, name).ok());
        let kind = node.map_or_else(String::new, |node| format!(" ({})", node.kind.name()));
        format!("node {name:?}{kind} of the scheduler")
    }

    /// Returns the number of a leaf that some port has.
    pub fn queue(&self, name: &str) -> Result<QueueId, ControlError> {
        let leaf = |node: &&SchedulerNode| node.kind.is_leaf();
        let leaves = || self.ports.values().flat_map(|scheduler| scheduler.node.iter().filter(leaf));
        match self.known(name).filter(|_| leaves().any(|node| node.name == name)) {
            Some(number) => Ok(number),
            None => Err(ControlError::unknown("queue", name, leaves().map(|node| node.name.as_str()))),
        }
    }

    /// Returns the leaves at or below a node of a port's scheduler, without leaves whose names another port
    /// has too.
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

    /// Returns the error of a scheduler tree, with node names instead of numbers.
    pub fn refusal(&self, error: ScheduleError) -> ControlError {
        ControlError::Invalid(self.with_names(&error.to_string()))
    }

    /// Replaces the node numbers in a text by node names.
    fn with_names(&self, text: &str) -> String {
        let mut after = false;
        let word = |word: &str| {
            let digits = word.len() - word.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let number = word[..digits].parse::<u16>().ok().filter(|_| after);
            after = matches!(word, "node" | "parent" | "add" | "below" | "under" | "child");
            match number {
                Some(number) => format!("{:?}{}", self.name(QueueId(number)), &word[digits..]),
                None => word.to_owned(),
            }
        };
        text.split(' ').map(word).collect::<Vec<_>>().join(" ")
    }
}

/// Splits a list of changes into pieces for the worker. An empty list gives one empty piece.
fn pieces(changes: Vec<ScheduleChange>) -> impl Iterator<Item = (Piece, Vec<ScheduleChange>)> {
    let (mut left, mut begins) = (changes.into_iter(), true);
    std::iter::from_fn(move || {
        let changes: Vec<_> = left.by_ref().take(CHANGES_AT_ONCE).collect();
        let piece = Piece { begins, ends: left.len() == 0 };
        (begins || !changes.is_empty()).then(|| {
            begins = false;
            (piece, changes)
        })
    })
}

/// Returns the leaf for packets that no filter assigns to a queue: the configured default, or the first leaf.
pub(crate) fn default_leaf(scheduler: &Scheduler) -> Result<Option<&str>, ControlError> {
    millrace_config::default_leaf(scheduler).map(|default| leaf(scheduler, default)).transpose()
}

/// Returns the name of a leaf; refuses a node that is not a leaf.
fn leaf<'s>(scheduler: &'s Scheduler, name: &str) -> Result<&'s str, ControlError> {
    let node = find(scheduler, name)?;
    if node.kind.is_leaf() {
        return Ok(&node.name);
    }
    Err(ControlError::Invalid(format!(
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

/// Checks the name of a node.
fn check_name(name: &str) -> Result<(), ControlError> {
    if name.is_empty() || name.len() > 64 || name.contains(char::is_whitespace) {
        return Err(ControlError::Invalid(format!(
            "{name:?} is no name of a node: give 1 to 64 characters without blanks"
        )));
    }
    Ok(())
}

/// Returns the worker that owns a port's device.
pub(crate) fn owner_of<'a>(
    port: PortId,
    model: &Model,
    workers: &'a mut Workers,
) -> Result<&'a mut WorkerHandle, ControlError> {
    let plan = model.ports.iter().find(|plan| plan.id == port);
    let plan = plan.ok_or_else(|| ControlError::System(format!("port {}: no such port", port.0)))?;
    Ok(workers.owner(plan.settings.device))
}

impl Inner {
    /// Sends changes of a port's scheduler to the worker that owns the port's device, in pieces, and waits
    /// for the answers.
    pub fn schedule(&mut self, port: PortId, changes: Vec<ScheduleChange>) -> Result<(), ControlError> {
        self.devices.tell_scheduler(port, &self.model, &mut self.workers)?;
        let worker = owner_of(port, &self.model, &mut self.workers)?;
        // All pieces are sent before the first answer is awaited. So a late worker still makes all changes.
        let mut tell =
            |(piece, changes)| worker.begin(|reply| SchedulerCommand::Change(port, changes, piece, reply));
        let asked: Vec<_> = pieces(changes).map(&mut tell).collect::<Result<_, _>>()?;
        for answer in asked {
            WorkerHandle::finish(answer)?.map_err(|error| self.model.schedulers.refusal(error))?;
        }
        Ok(())
    }

    /// Changes the scheduler of a port in the plan, then at the worker. After a refusal nothing has changed.
    /// Packets of removed nodes move to leaf `to`.
    pub fn change_scheduler(
        &mut self,
        port: &str,
        to: Option<&str>,
        change: impl FnOnce(&mut Scheduler) -> Result<(), ControlError>,
    ) -> Result<PortId, ControlError> {
        let id = self.model.port(port)?.id;
        let mut planned = self.model.schedulers.clone();
        let before = planned.ports.get(&id).cloned().unwrap_or_default();
        let mut after = before.clone();
        change(&mut after)?;
        let filters = self.model.plugins.bindings_by_age().filter_map(|(_, bound)| match bound.action {
            Action::Queue(queue) => Some(queue),
            _ => None,
        });
        planned.keep(filters);
        match after.node.is_empty() {
            true => planned.remove(id),
            false => planned.plan(id, port, &after)?,
        }
        let to = to.map(|to| leaf(&after, to)).transpose()?.and_then(|to| planned.known(to));
        let mut changes = planned.changes(&before, &after, to)?;
        // The new plan is stored first, because the text of a refusal needs the names of new nodes.
        let old = std::mem::replace(&mut self.model.schedulers, planned);
        let mut flows_before = before.flow.clone();
        let fates = Fates::of(&before, &after);
        // A leaf loses the settings of its flows when it is removed or changes its kind.
        flows_before
            .retain(|flow| matches!(fates.get(&flow.queue), Fate::Stays | Fate::Leaf { changes: false, .. }));
        let flows = self.model.flow_changes(port, &flows_before, &after.flow);
        changes.extend(flows.inspect_err(|_| self.model.schedulers = old.clone())?);
        self.schedule(id, changes).inspect_err(|error| {
            // A worker that doesn't answer still makes the change when it continues.
            if !error.is_failure() {
                self.model.schedulers = old;
            }
        })?;
        self.queueing.begin_rates(port, &fates, &before, &after);
        tell_reserved(&self.model, &mut self.workers)?;
        self.devices.set_host_outputs(&self.model, &mut self.workers)?;
        say_beyond_link(id, &self.model, &self.devices, &self.kernel);
        say_beyond_room(id, &self.model, &mut self.workers);
        self.observation.note_reservations(port, &before, &after);
        self.queueing.remember_flows(&self.model, &before.flow, &after.flow);
        Ok(id)
    }
}

/// Returns a scheduler without a node and the nodes below it. If the default leaf is among them, `to` becomes
/// the default.
///
/// # Errors
/// Returns an error if there is no scheduler or no such node, or if `to` is no leaf that stays.
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
            return Err(ControlError::Invalid(format!(
                "{to:?} is removed with {name:?}: choose a leaf that stays"
            )));
        }
        Some(to) => drop(leaf(&left, to)?),
        None => {}
    }
    // Packets of a removed default leaf move to `to`. New packets must not overtake them, so they go there
    // too.
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
