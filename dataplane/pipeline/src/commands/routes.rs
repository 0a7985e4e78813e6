//! Commands to the routes of a worker.

use ipnet::IpNet;
use millrace_forward::Route;
use millrace_units::{NextHopIndex, QueueAccount};

use super::{FEW, ReplyTo};
use crate::driver_flows::Invalidation;

/// Routes with their numbers. A worker swaps them with its previous routes, and returns these to control,
/// which frees their memory. So no packet waits for that.
pub type NumberedRoutes = Vec<(NextHopIndex, Route)>;

/// Routes with waiting packets, and the first number of the next command.
pub type WaitingRoutes = (Vec<NextHopIndex>, Option<NextHopIndex>);

/// Prefix whose route has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RouteChange {
    /// Prefix.
    pub prefix: IpNet,
    /// Whether the prefix is now an address of the router or a broadcast address, from which no packet may
    /// come.
    pub own: bool,
}

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
