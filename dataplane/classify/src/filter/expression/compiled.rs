//! An expression with the names of its ports resolved, as filter tables take it.

use std::sync::Arc;

use super::super::{CompiledFilter, Filter};

/// Alternatives of a [`FilterExpression`](super::FilterExpression): at least one, at most
/// [`MOST_ALTERNATIVES`](super::MOST_ALTERNATIVES).
///
/// A clone shares the alternatives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CompiledExpression(Arc<[CompiledFilter]>);

impl CompiledExpression {
    pub(super) fn new(alternatives: Vec<CompiledFilter>) -> Self {
        Self(alternatives.into())
    }

    /// The expression that every packet matches.
    pub fn any() -> Self {
        Filter::any().compile_at(None).into()
    }

    /// Filters of which one has to match.
    pub fn alternatives(&self) -> &[CompiledFilter] {
        &self.0
    }
}

impl From<CompiledFilter> for CompiledExpression {
    fn from(filter: CompiledFilter) -> Self {
        Self::new(vec![filter])
    }
}
