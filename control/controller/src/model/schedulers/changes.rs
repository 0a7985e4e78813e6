//! Computes the changes that turn one scheduler of a port into another.

use std::collections::HashSet;

use millrace_config::{Bits, Fate, Fates, Manage, Nodes, Overhead, Scheduler, SchedulerNode};
use millrace_pipeline::ScheduleChange;
use millrace_schedule::{BufferLimits, LinkOverhead, LinkRate, NodeKind, Rate, Share};
use millrace_units::{PortId, QueueId};

use crate::ControlError;
use crate::model::schedulers::node_settings::{kind, share};
use crate::model::schedulers::{Schedulers, default_leaf, leaf};

/// Maximum delay of a worker, in nanoseconds, that a burst on the link still makes up for.
const LATENESS: u64 = 200_000;
/// Maximum time between a worker's clock reading and the transmission of a packet, in nanoseconds.
const ON_THE_WAY: u64 = 20_000;
/// Maximum slack of a link, in bytes: the most that may be sent ahead of the link's rate.
const MOST_SLACK: u64 = 1_000_000_000;
/// Length of a full-size packet on the wire, in bytes.
pub(crate) const PACKET: u32 = 1538;

/// Treatment of the packets in removed nodes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Leftovers<'a> {
    /// Leaf to which the packets move; `None` drops them.
    pub to: Option<&'a str>,
    /// Queue of a released principal, whose packets are dropped in any case.
    pub released: Option<&'a str>,
}

impl<'a> Leftovers<'a> {
    /// Treatment without a released principal.
    pub fn to(to: Option<&'a str>) -> Self {
        Self { to, released: None }
    }
}

impl Schedulers {
    /// Returns the changes that create the schedulers of all ports.
    pub fn begin(&self) -> Result<Vec<(PortId, Vec<ScheduleChange>)>, ControlError> {
        let none = Scheduler::default();
        let changes = |scheduler| self.changes(&none, scheduler, Leftovers::default());
        self.all().map(|(port, scheduler)| Ok((port, changes(scheduler)?))).collect()
    }

    /// Returns the changes that turn scheduler `before` into `after`.
    ///
    /// A worker carries out a long list of changes in pieces, and forwards packets between the pieces.
    /// Therefore nodes are removed one at a time, from the leaves up. A leaf that moves to another parent
    /// can't send until it is attached there, so this happens before new leaves are added.
    pub fn changes(
        &self,
        before: &Scheduler,
        after: &Scheduler,
        leftovers: Leftovers<'_>,
    ) -> Result<Vec<ScheduleChange>, ControlError> {
        let fates = Fates::of(before, after);
        let mut changes = self.removals(before, after, &fates, leftovers)?;
        if before.node.is_empty() || link(before) != link(after) {
            changes.push(link(after));
        }
        if most_queues(before) != most_queues(after) {
            changes.push(ScheduleChange::Queues(most_queues(after)));
        }
        let mut leaves = Vec::new();
        let is_same_rate = before.rate == after.rate;
        let (were, are) = (Nodes::of(before), Nodes::of(after));
        for node in &after.node {
            let addition = Addition::of(self, &are, node, after.rate)?;
            let fate = fates.get(&node.name);
            let others = if node.kind.is_leaf() { &mut leaves } else { &mut changes };
            match fate {
                Fate::Goes => others.push(addition.add()),
                Fate::Stays => {
                    // Only the settings of RED depend on the port's rate.
                    let knows_rate = node.manage == Some(Manage::Red);
                    let is_same = were.get(&node.name) == Some(node) && (is_same_rate || !knows_rate);
                    others.extend((!is_same).then(|| addition.set()));
                }
                Fate::Leaf { moves, changes: becomes } => {
                    changes.extend(moves.then(|| addition.move_there()));
                    changes.extend(becomes.then(|| addition.become_kind()));
                    changes.push(addition.set());
                }
            }
        }
        changes.append(&mut leaves);
        changes.extend(self.shared_leaves(before, after, &fates));
        if let Some(default) = default_leaf(after)? {
            changes.push(ScheduleChange::Default(self.known(default).unwrap_or_default()));
        }
        Ok(changes)
    }

    /// Returns the changes of the queues whose packets enter the leaf of another one.
    fn shared_leaves(&self, before: &Scheduler, after: &Scheduler, fates: &Fates<'_>) -> Vec<ScheduleChange> {
        let number = |name: &str| self.known(name).unwrap_or_default();
        let is_alone = |queue: &&String| !after.same_as.contains_key(*queue);
        let alone = before.same_as.keys().filter(is_alone);
        let alone = alone.map(|queue| ScheduleChange::SameAs { queue: number(queue), leaf: None });
        let changes = |(queue, leaf): &(&String, &String)| {
            before.same_as.get(*queue) != Some(*leaf) || fates.get(leaf) == Fate::Goes
        };
        let shared = after.same_as.iter().filter(changes);
        let shared = shared
            .map(|(queue, leaf)| ScheduleChange::SameAs { queue: number(queue), leaf: Some(number(leaf)) });
        alone.chain(shared).collect()
    }

    /// Returns the changes that remove nodes, children before parents, and detach the leaves that move.
    fn removals(
        &self,
        before: &Scheduler,
        after: &Scheduler,
        fates: &Fates<'_>,
        Leftovers { to, released }: Leftovers<'_>,
    ) -> Result<Vec<ScheduleChange>, ControlError> {
        let number = |node: &SchedulerNode| self.known(&node.name).unwrap_or_default();
        let to = to.map(|to| leaf(after, to)).transpose()?.and_then(|to| self.known(to));
        let mut changes = Vec::new();
        let goes = |name: &str| fates.get(name) == Fate::Goes;
        // Without `to`, packets of removed nodes are dropped. New packets go to the new default leaf at once,
        // if that leaf existed before the change.
        let default = default_leaf(after)?.filter(|default| to.is_none() && !goes(default));
        if let Some(default) = default.filter(|_| default_leaf(before).ok().flatten().is_some_and(goes)) {
            changes.push(ScheduleChange::Default(self.known(default).unwrap_or_default()));
        }
        let moves = |node: &&SchedulerNode| matches!(fates.get(&node.name), Fate::Leaf { moves: true, .. });
        let above = above_all(before, before.node.iter().filter(moves));
        let gone = || before.node.iter().rev().filter(|node| goes(&node.name));
        let remove = |node: &SchedulerNode| match released == Some(&*node.name) {
            true => ScheduleChange::Release(number(node)),
            false => ScheduleChange::Remove { node: number(node), to },
        };
        changes.extend(gone().filter(|node| !above.contains(&*node.name)).map(remove));
        changes.extend(before.node.iter().filter(moves).map(|leaf| ScheduleChange::Apart(number(leaf))));
        changes.extend(gone().filter(|node| above.contains(&*node.name)).map(remove));
        Ok(changes)
    }
}

/// Returns the names of all ancestors of the given nodes.
fn above_all<'s>(
    scheduler: &'s Scheduler,
    below: impl Iterator<Item = &'s SchedulerNode>,
) -> HashSet<&'s str> {
    let nodes = Nodes::of(scheduler);
    let mut above = HashSet::new();
    for node in below {
        let mut next = node.under.as_deref();
        // If a node is in the set already, so are its ancestors.
        while let Some(name) = next.filter(|name| above.insert(*name)) {
            next = nodes.get(name).and_then(|node| node.under.as_deref());
        }
    }
    above
}

/// Settings of a node for its addition to a tree.
pub(crate) struct Addition {
    node: QueueId,
    parent: Option<QueueId>,
    share: Share,
    kind: NodeKind,
}

impl Addition {
    /// Converts the configuration of a node. `nodes` are all nodes of the node's port, and `rate` is the rate
    /// of this port.
    pub fn of(
        schedulers: &Schedulers,
        nodes: &Nodes<'_>,
        node: &SchedulerNode,
        rate: Option<Bits>,
    ) -> Result<Self, ControlError> {
        let above = above(nodes, node)?;
        let kind_above = above.map(|above| above.kind);
        Ok(Self {
            node: schedulers.known(&node.name).unwrap_or_default(),
            parent: above.and_then(|above| schedulers.known(&above.name)),
            share: share(node, kind_above)?,
            kind: kind(node, kind_above, rate)?,
        })
    }

    pub fn add(self) -> ScheduleChange {
        let Self { node, parent, share, kind } = self;
        ScheduleChange::Add { node, parent, share, kind }
    }

    fn set(&self) -> ScheduleChange {
        ScheduleChange::Set { node: self.node, share: self.share, kind: self.kind.clone() }
    }

    fn move_there(&self) -> ScheduleChange {
        ScheduleChange::Move { node: self.node, parent: self.parent, share: self.share }
    }

    fn become_kind(&self) -> ScheduleChange {
        ScheduleChange::Become { node: self.node, kind: self.kind.clone() }
    }
}

/// Returns the parent of a node; `None` for the root.
pub(crate) fn above<'s>(
    nodes: &Nodes<'s>,
    node: &SchedulerNode,
) -> Result<Option<&'s SchedulerNode>, ControlError> {
    let Some(under) = &node.under else { return Ok(None) };
    match nodes.get(under).filter(|above| above.name != node.name) {
        Some(above) => Ok(Some(above)),
        None => {
            let others = nodes.iter().filter(|other| other.name != node.name);
            Err(ControlError::unknown("node", under, others.map(|other| other.name.as_str())))
        }
    }
}

/// Returns the maximum number of queues of a port: the configured one, or the default.
pub(crate) fn most_queues(scheduler: &Scheduler) -> u32 {
    scheduler.queues.unwrap_or(BufferLimits::default().queues)
}

/// Returns the change that sets a port's rate and link overhead.
fn link(scheduler: &Scheduler) -> ScheduleChange {
    let overhead = match scheduler.overhead {
        Overhead::Ethernet => LinkOverhead::Ethernet,
        Overhead::Atm(encapsulation) => LinkOverhead::Atm { encapsulation },
        Overhead::Bytes(bytes, minimum) => LinkOverhead::Custom { bytes, minimum },
        Overhead::None => LinkOverhead::None,
    };
    ScheduleChange::Link(link_rate(scheduler.rate), overhead)
}

/// Returns a rate with its slack: the number of bytes that may be sent ahead of the rate. The slack is the
/// larger of 200 µs at the rate and two packets, minus one packet, minus 20 µs at the rate. The packet is
/// subtracted because the link may exceed the slack by one packet, the 20 µs because of jitter.
pub(crate) fn link_rate(rate: Option<Bits>) -> LinkRate {
    let rate = rate.map(|Bits(bits)| Rate(bits));
    let slack = rate.map_or(0, |rate| {
        // The jitter is at most a tenth of the lateness, on any link.
        let ahead = rate.bytes_in(LATENESS).max(2 * u64::from(PACKET))
            - u64::from(PACKET)
            - rate.bytes_in(ON_THE_WAY);
        ahead.min(MOST_SLACK)
    });
    LinkRate { rate, slack: slack as u32 }
}

#[cfg(test)]
mod tests {
    use millrace_config::{Config, SchedulerKind};
    use millrace_schedule::{FlowNumber, LinkScheduler, NodeId, QueueSettings};
    use millrace_units::Instant;

    use super::*;
    use crate::model::schedulers::tree::Nothing;

    fn scheduler(nodes: &str) -> Scheduler {
        let text = format!(
            "[[port]]\nname = \"wan\"\nkind = \"memory\"\n[port.scheduler]\nrate = \"10mbit\"\nnode = [{nodes}]"
        );
        Config::parse(&text, "f").unwrap().port[0].scheduler.clone().unwrap()
    }

    #[test]
    fn leaf_of_another_kind_keeps_its_packets_at_any_place() {
        let top = r#"{ name = "top", kind = "priority" }"#;
        let one = r#"{ name = "a", kind = "fifo", under = "top", level = 0 }"#;
        let other = r#"{ name = "b", kind = "fifo", under = "top", level = 1 }"#;
        let fair = one.replace("fifo", "flow-queues");
        for (before, after, expected) in [
            (
                format!("{top}, {one}, {other}"),
                format!("{top}, {fair}, {other}"),
                &["Become", "Set", "Default"][..],
            ),
            // Both cases have a single leaf. In the first case the leaf changes its kind; in the second case
            // it also moves under a new parent.
            (
                r#"{ name = "a", kind = "fifo" }"#.to_owned(),
                r#"{ name = "a", kind = "fq-codel" }"#.to_owned(),
                &["Become", "Set", "Default"],
            ),
            (
                r#"{ name = "a", kind = "fifo" }"#.to_owned(),
                format!("{top}, {fair}"),
                &["Apart", "Add", "Move", "Become", "Set", "Default"],
            ),
            // An inner node that changes its kind is removed and added again.
            (
                format!("{top}, {one}, {other}"),
                format!(
                    "{}, {}",
                    top.replace("priority", "deficit-round-robin"),
                    one.replace("level = 0", "quantum = \"9B\"")
                ),
                &["Remove", "Apart", "Remove", "Add", "Move", "Set", "Default"],
            ),
        ] {
            let mut schedulers = Schedulers::default();
            let (before, after) = (scheduler(&before), scheduler(&after));
            schedulers.plan(PortId(0), "wan", &before).unwrap();
            schedulers.plan(PortId(0), "wan", &after).unwrap();
            let changes = schedulers.changes(&before, &after, Leftovers::default()).unwrap();
            let names = changes.iter().map(|one| format!("{one:?}"));
            let names: Vec<_> = names.map(|one| one.split([' ', '(']).next().unwrap().to_owned()).collect();
            assert_eq!(names, expected, "{changes:?}");
        }
    }

    #[test]
    fn only_the_leaf_of_a_released_principal_loses_its_packets() {
        let all = r#"{ name = "all", kind = "fifo" }"#;
        let leaf = |name: &str, kind: &str| {
            format!(
                r#"{{ name = "{name}", kind = "{kind}", under = "principal:*", link-sharing = "1mbit" }}"#
            )
        };
        let top = r#"{ name = "principal:*", kind = "hfsc" }"#;
        let [own, p, q] = [("all", "fifo"), ("principal:p", "flow-queues"), ("principal:q", "flow-queues")]
            .map(|(name, kind)| leaf(name, kind));
        let (before, after) = (scheduler(&format!("{top}, {own}, {p}, {q}")), scheduler(all));
        let mut schedulers = Schedulers::default();
        schedulers.plan(PortId(0), "wan", &before).unwrap();
        schedulers.plan(PortId(0), "wan", &after).unwrap();
        let leftovers = Leftovers { to: Some("all"), released: Some("principal:p") };
        let changes = schedulers.changes(&before, &after, leftovers).unwrap();
        let [p, q, all] = ["principal:p", "principal:q", "all"].map(|name| schedulers.known(name).unwrap());
        assert_eq!(
            changes[..2],
            [ScheduleChange::Remove { node: q, to: Some(all) }, ScheduleChange::Release(p)]
        );
        let released = |change: &&ScheduleChange| matches!(change, ScheduleChange::Release(_));
        assert_eq!(changes.iter().filter(released).count(), 1, "{changes:?}");
    }

    /// If planning took quadratic time, this test would take minutes.
    #[test]
    fn sixteen_thousand_leaves_are_planned_changed_and_refused() {
        let node = |text: &str| scheduler(text).node[0].clone();
        let mut large = scheduler(r#"{ name = "top", kind = "hfsc" }"#);
        (large.rate, large.queues) = (Some(Bits(10_000_000_000)), Some(65_535));
        let leaf = node(r#"{ name = "a", kind = "fifo", real-time = "100kbit", link-sharing = "100kbit" }"#);
        for number in 0..16_000 {
            let (name, under) = (format!("leaf{number}"), Some("top".to_owned()));
            large.node.push(SchedulerNode { name, under, ..leaf.clone() });
        }
        let mut schedulers = Schedulers::default();
        schedulers.plan(PortId(0), "wan", &large).unwrap();
        let mut other = large.clone();
        other.node[9000].kind = SchedulerKind::FqCodel;
        let changes = schedulers.changes(&large, &other, Leftovers::default()).unwrap();
        assert_eq!(changes.len(), 3);
        // With 9 Gb/s for one leaf, the sum of all guarantees exceeds the link. The error names the first
        // leaf at which it does.
        other.node[9000].real_time = Some("9gbit".parse().unwrap());
        let refused = schedulers.plan(PortId(0), "wan", &other).unwrap_err();
        assert!(
            matches!(refused.part, crate::model::schedulers::tree::Part::Node(place, _) if place > 9000),
            "{refused:?}"
        );
    }

    #[test]
    fn every_rate_that_can_be_given_is_one_of_a_port() {
        for rate in ["1bit", "40gbit", "40000gbit", "400000gbit", "1000000gbit"] {
            let link = link_rate(Some(rate.parse().unwrap()));
            assert!(link.slack <= 1_000_000_000, "{rate}: {link:?}");
            LinkScheduler::<Nothing>::new(link, LinkOverhead::Ethernet, BufferLimits::default()).unwrap();
        }
    }

    #[test]
    fn catch_up_is_limited_to_a_late_worker_or_two_packets() {
        for rate in [64_000, 10_000_000, 100_000_000, 1_000_000_000, 100_000_000_000] {
            let link = link_rate(Some(Bits(rate)));
            let mut port = LinkScheduler::new(link, LinkOverhead::Ethernet, BufferLimits::default()).unwrap();
            let (top, now) = (NodeId(0), Instant::from_millis(1000));
            let fifo = NodeKind::Fifo(QueueSettings::default());
            port.edit().add(top, None, Share::Only, &fifo, Instant::ZERO).unwrap();
            let mut sent = 0;
            loop {
                port.enqueue(top, FlowNumber(0), Nothing, now, &mut |_, _| ());
                match port.dequeue(now, &mut |_, _| ()) {
                    Some(_) => sent += 84,
                    None => break,
                }
            }
            let allowed = (rate / 8 / 5000).max(2 * 1538);
            let way = rate / 8 / 50_000;
            assert!(sent <= allowed - way, "{rate}: {sent} of {allowed}");
            assert!(sent + way + 2 * 1538 > allowed, "{rate}: {sent} of {allowed}");
        }
    }
}
