//! Selections: expressions that only select packets or flows, for captures, traces, scans of the flow table
//! and placements.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use ipnet::IpNet;
use millrace_packet::FlowKey;
use millrace_units::PortId;

use super::super::compiled::Masked;
use super::super::{CompiledFilter, Filter, FilterError, UnknownPort};
use super::term::Term;
use super::{Read, read, written};
use crate::Candidate;

/// Expression that only selects packets. Unlike a [`FilterExpression`](super::FilterExpression), a selection
/// may contain complements of addresses that would need too many filters for a filter table.
///
/// A selection prints like a filter expression.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Selection {
    text: String,
    terms: Arc<[Term]>,
}

impl Selection {
    /// Returns the number of terms in the disjunctive normal form.
    pub fn terms(&self) -> usize {
        self.terms.len()
    }

    /// Returns the maximum number of comparisons that the selection needs for a packet: one for each term,
    /// and one for each excluded prefix.
    pub fn comparisons(&self) -> usize {
        self.terms.iter().map(Term::weight).sum()
    }

    /// Returns the names of the ingress ports that the terms require.
    pub fn incoming(&self) -> impl Iterator<Item = &str> {
        self.terms.iter().filter_map(|term| term.filter.incoming())
    }

    /// Compiles each term. `resolve` returns the id of a port name.
    pub fn compile(
        &self,
        resolve: impl Fn(&str) -> Option<PortId>,
    ) -> Result<CompiledSelection, UnknownPort> {
        let compiled: Result<Vec<_>, _> =
            self.terms.iter().map(|term| CompiledTerm::of(term, &resolve)).collect();
        compiled.map(CompiledSelection::new)
    }
}

impl From<Filter> for Selection {
    fn from(filter: Filter) -> Self {
        Self { text: filter.to_string(), terms: Arc::new([filter.into()]) }
    }
}

impl FromStr for Selection {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        let mut terms = match read(text)? {
            Read::Plain(filter) => return Ok(filter.into()),
            Read::Terms(terms) => terms,
        };
        match &mut terms[..] {
            [only] if only.weight() == 1 => Ok(std::mem::take(&mut only.filter).into()),
            _ => Ok(Self { text: written(text), terms: terms.into() }),
        }
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

/// Compiled term: its port name is resolved to an id.
#[derive(Clone, PartialEq, Eq, Debug)]
struct CompiledTerm {
    filter: CompiledFilter,
    outside_source: Box<[Masked]>,
    outside_destination: Box<[Masked]>,
}

impl CompiledTerm {
    fn of(term: &Term, resolve: impl FnOnce(&str) -> Option<PortId>) -> Result<Self, UnknownPort> {
        let masked = |nets: &[IpNet]| nets.iter().map(|net| Masked::of(Some(*net))).collect();
        Ok(Self {
            filter: term.filter.compile(resolve)?,
            outside_source: masked(&term.outside_source),
            outside_destination: masked(&term.outside_destination),
        })
    }

    /// Whether source and destination are outside the term's excluded prefixes.
    #[inline]
    fn is_outside(&self, key: &FlowKey) -> bool {
        let family = key.family();
        !self.outside_source.iter().any(|net| net.holds(family, key.source_bytes()))
            && !self.outside_destination.iter().any(|net| net.holds(family, key.destination_bytes()))
    }
}

/// Compiled [`Selection`], whose port names are resolved to ids. It has at least one term.
///
/// A packet is compared only with the terms that name its protocol or no protocol. For example, `not port 80`
/// has one term for each of the 252 protocols without ports, and a packet is compared with at most one of
/// these terms. Only compilation allocates memory; a clone shares the terms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CompiledSelection {
    /// Terms without a condition on the protocol; behind them the other terms, sorted by protocol.
    terms: Arc<[CompiledTerm]>,
    /// Number of terms without a condition on the protocol.
    of_any_protocol: usize,
}

impl CompiledSelection {
    fn new(mut terms: Vec<CompiledTerm>) -> Self {
        terms.sort_by_key(|term| term.filter.protocol);
        let of_any_protocol = terms.partition_point(|term| term.filter.protocol.is_none());
        Self { terms: terms.into(), of_any_protocol }
    }

    /// Returns the selection of every packet.
    pub fn any() -> Self {
        Filter::any().compile_at(None).into()
    }

    /// Whether the packet matches the selection.
    #[inline]
    pub fn matches(&self, candidate: &Candidate) -> bool {
        let mut terms = self.of_protocol(candidate.key.protocol);
        terms.any(|term| term.filter.matches(candidate) && term.is_outside(&candidate.key))
    }

    /// Whether some packet of the flow may match the selection.
    #[inline]
    pub fn may_match_flow(&self, key: &FlowKey) -> bool {
        self.of_protocol(key.protocol).any(|term| term.filter.may_match_flow(key) && term.is_outside(key))
    }

    /// Returns the terms that packets of a protocol can match.
    #[inline]
    fn of_protocol(&self, protocol: u8) -> impl Iterator<Item = &CompiledTerm> {
        let (any, named) = self.terms.split_at(self.of_any_protocol);
        let first = named.partition_point(|term| term.filter.protocol < Some(protocol));
        let own = named.iter().skip(first).take_while(move |term| term.filter.protocol == Some(protocol));
        any.iter().chain(own)
    }

    /// Returns the number of terms with which a packet of a protocol is compared.
    #[cfg(test)]
    pub(super) fn compared(&self, protocol: u8) -> usize {
        self.of_protocol(protocol).count()
    }
}

impl From<CompiledFilter> for CompiledSelection {
    fn from(filter: CompiledFilter) -> Self {
        let (outside_source, outside_destination) = Default::default();
        Self::new(vec![CompiledTerm { filter, outside_source, outside_destination }])
    }
}
