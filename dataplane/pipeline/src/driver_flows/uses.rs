//! What entries depend on: which neighbours they send to, and what numbers of routes mean.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;

use millrace_units::NextHopIndex;

use super::plan::{Neighbour, Plan};

/// How many entries depend on each.
#[derive(Debug, Default)]
pub(super) struct Uses {
    neighbours: HashMap<Neighbour, u32>,
    routes: HashMap<NextHopIndex, u32>,
}

impl Uses {
    /// An entry does what a plan says.
    pub fn begin(&mut self, plan: &Plan) {
        if let Some(neighbour) = plan.neighbour {
            *self.neighbours.entry(neighbour).or_default() += 1;
        }
        *self.routes.entry(plan.route).or_default() += 1;
    }

    /// An entry does not do it any more.
    pub fn end(&mut self, plan: &Plan) {
        if let Some(neighbour) = plan.neighbour {
            less(&mut self.neighbours, neighbour);
        }
        less(&mut self.routes, plan.route);
    }

    /// Whether an entry sends to a neighbour.
    pub fn neighbour(&self, neighbour: Neighbour) -> bool {
        self.neighbours.contains_key(&neighbour)
    }

    /// Whether an entry is there for a flow of a route.
    pub fn route(&self, route: NextHopIndex) -> bool {
        self.routes.contains_key(&route)
    }
}

fn less<K: Eq + Hash>(counts: &mut HashMap<K, u32>, key: K) {
    if let Entry::Occupied(mut count) = counts.entry(key) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}
