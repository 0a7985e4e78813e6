//! A level of values: one edge per value by hashing, and the wildcard.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::prefix_match::Count;

use super::edges::{Edge, EdgeId, References, Target};

/// Edges by value.
#[derive(Clone, Default, Debug)]
pub(super) struct Values {
    edges: HashMap<u16, Edge, FixedState>,
}

impl Values {
    #[inline]
    pub fn step(&self, value: u16, count: &mut impl Count) -> Option<Target> {
        if self.edges.is_empty() {
            return None;
        }
        count.access(1);
        self.edges.get(&value).map(|edge| edge.target)
    }

    /// One filter more asks for the value; `otherwise` is where packets of the value went so far.
    pub fn open(&mut self, value: u16, otherwise: Target) -> References {
        match self.edges.get_mut(&value) {
            Some(edge) => {
                edge.filters += 1;
                References::default()
            }
            None => {
                self.edges.insert(value, Edge { target: otherwise, filters: 1 });
                References::one_more(otherwise)
            }
        }
    }

    /// One filter less asks for the value.
    pub fn close(&mut self, value: u16) -> References {
        let Some(edge) = self.edges.get_mut(&value) else { return References::default() };
        edge.filters -= 1;
        if edge.filters > 0 {
            return References::default();
        }
        let target = edge.target;
        self.edges.remove(&value);
        if self.edges.len() < self.edges.capacity() / 4 {
            self.edges.shrink_to_fit();
        }
        References::one_fewer(target)
    }

    /// The edges of values from `first` to `last`.
    pub fn touched(&self, (first, last): (u16, u16), found: &mut Vec<EdgeId>) {
        if first == last {
            found.extend(self.edges.contains_key(&first).then_some(EdgeId::Value(first)));
        } else {
            let inside = self.edges.keys().filter(|value| (first..=last).contains(value));
            found.extend(inside.map(|value| EdgeId::Value(*value)));
        }
    }

    pub fn edge(&self, value: u16) -> Option<&Edge> {
        self.edges.get(&value)
    }

    pub fn edge_mut(&mut self, value: u16) -> Option<&mut Edge> {
        self.edges.get_mut(&value)
    }

    pub fn edges(&self) -> impl Iterator<Item = &Edge> {
        self.edges.values()
    }

    pub fn heap(&self) -> usize {
        // A slot and a control byte; of the slots, seven in eight may be in use.
        self.edges.capacity() * 8 / 7 * (size_of::<(u16, Edge)>() + 1)
    }
}
