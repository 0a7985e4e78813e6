//! The schedulers of ports: planned, checked, changed while packets wait in them, and shown.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use millrace_config::{Fate, Fates, FlowQueue, Scheduler, SchedulerNode};
use millrace_pipeline::{Piece, ScheduleChange, SchedulerCommand};
use millrace_plugin::Action;
use millrace_schedule::ScheduleError;
use millrace_units::{PortId, QueueId};
use serde_json::{Map, Value};

use crate::ControlError;
use crate::merge_patch::{all_known, patched};
use crate::router::{Inner, Router};
use crate::scheduler_names::Names;
use crate::scheduler_tree::{Part, Unplanned};
use crate::view::SchedulerView;
use crate::worker_handle::WorkerHandle;

/// What `scheduler set PORT` without a node changes.
const SETTINGS: [&str; 6] = ["rate", "overhead", "default", "queues", "host", "host-weight"];

/// Changes that a worker makes between two batches.
const CHANGES_AT_ONCE: usize = 64;

/// The schedulers that are planned, and the numbers of their nodes: a name has the same one at every port, so that filters
/// and plugins name a queue whatever port a packet leaves by.
#[derive(Clone, Debug, Default)]
pub(crate) struct Schedulers {
    ports: BTreeMap<PortId, Scheduler>,
    names: Arc<Names>,
    /// Numbers that filters name, as far as that matters.
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

    /// Notes how the queue of a flow is treated from now on; like all others, if nothing is said.
    pub fn note_flow(&mut self, port: PortId, queue: &str, flow: &str, treated: Option<FlowQueue>) {
        let Some(scheduler) = self.ports.get_mut(&port) else { return };
        scheduler.flow.retain(|own| own.queue != queue || own.flow != flow);
        scheduler.flow.extend(treated);
    }

    /// Returns the configured flow queues of all ports.
    pub fn flows(&self) -> impl Iterator<Item = &FlowQueue> {
        self.ports.values().flat_map(|scheduler| &scheduler.flow)
    }

    /// The scheduler of a port.
    pub fn of(&self, port: PortId) -> Option<&Scheduler> {
        self.ports.get(&port)
    }

    /// The number of a leaf that there is, or was.
    pub fn known(&self, name: &str) -> Option<QueueId> {
        self.names.known(name)
    }

    /// The name of a number.
    pub fn name(&self, number: QueueId) -> &str {
        self.names.name(number)
    }

    /// The schedulers of all ports that have one.
    pub fn all(&self) -> impl Iterator<Item = (PortId, &Scheduler)> {
        self.ports.iter().map(|(port, scheduler)| (*port, scheduler))
    }

    /// Says which numbers filters name, if that matters: none of them is given to another name.
    pub fn keep(&mut self, named: impl Iterator<Item = QueueId>) {
        self.kept = if self.names.are_all_given() { named.collect() } else { HashSet::new() };
    }

    /// Forgets the scheduler of a port.
    pub fn remove(&mut self, port: PortId) {
        let gone = self.ports.remove(&port);
        let names = gone.iter().flat_map(|gone| &gone.node).map(|node| &*node.name);
        Arc::make_mut(&mut self.names).note(names);
    }

    /// Gives the nodes of a scheduler their numbers.
    fn number_all(&mut self, scheduler: &Scheduler) -> Result<(), Unplanned> {
        for (index, node) in scheduler.node.iter().enumerate() {
            check_name(&node.name)
                .and_then(|()| self.number(&node.name, scheduler))
                .map_err(|error| Unplanned { part: Part::Node(index, "name"), error })?;
        }
        Ok(())
    }

    /// The number of a name, a new one if it has none yet.
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

    /// A leaf of a port, in words.
    pub fn describe(&self, port: PortId, leaf: QueueId) -> String {
        let name = self.name(leaf);
        let node = self.ports.get(&port).and_then(|scheduler| find(scheduler, name).ok());
        let kind = node.map_or_else(String::new, |node| format!(" ({})", node.kind.name()));
        format!("node {name:?}{kind} of the scheduler")
    }

    /// The number of a leaf, whatever port it is at.
    pub fn queue(&self, name: &str) -> Result<QueueId, ControlError> {
        let leaf = |node: &&SchedulerNode| node.kind.is_leaf();
        let leaves = || self.ports.values().flat_map(|scheduler| scheduler.node.iter().filter(leaf));
        match self.known(name).filter(|_| leaves().any(|node| node.name == name)) {
            Some(number) => Ok(number),
            None => Err(ControlError::unknown("queue", name, leaves().map(|node| node.name.as_str()))),
        }
    }

    /// The leaves at and below a node of a port's scheduler whose names no other port has.
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

    /// The number of a leaf of a port, and what was said of it.
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

    /// What a tree refused, told with names.
    pub fn refusal(&self, error: ScheduleError) -> ControlError {
        ControlError::Invalid(self.with_names(&error.to_string()))
    }

    /// A text that speaks of nodes by their numbers, by their names.
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

/// A list of changes in the pieces that a worker is told. An empty one is told as well.
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

/// The leaf for packets that nothing else is said of: the first one, unless another is named.
pub(crate) fn default_leaf(scheduler: &Scheduler) -> Result<Option<&str>, ControlError> {
    millrace_config::default_leaf(scheduler).map(|default| leaf(scheduler, default)).transpose()
}

/// The name of a node, which has to be a leaf.
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

/// Whether a node can be named so.
fn check_name(name: &str) -> Result<(), ControlError> {
    if name.is_empty() || name.len() > 64 || name.contains(char::is_whitespace) {
        return Err(ControlError::Invalid(format!(
            "{name:?} is no name of a node: give 1 to 64 characters without blanks"
        )));
    }
    Ok(())
}

/// Puts nodes behind those that they are under; what is under none that is there stays at the end.
fn in_order(nodes: &mut Vec<SchedulerNode>) {
    let mut there = HashSet::new();
    let mut left = std::mem::take(nodes);
    loop {
        let before = nodes.len();
        for node in std::mem::take(&mut left) {
            match node.under.as_ref().is_none_or(|under| there.contains(under)) {
                true => {
                    there.insert(node.name.clone());
                    nodes.push(node);
                }
                false => left.push(node),
            }
        }
        if nodes.len() == before {
            break;
        }
    }
    nodes.append(&mut left);
}

impl Inner {
    /// Has the worker that has a port's device change the port's scheduler, a long list of changes piece by piece.
    pub fn schedule(&mut self, port: PortId, changes: Vec<ScheduleChange>) -> Result<(), ControlError> {
        self.tell_driver_of_scheduler(port)?;
        let worker = self.owner_of(port)?;
        // All pieces are told before the first is answered: a worker that is late makes all of them.
        let mut tell =
            |(piece, changes)| worker.begin(|reply| SchedulerCommand::Change(port, changes, piece, reply));
        let asked: Vec<_> = pieces(changes).map(&mut tell).collect::<Result<_, _>>()?;
        for answer in asked {
            WorkerHandle::finish(answer)?.map_err(|error| self.model.schedulers.refusal(error))?;
        }
        Ok(())
    }

    /// The worker that has a port's device.
    pub fn owner_of(&mut self, port: PortId) -> Result<&mut WorkerHandle, ControlError> {
        let plan = self.model.ports.iter().find(|plan| plan.id == port);
        let plan = plan.ok_or_else(|| ControlError::System("the port is not there".into()))?;
        Ok(self.workers.owner(plan.settings.device))
    }

    /// Changes the scheduler of a port as it is planned, and then where the packets are. If that can't be, nothing has
    /// changed. What waits in nodes that go away goes `to` a leaf.
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
        // The names of new nodes are told in what is refused.
        let old = std::mem::replace(&mut self.model.schedulers, planned);
        let mut flows_before = before.flow.clone();
        let fates = Fates::of(&before, &after);
        // What was said of flows of a leaf is forgotten with it, and when it becomes another.
        flows_before
            .retain(|flow| matches!(fates.get(&flow.queue), Fate::Stays | Fate::Leaf { changes: false, .. }));
        let flows = self.model.flow_changes(port, &flows_before, &after.flow);
        changes.extend(flows.inspect_err(|_| self.model.schedulers = old.clone())?);
        self.schedule(id, changes).inspect_err(|error| {
            // A worker that does not answer makes the change all the same, as soon as it goes on.
            if !error.is_failure() {
                self.model.schedulers = old;
            }
        })?;
        self.begin_rates(port, &fates, &before, &after);
        self.tell_reserved()?;
        self.set_host_outputs()?;
        self.say_beyond_link(id);
        self.say_beyond_room(id);
        self.note_reservations(port, &before, &after);
        self.remember_flows(&before.flow, &after.flow);
        Ok(id)
    }
}

impl Router {
    /// What is said of the order in which a port sends; `None` where it has no scheduler.
    ///
    /// # Errors
    /// No such port.
    pub fn scheduler_settings(&self, port: &str) -> Result<Option<Scheduler>, ControlError> {
        let inner = self.lock();
        let id = inner.model.port(port)?.id;
        Ok(inner.model.schedulers.of(id).cloned())
    }

    /// Adds a node to the scheduler of a port; the first one makes it. When this returns, the next packet meets it.
    ///
    /// # Errors
    /// No such port, a node that can't be: promises above the link's rate, unknown parents, settings out of range.
    pub fn add_scheduler_node(
        &self,
        port: &str,
        node: &SchedulerNode,
    ) -> Result<SchedulerView, ControlError> {
        let mut inner = self.to_change()?;
        let id = inner.change_scheduler(port, None, |scheduler| {
            scheduler.node.push(node.clone());
            Ok(())
        })?;
        inner.scheduler_view(id)
    }

    /// Gives a node of a port's scheduler other settings, or another place, by `under`, and makes another kind of leaf of a leaf:
    /// its packets go there.
    ///
    /// # Errors
    /// No such node, settings that can't be; nothing has changed then.
    pub fn set_scheduler_node(
        &self,
        port: &str,
        name: &str,
        changes: &Map<String, Value>,
    ) -> Result<SchedulerView, ControlError> {
        if changes.contains_key("name") {
            return Err(ControlError::Invalid(
                "name of a node can't be changed: remove the node, and add another".into(),
            ));
        }
        let mut inner = self.to_change()?;
        let id = inner.change_scheduler(port, None, |scheduler| {
            let own = find(unless_empty(scheduler, port)?, name)?;
            let node: SchedulerNode = patched(own, changes)?;
            if own.kind != node.kind && !(own.kind.is_leaf() && node.kind.is_leaf()) {
                return Err(ControlError::Invalid(format!(
                    "node {name:?} is a {}: only a leaf can become of another kind, and a leaf again; remove the node, and add another",
                    own.kind.name()
                )));
            }
            for own in scheduler.node.iter_mut().filter(|own| own.name == name) {
                *own = node.clone();
            }
            let default = default_leaf(scheduler)?.map(str::to_owned);
            in_order(&mut scheduler.node);
            // The first leaf may be another now: packets stay with the one that they have gone to.
            if default_leaf(scheduler)?.map(str::to_owned) != default {
                scheduler.default = default;
            }
            Ok(())
        })?;
        inner.scheduler_view(id)
    }

    /// Changes the rate, the overhead or the default queue of a port's scheduler.
    ///
    /// # Errors
    /// No scheduler, a rate below what its nodes were promised, an unknown leaf.
    pub fn set_scheduler(
        &self,
        port: &str,
        changes: &Map<String, Value>,
    ) -> Result<SchedulerView, ControlError> {
        if changes.contains_key("node") {
            return Err(ControlError::Invalid("nodes are added, set and removed one by one".into()));
        }
        if changes.contains_key("flow") {
            return Err(ControlError::Invalid("flows are set one by one, by `queue set`".into()));
        }
        all_known("setting of a port's scheduler", changes, SETTINGS.into_iter())?;
        let mut inner = self.to_change()?;
        let id = inner.change_scheduler(port, None, |scheduler| {
            *scheduler = patched(unless_empty(scheduler, port)?, changes)?;
            Ok(())
        })?;
        inner.scheduler_view(id)
    }
}

/// A scheduler without a node and all below it, of which `to` is the leaf that gets what waits there.
///
/// # Errors
/// No scheduler, no such node, no such leaf that stays.
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
                "{to:?} goes with {name:?}: what waits there can go to a leaf that stays"
            )));
        }
        Some(to) => drop(leaf(&left, to)?),
        None => {}
    }
    // What waited in the default leaf, and goes on in another, must not be overtaken by what comes.
    if default_leaf(scheduler)?.is_some_and(|default| gone.contains(default)) {
        left.default = to.map(str::to_owned);
    }
    Ok(left)
}

fn unless_empty<'s>(scheduler: &'s Scheduler, port: &str) -> Result<&'s Scheduler, ControlError> {
    if scheduler.node.is_empty() {
        return Err(ControlError::no_scheduler(port));
    }
    Ok(scheduler)
}

/// The names of a node and of all below it. Each node stands behind the one above it, and is looked at once.
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
mod tests {
    use super::*;

    fn planned(toml: &str) -> Result<Schedulers, ControlError> {
        let port = format!("[[port]]\nname = \"wan\"\nkind = \"memory\"\n[port.scheduler]\n{toml}");
        let config = millrace_config::Config::parse(&port, "test.toml")?;
        let mut schedulers = Schedulers::default();
        schedulers.plan(PortId(0), "wan", config.port[0].scheduler.as_ref().unwrap())?;
        Ok(schedulers)
    }

    const TREE: &str = r#"
        rate = "10mbit"
        node = [
            { name = "top", kind = "hfsc" },
            { name = "voice", kind = "fifo", under = "top", real-time = "1mbit 10ms 64kbit" },
            { name = "rest", kind = "fq-codel", under = "top", link-sharing = "9mbit" },
        ]"#;

    #[test]
    fn a_tree_becomes_changes_in_its_order() {
        let schedulers = planned(TREE).unwrap();
        let begin = schedulers.begin().unwrap();
        let [(PortId(0), changes)] = &begin[..] else { panic!("{begin:?}") };
        assert_eq!(changes.len(), 5);
        assert!(matches!(
            &changes[2],
            ScheduleChange::Add { node: QueueId(2), parent: Some(QueueId(1)), .. }
        ));
        assert_eq!(changes[4], ScheduleChange::Default(QueueId(2)));
        assert_eq!(schedulers.queue("voice"), Ok(QueueId(2)));
        assert!(schedulers.queue("voic").unwrap_err().to_string().contains("did you mean \"voice\""));
    }

    #[test]
    fn another_rate_of_the_port_is_told_to_those_who_need_it() {
        let of = |rate: &str| {
            let node = r#"node = [{ name = "top", kind = "priority" },
                { name = "a", kind = "fifo", under = "top", level = 1, manage = "red" },
                { name = "b", kind = "fifo", under = "top", level = 2, manage = "codel" }]"#;
            planned(&format!("rate = \"{rate}\"\n{node}")).unwrap()
        };
        let (before, after) = (of("1mbit"), of("2mbit"));
        let [from, to] = [&before, &after].map(|planned| planned.of(PortId(0)).unwrap());
        let changes = after.changes(from, to, None).unwrap();
        let set: Vec<_> = changes.iter().filter(|one| matches!(one, ScheduleChange::Set { .. })).collect();
        assert!(matches!(set[..], [ScheduleChange::Set { node: QueueId(2), .. }]), "{changes:?}");
    }

    #[test]
    fn promises_above_the_link_are_refused_with_names() {
        let refused = planned(&TREE.replace("1mbit 10ms 64kbit", "20mbit")).unwrap_err().to_string();
        assert!(refused.contains("20") && refused.contains("10"), "{refused}");
        let unknown = planned(&TREE.replace("under = \"top\", link", "under = \"tpo\", link")).unwrap_err();
        assert!(unknown.to_string().contains("did you mean \"top\""), "{unknown}");
        let empty = planned("rate = \"1mbit\"").unwrap_err().to_string();
        assert!(empty.contains("has no node"), "{empty}");
        let apart = planned(&TREE.replace(", under = \"top\", link-sharing = \"9mbit\"", ""))
            .unwrap_err()
            .to_string();
        assert!(apart.contains("\"top\" is the root already"), "{apart}");
        let twice = planned(&TREE.replace("\"rest\"", "\"voice\"")).unwrap_err().to_string();
        assert!(twice.contains("node \"voice\": name already in use"), "{twice}");
    }

    #[test]
    fn numbers_of_nodes_are_told_by_their_names() {
        let mut schedulers = Schedulers::default();
        let none = Scheduler::default();
        schedulers.number("top", &none).unwrap();
        schedulers.number("voice", &none).unwrap();
        let text = schedulers.with_names("node 2: its parent 1 is a fifo; 1538 bytes");
        assert_eq!(text, "node \"voice\": its parent \"top\" is a fifo; 1538 bytes");
    }

    #[test]
    fn a_node_goes_with_all_below_it() {
        let schedulers = planned(TREE).unwrap();
        let scheduler = &schedulers.ports[&PortId(0)];
        assert_eq!(below(scheduler, "top"), HashSet::from(["top", "voice", "rest"]));
        assert_eq!(below(scheduler, "rest"), HashSet::from(["rest"]));
    }

    /// What grows with the square of the nodes takes minutes here.
    #[test]
    fn forty_thousand_leaves_go_with_the_node_above_them() {
        let planned = planned(TREE).unwrap();
        let mut large = planned.ports[&PortId(0)].clone();
        let leaf = large.node[2].clone();
        for number in 0..40_000 {
            large.node.push(SchedulerNode { name: format!("leaf{number}"), ..leaf.clone() });
        }
        assert!(without(&large, "wan", "top", None).unwrap().node.is_empty());
        let left = without(&large, "wan", "leaf9", Some("leaf7")).unwrap();
        assert_eq!(left.node.len(), large.node.len() - 1);
    }

    #[test]
    fn a_long_list_of_changes_is_told_in_pieces_of_which_the_last_says_so() {
        let told = |changes: u16| -> Vec<(usize, bool, bool)> {
            let changes = (0..changes).map(|node| ScheduleChange::Default(QueueId(node))).collect();
            pieces(changes).map(|(piece, changes)| (changes.len(), piece.begins, piece.ends)).collect()
        };
        assert_eq!(told(0), [(0, true, true)]);
        assert_eq!(told(64), [(64, true, true)]);
        assert_eq!(told(129), [(64, true, false), (64, false, false), (1, false, true)]);
    }
}
