//! Table from flow to queue, with open addressing and linear probing.

use crate::FlowNumber;
use crate::arena::NONE;

#[derive(Clone, Copy, Debug)]
struct Place {
    flow: u32,
    queue: u32,
}

/// Minimum number of table entries per flow.
pub(crate) const PLACES: usize = 4;

const VACANT: Place = Place { flow: 0, queue: NONE };

/// Map from flow numbers to queues. At most a quarter of the map's entries are in use, so nearly all searches
/// end at the first entry, which suits the branch predictor.
#[derive(Debug, Default)]
pub(crate) struct FlowTable {
    places: Box<[Place]>,
    shift: u32,
    multiplier: u64,
}

impl FlowTable {
    /// Creates a table for `flows` flows. The seed varies the hash, so that senders can't choose flow numbers
    /// that collide.
    pub fn new(flows: u32, seed: u64) -> Self {
        let places = (flows.max(2) as usize * PLACES).next_power_of_two();
        // Multiplication by an odd number spreads consecutive flow numbers (Knuth, TAOCP 3, 6.4). The seed
        // varies the number.
        let multiplier = (0x9e37_79b9_7f4a_7c15 ^ seed << 1) | 1;
        Self {
            places: vec![VACANT; places].into_boxed_slice(),
            shift: 64 - places.trailing_zeros(),
            multiplier,
        }
    }

    /// Returns the number of flows that the table has room for.
    pub fn room(&self) -> u32 {
        (self.places.len() / PLACES) as u32
    }

    /// Returns a copy with room for `flows` flows.
    pub fn with_room(&self, flows: u32, seed: u64) -> Self {
        let mut larger = Self::new(flows, seed);
        for place in self.places.iter().filter(|place| place.queue != NONE) {
            larger.insert(FlowNumber(place.flow), place.queue);
        }
        larger
    }

    #[inline]
    fn home(&self, flow: FlowNumber) -> usize {
        (u64::from(flow.0).wrapping_mul(self.multiplier) >> self.shift) as usize
    }

    #[inline]
    fn find(&self, flow: FlowNumber) -> (usize, Place) {
        let mask = self.places.len() - 1;
        let mut at = self.home(flow) & mask;
        loop {
            let place = self.places[at];
            if place.queue == NONE || place.flow == flow.0 {
                return (at, place);
            }
            at = (at + 1) & mask;
        }
    }

    /// Returns the queue of a flow; `None` if the flow isn't in the table.
    #[inline]
    pub fn get(&self, flow: FlowNumber) -> Option<u32> {
        Some(self.find(flow).1.queue).filter(|queue| *queue != NONE)
    }

    /// Inserts a flow with its queue. The flow must not be in the table, and the table must have room.
    pub fn insert(&mut self, flow: FlowNumber, queue: u32) {
        let at = self.find(flow).0;
        self.places[at] = Place { flow: flow.0, queue };
    }

    /// Removes a flow. Later entries of the same probe sequence move up (Knuth, TAOCP 3, 6.4, algorithm R).
    pub fn remove(&mut self, flow: FlowNumber) {
        let (mut hole, place) = self.find(flow);
        if place.queue == NONE {
            return;
        }
        let mask = self.places.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let place = self.places[at];
            if place.queue == NONE {
                break;
            }
            let home = self.home(FlowNumber(place.flow)) & mask;
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.places[hole] = place;
                hole = at;
            }
        }
        self.places[hole] = VACANT;
    }

    /// Prefetches the table entry at which the search for a flow starts.
    #[inline]
    pub fn prefetch(&self, flow: FlowNumber) {
        millrace_memory::prefetch_slice_element(&self.places, self.home(flow));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn flow_table_equals_a_map(seed in any::<u64>(), steps in prop::collection::vec((0_u32..60, any::<bool>()), 1..400)) {
            let (mut table, mut twin) = (FlowTable::new(32, seed), HashMap::new());
            for (number, (flow, insert)) in steps.into_iter().enumerate() {
                let key = FlowNumber(flow);
                if insert && twin.len() < 32 && !twin.contains_key(&flow) {
                    table.insert(key, number as u32);
                    twin.insert(flow, number as u32);
                } else if !insert {
                    table.remove(key);
                    twin.remove(&flow);
                }
                for flow in 0..60 {
                    prop_assert_eq!(table.get(FlowNumber(flow)), twin.get(&flow).copied());
                }
            }
        }
    }
}
