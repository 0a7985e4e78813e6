//! Contexts whose calls another process runs, and their ended calls.

use std::time::Duration;

use millrace_units::PrincipalId;

use crate::execution::instances::ContextKey;

/// Context of an instance whose calls another process runs. It makes one call at a time, so it takes packets of one
/// queue until its call ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AwaitedContext {
    pub(crate) key: ContextKey,
}

impl AwaitedContext {
    pub(crate) fn of(key: ContextKey) -> Self {
        Self { key }
    }
}

/// Ended call with packets of such a context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Served {
    /// Context of the call.
    pub context: AwaitedContext,
    /// Principal that paid for the call.
    pub payer: PrincipalId,
    /// Time from the begin of the call until the worker saw its end.
    pub took: Duration,
}
