//! The forwarding table on the side of control: what workers are told when routes change, and in which order.

use std::collections::HashSet;

use ipnet::IpNet;
use millrace_forward::{FibReader, Route, SharedFib};
use millrace_pipeline::{NumberedRoutes, ROUTES, ReplyTo, RouteChange, RouteCommand, WaitingRoutes};
use millrace_units::{NextHopIndex, QueueAccount};

use crate::ControlError;

/// Changes that a worker notes between two batches: more would make packets wait.
const AT_ONCE: usize = 64;
/// Routes whose counters a worker reads between two batches.
const COUNTED_AT_ONCE: usize = 512;
/// How many parts of the table may wait to be used again before workers are asked whether they have gone on.
const WAITING: usize = 1024;

/// Routes as workers are told of them.
pub(crate) trait TellRoutes {
    /// Tells all workers.
    fn tell(&mut self, command: &dyn Fn() -> RouteCommand) -> Result<(), ControlError>;

    /// Gives all workers routes, and waits until each has given back what it had before.
    fn exchange(
        &mut self,
        command: &dyn Fn(ReplyTo<NumberedRoutes>) -> RouteCommand,
    ) -> Result<(), ControlError>;

    /// Waits until all workers have taken up all earlier commands.
    fn barrier(&mut self) -> Result<(), ControlError>;

    /// Asks all workers of which routes packets wait, of a bounded number from one on.
    fn waiting_routes(&mut self, from: NextHopIndex) -> Result<Vec<WaitingRoutes>, ControlError>;

    /// Asks all workers what routes gave to queues; the sums, in the same order.
    fn count_routes(&mut self, routes: &[NextHopIndex]) -> Result<Vec<QueueAccount>, ControlError>;
}

/// The routes of which packets wait at some worker.
fn waiting_routes(workers: &mut impl TellRoutes) -> Result<HashSet<NextHopIndex>, ControlError> {
    let (mut waiting, mut from) = (HashSet::new(), Some(NextHopIndex(0)));
    while let Some(start) = from.take() {
        for (routes, next) in workers.waiting_routes(start)? {
            waiting.extend(routes);
            from = from.or(next);
        }
    }
    Ok(waiting)
}

/// The forwarding table.
#[derive(Debug)]
pub(crate) struct RouteTable(SharedFib);

impl RouteTable {
    pub fn new() -> Result<Self, ControlError> {
        SharedFib::new().map(Self).map_err(|error| ControlError::system("make the route table", error))
    }

    /// What a worker looks routes up by.
    pub fn reader(&self) -> FibReader {
        self.0.reader()
    }

    /// How many prefixes have a route.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The longest prefix of an address that has a route, and the route.
    pub fn prefix_of(&self, address: std::net::IpAddr) -> Option<(IpNet, &Route)> {
        self.0.prefix_of(address)
    }

    /// Sets routes, or removes those without one. Workers find them when this returns.
    ///
    /// # Errors
    /// When a worker does not answer: the changes up to there have been made. When a table is full: all others have been made.
    pub fn change(
        &mut self,
        changes: Vec<(IpNet, Option<Route>)>,
        workers: &mut impl TellRoutes,
    ) -> Result<(), ControlError> {
        let mut refused = None;
        for piece in changes.chunks(AT_ONCE) {
            let full = self.change_piece(piece, workers)?;
            refused = refused.or(full);
        }
        self.reuse(workers)?;
        refused.map_or(Ok(()), Err)
    }

    /// Changes the routes of a piece. Returns why the first was refused for which a table has no room.
    fn change_piece(
        &mut self,
        changes: &[(IpNet, Option<Route>)],
        workers: &mut impl TellRoutes,
    ) -> Result<Option<ControlError>, ControlError> {
        let mut numbers: Vec<Option<NextHopIndex>> = Vec::with_capacity(changes.len());
        let mut new = Vec::new();
        for (prefix, route) in changes {
            numbers.push(route.as_ref().map(|route| {
                let (number, is_new) = match route {
                    Route::Forward(_) => self.0.intern_own(*prefix, route.clone(), ROUTES),
                    _ => self.0.intern(route.clone()),
                };
                new.extend(is_new.then(|| (number, route.clone())));
                number
            }));
        }
        if !new.is_empty() {
            workers.exchange(&|reply| RouteCommand::Set(new.clone(), reply))?;
        }
        let mut noted = Vec::with_capacity(changes.len());
        let mut refused = None;
        for ((prefix, route), number) in changes.iter().zip(numbers) {
            let stored = match number {
                Some(number) => self.0.store(*prefix, number).map(|_| ()),
                None => {
                    self.0.remove(*prefix);
                    Ok(())
                }
            };
            if let Err(full) = stored {
                refused.get_or_insert_with(|| ControlError::System(format!("route to {prefix}: {full}")));
                continue;
            }
            let host = prefix.prefix_len() == prefix.max_prefix_len();
            let own = host && matches!(route, Some(Route::Local | Route::Broadcast));
            noted.push(RouteChange { prefix: *prefix, own });
        }
        workers.tell(&|| RouteCommand::Changed(noted.clone()))?;
        Ok(refused)
    }

    /// Lets memory of routes that are gone be used again once no worker can look at it.
    fn reuse(&mut self, workers: &mut impl TellRoutes) -> Result<(), ControlError> {
        if self.0.waiting() < WAITING {
            return Ok(());
        }
        let epoch = self.0.close_epoch();
        workers.barrier()?;
        let waiting = waiting_routes(workers)?;
        let freed = self.0.quiesced_but(epoch, |number| waiting.contains(&number));
        for piece in freed.chunks(AT_ONCE) {
            let nothing = || piece.iter().map(|number| (*number, Route::Blackhole)).collect();
            workers.exchange(&|reply| RouteCommand::Forget(nothing(), reply))?;
        }
        Ok(())
    }

    /// What routes to these prefixes gave to queues, and what became of it, in the same order; `None` of those that are not
    /// counted: they lead to no port, or there are too many.
    ///
    /// # Errors
    /// When a worker does not answer.
    pub fn count(
        &self,
        prefixes: &[IpNet],
        workers: &mut impl TellRoutes,
    ) -> Result<Vec<Option<QueueAccount>>, ControlError> {
        let numbers: Vec<_> = prefixes.iter().map(|prefix| self.0.own_number(*prefix)).collect();
        let counted: Vec<_> = numbers.iter().flatten().copied().collect();
        let mut accounts = Vec::with_capacity(counted.len());
        for piece in counted.chunks(COUNTED_AT_ONCE) {
            accounts.extend(workers.count_routes(piece)?);
        }
        let mut accounts = accounts.into_iter();
        Ok(numbers.into_iter().map(|number| number.and_then(|_| accounts.next())).collect())
    }
}
