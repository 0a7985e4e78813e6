//! Commands to the table of neighbours.

use millrace_units::Instant;

use super::{FEW, ReplyTo, answer};
use crate::forward::changes::{NeighbourChange, UsedNeighbours};
use crate::offloaded_flows::Invalidation;
use crate::router::Router;

/// Command to the table of neighbours.
#[derive(Debug)]
pub enum NeighbourCommand {
    /// Applies state changes of neighbours.
    Set(Vec<NeighbourChange>),
    /// Asks for a bounded number of neighbours that the worker has used since the last such command. The
    /// answer lists neighbours at kernel ports, and neighbours at ports whose devices other workers own.
    TakeUsed(ReplyTo<UsedNeighbours>),
}

impl NeighbourCommand {
    pub(super) fn invalidation(&self) -> Invalidation<'_> {
        match self {
            Self::Set(_) => Invalidation::Neighbours,
            Self::TakeUsed(_) => Invalidation::Nothing,
        }
    }

    pub(super) fn is_small(&self) -> bool {
        match self {
            Self::Set(changes) => changes.len() <= FEW,
            Self::TakeUsed(_) => false,
        }
    }

    /// Carries out the command.
    pub(crate) fn carry_out(self, router: &mut Router, now: Instant) {
        match self {
            Self::Set(changes) => {
                router.neighbour_resolution().set_all(&changes, now);
                router.follow_up(now);
            }
            Self::TakeUsed(reply) => answer(&reply, router.neighbour_resolution().take_used(now)),
        }
    }
}
