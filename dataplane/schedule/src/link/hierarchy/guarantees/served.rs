//! Rates that serve the nodes of a tree when all nodes have packets to send.

use super::super::disciplines::Disciplines;
use super::super::nodes::{Kind, Node, Nodes};
use crate::Rate;
use crate::link::hfsc::Curves;

/// Ratio at which a class or a round-robin node distributes its rate among its children.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Level {
    /// Rate that the children between guarantee and limit share, after each other child got its guarantee or
    /// limit.
    left: u64,
    /// Sum of the sharing rates of the children between guarantee and limit.
    weight: u64,
}

/// Claim of a child on its parent's rate: guarantee (least rate), limit (greatest rate), and sharing rate
/// (weight).
#[derive(Clone, Copy, Debug)]
struct Claim {
    least: u64,
    most: u64,
    shares: u64,
}

impl Level {
    /// Distributes the rate `whole` among claims. Each child gets a multiple of its sharing rate, but at
    /// least its guarantee and at most its limit. The multiple is the same for all children, and so large
    /// that they use up `whole`.
    fn of(claims: &[Claim], whole: u64) -> Self {
        let product = |one: u64, other: u64| u128::from(one) * u128::from(other);
        // Points at which a child exceeds its guarantee or reaches its limit: the amount, the sharing rate,
        // and whether the child begins to share.
        let mut turns: Vec<(u64, u64, bool)> = Vec::with_capacity(2 * claims.len());
        for claim in claims.iter().filter(|claim| claim.shares > 0) {
            turns.push((claim.least, claim.shares, true));
            turns.push((claim.most.max(claim.least), claim.shares, false));
        }
        turns.sort_by(|(one, shares, begins), (other, others, other_begins)| {
            product(*one, *others).cmp(&product(*other, *shares)).then(other_begins.cmp(begins))
        });
        let mut given: u64 = claims.iter().fold(0, |sum, claim| sum.saturating_add(claim.least));
        let mut weight = 0;
        for (amount, shares, begins) in turns {
            let at_this_turn = product(given, shares) + product(weight, amount);
            if at_this_turn >= product(whole, shares) {
                break;
            }
            match begins {
                true => (given, weight) = (given - amount, weight + shares),
                false => (given, weight) = (given.saturating_add(amount), weight - shares),
            }
        }
        match (whole.saturating_sub(given), weight) {
            // All children are at their limit, and some rate is left.
            (1.., 0) => Self { left: u64::MAX, weight },
            (left, weight) => Self { left, weight },
        }
    }
}

/// Guarantees and sharing rates of a tree's classes, added up once.
#[derive(Debug)]
struct Levels {
    /// Long-run sum of the real-time curves at or below each node.
    guaranteed: Vec<u64>,
    /// Claims of the classes, or of the children of a round-robin node, directly below each node.
    claims: Vec<Vec<Claim>>,
}

impl Levels {
    fn of(tree: Branches<'_>) -> Self {
        let Branches { nodes, disciplines } = tree;
        let count = nodes.count() as usize;
        let (mut guaranteed, mut claims) = (vec![0_u64; count], vec![Vec::new(); count]);
        for (_, node) in nodes.iter() {
            let Some(own) = tree.curves(node).and_then(|curves| curves.real_time) else { continue };
            // Counts the guarantee at the class and at the inner classes above it.
            let (mut index, mut above) = (None, node);
            while let Some(Kind::Hfsc { .. }) = nodes.parent_kind(above) {
                if let Some(index) = index {
                    guaranteed[index] = u64::saturating_add(guaranteed[index], own.then.0);
                }
                index = Some(above.parent as usize);
                above = &nodes[above.parent];
            }
        }
        for (index, node) in nodes.iter() {
            let bucket = tree.bucket_rate(node).map_or(u64::MAX, |rate| rate.0);
            let claim = match (tree.curves(node), nodes.parent_kind(node)) {
                (Some(curves), _) => {
                    let guaranteed = &mut guaranteed[index as usize];
                    if let Some(own) = curves.real_time {
                        *guaranteed = own.then.0;
                    }
                    Claim {
                        least: *guaranteed,
                        most: curves.upper_limit.map_or(u64::MAX, |limit| limit.then.0).min(bucket),
                        shares: curves.link_sharing.map_or(0, |curve| curve.then.0),
                    }
                }
                (None, Some(Kind::RoundRobin(round_robin))) => {
                    let quantum = disciplines.round_robins[round_robin].quantum(node.slot);
                    Claim { least: 0, most: bucket, shares: quantum.into() }
                }
                _ => continue,
            };
            claims[node.parent as usize].push(claim);
        }
        Self { guaranteed, claims }
    }
}

/// Rate that serves each node of a tree when all other nodes have packets to send.
#[derive(Debug)]
pub(crate) struct Served(Vec<Option<Rate>>);

impl Served {
    /// Computes the rates of all nodes: the link's rate, limited by the token buckets, round-robin shares and
    /// curves above each node. The cost is that of sorting the nodes.
    pub fn of(nodes: &Nodes, disciplines: &Disciplines, link: Option<Rate>) -> Self {
        let tree = Branches { nodes, disciplines };
        let levels = Levels::of(tree);
        let count = nodes.count() as usize;
        let mut children = vec![Vec::new(); count];
        let mut open = Vec::new();
        for (index, node) in nodes.iter() {
            children.get_mut(node.parent as usize).unwrap_or(&mut open).push(index);
        }
        let mut served = vec![None; count];
        for root in &open {
            served[*root as usize] = least_of(link, tree.bucket_rate(&nodes[*root]));
        }
        while let Some(above) = open.pop() {
            let above = above as usize;
            let whole = served[above];
            let claims = &levels.claims[above];
            let level = whole.filter(|_| !claims.is_empty()).map(|whole| Level::of(claims, whole.0));
            for child in &children[above] {
                let (node, child) = (&nodes[*child], *child as usize);
                let part = tree.part_of(node, whole, level, levels.guaranteed[child]);
                served[child] = least_of(part, tree.bucket_rate(node));
            }
            open.append(&mut children[above]);
        }
        Self(served)
    }

    /// Returns the rate that serves a node; `None` if nothing limits it.
    pub fn by(&self, node: u32) -> Option<Rate> {
        self.0.get(node as usize).copied().flatten()
    }
}

/// Nodes of a tree, and their schedulers.
#[derive(Clone, Copy)]
struct Branches<'a> {
    nodes: &'a Nodes,
    disciplines: &'a Disciplines,
}

impl Branches<'_> {
    /// Returns the curves of a class; `None` for a node below another scheduler.
    fn curves(self, node: &Node) -> Option<Curves> {
        match self.nodes.parent_kind(node) {
            Some(Kind::Hfsc { hierarchy, .. }) => {
                Some(self.disciplines.hierarchies[hierarchy].curves(node.slot))
            }
            _ => None,
        }
    }

    /// Returns the rate of a node that is a token bucket; `None` for other nodes.
    fn bucket_rate(self, node: &Node) -> Option<Rate> {
        match node.kind {
            Kind::TokenBucket(index) => Some(self.disciplines.token_buckets[index].settings().0),
            _ => None,
        }
    }

    /// Returns the rate of a node below a parent with the rate `whole`. The parent distributes this rate
    /// among its children by `level`.
    fn part_of(
        self,
        node: &Node,
        whole: Option<Rate>,
        level: Option<Level>,
        guaranteed: u64,
    ) -> Option<Rate> {
        if let Some(Kind::RoundRobin(index)) = self.nodes.parent_kind(node) {
            let (level, quantum) = (level?, self.disciplines.round_robins[index].quantum(node.slot));
            return Some(part(Rate(level.left), quantum.into(), level.weight));
        }
        let Some(curves) = self.curves(node) else { return whole };
        let guaranteed = Some(Rate(guaranteed)).filter(|rate| rate.0 > 0);
        let shared = curves.link_sharing.zip(level).map(|(own, level)| {
            let shared = part(Rate(level.left), own.then.0, level.weight);
            curves.upper_limit.map_or(shared, |limit| shared.min(limit.then))
        });
        guaranteed.max(shared)
    }
}

/// Returns the smaller of two rates; `None` means unlimited.
fn least_of(one: Option<Rate>, other: Option<Rate>) -> Option<Rate> {
    one.into_iter().chain(other).min()
}

/// Returns the part `own` / `total` of the rate `whole`.
fn part(whole: Rate, own: u64, total: u64) -> Rate {
    let part = u128::from(whole.0) * u128::from(own) / u128::from(total.max(1));
    Rate(u64::try_from(part).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use millrace_units::Instant;
    use proptest::prelude::*;

    use super::{Claim, Level};
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

    /// Builds an H-FSC tree with `leaves` leaves as control does, and shows its rates.
    fn build_and_show(leaves: u32) {
        let link = LinkRate { rate: Some(Rate::from_megabits(10_000)), slack: 0 };
        let limits = BufferLimits { queues: 65_536, ..Default::default() };
        let mut port = LinkScheduler::<Frame>::new(link, LinkOverhead::None, limits).unwrap();
        port.defer_promises(true);
        port.edit().add(NodeId(1), None, Share::Only, &NodeKind::Hfsc, Instant::ZERO).unwrap();
        let curve = Some(Curve::linear(Rate(100_000)));
        let curves =
            Curves { real_time: curve, link_sharing: curve, upper_limit: Some(Curve::linear(Rate(200_000))) };
        for leaf in 0..leaves {
            let kind = NodeKind::Fifo(Default::default());
            let (node, share) = (NodeId(2 + leaf), Share::Curves(curves));
            port.edit().add(node, Some(NodeId(1)), share, &kind, Instant::ZERO).unwrap();
        }
        port.defer_promises(false);
        port.set_link(link, Instant::ZERO).unwrap();
        let tree = port.report().tree();
        assert_eq!(tree.len(), leaves as usize + 1);
        assert!(tree[1..].iter().all(|leaf| leaf.promised == Some(Rate(200_000))));
    }

    /// Builds and shows a tree so large that a quadratic cost would take minutes.
    #[test]
    fn a_tree_of_sixteen_thousand_leaves_is_checked_and_shown() {
        build_and_show(16_000);
    }

    /// Computes the rate of each class by bisection, as a reference for [`Level::of`].
    fn by_halves(claims: &[Claim], whole: u64) -> Vec<u64> {
        let at = |worth: u64| -> Vec<u64> {
            let share = |claim: &Claim| (claim.shares * worth / 1000).clamp(claim.least, claim.most);
            claims.iter().map(share).collect()
        };
        let fits = |worth: &u64| at(*worth).iter().sum::<u64>() <= whole;
        let worth = (0..22)
            .rev()
            .map(|bit| 1 << bit)
            .fold(0, |worth, bit| worth + if fits(&(worth + bit)) { bit } else { 0 });
        at(worth)
    }

    proptest! {
        #[test]
        fn level_gives_each_child_its_share_between_guarantee_and_limit(
            claims in prop::collection::vec((0_u64..300, 0_u64..300, 1_u64..100), 1..8), whole in 0_u64..2000,
        ) {
            let claims: Vec<Claim> =
                claims.into_iter().map(|(least, more, shares)| Claim { least, most: least + more, shares }).collect();
            let Level { left, weight } = Level::of(&claims, whole);
            for (claim, expected) in claims.iter().zip(by_halves(&claims, whole)) {
                let share = left.saturating_mul(claim.shares) / weight.max(1);
                let found = share.clamp(claim.least, claim.most);
                // The reference rounds each share down, and gives the remainders to the other classes.
                let close = claims.len() as u64 + claim.shares / 100;
                prop_assert!(found.abs_diff(expected) <= close, "{claim:?}: {found} {expected}");
            }
        }
    }
}
