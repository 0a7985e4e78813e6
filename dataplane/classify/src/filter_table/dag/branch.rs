//! Branch: a node with the edges of one level, for any match function.

use crate::prefix_match::{Count, PrefixMatchKind};

use super::addresses::Addresses;
use super::edges::{Edge, EdgeId, References, Target};
use super::ranges::Ranges;
use super::rule::{Condition, Level, Seen};
use super::values::Values;

/// Node that divides its filters by one field.
#[derive(Clone, Debug)]
pub(super) struct Branch {
    pub level: Level,
    edges: Edges,
}

#[derive(Clone, Debug)]
enum Edges {
    Addresses(Addresses),
    Values { otherwise: Target, values: Values },
    Ports { otherwise: Target, single: Values, ranges: Option<Box<Ranges>> },
}

impl Branch {
    /// Creates a node that has only the default edge. Packets that match no other edge take the default edge.
    fn new(level: Level, kind: PrefixMatchKind, otherwise: Target) -> Self {
        let edges = match level {
            Level::Source | Level::Destination => Edges::Addresses(Addresses::new(kind, otherwise)),
            Level::SourcePort | Level::DestinationPort => {
                Edges::Ports { otherwise, single: Values::default(), ranges: None }
            }
            _ => Edges::Values { otherwise, values: Values::default() },
        };
        Self { level, edges }
    }

    /// Creates a node of `filters` filters, which all have the same condition. The edges of this condition
    /// lead to `target`.
    pub fn among(
        level: Level,
        kind: PrefixMatchKind,
        condition: Condition,
        target: Target,
        filters: u32,
    ) -> Self {
        let otherwise = if condition == Condition::Any { target } else { Target::NOTHING };
        let mut branch = Self::new(level, kind, otherwise);
        (0..filters).for_each(|_| drop(branch.open(condition)));
        for edge in branch.touched(condition) {
            branch.set_target(edge, target);
        }
        branch
    }

    /// Returns the target of the edge that a packet takes.
    #[inline]
    pub fn step(&self, seen: &Seen<'_>, count: &mut impl Count) -> Target {
        match &self.edges {
            Edges::Addresses(addresses) => {
                let address = if self.level == Level::Source { seen.source } else { seen.destination };
                addresses.step(seen.key.family(), address, count)
            }
            Edges::Values { otherwise, values } => {
                values.step(seen.exact(self.level), count).unwrap_or(*otherwise)
            }
            Edges::Ports { otherwise, .. } if !seen.ports_known => *otherwise,
            Edges::Ports { otherwise, single, ranges } => {
                let source = self.level == Level::SourcePort;
                let port = if source { seen.key.source_port } else { seen.key.destination_port };
                let among_ranges = |count| ranges.as_ref()?.step(port, count);
                single.step(port, count).or_else(|| among_ranges(count)).unwrap_or(*otherwise)
            }
        }
    }

    /// Adds the condition of a filter, and creates the edges that it needs. A new edge leads to the same
    /// target as the edge that its packets took before.
    pub fn open(&mut self, condition: Condition) -> References {
        match (&mut self.edges, condition) {
            (_, Condition::Any) => References::default(),
            (Edges::Addresses(addresses), _) => addresses.open(condition),
            (Edges::Values { otherwise, values }, Condition::Exact(value)) => values.open(value, *otherwise),
            (Edges::Ports { otherwise, single, ranges }, Condition::Ports(first, last)) => {
                if first < last {
                    return ranges.get_or_insert_default().open((first, last), *otherwise);
                }
                let so_far = ranges.as_ref().and_then(|ranges| ranges.way_of((first, last), *otherwise));
                single.open(first, so_far.unwrap_or(*otherwise))
            }
            _ => References::default(),
        }
    }

    /// Removes a filter's condition, and the edges that no other filter needs.
    pub fn close(&mut self, condition: Condition) -> References {
        match (&mut self.edges, condition) {
            (_, Condition::Any) => References::default(),
            (Edges::Addresses(addresses), _) => addresses.close(condition),
            (Edges::Values { values, .. }, Condition::Exact(value)) => values.close(value),
            (Edges::Ports { single, .. }, Condition::Ports(first, last)) if first == last => {
                single.close(first)
            }
            (Edges::Ports { otherwise, ranges: all @ Some(_), .. }, Condition::Ports(first, last)) => {
                let Some(ranges) = all else { return References::default() };
                let references = ranges.close((first, last), *otherwise);
                if ranges.is_empty() {
                    *all = None;
                }
                references
            }
            _ => References::default(),
        }
    }

    /// Returns the edges that packets of the condition may take. A filter of the node must have this
    /// condition.
    pub fn touched(&self, condition: Condition) -> Vec<EdgeId> {
        let mut found = Vec::new();
        if condition == Condition::Any {
            found.push(EdgeId::Otherwise);
        }
        let (first, last) = match condition {
            Condition::Exact(value) => (value, value),
            Condition::Ports(first, last) => (first, last),
            _ => (0, u16::MAX),
        };
        match &self.edges {
            Edges::Addresses(addresses) => addresses.touched(condition, &mut found),
            Edges::Values { values, .. } => values.touched((first, last), &mut found),
            Edges::Ports { single, ranges, .. } => {
                single.touched((first, last), &mut found);
                // A single port has its own edge, which a lookup tries before the segments.
                if let Some(ranges) = ranges.as_ref().filter(|_| first < last) {
                    ranges.touched((first, last), &mut found);
                }
            }
        }
        found
    }

    /// Returns the target that all packets of the condition share; `None` if they have several targets.
    pub fn way_of(&self, condition: Condition) -> Option<Target> {
        match (&self.edges, condition) {
            (_, Condition::Any) => None,
            (Edges::Addresses(addresses), _) => addresses.way_of(condition),
            (Edges::Values { otherwise, values }, Condition::Exact(value)) => {
                Some(values.edge(value).map_or(*otherwise, |edge| edge.target))
            }
            (Edges::Ports { otherwise, single, ranges }, Condition::Ports(first, last)) => {
                let mut inside = Vec::new();
                single.touched((first, last), &mut inside);
                match inside[..] {
                    [] => match ranges {
                        Some(ranges) => ranges.way_of((first, last), *otherwise),
                        None => Some(*otherwise),
                    },
                    [_] if first == last => single.edge(first).map(|edge| edge.target),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// If all `filters` filters of the node have the same condition, returns the target of the condition's
    /// edge: the node is then superfluous. Otherwise returns `None`.
    pub fn only_way(&self, filters: u32) -> Option<Target> {
        let mut edges: Vec<(Target, u32)> = Vec::new();
        let as_pair = |edge: &Edge| (edge.target, edge.filters);
        let otherwise = match &self.edges {
            Edges::Addresses(addresses) => {
                edges.extend(addresses.edges().take(2).map(as_pair));
                addresses.otherwise
            }
            Edges::Values { otherwise, values } => {
                edges.extend(values.edges().take(2).map(as_pair));
                *otherwise
            }
            Edges::Ports { otherwise, single, ranges } => {
                edges.extend(single.edges().take(2).map(as_pair));
                if let Some(ranges) = ranges {
                    // Several ranges count as one edge without filters. So the comparison below fails, and
                    // the node counts as needed.
                    edges.push(ranges.only().unwrap_or((*otherwise, 0)));
                }
                *otherwise
            }
        };
        match edges[..] {
            [] => Some(otherwise),
            [(target, own)] if own == filters => Some(target),
            _ => None,
        }
    }

    pub fn target(&self, id: EdgeId) -> Target {
        let of = |edge: Option<&Edge>| edge.map_or(Target::NOTHING, |edge| edge.target);
        match (&self.edges, id) {
            (Edges::Addresses(Addresses { otherwise, .. }), EdgeId::Otherwise)
            | (Edges::Values { otherwise, .. } | Edges::Ports { otherwise, .. }, EdgeId::Otherwise) => {
                *otherwise
            }
            (Edges::Addresses(addresses), EdgeId::Index(index)) => addresses.edge(index).target,
            (Edges::Values { values, .. } | Edges::Ports { single: values, .. }, EdgeId::Value(value)) => {
                of(values.edge(value))
            }
            (Edges::Ports { ranges: Some(ranges), .. }, EdgeId::Index(index)) => ranges.target(index),
            _ => Target::NOTHING,
        }
    }

    pub fn set_target(&mut self, id: EdgeId, target: Target) {
        match (&mut self.edges, id) {
            (Edges::Addresses(Addresses { otherwise, .. }), EdgeId::Otherwise)
            | (Edges::Values { otherwise, .. } | Edges::Ports { otherwise, .. }, EdgeId::Otherwise) => {
                *otherwise = target;
            }
            (Edges::Addresses(addresses), EdgeId::Index(index)) => addresses.edge_mut(index).target = target,
            (Edges::Values { values, .. } | Edges::Ports { single: values, .. }, EdgeId::Value(value)) => {
                if let Some(edge) = values.edge_mut(value) {
                    edge.target = target;
                }
            }
            (Edges::Ports { ranges: Some(ranges), .. }, EdgeId::Index(index)) => {
                ranges.set_target(index, target)
            }
            _ => {}
        }
    }

    /// Returns the target of each edge.
    pub fn targets(&self) -> Vec<Target> {
        match &self.edges {
            Edges::Addresses(addresses) => {
                let others = addresses.edges().map(|edge| edge.target);
                std::iter::once(addresses.otherwise).chain(others).collect()
            }
            Edges::Values { otherwise, values } => {
                std::iter::once(*otherwise).chain(values.edges().map(|edge| edge.target)).collect()
            }
            Edges::Ports { otherwise, single, ranges } => {
                let segments = ranges.iter().flat_map(|ranges| ranges.targets());
                let single = single.edges().map(|edge| edge.target);
                std::iter::once(*otherwise).chain(single).chain(segments).collect()
            }
        }
    }

    /// Applies `change` to the target of every edge.
    pub fn for_each_target(&mut self, mut change: impl FnMut(&mut Target)) {
        match &mut self.edges {
            Edges::Addresses(addresses) => {
                change(&mut addresses.otherwise);
                addresses.edges_mut().for_each(|edge| change(&mut edge.target));
            }
            Edges::Values { otherwise, values } => {
                change(otherwise);
                values.edges_mut().for_each(|edge| change(&mut edge.target));
            }
            Edges::Ports { otherwise, single, ranges } => {
                change(otherwise);
                single.edges_mut().for_each(|edge| change(&mut edge.target));
                ranges.iter_mut().flat_map(|ranges| ranges.targets_mut()).for_each(change);
            }
        }
    }

    /// Returns the first target that leads to a filter.
    pub fn any_target(&self) -> Target {
        fn first(mut targets: impl Iterator<Item = Target>) -> Target {
            targets.find(|target| *target != Target::NOTHING).unwrap_or(Target::NOTHING)
        }
        match &self.edges {
            Edges::Addresses(Addresses { otherwise, .. })
            | Edges::Values { otherwise, .. }
            | Edges::Ports { otherwise, .. }
                if *otherwise != Target::NOTHING =>
            {
                *otherwise
            }
            Edges::Addresses(addresses) => first(addresses.edges().map(|edge| edge.target)),
            Edges::Values { values, .. } => first(values.edges().map(|edge| edge.target)),
            Edges::Ports { single, ranges, .. } => {
                let segments = ranges.iter().flat_map(|ranges| ranges.targets());
                first(single.edges().map(|edge| edge.target).chain(segments))
            }
        }
    }

    /// Returns the heap memory of the node in bytes.
    pub fn heap(&self) -> usize {
        match &self.edges {
            Edges::Addresses(addresses) => addresses.heap(),
            Edges::Values { values, .. } => values.heap(),
            Edges::Ports { single, ranges, .. } => {
                let ranges = ranges.as_ref().map_or(0, |ranges| size_of::<Ranges>() + ranges.heap());
                single.heap() + ranges
            }
        }
    }
}
