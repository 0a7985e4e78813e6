//! Neighbours and route numbers that flow cache entries depend on.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;

use millrace_units::NextHopIndex;

use super::plan::{Neighbour, Plan};

/// Number of flow cache entries that depend on each neighbour and route number.
#[derive(Debug, Default)]
pub(super) struct Uses {
    neighbours: HashMap<Neighbour, u32>,
    routes: HashMap<NextHopIndex, u32>,
}

impl Uses {
    /// Counts an entry with this plan.
    pub fn begin(&mut self, plan: &Plan) {
        if let Some(neighbour) = plan.neighbour {
            *self.neighbours.entry(neighbour).or_default() += 1;
        }
        *self.routes.entry(plan.route).or_default() += 1;
    }

    /// Removes an entry with this plan from the counts.
    pub fn end(&mut self, plan: &Plan) {
        if let Some(neighbour) = plan.neighbour {
            less(&mut self.neighbours, neighbour);
        }
        less(&mut self.routes, plan.route);
    }

    /// Returns whether any entry sends to a neighbour.
    pub fn neighbour(&self, neighbour: Neighbour) -> bool {
        self.neighbours.contains_key(&neighbour)
    }

    /// Returns whether any entry uses a route number.
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
