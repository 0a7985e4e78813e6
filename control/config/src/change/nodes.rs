//! Nodes of schedulers by name, and the fate of each node when its scheduler is replaced.

use std::collections::{HashMap, HashSet};

use crate::schema::scheduler::{Scheduler, SchedulerNode};

/// Index of the nodes of a scheduler by name, for repeated lookups.
#[derive(Debug)]
pub struct Nodes<'s> {
    all: &'s [SchedulerNode],
    places: HashMap<&'s str, usize>,
}

impl<'s> Nodes<'s> {
    /// Builds the index of a scheduler. If several nodes have the same name, it holds the first.
    #[must_use]
    pub fn of(scheduler: &'s Scheduler) -> Self {
        let mut places = HashMap::with_capacity(scheduler.node.len());
        for (place, node) in scheduler.node.iter().enumerate() {
            places.entry(&*node.name).or_insert(place);
        }
        Self { all: &scheduler.node, places }
    }

    /// Returns all nodes in their order.
    pub fn iter(&self) -> std::slice::Iter<'s, SchedulerNode> {
        self.all.iter()
    }

    /// Returns the index of a node in the list of nodes; `None` for an unknown name.
    #[must_use]
    pub fn place(&self, name: &str) -> Option<usize> {
        self.places.get(name).copied()
    }

    /// Returns the node of this name; `None` for an unknown name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'s SchedulerNode> {
        self.place(name).map(|place| &self.all[place])
    }
}

/// Returns the name of the leaf for unclassified packets: the `default` leaf, or else the first leaf.
#[must_use]
pub fn default_leaf(scheduler: &Scheduler) -> Option<&str> {
    let first = || scheduler.node.iter().find(|node| node.kind.is_leaf()).map(|node| &*node.name);
    scheduler.default.as_deref().or_else(first)
}

/// Returns the leaf that gets the packets of removed nodes when one scheduler replaces another. Both
/// schedulers have this leaf; preferably it is the default leaf of the new scheduler.
pub(crate) fn heir<'s>(before: &'s Scheduler, after: &'s Scheduler) -> Option<&'s str> {
    let leaves = after.node.iter().filter(|node| node.kind.is_leaf()).map(|node| &*node.name);
    let fates = Fates::of(before, after);
    default_leaf(after).into_iter().chain(leaves).find(|name| fates.get(name) != Fate::Goes)
}

/// Fate of a node when its scheduler is replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// The node keeps its parent and its kind.
    Stays,
    /// The node is a leaf, remains a leaf, and keeps its packets.
    Leaf {
        /// Whether the leaf gets another parent.
        moves: bool,
        /// Whether the leaf gets another kind.
        changes: bool,
    },
    /// The node is removed. Inner nodes below it are removed too; leaves below it may move to another parent.
    Goes,
}

/// Fates of all nodes of a scheduler that another scheduler replaces.
#[derive(Debug)]
pub struct Fates<'s>(HashMap<&'s str, Fate>);

impl<'s> Fates<'s> {
    /// Determines the fates of the nodes of `before`. A leaf keeps its packets if it stays a leaf, even with
    /// a new parent or kind. An inner node is removed if its parent or kind changes, or if its parent is
    /// removed.
    #[must_use]
    pub fn of(before: &'s Scheduler, after: &Scheduler) -> Self {
        let now = Nodes::of(after);
        let mut stay = HashSet::new();
        let mut fate = |was: &'s SchedulerNode| {
            let Some(is) = now.get(&was.name) else { return Fate::Goes };
            let moves =
                was.under != is.under || was.under.as_deref().is_some_and(|above| !stay.contains(above));
            let changes = was.kind != is.kind;
            match (moves, changes) {
                (false, false) => {
                    stay.insert(&*was.name);
                    Fate::Stays
                }
                _ if was.kind.is_leaf() && is.kind.is_leaf() => Fate::Leaf { moves, changes },
                _ => Fate::Goes,
            }
        };
        Self(before.node.iter().map(|was| (&*was.name, fate(was))).collect())
    }

    /// Returns the fate of a node; [`Fate::Goes`] for an unknown node.
    #[must_use]
    pub fn get(&self, name: &str) -> Fate {
        self.0.get(name).copied().unwrap_or(Fate::Goes)
    }
}
