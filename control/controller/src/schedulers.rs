//! The schedulers of ports: planned, checked, changed while packets wait in them, and shown.

use std::collections::{BTreeMap, HashSet};

use millrace_config::{Bits, FlowQueue, Manage, Scheduler, SchedulerNode};
use millrace_pipeline::{Command, ScheduleChange};
use millrace_schedule::{BufferLimits, LinkOverhead, LinkRate, NodeKind, Rate, ScheduleError};
use millrace_units::{PortId, QueueId};
use serde_json::{Map, Value};

use crate::ControlError;
use crate::merge_patch::{all_known, patched};
use crate::node_settings::{kind, share};
use crate::router::{Inner, Router};
use crate::scheduler_tree::{Part, Unplanned};
use crate::view::SchedulerView;
use crate::worker_handle::WorkerHandle;

/// Changes of a scheduler that a worker makes between two batches: more would make packets wait.
const CHANGES_TOGETHER: usize = 64;
/// How long a worker may be late, in nanoseconds: the link makes up for it at once.
const LATENESS: u64 = 200_000;
/// Bytes of a full packet on the wire.
const PACKET: u64 = 1538;

/// What `scheduler set PORT` without a node changes.
const SETTINGS: [&str; 6] = ["rate", "overhead", "default", "queues", "host", "host-weight"];

/// The schedulers that are planned, and the numbers of their nodes: a name has the same one at every port, so that filters
/// and plugins name a queue whatever port a packet leaves by.
#[derive(Clone, Debug, Default)]
pub(crate) struct Schedulers {
    ports: BTreeMap<PortId, Scheduler>,
    /// Names by number, from 1 on.
    names: Vec<String>,
}

impl Schedulers {
    /// Plans the scheduler of a port.
    pub fn plan(&mut self, port: PortId, name: &str, scheduler: &Scheduler) -> Result<(), Unplanned> {
        let at_port = |Unplanned { part, error }| Unplanned {
            part,
            error: ControlError::Invalid(format!("scheduler of port {name:?}: {error}")),
        };
        let mut planned = Self { ports: self.ports.clone(), names: self.names.clone() };
        for (index, node) in scheduler.node.iter().enumerate() {
            let of_name = |error| Unplanned { part: Part::Node(index, "name"), error };
            planned.number(&node.name).map_err(of_name).map_err(at_port)?;
        }
        planned.check(scheduler).map_err(at_port)?;
        planned.ports.insert(port, scheduler.clone());
        *self = planned;
        Ok(())
    }

    /// The leaf of a port that takes what waits in nodes that go away, when one scheduler makes place for another: one that is
    /// in both.
    pub fn heir(before: &Scheduler, after: &Scheduler) -> Option<String> {
        let leaves = after.node.iter().filter(|node| node.kind.is_leaf());
        let preferred = default_leaf(after).ok().flatten().map(str::to_owned);
        let mut names = preferred.into_iter().chain(leaves.map(|node| node.name.clone()));
        names.find(|name| is_kept(before, after, name) || is_moved(before, after, name))
    }

    /// Notes how the queue of a flow is treated from now on; like all others, if nothing is said.
    pub fn note_flow(&mut self, port: PortId, queue: &str, flow: &str, treated: Option<FlowQueue>) {
        let Some(scheduler) = self.ports.get_mut(&port) else { return };
        scheduler.flow.retain(|own| own.queue != queue || own.flow != flow);
        scheduler.flow.extend(treated);
    }

    /// What is said of single flows, at all ports.
    pub fn flows(&self) -> impl Iterator<Item = &FlowQueue> {
        self.ports.values().flat_map(|scheduler| &scheduler.flow)
    }

    /// The scheduler of a port.
    pub fn of(&self, port: PortId) -> Option<&Scheduler> {
        self.ports.get(&port)
    }

    /// What makes ports have their schedulers that have none.
    pub fn begin(&self) -> Result<Vec<(PortId, Vec<ScheduleChange>)>, ControlError> {
        let none = Scheduler::default();
        let changes = |scheduler| self.changes(&none, scheduler, None);
        self.ports.iter().map(|(port, scheduler)| Ok((*port, changes(scheduler)?))).collect()
    }

    /// The number of a name, a new one if it has none yet.
    fn number(&mut self, name: &str) -> Result<QueueId, ControlError> {
        if name.is_empty() || name.len() > 64 || name.contains(char::is_whitespace) {
            return Err(ControlError::Invalid(format!(
                "{name:?} is no name of a node: give 1 to 64 characters without blanks"
            )));
        }
        if let Some(number) = self.known(name) {
            return Ok(number);
        }
        if self.names.len() == usize::from(u16::MAX) {
            return Err(ControlError::Invalid("there are 65,535 names of nodes already".into()));
        }
        self.names.push(name.to_owned());
        Ok(QueueId(self.names.len() as u16))
    }

    /// The number of a leaf that there is, or was.
    pub fn known(&self, name: &str) -> Option<QueueId> {
        self.names.iter().position(|known| known == name).map(|index| QueueId(index as u16 + 1))
    }

    /// The name of a number.
    pub fn name(&self, number: QueueId) -> &str {
        number.index().checked_sub(1).and_then(|index| self.names.get(index)).map_or("?", String::as_str)
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
        let leaves = own.node.iter().filter(|node| node.kind.is_leaf() && gone.contains(&node.name));
        leaves.map(|node| &*node.name).filter(|name| !elsewhere.contains(name)).collect()
    }

    /// The number of a leaf of a port, what it does, and what was said of it.
    pub fn leaf(
        &self,
        port: PortId,
        name: &str,
        queue: &str,
    ) -> Result<(QueueId, NodeKind, SchedulerNode), ControlError> {
        let none = Scheduler::default();
        let scheduler = unless_empty(self.ports.get(&port).unwrap_or(&none), name)?;
        let node = find(scheduler, leaf(scheduler, queue)?)?;
        let above = self.above(scheduler, node)?.map(|above| above.kind);
        Ok((self.known(queue).unwrap_or_default(), kind(node, above, scheduler.rate)?, node.clone()))
    }

    /// The changes that make one scheduler of another; what waits in nodes that are gone goes `to` a leaf.
    fn changes(
        &self,
        before: &Scheduler,
        after: &Scheduler,
        to: Option<QueueId>,
    ) -> Result<Vec<ScheduleChange>, ControlError> {
        let mut changes = Vec::new();
        // A leaf that stands elsewhere takes its packets there. Another node there, or one of another kind, is another one,
        // with all below it.
        let is_left = |name: &str| is_kept(before, after, name);
        let moves = |name: &str| is_moved(before, after, name);
        for leaf in before.node.iter().filter(|node| moves(&node.name)) {
            changes.push(ScheduleChange::Apart(self.known(&leaf.name).unwrap_or_default()));
        }
        for gone in before.node.iter().filter(|node| !is_left(&node.name) && !moves(&node.name)) {
            // What is below it goes with it.
            if gone.under.as_deref().is_none_or(is_left) {
                changes.push(ScheduleChange::Remove { node: self.known(&gone.name).unwrap_or_default(), to });
            }
        }
        if before.node.is_empty() || link(before) != link(after) {
            changes.push(link(after));
        }
        if most_queues(before) != most_queues(after) {
            changes.push(ScheduleChange::Queues(most_queues(after)));
        }
        let is_same_rate = before.rate == after.rate;
        for node in &after.node {
            match find(before, &node.name) {
                Ok(own) if is_left(&node.name) && own == node && (is_same_rate || !knows_rate(node)) => {}
                Ok(_) if is_left(&node.name) => changes.push(self.setting(after, node)?),
                Ok(_) if moves(&node.name) => {
                    if let ScheduleChange::Add { node, parent, share, .. } = self.addition(after, node)? {
                        changes.push(ScheduleChange::Move { node, parent, share });
                    }
                    changes.push(self.setting(after, node)?);
                }
                _ => changes.push(self.addition(after, node)?),
            }
        }
        if let Some(default) = default_leaf(after)? {
            changes.push(ScheduleChange::Default(self.known(default).unwrap_or_default()));
        }
        Ok(changes)
    }

    fn setting(&self, scheduler: &Scheduler, node: &SchedulerNode) -> Result<ScheduleChange, ControlError> {
        let above = self.above(scheduler, node)?.map(|above| above.kind);
        Ok(ScheduleChange::Set {
            node: self.known(&node.name).unwrap_or_default(),
            share: share(node, above)?,
            kind: kind(node, above, scheduler.rate)?,
        })
    }

    /// The change that adds a node of a scheduler.
    pub fn addition(
        &self,
        scheduler: &Scheduler,
        node: &SchedulerNode,
    ) -> Result<ScheduleChange, ControlError> {
        let above = self.above(scheduler, node)?;
        Ok(ScheduleChange::Add {
            node: self.known(&node.name).unwrap_or_default(),
            parent: above.and_then(|above| self.known(&above.name)),
            share: share(node, above.map(|above| above.kind))?,
            kind: kind(node, above.map(|above| above.kind), scheduler.rate)?,
        })
    }

    fn above<'s>(
        &self,
        scheduler: &'s Scheduler,
        node: &SchedulerNode,
    ) -> Result<Option<&'s SchedulerNode>, ControlError> {
        let Some(under) = &node.under else { return Ok(None) };
        find_above(scheduler, &node.name, under).map(Some)
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

/// The leaf for packets that nothing else is said of: the first one, unless another is named.
pub(crate) fn default_leaf(scheduler: &Scheduler) -> Result<Option<&str>, ControlError> {
    match &scheduler.default {
        Some(default) => leaf(scheduler, default).map(Some),
        None => {
            let first = scheduler.node.iter().find(|node| node.kind.is_leaf());
            Ok(first.map(|node| node.name.as_str()))
        }
    }
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

/// The node `under`, which has to be another than the one of that name that goes there.
///
/// # Errors
/// No such node.
pub(crate) fn find_above<'s>(
    scheduler: &'s Scheduler,
    name: &str,
    under: &str,
) -> Result<&'s SchedulerNode, ControlError> {
    let others = || scheduler.node.iter().filter(|other| other.name != name);
    let found = others().find(|other| other.name == under);
    found.ok_or_else(|| ControlError::unknown("node", under, others().map(|other| other.name.as_str())))
}

/// Whether a node is there before and after, at the same place and of the same kind.
fn is_kept(before: &Scheduler, after: &Scheduler, name: &str) -> bool {
    let (Ok(was), Ok(is)) = (find(before, name), find(after, name)) else { return false };
    was.kind == is.kind
        && was.under == is.under
        && was.under.as_deref().is_none_or(|above| is_kept(before, after, above))
}

/// Whether a node is a leaf before and after, of the same kind, that stands elsewhere.
fn is_moved(before: &Scheduler, after: &Scheduler, name: &str) -> bool {
    let (Ok(was), Ok(is)) = (find(before, name), find(after, name)) else { return false };
    was.kind == is.kind && is.kind.is_leaf() && !is_kept(before, after, name)
}

/// Puts nodes behind those that they are under; what is under none that is there stays at the end.
fn in_order(nodes: &mut Vec<SchedulerNode>) {
    let mut left = std::mem::take(nodes);
    while let Some(next) = left.iter().position(|node| {
        node.under.as_ref().is_none_or(|under| nodes.iter().any(|above| above.name == *under))
    }) {
        nodes.push(left.remove(next));
    }
    nodes.append(&mut left);
}

/// Whether the rate of the port is one of a node's settings.
fn knows_rate(node: &SchedulerNode) -> bool {
    node.manage == Some(Manage::Red)
}

/// Queues that a port has at most.
pub(crate) fn most_queues(scheduler: &Scheduler) -> u32 {
    scheduler.queues.unwrap_or(BufferLimits::default().queues)
}

/// How fast a port sends, and what its link adds.
fn link(scheduler: &Scheduler) -> ScheduleChange {
    let overhead = match scheduler.overhead {
        millrace_config::Overhead::Ethernet => LinkOverhead::Ethernet,
        millrace_config::Overhead::Atm => LinkOverhead::Atm { encapsulation: 0 },
        millrace_config::Overhead::None => LinkOverhead::None,
    };
    ScheduleChange::Link(link_rate(scheduler.rate), overhead)
}

/// A rate, with what may go ahead of it: as much as makes up for a worker that comes late, or two packets. One more goes, and
/// leaves a debt, so it is a packet less.
pub(crate) fn link_rate(rate: Option<Bits>) -> LinkRate {
    let rate = rate.map(|Bits(bits)| Rate(bits));
    let slack = rate.map_or(0, |rate| rate.bytes_in(LATENESS).clamp(2 * PACKET, 1_000_000_000) - PACKET);
    LinkRate { rate, slack: slack as u32 }
}

/// Changes in pieces of [`CHANGES_TOGETHER`], or more where leaves stand apart meanwhile: no packet sees a leaf that does.
fn pieces(changes: Vec<ScheduleChange>) -> Vec<Vec<ScheduleChange>> {
    let mut pieces: Vec<Vec<ScheduleChange>> = vec![Vec::new()];
    let mut apart = 0_usize;
    for change in changes {
        if apart == 0 && pieces.last().is_some_and(|piece| piece.len() >= CHANGES_TOGETHER) {
            pieces.push(Vec::new());
        }
        match &change {
            ScheduleChange::Apart(_) => apart += 1,
            ScheduleChange::Move { .. } => apart = apart.saturating_sub(1),
            _ => {}
        }
        if let Some(piece) = pieces.last_mut() {
            piece.push(change);
        }
    }
    pieces
}

impl Inner {
    /// Has the worker that has a port's device change the port's scheduler: many changes in pieces, between which packets go on.
    pub fn schedule(&mut self, port: PortId, changes: Vec<ScheduleChange>) -> Result<(), ControlError> {
        let owner = self.owner_of(port)?;
        // A worker that does not answer is told all of it nevertheless.
        let told = pieces(changes)
            .into_iter()
            .map(|piece| owner.begin(|reply| Command::Schedule(port, piece, reply)));
        for answer in told.collect::<Result<Vec<_>, _>>()? {
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
        match after.node.is_empty() {
            true => drop(planned.ports.remove(&id)),
            false => planned.plan(id, port, &after)?,
        }
        let to = to.map(|to| leaf(&after, to)).transpose()?.and_then(|to| planned.known(to));
        let mut changes = planned.changes(&before, &after, to)?;
        // The names of new nodes are told in what is refused.
        let old = std::mem::replace(&mut self.model.schedulers, planned);
        let mut flows_before = before.flow.clone();
        flows_before
            .retain(|flow| is_kept(&before, &after, &flow.queue) || is_moved(&before, &after, &flow.queue));
        let flows = self.model.flow_changes(port, &flows_before, &after.flow);
        changes.extend(flows.inspect_err(|_| self.model.schedulers = old.clone())?);
        self.schedule(id, changes).inspect_err(|error| {
            // A worker that does not answer makes the change all the same, as soon as it goes on.
            if !error.is_failure() {
                self.model.schedulers = old;
            }
        })?;
        self.tell_reserved()?;
        self.set_host_outputs()?;
        self.say_beyond_link(id);
        self.note_reservations(port, &before, &after);
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

    /// Gives a node of a port's scheduler other settings, or another place, by `under`: leaves take their packets there.
    ///
    /// # Errors
    /// No such node, settings that can't be; nothing has changed then.
    pub fn set_scheduler_node(
        &self,
        port: &str,
        name: &str,
        changes: &Map<String, Value>,
    ) -> Result<SchedulerView, ControlError> {
        if let Some(key) = ["name", "kind"].iter().find(|key| changes.contains_key(**key)) {
            return Err(ControlError::Invalid(format!(
                "{key} of a node can't be changed: remove the node, and add another"
            )));
        }
        let mut inner = self.to_change()?;
        let id = inner.change_scheduler(port, None, |scheduler| {
            let node = patched(find(unless_empty(scheduler, port)?, name)?, changes)?;
            for own in scheduler.node.iter_mut().filter(|own| own.name == name) {
                *own = node.clone();
            }
            in_order(&mut scheduler.node);
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
    left.node.retain(|node| !gone.contains(&node.name));
    left.flow.retain(|flow| !gone.contains(&flow.queue));
    match to {
        Some(to) if gone.iter().any(|name| name == to) => {
            return Err(ControlError::Invalid(format!(
                "{to:?} goes with {name:?}: what waits there can go to a leaf that stays"
            )));
        }
        Some(to) => drop(leaf(&left, to)?),
        None => {}
    }
    // What waited in the default leaf, and goes on in another, must not be overtaken by what comes.
    if default_leaf(scheduler)?.is_some_and(|default| gone.iter().any(|name| name == default)) {
        left.default = to.map(str::to_owned);
    }
    Ok(left)
}

fn unless_empty<'s>(scheduler: &'s Scheduler, port: &str) -> Result<&'s Scheduler, ControlError> {
    if scheduler.node.is_empty() {
        return Err(ControlError::NotFound(format!(
            "port {port:?} has no scheduler: `scheduler add {port} NODE --kind fifo` makes one"
        )));
    }
    Ok(scheduler)
}

/// The names of a node and of all below it.
fn below(scheduler: &Scheduler, name: &str) -> Vec<String> {
    let mut names = vec![name.to_owned()];
    let mut next = 0;
    while let Some(above) = names.get(next).cloned() {
        let children = scheduler.node.iter().filter(|node| node.under.as_deref() == Some(&*above));
        names.extend(children.map(|node| node.name.clone()));
        next += 1;
    }
    names
}

#[cfg(test)]
mod tests {
    use millrace_schedule::{FlowNumber, LinkScheduler, NodeId, QueueSettings, Share};
    use millrace_units::Instant;

    use super::*;
    use crate::scheduler_tree::Nothing;

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
    fn many_changes_go_in_pieces_between_which_no_leaf_stands_apart() {
        let (link, apart) = (link(&Scheduler::default()), ScheduleChange::Apart(QueueId(3)));
        let moved =
            ScheduleChange::Move { node: QueueId(3), parent: None, share: millrace_schedule::Share::Only };
        let mut changes = vec![link.clone(); 60];
        changes.extend([apart.clone(), apart]);
        changes.extend(vec![link.clone(); 30]);
        changes.extend([moved.clone(), moved]);
        changes.extend(vec![link; 70]);
        let pieces = pieces(changes.clone());
        assert_eq!(pieces.iter().map(Vec::len).collect::<Vec<_>>(), [94, 64, 6]);
        assert_eq!(pieces.concat(), changes);
        assert_eq!(super::pieces(Vec::new()), [Vec::new()], "what is asked is answered");
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
        assert!(twice.contains("there is a node \"voice\" already"), "{twice}");
    }

    #[test]
    fn no_more_goes_ahead_of_a_rate_than_makes_up_for_a_late_worker_or_two_packets() {
        for rate in [64_000, 10_000_000, 100_000_000, 1_000_000_000, 100_000_000_000] {
            let link = link_rate(Some(Bits(rate)));
            let mut port = LinkScheduler::new(link, LinkOverhead::Ethernet, BufferLimits::default()).unwrap();
            let (top, now) = (NodeId(0), Instant::from_millis(1000));
            let fifo = NodeKind::Fifo(QueueSettings::default());
            port.add(top, None, Share::Only, &fifo, Instant::ZERO).unwrap();
            let mut sent = 0;
            loop {
                port.enqueue(top, FlowNumber(0), Nothing, now, &mut |_, _| ());
                match port.dequeue(now, &mut |_, _| ()) {
                    Some(_) => sent += 84,
                    None => break,
                }
            }
            let allowed = (rate / 8 / 5000).max(2 * 1538);
            assert!(sent <= allowed && sent + 2 * 1538 > allowed, "{rate}: {sent} of {allowed}");
        }
    }

    #[test]
    fn numbers_of_nodes_are_told_by_their_names() {
        let mut schedulers = Schedulers::default();
        schedulers.number("top").unwrap();
        schedulers.number("voice").unwrap();
        let text = schedulers.with_names("node 2: its parent 1 is a fifo; 1538 bytes");
        assert_eq!(text, "node \"voice\": its parent \"top\" is a fifo; 1538 bytes");
    }

    #[test]
    fn a_node_goes_with_all_below_it() {
        let schedulers = planned(TREE).unwrap();
        assert_eq!(below(&schedulers.ports[&PortId(0)], "top"), ["top", "voice", "rest"]);
    }
}
