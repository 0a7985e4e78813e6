//! Barrier between commands of control.

use super::{ReplyTo, answer};

/// Question that a worker answers when all commands before it are in force, in its tables and in the flow
/// cache.
#[derive(Debug)]
pub struct Barrier(ReplyTo<()>);

impl Barrier {
    /// Returns a barrier that answers to `reply`.
    pub fn new(reply: ReplyTo<()>) -> Self {
        Self(reply)
    }

    /// Reports that the worker has reached the barrier.
    pub(crate) fn answer(self) {
        answer(&self.0, ());
    }
}
