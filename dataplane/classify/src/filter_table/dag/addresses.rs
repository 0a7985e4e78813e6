//! Address level of the DAG: longest prefix match by the configured algorithm.

use millrace_packet::Family;

use crate::prefix_match::{AddressBits, AnyMatch, Count, NONE, Prefix, PrefixMatch, PrefixMatchKind};

use super::edges::{Edge, EdgeId, References, Target};
use super::rule::Condition;

/// Edges of a node at an address level, for prefixes of both families. The edge of a prefix leads to the
/// node's filters whose own prefix covers this prefix.
#[derive(Clone, Debug)]
pub(super) struct Addresses {
    pub otherwise: Target,
    four: Option<Box<AnyMatch<u32>>>,
    six: Option<Box<AnyMatch<u128>>>,
    edges: Vec<Edge>,
    /// First unused edge. Unused edges have no filters, and their targets form a linked list.
    unused: u32,
    kind: PrefixMatchKind,
}

impl Addresses {
    pub fn new(kind: PrefixMatchKind, otherwise: Target) -> Self {
        Self { otherwise, four: None, six: None, edges: Vec::new(), unused: NONE, kind }
    }

    #[inline]
    pub fn step(&self, family: Family, address: u128, count: &mut impl Count) -> Target {
        // Reading the matcher counts as an access. The paper likewise counts the read of the match function's
        // pointer.
        let edge = match family {
            Family::V4 => {
                count.read(&self.four);
                self.four.as_ref().and_then(|four| four.lookup((address >> 96) as u32, count))
            }
            Family::V6 => {
                count.read(&self.six);
                self.six.as_ref().and_then(|six| six.lookup(address, count))
            }
        };
        match edge {
            Some(edge) => {
                count.read(&self.edges[edge as usize]);
                self.edges[edge as usize].target
            }
            None => self.otherwise,
        }
    }

    fn get(&self, condition: Condition) -> Option<u32> {
        match condition {
            Condition::Four(prefix) => self.four.as_ref()?.get(prefix),
            Condition::Six(prefix) => self.six.as_ref()?.get(prefix),
            _ => None,
        }
    }

    fn above(&self, condition: Condition) -> Option<u32> {
        match condition {
            Condition::Four(prefix) => self.four.as_ref()?.above(prefix),
            Condition::Six(prefix) => self.six.as_ref()?.above(prefix),
            _ => None,
        }
    }

    fn target_of(&self, edge: Option<u32>) -> Target {
        edge.map_or(self.otherwise, |edge| self.edges[edge as usize].target)
    }

    fn new_edge(&mut self, edge: Edge) -> u32 {
        let index = self.unused;
        if index == NONE {
            self.edges.push(edge);
            return self.edges.len() as u32 - 1;
        }
        self.unused = self.edges[index as usize].target.next_unused();
        self.edges[index as usize] = edge;
        index
    }

    pub fn open(&mut self, condition: Condition) -> References {
        if let Some(edge) = self.get(condition) {
            self.edges[edge as usize].filters += 1;
            return References::default();
        }
        let target = self.target_of(self.above(condition));
        let kind = self.kind;
        match condition {
            Condition::Four(prefix) => {
                let edge = self.new_edge(Edge { target, filters: 1 });
                self.four.get_or_insert_with(|| Box::new(AnyMatch::new(kind))).insert(prefix, edge);
            }
            Condition::Six(prefix) => {
                let edge = self.new_edge(Edge { target, filters: 1 });
                self.six.get_or_insert_with(|| Box::new(AnyMatch::new(kind))).insert(prefix, edge);
            }
            _ => return References::default(),
        }
        References::one_more(target)
    }

    pub fn close(&mut self, condition: Condition) -> References {
        let Some(edge) = self.get(condition) else { return References::default() };
        let Edge { target, filters } = &mut self.edges[edge as usize];
        *filters -= 1;
        if *filters > 0 {
            return References::default();
        }
        let target = std::mem::replace(target, Target::unused(self.unused));
        self.unused = edge;
        match condition {
            Condition::Four(prefix) => forget(&mut self.four, prefix),
            Condition::Six(prefix) => forget(&mut self.six, prefix),
            _ => {}
        }
        if self.four.is_none() && self.six.is_none() {
            (self.edges, self.unused) = (Vec::new(), NONE);
        }
        References::one_fewer(target)
    }

    /// Appends the edges of the prefixes that the condition covers.
    pub fn touched(&self, condition: Condition, found: &mut Vec<EdgeId>) {
        match condition {
            Condition::Four(prefix) => within(self.four.as_deref(), prefix, found),
            Condition::Six(prefix) => within(self.six.as_deref(), prefix, found),
            _ => {
                within(self.four.as_deref(), Prefix::default(), found);
                within(self.six.as_deref(), Prefix::default(), found);
            }
        }
    }

    /// Returns the target that all packets of the condition share; `None` if they have several targets.
    pub fn way_of(&self, condition: Condition) -> Option<Target> {
        let mut inside = Vec::new();
        self.touched(condition, &mut inside);
        match (condition, &inside[..]) {
            (Condition::Any, _) => None,
            (_, []) => Some(self.target_of(self.above(condition))),
            (_, [EdgeId::Index(edge)]) if self.get(condition) == Some(*edge) => {
                Some(self.target_of(Some(*edge)))
            }
            _ => None,
        }
    }

    pub fn edge(&self, index: u32) -> &Edge {
        &self.edges[index as usize]
    }

    pub fn edge_mut(&mut self, index: u32) -> &mut Edge {
        &mut self.edges[index as usize]
    }

    pub fn edges(&self) -> impl Iterator<Item = &Edge> {
        self.edges.iter().filter(|edge| edge.filters > 0)
    }

    pub fn edges_mut(&mut self) -> impl Iterator<Item = &mut Edge> {
        self.edges.iter_mut().filter(|edge| edge.filters > 0)
    }

    pub fn heap(&self) -> usize {
        self.four.as_ref().map_or(0, |four| size_of::<AnyMatch<u32>>() + four.heap())
            + self.six.as_ref().map_or(0, |six| size_of::<AnyMatch<u128>>() + six.heap())
            + self.edges.capacity() * size_of::<Edge>()
    }
}

fn within<A: AddressBits>(prefixes: Option<&AnyMatch<A>>, prefix: Prefix<A>, found: &mut Vec<EdgeId>) {
    if let Some(prefixes) = prefixes {
        prefixes.within(prefix, &mut |_, edge| found.push(EdgeId::Index(edge)));
    }
}

fn forget<A: AddressBits>(prefixes: &mut Option<Box<AnyMatch<A>>>, prefix: Prefix<A>) {
    if let Some(some) = prefixes {
        some.remove(prefix);
        if some.is_empty() {
            *prefixes = None;
        }
    }
}
