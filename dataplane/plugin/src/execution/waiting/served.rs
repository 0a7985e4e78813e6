//! Contexts whose calls another process runs, and their ended calls.

use std::time::Duration;

use millrace_units::PrincipalId;

use crate::execution::instances::{ContextKey, Instances};
use crate::slab::Key;

/// Context of an instance whose calls another process runs. It makes one call at a time, so it takes packets of one
/// queue until its call ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AwaitedContext {
    /// Key with which the instance was added, so that the principals keep their turns in an upgrade.
    origin: Key,
    number: u8,
}

impl AwaitedContext {
    pub(crate) fn of(context: ContextKey, instances: &Instances) -> Option<Self> {
        Some(Self { origin: instances.origin(context.instance)?, number: context.number })
    }

    /// Returns the key of the context; `None` if its instance was removed.
    pub(crate) fn key(self, instances: &Instances) -> Option<ContextKey> {
        Some(ContextKey { instance: instances.added_with(self.origin)?, number: self.number })
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
