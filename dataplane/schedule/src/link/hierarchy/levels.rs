//! What nodes are served with when all others have something to send.

use super::LinkScheduler;
use super::node::{Kind, Node};
use crate::{Item, Rate};

/// What the classes right below a class share, as far as it is known.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    /// What is left of the whole when those have theirs that are guaranteed more than their share.
    left: u64,
    /// Sum of the sharing rates of the others.
    weight: u64,
}

/// Guarantees and sharing rates of a tree's classes, added up once.
#[derive(Debug)]
struct Levels {
    /// For each node, what the real-time curves at or below it guarantee in the long run.
    guaranteed: Vec<u64>,
    /// For each node, the classes right below it: what each is guaranteed, and its sharing rate.
    classes: Vec<Vec<(u64, u64)>>,
}

impl Levels {
    fn of<T: Item>(tree: &LinkScheduler<T>) -> Self {
        let count = tree.nodes.len();
        let (mut guaranteed, mut classes) = (vec![0_u64; count], vec![Vec::new(); count]);
        let is_class = |node: &Node| {
            matches!(tree.nodes.get(node.parent as usize), Some(Node { kind: Kind::Hfsc { .. }, .. }))
        };
        let curves = |node: &Node| match tree.nodes.get(node.parent as usize).map(|above| above.kind) {
            Some(Kind::Hfsc { hierarchy, .. }) => Some(tree.hierarchies.get(hierarchy).curves(node.slot)),
            _ => None,
        };
        for node in &tree.nodes {
            let Some(own) = curves(node).and_then(|curves| curves.real_time) else { continue };
            // A class, and the inner classes above it.
            let (mut index, mut above) = (None, node);
            while is_class(above) {
                if let Some(index) = index {
                    guaranteed[index] = u64::saturating_add(guaranteed[index], own.then.0);
                }
                index = Some(above.parent as usize);
                above = &tree.nodes[above.parent as usize];
            }
        }
        for (index, node) in tree.nodes.iter().enumerate() {
            let Some(curves) = curves(node) else { continue };
            if let Some(own) = curves.real_time {
                guaranteed[index] = own.then.0;
            }
            let shares = curves.link_sharing.map_or(0, |curve| curve.then.0);
            classes[node.parent as usize].push((guaranteed[index], shares));
        }
        for level in &mut classes {
            // Those first that are guaranteed most, beside what they share.
            level.sort_by(|(guaranteed, shares), (other_guaranteed, other_shares)| {
                let product = |one: u64, other: u64| u128::from(one) * u128::from(other);
                product(*other_guaranteed, *shares).cmp(&product(*guaranteed, *other_shares))
            });
        }
        Self { guaranteed, classes }
    }

    /// What the classes right below a node share, of so much.
    fn level(&self, parent: usize, whole: Rate) -> Level {
        let classes = &self.classes[parent];
        let mut level = Level { left: whole.0, weight: classes.iter().map(|(_, shares)| shares).sum() };
        for (guaranteed, shares) in classes {
            if *guaranteed <= part(Rate(level.left), *shares, level.weight).0 {
                break;
            }
            level.left = level.left.saturating_sub(*guaranteed);
            level.weight -= shares;
        }
        level
    }
}

/// What each node of a tree is served with when all others have something to send, found out once for all.
#[derive(Debug)]
pub(super) struct Served(Vec<Option<Rate>>);

impl Served {
    /// The link's rate, cut by token buckets, by shares of round robins and by curves above. The cost grows with the number of
    /// nodes, and with what it takes to sort them.
    pub fn of<T: Item>(tree: &LinkScheduler<T>) -> Self {
        let levels = Levels::of(tree);
        let count = tree.nodes.len();
        let mut children = vec![Vec::new(); count];
        let mut open = Vec::new();
        for (index, node) in tree.nodes.iter().enumerate().filter(|(_, node)| node.kind != Kind::Vacant) {
            children.get_mut(node.parent as usize).unwrap_or(&mut open).push(index);
        }
        let mut served = vec![None; count];
        for root in &open {
            served[*root] = tree.link.rate;
        }
        while let Some(above) = open.pop() {
            let whole = served[above];
            let level =
                whole.filter(|_| !levels.classes[above].is_empty()).map(|whole| levels.level(above, whole));
            for child in &children[above] {
                served[*child] = tree.part_of(*child, whole, level, levels.guaranteed[*child]);
            }
            open.append(&mut children[above]);
        }
        Self(served)
    }

    /// What a node is served with; `None` where nothing bounds it.
    pub fn by(&self, node: u32) -> Option<Rate> {
        self.0.get(node as usize).copied().flatten()
    }
}

impl<T: Item> LinkScheduler<T> {
    /// What a node gets of the `whole` that the one above it is served with, whose classes share a `level`.
    fn part_of(
        &self,
        node: usize,
        whole: Option<Rate>,
        level: Option<Level>,
        guaranteed: u64,
    ) -> Option<Rate> {
        let Node { parent, slot, .. } = self.nodes[node];
        match self.nodes[parent as usize].kind {
            Kind::TokenBucket(index) => {
                let (rate, _) = self.token_buckets.get(index).settings();
                Some(whole.map_or(rate, |whole| whole.min(rate)))
            }
            Kind::RoundRobin(index) => {
                let round_robin = self.round_robins.get(index);
                Some(part(whole?, round_robin.quantum(slot).into(), round_robin.total_quantum()))
            }
            Kind::Hfsc { hierarchy, .. } => {
                let curves = self.hierarchies.get(hierarchy).curves(slot);
                let guaranteed = Some(Rate(guaranteed)).filter(|rate| rate.0 > 0);
                let shared = curves.link_sharing.zip(level).map(|(own, level)| {
                    let shared = part(Rate(level.left), own.then.0, level.weight);
                    curves.upper_limit.map_or(shared, |limit| shared.min(limit.then))
                });
                guaranteed.max(shared)
            }
            _ => whole,
        }
    }
}

/// The part of a whole that one of so many is.
fn part(whole: Rate, own: u64, total: u64) -> Rate {
    let part = u128::from(whole.0) * u128::from(own) / u128::from(total.max(1));
    Rate(u64::try_from(part).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant as Clock};

    use millrace_units::Instant;

    use crate::{
        BufferLimits, Curve, Curves, Item, LinkOverhead, LinkRate, LinkScheduler, NodeId, NodeKind, Rate,
        Share,
    };

    struct Frame;

    impl Item for Frame {
        fn length(&self) -> u32 {
            100
        }

        fn mark_congestion(&mut self) -> bool {
            false
        }
    }

    /// H-FSC over so many leaves, built as control does it, and shown: how long that takes.
    #[expect(clippy::disallowed_methods, reason = "a test of how long something takes")]
    fn build(leaves: u32) -> Duration {
        let link = LinkRate { rate: Some(Rate::from_megabits(10_000)), slack: 0 };
        let limits = BufferLimits { queues: 65_536, ..Default::default() };
        let begun = Clock::now();
        let mut port = LinkScheduler::<Frame>::new(link, LinkOverhead::None, limits).unwrap();
        port.defer_promises(true);
        port.add(NodeId(1), None, Share::Only, &NodeKind::Hfsc, Instant::ZERO).unwrap();
        let curve = Some(Curve::linear(Rate(100_000)));
        let curves =
            Curves { real_time: curve, link_sharing: curve, upper_limit: Some(Curve::linear(Rate(200_000))) };
        for leaf in 0..leaves {
            let kind = NodeKind::Fifo(Default::default());
            port.add(NodeId(2 + leaf), Some(NodeId(1)), Share::Curves(curves), &kind, Instant::ZERO).unwrap();
        }
        port.defer_promises(false);
        port.set_link(link, Instant::ZERO).unwrap();
        let tree = port.tree();
        assert_eq!(tree.len(), leaves as usize + 1);
        assert!(tree[1..].iter().all(|leaf| leaf.promised == Some(Rate(200_000))));
        begun.elapsed()
    }

    #[test]
    fn a_tree_of_sixteen_thousand_leaves_is_checked_and_shown_at_once() {
        let time = build(16_000);
        assert!(time < Duration::from_secs(5), "{time:?}");
    }
}
