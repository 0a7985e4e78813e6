//! Routes and filters, a list at a time: all of its entries or none.
//!
//! The way is that of a configuration that is applied: the same changes, made in groups between which others get a turn, and
//! unmade when one is refused. A list is tried before, so what is wrong with its entries is known of all of them before a packet
//! notices anything.

use std::collections::HashSet;
use std::net::IpAddr;

use ipnet::IpNet;
use millrace_config::{Change, Filter, Route};

use super::Failed;
use crate::death::Need;
use crate::filter_conflicts::FilterConflicts;
use crate::filters::new_filter;
use crate::request::{NewFilter, NewRoute};
use crate::route_changes::{parse_prefix, parse_route};
use crate::router::{Inner, Router};
use crate::routes::OwnRoutes;
use crate::view::ShadowedView;
use crate::{ControlError, Refused, Wrong};

/// Filters of a list that were added.
#[derive(Clone, Debug)]
pub struct AddedFilters {
    /// Their ids, in the order of the list.
    pub ids: Vec<u64>,
    /// Filters that never win, each with the filters before it.
    pub shadowed: Vec<ShadowedView>,
}

/// The entries of a list that can be done, with their numbers.
type Numbered<T> = Vec<(usize, T)>;

impl Router {
    /// Adds routes: all of them, or none. When this returns, the next packet takes them. It goes on when the caller goes away.
    ///
    /// # Errors
    /// [`ControlError::List`] with what is wrong with which entries, for the reasons of [`Router::add_route`].
    pub async fn add_routes(&self, new: Vec<NewRoute>) -> Result<usize, ControlError> {
        self.make_list(new, |new| parse_route(&new), Inner::try_routes, |_, changes| changes.len()).await
    }

    /// Removes routes of ours: all of them, or none. When this returns, no further packet takes them.
    ///
    /// # Errors
    /// [`ControlError::List`] with what is wrong with which entries, for the reasons of [`Router::remove_route`].
    pub async fn remove_routes(&self, to: Vec<String>) -> Result<usize, ControlError> {
        self.make_list(to, |to| parse_prefix(&to), Inner::try_removals, |_, changes| changes.len()).await
    }

    /// Adds filters: all of them, or none. Returns their ids, and those of them that never win.
    ///
    /// # Errors
    /// [`ControlError::List`] with what is wrong with which entries, for the reasons of [`Router::add_filter`].
    pub async fn add_filters(&self, new: Vec<NewFilter>) -> Result<AddedFilters, ControlError> {
        let ids = self.make_list(new, |new| new_filter(&new), Inner::try_filters, Inner::numbers_of).await?;
        let meant: HashSet<u64> = ids.iter().copied().collect();
        let shadowed = self.never_winning(|number| meant.contains(&number)).await;
        Ok(AddedFilters { ids, shadowed })
    }

    /// Reads all entries of a list, tries what can be read, and makes the changes if nothing is wrong. Returns what
    /// `done` says of them before anything else can change.
    async fn make_list<T: Send + 'static, U: Send + 'static, R: Send + 'static>(
        &self,
        entries: Vec<T>,
        read: fn(T) -> Result<U, ControlError>,
        try_all: fn(&mut Inner, Numbered<U>, &mut Wrong) -> Vec<Change>,
        done: fn(&Inner, &[Change]) -> R,
    ) -> Result<R, ControlError> {
        let count = entries.len();
        // Beside everything else: lists may be long.
        let reading = tokio::task::spawn_blocking(move || {
            let mut wrong = Wrong::default();
            let each = entries.into_iter().enumerate();
            let read = each.filter_map(|(number, entry)| Some((number, wrong.unless(number, read(entry))?)));
            (read.collect(), wrong)
        });
        let (entries, mut wrong) =
            reading.await.map_err(|error| ControlError::system("read the list", error))?;
        let router = self.clone();
        let work = tokio::spawn(async move {
            let _turn = router.begin_apply()?;
            let changes = try_all(&mut router.lock(), entries, &mut wrong);
            wrong.refuse(count)?;
            router.make(&changes).await.map_err(|failed| refused(count, failed))?;
            let done = done(&router.lock(), &changes);
            Ok(done)
        });
        work.await.map_err(|error| ControlError::system("make the changes of a list", error))?
    }
}

/// Why a list was not done although nothing spoke against it: the kernel's reason, in most cases.
fn refused(entries: usize, failed: Failed) -> ControlError {
    match failed.remains.as_slice() {
        // It is no entry's fault when the data plane does not answer.
        [] if matches!(failed.error, ControlError::System(_) | ControlError::Silent(_))
            || failed.step >= entries =>
        {
            failed.error
        }
        [] => ControlError::List(Refused { entries, wrong: 1, errors: vec![(failed.step, failed.error)] }),
        remains => ControlError::System(format!(
            "entry {}, counted from 0: {}; those before it are undone, but for: {}",
            failed.step,
            failed.error,
            remains.join("; ")
        )),
    }
}

impl Inner {
    /// The numbers of filters that were added.
    fn numbers_of(&self, changes: &[Change]) -> Vec<u64> {
        let number = |change: &Change| match change {
            Change::AddFilter(filter) => self.model.number_of(filter),
            _ => None,
        };
        changes.iter().filter_map(number).collect()
    }

    /// Finds out which of these routes could not be added. A next hop may be in the subnet of one before it.
    fn try_routes(&mut self, routes: Numbered<Route>, wrong: &mut Wrong) -> Vec<Change> {
        let (mut subnets, mut once) = (OwnRoutes::default(), Once::default());
        let mut can_be_added = |(number, route): &(usize, Route)| {
            let prefix = *route.to.value();
            let own = &self.model.own_routes;
            let towards =
                |address: IpAddr| own.port_towards(address).or_else(|| subnets.port_towards(address));
            let planned = once.take(prefix).and_then(|()| match self.model.routes.contains_key(&prefix) {
                true => Err(self.there_is_one(prefix)),
                false => self.model.plan_route(route, towards),
            });
            let planned = wrong.unless(*number, planned);
            if let Some(Some(plan)) = &planned
                && route.via.is_empty()
            {
                subnets.add(prefix, plan.clone());
            }
            planned.is_some()
        };
        let routes = routes.into_iter().filter(&mut can_be_added);
        routes.map(|(_, route)| Change::AddRoute(route)).collect()
    }

    /// Finds out which of these prefixes have no route of ours.
    fn try_removals(&mut self, prefixes: Numbered<IpNet>, wrong: &mut Wrong) -> Vec<Change> {
        let mut once = Once::default();
        let removal = |(number, prefix): (usize, IpNet)| {
            let route = once.take(prefix).and_then(|()| self.ours(prefix));
            wrong.unless(number, route).map(Change::RemoveRoute)
        };
        prefixes.into_iter().filter_map(removal).collect()
    }

    /// Finds out which of these filters could not be added, and leaves what they were added to as it was.
    fn try_filters(&mut self, filters: Numbered<Filter>, wrong: &mut Wrong) -> Vec<Change> {
        let (before, mut conflicts) = (self.model.plugins.clone(), FilterConflicts::of(&self.model));
        let addition = |(number, filter): (usize, Filter)| {
            let right = self.death.refuse_silent(Need::Filters);
            let right = right.and_then(|()| conflicts.add(&self.model, &filter));
            let right = right.and_then(|()| self.refuse_unreachable(&filter));
            let added = right.and_then(|()| self.model.add_configured_filter(&filter));
            wrong.unless(number, added).map(|_| Change::AddFilter(filter))
        };
        let changes = filters.into_iter().filter_map(addition).collect();
        self.model.plugins = before;
        changes
    }
}

/// Prefixes of a list, of which each may stand there once.
#[derive(Default)]
struct Once(HashSet<IpNet>);

impl Once {
    fn take(&mut self, prefix: IpNet) -> Result<(), ControlError> {
        if self.0.insert(prefix) {
            return Ok(());
        }
        Err(ControlError::Conflict(format!("{prefix} stands in the list before")))
    }
}
