//! Exact-match level of the DAG: a hash table with one edge per value, and a wildcard edge.

use crate::prefix_match::Count;

use super::edges::{Edge, EdgeId, References, Target};

/// Edges by value, in a hash table with linear probing. Its size is a power of two, and at most half of its
/// slots are used.
#[derive(Clone, Default, Debug)]
pub(super) struct Values {
    places: Box<[Place]>,
    edges: u32,
}

/// Slot of the hash table: a value with its edge. The slot is free if no filter has this value.
#[derive(Clone, Copy, Debug)]
struct Place {
    value: u16,
    edge: Edge,
}

const FREE: Place = Place { value: 0, edge: Edge { target: Target::NOTHING, filters: 0 } };

impl Values {
    #[inline]
    pub fn step(&self, value: u16, count: &mut impl Count) -> Option<Target> {
        if self.edges == 0 {
            return None;
        }
        let place = &self.places[self.find(value)];
        count.read(place);
        (place.edge.filters > 0).then_some(place.edge.target)
    }

    /// Returns the slot of a value, or the free slot for it.
    #[inline]
    fn find(&self, value: u16) -> usize {
        // Fibonacci hashing: the upper bits of a product with the golden ratio.
        let mask = self.places.len() - 1;
        let mut at = (u32::from(value).wrapping_mul(0x9e37_79b1) >> 16) as usize & mask;
        while self.places[at].edge.filters > 0 && self.places[at].value != value {
            at = (at + 1) & mask;
        }
        at
    }

    #[inline]
    pub fn edge(&self, value: u16) -> Option<&Edge> {
        if self.edges == 0 {
            return None;
        }
        let edge = &self.places[self.find(value)].edge;
        (edge.filters > 0).then_some(edge)
    }

    pub fn edge_mut(&mut self, value: u16) -> Option<&mut Edge> {
        if self.edges == 0 {
            return None;
        }
        let at = self.find(value);
        Some(&mut self.places[at].edge).filter(|edge| edge.filters > 0)
    }

    /// Adds a filter's value. `otherwise` is the target that packets with this value have so far.
    pub fn open(&mut self, value: u16, otherwise: Target) -> References {
        if let Some(edge) = self.edge_mut(value) {
            edge.filters += 1;
            return References::default();
        }
        self.edges += 1;
        if self.edges as usize * 2 > self.places.len() {
            self.make_anew();
        }
        let at = self.find(value);
        self.places[at] = Place { value, edge: Edge { target: otherwise, filters: 1 } };
        References::one_more(otherwise)
    }

    /// Removes a filter's value.
    pub fn close(&mut self, value: u16) -> References {
        let Some(edge) = self.edge_mut(value) else { return References::default() };
        edge.filters -= 1;
        if edge.filters > 0 {
            return References::default();
        }
        let target = edge.target;
        self.edges -= 1;
        if self.edges as usize * 8 <= self.places.len() {
            self.make_anew();
        } else {
            self.close_gap(value);
        }
        References::one_fewer(target)
    }

    /// Moves displaced entries into the gap that a removed value left.
    fn close_gap(&mut self, value: u16) {
        let mask = self.places.len() - 1;
        let mut at = self.find(value);
        loop {
            at = (at + 1) & mask;
            let place = std::mem::replace(&mut self.places[at], FREE);
            if place.edge.filters == 0 {
                return;
            }
            let up = self.find(place.value);
            self.places[up] = place;
        }
    }

    /// Rebuilds the hash table in the right size for its edges.
    fn make_anew(&mut self) {
        let places = if self.edges == 0 { 0 } else { (self.edges as usize * 2).next_power_of_two() };
        let old = std::mem::replace(&mut self.places, vec![FREE; places].into());
        for place in old.into_iter().filter(|place| place.edge.filters > 0) {
            let at = self.find(place.value);
            self.places[at] = place;
        }
    }

    /// Appends the edges of the values from `first` to `last`.
    pub fn touched(&self, (first, last): (u16, u16), found: &mut Vec<EdgeId>) {
        if first == last {
            found.extend(self.edge(first).map(|_| EdgeId::Value(first)));
        } else {
            let used = self.places.iter().filter(|place| place.edge.filters > 0);
            let inside = used.map(|place| place.value).filter(|value| (first..=last).contains(value));
            found.extend(inside.map(EdgeId::Value));
        }
    }

    pub fn edges(&self) -> impl Iterator<Item = &Edge> {
        self.places.iter().map(|place| &place.edge).filter(|edge| edge.filters > 0)
    }

    pub fn edges_mut(&mut self) -> impl Iterator<Item = &mut Edge> {
        self.places.iter_mut().map(|place| &mut place.edge).filter(|edge| edge.filters > 0)
    }

    pub fn heap(&self) -> usize {
        size_of_val(&*self.places)
    }
}
