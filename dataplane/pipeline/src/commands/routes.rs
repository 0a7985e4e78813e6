//! Commands to the routes of a worker.

use millrace_units::{NextHopIndex, QueueAccount};

use super::{FEW, ReplyTo, answer};
use crate::accounts::WaitingRoutes;
use crate::forward::changes::{NumberedRoutes, RouteChange};
use crate::offloaded_flows::Invalidation;
use crate::router::Router;

/// Command to the routes of a worker.
#[derive(Debug)]
pub enum RouteCommand {
    /// Sets the routes for the given route numbers. Control assigns these numbers to prefixes once the worker
    /// has answered. The answer holds the previous routes.
    Set(NumberedRoutes, ReplyTo<NumberedRoutes>),
    /// Removes the routes of route numbers that neither a prefix nor a flow uses any more.
    Forget(NumberedRoutes, ReplyTo<NumberedRoutes>),
    /// Reports changed prefixes in the route table that all workers share.
    Changed(Vec<RouteChange>),
    /// Asks for the routes with packets in queues, among a bounded number of routes from the given number on.
    Waiting(NextHopIndex, ReplyTo<WaitingRoutes>),
    /// Asks for the accounts of the given routes, in the same order. The list is bounded.
    Count(Vec<NextHopIndex>, ReplyTo<Vec<QueueAccount>>),
    /// Clears the accounts of a bounded number of routes, from the given number on. The answer is the first
    /// number of the next command; `None` after the last.
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

    /// Carries out the command.
    pub(crate) fn carry_out(self, router: &mut Router) {
        match self {
            Self::Set(routes, reply) => answer(&reply, set_routes(router, routes)),
            Self::Forget(routes, reply) => answer(&reply, router.forwarding.forget_routes(routes)),
            Self::Changed(changes) => router.forwarding.change_own_addresses(&changes),
            Self::Waiting(from, reply) => answer(&reply, router.observation.route_accounts.waiting(from)),
            Self::Count(routes, reply) => {
                let accounts = routes.iter().map(|index| router.observation.route_accounts.account(*index));
                answer(&reply, accounts.collect());
            }
            Self::Clear(from, reply) => answer(&reply, router.observation.route_accounts.clear(from)),
        }
    }
}

/// Sets the routes of route numbers. Returns the previous routes, which control frees.
fn set_routes(router: &mut Router, mut routes: NumberedRoutes) -> NumberedRoutes {
    let mut other = false;
    for (index, route) in &mut routes {
        router.observation.route_accounts.begin(*index);
        router.forwarding.bare.forget(*index);
        other |= router.forwarding.fib.exchange(*index, route);
    }
    if other {
        router.forwarding.forget_adjacencies(&mut router.classifier.changes);
    }
    routes
}
