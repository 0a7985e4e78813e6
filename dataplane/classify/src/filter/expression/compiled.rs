//! An expression with the names of its ports resolved, in the form that is matched.

use std::sync::Arc;

use millrace_packet::FlowKey;

use super::super::{CompiledFilter, Filter};
use crate::Candidate;

/// Alternatives of a [`FilterExpression`](super::FilterExpression): at least one, at most
/// [`MOST_ALTERNATIVES`](super::MOST_ALTERNATIVES).
///
/// A packet is compared with the alternatives that name its protocol or none. `not port 80` has one alternative for
/// each of the 252 protocols without ports; a packet is compared with one of these. Nothing here allocates but
/// compiling; a clone shares the alternatives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CompiledExpression {
    /// Alternatives without a condition on the protocol, then the others by protocol.
    alternatives: Arc<[CompiledFilter]>,
    /// Number of alternatives without a condition on the protocol.
    of_any_protocol: usize,
}

impl CompiledExpression {
    pub(super) fn new(mut alternatives: Vec<CompiledFilter>) -> Self {
        alternatives.sort_by_key(|filter| filter.protocol);
        let of_any_protocol = alternatives.partition_point(|filter| filter.protocol.is_none());
        Self { alternatives: alternatives.into(), of_any_protocol }
    }

    /// The expression that every packet matches.
    pub fn any() -> Self {
        Filter::any().compile_at(None).into()
    }

    /// Filters of which one has to match.
    pub fn alternatives(&self) -> &[CompiledFilter] {
        &self.alternatives
    }

    /// Whether the packet matches one of the alternatives.
    #[inline]
    pub fn matches(&self, candidate: &Candidate) -> bool {
        self.of_protocol(candidate.key.protocol).any(|filter| filter.matches(candidate))
    }

    /// Whether some packet of the flow can match one of the alternatives.
    #[inline]
    pub fn may_match_flow(&self, key: &FlowKey) -> bool {
        self.of_protocol(key.protocol).any(|filter| filter.may_match_flow(key))
    }

    /// Returns the alternatives that packets of a protocol can match.
    #[inline]
    pub(super) fn of_protocol(&self, protocol: u8) -> impl Iterator<Item = &CompiledFilter> {
        let (any, named) = self.alternatives.split_at(self.of_any_protocol);
        let first = named.partition_point(|filter| filter.protocol < Some(protocol));
        let own = named.iter().skip(first).take_while(move |filter| filter.protocol == Some(protocol));
        any.iter().chain(own)
    }
}

impl From<CompiledFilter> for CompiledExpression {
    fn from(filter: CompiledFilter) -> Self {
        Self::new(vec![filter])
    }
}
