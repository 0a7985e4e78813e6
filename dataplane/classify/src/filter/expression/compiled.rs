//! Compiled filter expression: the compiled filters of its alternatives.

use std::sync::Arc;

use super::super::{CompiledFilter, Filter};

/// Compiled alternatives of a [`FilterExpression`](super::FilterExpression): at least one, at most
/// [`MOST_ALTERNATIVES`](super::MOST_ALTERNATIVES).
///
/// A clone shares the alternatives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CompiledExpression(Arc<[CompiledFilter]>);

impl CompiledExpression {
    pub(super) fn new(alternatives: Vec<CompiledFilter>) -> Self {
        Self(alternatives.into())
    }

    /// Returns the expression that matches every packet.
    pub fn any() -> Self {
        Filter::any().compile_at(None).into()
    }

    /// Returns the alternatives. A packet matches the expression if it matches any of them.
    pub fn alternatives(&self) -> &[CompiledFilter] {
        &self.0
    }
}

impl From<CompiledFilter> for CompiledExpression {
    fn from(filter: CompiledFilter) -> Self {
        Self::new(vec![filter])
    }
}
