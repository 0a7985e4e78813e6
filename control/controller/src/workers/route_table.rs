//! Control's side of the FIB: changes routes, and sends the commands for the workers in the right order.

use std::collections::HashSet;

use ipnet::IpNet;
use millrace_forward::{FibReader, Route, SharedFib};
use millrace_pipeline::{Command, ROUTES, RouteChange, RouteCommand};
use millrace_units::{NextHopIndex, QueueAccount};

use crate::ControlError;
use crate::workers::ask::Ask;

/// Maximum number of route changes in one command to the workers, because a longer command delays packets.
const AT_ONCE: usize = 64;
/// Maximum number of routes whose queue accounts a worker reads between two batches.
const COUNTED_AT_ONCE: usize = 512;
/// Number of removed parts of the FIB at which control starts to reclaim their memory.
const WAITING: usize = 1024;

/// Returns the numbers of the routes that packets held by workers still use.
fn waiting_routes(workers: &mut impl Ask) -> Result<HashSet<NextHopIndex>, ControlError> {
    let (mut waiting, mut from) = (HashSet::new(), Some(NextHopIndex(0)));
    while let Some(start) = from.take() {
        for (routes, next) in workers.ask(|reply| RouteCommand::Waiting(start, reply))? {
            waiting.extend(routes);
            from = from.or(next);
        }
    }
    Ok(waiting)
}

#[derive(Debug)]
pub(crate) struct RouteTable(SharedFib);

impl RouteTable {
    pub fn new() -> Result<Self, ControlError> {
        SharedFib::new().map(Self).map_err(|error| ControlError::system("allocate the route table", error))
    }

    /// Returns a reader, with which a worker looks up routes.
    pub fn reader(&self) -> FibReader {
        self.0.reader()
    }

    /// Returns the number of prefixes with a route.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the route of an address, with its prefix (longest prefix match).
    pub fn prefix_of(&self, address: std::net::IpAddr) -> Option<(IpNet, &Route)> {
        self.0.prefix_of(address)
    }

    /// Sets routes; `None` removes the route of a prefix. When this returns, FIB lookups use the changed
    /// routes. Flow records use them once the workers have carried out their commands.
    ///
    /// # Errors
    /// Returns an error if a worker does not answer; the changes before this point have been made then. Also
    /// returns an error if a table is full; all other changes have been made then.
    pub fn change(
        &mut self,
        changes: Vec<(IpNet, Option<Route>)>,
        workers: &mut impl Ask,
    ) -> Result<(), ControlError> {
        let mut refused = None;
        for piece in changes.chunks(AT_ONCE) {
            let full = self.change_piece(piece, workers)?;
            refused = refused.or(full);
        }
        self.reuse(workers)?;
        refused.map_or(Ok(()), Err)
    }

    /// Makes a part of the changes that fits into one command. If a table is full, returns the error for the
    /// first route without room.
    fn change_piece(
        &mut self,
        changes: &[(IpNet, Option<Route>)],
        workers: &mut impl Ask,
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
            // The workers must know a route before a prefix in the FIB refers to the route's number.
            workers.ask(|reply| RouteCommand::Set(new.clone(), reply))?;
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
        workers.tell(|| RouteCommand::Changed(noted.clone()))?;
        Ok(refused)
    }

    /// Reclaims the memory of removed routes once there are many. Keeps the routes that a worker may still
    /// read.
    fn reuse(&mut self, workers: &mut impl Ask) -> Result<(), ControlError> {
        if self.0.waiting() < WAITING {
            return Ok(());
        }
        let epoch = self.0.close_epoch();
        workers.ask(Command::Barrier)?;
        let waiting = waiting_routes(workers)?;
        let freed = self.0.quiesced_but(epoch, |number| waiting.contains(&number));
        for piece in freed.chunks(AT_ONCE) {
            let nothing = || piece.iter().map(|number| (*number, Route::Blackhole)).collect();
            workers.ask(|reply| RouteCommand::Forget(nothing(), reply))?;
        }
        Ok(())
    }

    /// Returns the queue accounts of the routes to these prefixes, in the same order. The account is `None`
    /// if the route leads to no port, or if the maximum number of counted routes was reached.
    pub fn count(
        &self,
        prefixes: &[IpNet],
        workers: &mut impl Ask,
    ) -> Result<Vec<Option<QueueAccount>>, ControlError> {
        let numbers: Vec<_> = prefixes.iter().map(|prefix| self.0.own_number(*prefix)).collect();
        let counted: Vec<_> = numbers.iter().flatten().copied().collect();
        let mut accounts = Vec::with_capacity(counted.len());
        for piece in counted.chunks(COUNTED_AT_ONCE) {
            accounts.extend(sum_accounts(workers.ask(|reply| RouteCommand::Count(piece.to_vec(), reply))?));
        }
        let mut accounts = accounts.into_iter();
        Ok(numbers.into_iter().map(|number| number.and_then(|_| accounts.next())).collect())
    }
}

/// Sums the accounts of several workers, route by route.
fn sum_accounts(answers: Vec<Vec<QueueAccount>>) -> Vec<QueueAccount> {
    let add = |mut sums: Vec<QueueAccount>, more: Vec<QueueAccount>| {
        sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        sums
    };
    answers.into_iter().reduce(add).unwrap_or_default()
}
