//! Commands to the routes of a worker.

use ipnet::IpNet;
use millrace_forward::Route;
use millrace_units::{NextHopIndex, QueueAccount};

use super::{FEW, ReplyTo};
use crate::driver_flows::Invalidation;

/// Routes with their numbers. A worker puts its former routes in the place of the new ones, and returns them: memory is freed where it
/// was allocated, and no packet waits for that.
pub type NumberedRoutes = Vec<(NextHopIndex, Route)>;

/// Routes of which packets wait, and the number at which the next question begins.
pub type WaitingRoutes = (Vec<NextHopIndex>, Option<NextHopIndex>);

/// Prefix whose route has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RouteChange {
    /// Prefix.
    pub prefix: IpNet,
    /// Whether it is now one of the router's own addresses, or a broadcast address: no packet may come from there.
    pub own: bool,
}

/// Command to the routes of a worker.
#[derive(Debug)]
pub enum RouteCommand {
    /// Sets the routes of numbers. Control gives them to prefixes after the answer.
    Set(NumberedRoutes, ReplyTo<NumberedRoutes>),
    /// Sets the routes of numbers that no prefix has had since every worker answered.
    Forget(NumberedRoutes, ReplyTo<NumberedRoutes>),
    /// Reports changed prefixes of the table that all workers read.
    Changed(Vec<RouteChange>),
    /// Asks for the routes of which packets wait in queues: a bounded number, from this one on.
    Waiting(NextHopIndex, ReplyTo<WaitingRoutes>),
    /// Asks for the accounts of routes, in this order: a bounded number.
    Count(Vec<NextHopIndex>, ReplyTo<Vec<QueueAccount>>),
    /// Sets the accounts of routes to zero: a bounded number, from this one on; the answer is the number at which the next command begins.
    Clear(NextHopIndex, ReplyTo<Option<NextHopIndex>>),
}

impl RouteCommand {
    pub(super) fn invalidation(&self) -> Invalidation<'_> {
        match self {
            Self::Set(routes, _) => Invalidation::Routes(routes),
            Self::Changed(changes) => Invalidation::Prefixes(changes),
            // No flow has these numbers.
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
