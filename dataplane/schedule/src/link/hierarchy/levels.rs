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
pub(super) struct Levels {
    /// For each node, what the real-time curves at or below it guarantee in the long run.
    guaranteed: Vec<u64>,
    /// For each node, the classes right below it: what each is guaranteed, and its sharing rate.
    classes: Vec<Vec<(u64, u64)>>,
}

impl Levels {
    pub fn of<T: Item>(tree: &LinkScheduler<T>) -> Self {
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
    fn level(&self, parent: u32, whole: Rate) -> Level {
        let classes = &self.classes[parent as usize];
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

impl<T: Item> LinkScheduler<T> {
    /// What a node is served with when all others have something to send: the link's rate, cut by token buckets, by shares of
    /// round robins and by curves above. `None` where nothing bounds it.
    pub(super) fn available(&self, node: u32) -> Option<Rate> {
        self.available_in(node, &Levels::of(self))
    }

    /// The same of a tree whose levels are known.
    pub(super) fn available_in(&self, node: u32, levels: &Levels) -> Option<Rate> {
        let Node { parent, slot, .. } = self.nodes[node as usize];
        let Some(above) = self.nodes.get(parent as usize) else {
            return self.link.rate;
        };
        let whole = self.available_in(parent, levels);
        match above.kind {
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
                let guaranteed = Some(Rate(levels.guaranteed[node as usize])).filter(|rate| rate.0 > 0);
                let shared = curves.link_sharing.zip(whole).map(|(own, whole)| {
                    let level = levels.level(parent, whole);
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
