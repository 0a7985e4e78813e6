//! Random trees under random traffic, with changes at random times. No packet is lost or duplicated, and none
//! waits for ever. Flows keep their order, and the link isn't idle while a packet may be sent.

use std::collections::BTreeMap;

use millrace_testkit::Random;

use crate::support::*;

struct World {
    port: Port,
    random: Random,
    now: u64,
    next_id: u32,
    number: u32,
    /// Leaf of each flow's packets.
    routes: BTreeMap<u32, u32>,
    /// Number of the latest sent packet of each flow.
    latest: BTreeMap<u32, u32>,
    offered: u64,
    sent: u64,
    /// Bytes sent on the wire.
    wire: u64,
    dropped: u64,
    /// Whether a node may delay packets while the link is idle.
    may_idle: bool,
    /// Number of accepted changes, by their names.
    accepted: BTreeMap<&'static str, u32>,
}

impl World {
    fn roll(&mut self, sides: u64) -> u64 {
        self.random.below(sides as usize) as u64
    }

    fn new(seed: u64, may_idle: bool) -> Self {
        let limits = BufferLimits { queues: 200, packets: 500, bytes: 1 << 20 };
        let link = LinkRate { rate: Some(Rate(100_000_000)), slack: 0 };
        let port = LinkScheduler::new(link, LinkOverhead::Ethernet, limits).unwrap();
        let mut world = Self {
            port,
            random: Random::new(seed),
            now: 0,
            next_id: 0,
            number: 0,
            routes: BTreeMap::new(),
            latest: BTreeMap::new(),
            offered: 0,
            sent: 0,
            wire: 0,
            dropped: 0,
            may_idle,
            accepted: BTreeMap::new(),
        };
        let root = world.inner_kind(None);
        world.port.edit().add(NodeId(0), None, Share::Only, &root, at(0)).unwrap();
        world.next_id = 1;
        for _ in 0..4 + seed % 25 {
            world.grow();
        }
        world
    }

    fn inner_kind(&mut self, parent: Option<&NodeKind>) -> NodeKind {
        match self.roll(if self.may_idle { 4 } else { 3 }) {
            0 => NodeKind::Priority,
            1 => NodeKind::DeficitRoundRobin,
            2 => NodeKind::Hfsc,
            _ if matches!(parent, Some(NodeKind::TokenBucket { .. })) => NodeKind::Priority,
            _ => NodeKind::TokenBucket { rate: Rate(1_000_000 + self.roll(80_000_000)), burst: 3000 },
        }
    }

    fn leaf_kind(&mut self) -> NodeKind {
        let codel = CodelSettings { target: 1_000_000, interval: 10_000_000, ecn: false };
        let threshold = 3000 + self.roll(50_000) as u32;
        let queue = |aqm| QueueSettings { threshold, aqm };
        match self.roll(5) {
            0 => NodeKind::FlowQueues(FlowQueuesSettings {
                queues: 8,
                quantum: 1 + self.roll(3000) as u32,
                queue: queue(Aqm::TailDrop),
                ..Default::default()
            }),
            1 => NodeKind::FqCodel(FqCodelSettings { flows: 8, limit: 40, codel, ..Default::default() }),
            2 => NodeKind::Fifo(queue(Aqm::Codel(codel))),
            3 => {
                let red = RedSettings { minimum: 3000, maximum: 9000, weight: 0.1, ..Default::default() };
                NodeKind::Fifo(queue(Aqm::Red(red)))
            }
            _ => NodeKind::Fifo(queue(Aqm::TailDrop)),
        }
    }

    fn share_for(&mut self, parent: &NodeKind, is_inner: bool) -> Share {
        match parent {
            NodeKind::Priority => Share::Level(self.roll(60) as u32),
            NodeKind::DeficitRoundRobin => Share::Quantum(1 + self.roll(5000) as u32),
            NodeKind::Hfsc => {
                let rate = Rate(1000 + self.roll(2_000_000));
                let steep = Curve { first: Rate(rate.0 * 2), duration: 5_000_000, then: rate };
                let real_time = (!is_inner && self.roll(3) == 0).then_some(steep);
                let upper_limit =
                    (self.may_idle && self.roll(4) == 0).then(|| Curve::linear(Rate(5_000_000)));
                Share::Curves(Curves { real_time, link_sharing: Some(Curve::linear(rate)), upper_limit })
            }
            _ => Share::Only,
        }
    }

    fn some(&mut self, wanted: impl Fn(&NodeView) -> bool) -> Option<NodeView> {
        let mut all: Vec<NodeView> = self.port.report().tree().into_iter().filter(wanted).collect();
        let count = all.len() as u64;
        (count > 0).then(|| all.swap_remove(self.roll(count) as usize))
    }

    fn note<E>(&mut self, change: &'static str, result: Result<(), E>) {
        *self.accepted.entry(change).or_default() += u32::from(result.is_ok());
    }

    fn grow(&mut self) {
        let Some(parent) = self.some(|view| !view.kind.is_leaf()) else { return };
        let kind = if self.roll(3) == 0 { self.inner_kind(Some(&parent.kind)) } else { self.leaf_kind() };
        let share = self.share_for(&parent.kind, !kind.is_leaf() && kind == NodeKind::Hfsc);
        // Some refusals are expected: levels in use, trees that are too deep, guarantees above the rate.
        let added = self.port.edit().add(NodeId(self.next_id), Some(parent.node), share, &kind, at(self.now));
        self.next_id += u32::from(added.is_ok());
        self.note("add", added);
    }

    fn arrive(&mut self) {
        let flow = self.roll(40) as u32;
        let leaf = match self.routes.get(&flow) {
            Some(leaf) => *leaf,
            None => match self.some(|view| view.kind.is_leaf()) {
                Some(leaf) => leaf.node.0,
                None => return,
            },
        };
        self.routes.insert(flow, leaf);
        self.number += 1;
        self.offered += 1;
        let frame = frame(flow, self.number, 40 + self.roll(1460) as u32);
        let dropped = &mut self.dropped;
        self.port
            .enqueue(NodeId(leaf), FlowNumber(flow), frame, at(self.now), &mut |_: Frame, _| *dropped += 1);
    }

    fn send(&mut self) {
        loop {
            let dropped = &mut self.dropped;
            let Some(frame) = self.port.dequeue(at(self.now), &mut |_: Frame, _| *dropped += 1) else {
                break;
            };
            self.sent += 1;
            self.wire += u64::from(LinkOverhead::Ethernet.wire_length(frame.length));
            let before = self.latest.insert(frame.flow, frame.number);
            assert!(before < Some(frame.number), "flow {} was reordered", frame.flow);
        }
        let next = self.port.next_ready().as_nanos();
        assert!(next > self.now);
        if !self.may_idle && self.port.held_packets() > 0 {
            // The link is busy with one packet, for at most 123,040 ns.
            assert!(next <= self.now + 123_040, "idle from {} to {next}", self.now);
        }
    }

    fn change(&mut self) {
        match self.roll(6) {
            0 => self.grow(),
            1 => self.remove(),
            2 => {
                let Some(node) = self.some(|view| view.parent.is_some()) else { return };
                let Some(parent) = self.some(|view| !view.kind.is_leaf()) else { return };
                let share = self.share_for(&parent.kind, node.kind == NodeKind::Hfsc);
                let moved = self.port.edit().move_to(node.node, Some(parent.node), share, at(self.now));
                self.note("move", moved);
            }
            3 => {
                let Some(node) = self.some(|view| view.parent.is_some()) else { return };
                let parent = node.parent.and_then(|parent| self.port.report().view(parent)).unwrap();
                let share = self.share_for(&parent.kind, node.kind == NodeKind::Hfsc);
                let set = self.port.edit().set_share(node.node, share, at(self.now));
                self.note("share", set);
            }
            4 => {
                let Some(node) = self.some(|view| view.kind.is_leaf()) else { return };
                let kind = self.leaf_kind();
                let set = self.port.edit().set(node.node, &kind, at(self.now));
                self.note("leaf", set);
            }
            _ => {
                if let Some(node) = self.some(|view| matches!(view.kind, NodeKind::TokenBucket { .. })) {
                    let kind =
                        NodeKind::TokenBucket { rate: Rate(1_000_000 + self.roll(9_000_000)), burst: 2000 };
                    let set = self.port.edit().set(node.node, &kind, at(self.now));
                    self.note("bucket", set);
                }
            }
        }
    }

    /// Removes a node. The flows of its leaves then use the leaf that got the packets, or any leaf if the
    /// packets were dropped.
    fn remove(&mut self) {
        let Some(node) = self.some(|view| view.parent.is_some()) else { return };
        let target = self.some(|view| view.kind.is_leaf() && view.node != node.node);
        let leftover = match target {
            Some(target) if self.roll(2) == 0 => Leftover::MoveTo(target.node),
            _ => Leftover::Drop,
        };
        let (dropped, mut removed) = (&mut self.dropped, 0);
        let result = self.port.edit().remove(node.node, leftover, at(self.now), &mut |_: Frame, cause| {
            assert_eq!(cause, DropCause::Removed);
            *dropped += 1;
            removed += 1;
        });
        match (&result, leftover) {
            (Ok(_), Leftover::MoveTo(target)) => {
                assert_eq!(removed, 0, "packets were dropped that were to be moved");
                let port = &self.port;
                for leaf in
                    self.routes.values_mut().filter(|leaf| port.report().view(NodeId(**leaf)).is_none())
                {
                    *leaf = target.0;
                }
            }
            (Ok(count), Leftover::Drop) => {
                assert_eq!(*count, removed);
                let port = &self.port;
                self.routes.retain(|_, leaf| port.report().view(NodeId(*leaf)).is_some());
            }
            (Err(_), _) => {}
        }
        self.note("remove", result.map(drop));
    }

    /// Checks offered = sent + dropped + held, for the port and in the view of every node.
    fn conserve(&self) {
        assert_eq!(self.offered, self.sent + self.dropped + u64::from(self.port.held_packets()));
        let tree = self.port.report().tree();
        self.is_the_same_in_pieces(&tree);
        assert_eq!((tree[0].sent_packets, tree[0].sent_wire_bytes), (self.sent, self.wire));
        for view in tree.iter().filter(|view| !view.kind.is_leaf()) {
            let below = tree.iter().filter(|child| child.parent == Some(view.node));
            let (packets, bytes) =
                below.fold((0, 0), |sum, child| (sum.0 + child.held_packets, sum.1 + child.held_bytes));
            assert_eq!((view.held_packets, view.held_bytes), (packets, bytes), "{view:?}");
        }
    }

    /// Checks that views requested in pieces make the same tree as views requested at once, except for the
    /// promised rates.
    fn is_the_same_in_pieces(&self, tree: &[NodeView]) {
        let (mut nodes, mut next) = (Vec::new(), Some(0));
        while let Some(first) = next {
            let (piece, more) = self.port.report().nodes_from(first, 3);
            assert!(piece.len() <= 3 && piece.iter().all(|view| (first..first + 3).contains(&view.node.0)));
            nodes.extend(piece);
            next = more;
        }
        let told = tree.iter().map(|view| NodeView { promised: None, ..view.clone() });
        assert_eq!(in_tree(nodes), told.collect::<Vec<_>>());
    }

    fn run(&mut self, steps: u32, changes: bool) {
        for _ in 0..steps {
            for _ in 0..self.roll(4) {
                self.arrive();
            }
            if changes && self.roll(10) == 0 {
                self.change();
            }
            self.send();
            self.conserve();
            let pause = self.now + self.roll(200_000);
            self.now = pause.min(self.port.next_ready().as_nanos().max(self.now + 1));
        }
        // No more packets arrive: all packets must leave, so no node starves.
        while self.port.held_packets() > 0 {
            let next = self.port.next_ready().as_nanos();
            assert!(next < self.now + 60_000_000_000, "{} packets wait for ever", self.port.held_packets());
            self.now = next.max(self.now);
            self.send();
        }
        self.conserve();
    }
}

#[test]
fn a_hundred_trees_that_never_idle_conserve_work() {
    for seed in 0..100 {
        World::new(seed, false).run(400, false);
    }
}

#[test]
fn hundred_trees_with_buckets_and_limits_lose_no_packet_and_starve_no_flow() {
    for seed in 100..200 {
        World::new(seed, true).run(400, false);
    }
}

#[test]
fn a_hundred_trees_change_at_random_moments() {
    let mut accepted: BTreeMap<&str, u32> = BTreeMap::new();
    for seed in 200..300 {
        let mut world = World::new(seed, seed % 2 == 0);
        world.run(400, true);
        world.accepted.into_iter().for_each(|(change, count)| *accepted.entry(change).or_default() += count);
    }
    for change in ["add", "remove", "move", "share", "leaf", "bucket"] {
        assert!(accepted.get(change).is_some_and(|count| *count > 0), "{change} of {accepted:?}");
    }
}
