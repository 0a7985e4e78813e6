//! Nodes of schedulers by their names, and what becomes of them when one scheduler makes place for another.

use std::collections::{HashMap, HashSet};

use crate::scheduler::{Scheduler, SchedulerNode};

/// The nodes of a scheduler by their names: made once by whoever looks for many.
#[derive(Debug)]
pub struct Nodes<'s> {
    all: &'s [SchedulerNode],
    places: HashMap<&'s str, usize>,
}

impl<'s> Nodes<'s> {
    /// Those of a scheduler. Of several with the same name it is the first.
    #[must_use]
    pub fn of(scheduler: &'s Scheduler) -> Self {
        let mut places = HashMap::with_capacity(scheduler.node.len());
        for (place, node) in scheduler.node.iter().enumerate() {
            places.entry(&*node.name).or_insert(place);
        }
        Self { all: &scheduler.node, places }
    }

    /// All of them, in their order.
    pub fn iter(&self) -> std::slice::Iter<'s, SchedulerNode> {
        self.all.iter()
    }

    /// Where in the list a node stands.
    #[must_use]
    pub fn place(&self, name: &str) -> Option<usize> {
        self.places.get(name).copied()
    }

    /// A node.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'s SchedulerNode> {
        self.place(name).map(|place| &self.all[place])
    }
}

/// The name of the leaf for packets that nothing else is said of: what `default` says, or the first leaf.
#[must_use]
pub fn default_leaf(scheduler: &Scheduler) -> Option<&str> {
    let first = || scheduler.node.iter().find(|node| node.kind.is_leaf()).map(|node| &*node.name);
    scheduler.default.as_deref().or_else(first)
}

/// The leaf that takes what waits in nodes that go away, when one scheduler makes place for another: one that is in both, the
/// default one if it can be.
pub(crate) fn heir<'s>(before: &'s Scheduler, after: &'s Scheduler) -> Option<&'s str> {
    let leaves = after.node.iter().filter(|node| node.kind.is_leaf()).map(|node| &*node.name);
    let fates = Fates::of(before, after);
    default_leaf(after).into_iter().chain(leaves).find(|name| fates.get(name) != Fate::Goes)
}

/// What becomes of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It stays where it is, of its kind.
    Stays,
    /// It is a leaf, and stays one with its packets.
    Leaf {
        /// Whether it stands elsewhere.
        moves: bool,
        /// Whether it is of another kind.
        changes: bool,
    },
    /// It goes, with all below it.
    Goes,
}

/// What becomes of the nodes of a scheduler when another takes its place.
#[derive(Debug)]
pub struct Fates<'s>(HashMap<&'s str, Fate>);

impl<'s> Fates<'s> {
    /// Of the nodes of `before`, each of which stands behind the one above it. A leaf that stands elsewhere takes its packets
    /// there, and one that becomes another leaf keeps them. Another node elsewhere, or of another kind, is another one.
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

    /// What becomes of a node; it goes, where there is none.
    #[must_use]
    pub fn get(&self, name: &str) -> Fate {
        self.0.get(name).copied().unwrap_or(Fate::Goes)
    }
}
