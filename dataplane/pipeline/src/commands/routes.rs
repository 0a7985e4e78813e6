//! Commands to the routes of a worker.

use millrace_units::{NextHopIndex, QueueAccount};

use super::{FEW, ReplyTo};
use crate::accounts::WaitingRoutes;
use crate::driver_flows::Invalidation;
use crate::forward::changes::{NumberedRoutes, RouteChange};

/// Command to the routes of a worker.
#[derive(Debug)]
pub enum RouteCommand {
    /// Sets the routes of numbers. Control assigns the numbers to prefixes after the answer.
    Set(NumberedRoutes, ReplyTo<NumberedRoutes>),
    /// Removes the routes of numbers that no prefix has any more, and that no flow uses.
    Forget(NumberedRoutes, ReplyTo<NumberedRoutes>),
    /// Reports changed prefixes of the table that all workers read.
    Changed(Vec<RouteChange>),
    /// Asks for the routes with packets in queues, among a bounded number of routes from this one on.
    Waiting(NextHopIndex, ReplyTo<WaitingRoutes>),
    /// Asks for the accounts of a bounded number of routes, in this order.
    Count(Vec<NextHopIndex>, ReplyTo<Vec<QueueAccount>>),
    /// Clears the accounts of a bounded number of routes, from this one on. The answer is the first number of
    /// the next command.
    Clear(NextHopIndex, ReplyTo<Option<NextHopIndex>>),
}

impl RouteCommand {
    pub(super) fn invalidation(&self) -> Invalidation<'_> {
        match self {
            Self::Set(routes, _) => Invalidation::Routes(routes),
            Self::Changed(changes) => Invalidation::Prefixes(changes),
            // No flow uses these numbers.
            Self::Forget(..) => Invalidation::Nothing,
            Self::Waiting(..) | Self::Count(..) | Self::Clear(..) => Invalidation::Nothing,
        }
    }

    pub(super) fn is_small(&self) -> bool {
        match self {
            Self::Set(routes, _) | Self::Forget(routes, _) => routes.len() <= FEW,
            Self::Changed(changes) => changes.len() <= FEW,
            Self::Waiting(..) | Self::Count(..) | Self::Clear(..) => false,
        }
    }
}
