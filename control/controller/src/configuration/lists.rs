//! Lists of routes or filters: all entries are added or removed, or none.
//!
//! All entries are checked before the first change, so that the error names every faulty entry and no packet
//! is affected. Then the list is applied like a configuration: the changes are made in groups, other tasks
//! run between the groups, and a failure undoes the earlier changes.

use std::collections::HashSet;
use std::net::IpAddr;

use ipnet::IpNet;
use millrace_config::{Change, Filter, Route};

use super::{Failed, Transaction, except_for};
use crate::admission::allowances::{self as permitted, Requester};
use crate::admission::shares::check_filter;
use crate::background::{blocking, detached};
use crate::filters::check::{Shadows, compared, named_shadows, shadows};
use crate::filters::conflicts::FilterConflicts;
use crate::filters::refuse_unreachable;
use crate::model::Model;
use crate::model::own_routes::OwnRoutes;
use crate::router::{Inner, Router};
use crate::routes::Routes;
use crate::routes::views::RouteViews;
use crate::view::ShadowedView;
use crate::workers::death::Need;
use crate::{ControlError, Refused, Wrong};

/// Result of adding a list of filters.
#[derive(Clone, Debug)]
pub struct AddedFilters {
    /// Ids of the filters, in the order of the list.
    pub ids: Vec<u64>,
    /// Added filters that never win, each with the filters that shadow it.
    pub shadowed: Vec<ShadowedView>,
}

/// Valid entries, each with its position in the list.
pub(crate) type Numbered<T> = Vec<(usize, T)>;

impl Router {
    /// Parses the entries with `read`, plans their changes with `try_all`, and makes the changes if no entry
    /// is faulty. Then calls `done`, before other transactions may start, and returns the result of `done`.
    pub(crate) async fn make_list<T: Send + 'static, U: Send + 'static, R: Send + 'static>(
        &self,
        entries: Vec<T>,
        read: fn(T) -> Result<U, ControlError>,
        try_all: impl FnOnce(&mut Inner, Numbered<U>, &mut Wrong) -> Vec<Change> + Send + 'static,
        done: fn(&Inner, &[Change]) -> R,
    ) -> Result<R, ControlError> {
        let count = entries.len();
        // Parsing long lists takes long, so it runs on a blocking thread.
        let read_all = move || {
            let mut wrong = Wrong::default();
            let each = entries.into_iter().enumerate();
            let read = each.filter_map(|(number, entry)| Some((number, wrong.unless(number, read(entry))?)));
            Ok((read.collect(), wrong))
        };
        let (entries, mut wrong) = blocking("read the list", read_all).await?;
        let router = self.clone();
        let work = async move {
            let transaction = Transaction::begin(&router).await?;
            let changes = try_all(&mut router.lock(), entries, &mut wrong);
            wrong.refuse(count)?;
            transaction.make(&changes).await.map_err(|failed| refused(count, failed))?;
            let done = done(&router.lock(), &changes);
            Ok(done)
        };
        detached("make the changes of a list", work).await
    }

    /// Returns the filters and bindings that never win, and whose numbers `is_meant` selects. Compares
    /// filters on a blocking thread.
    pub(crate) async fn never_winning(&self, is_meant: impl Fn(u64) -> bool) -> Vec<ShadowedView> {
        let gates = compared(&self.lock().model, &is_meant);
        let compare = move || gates.iter().flat_map(shadows).collect::<Shadows>();
        // A failed comparison loses only the warning; the change itself has succeeded.
        let found = tokio::task::spawn_blocking(compare).await.unwrap_or_default();
        named_shadows(&self.lock().model, found, is_meant)
    }
}

/// Returns the error for a list whose entries are valid but whose changes failed. Usually the kernel refused
/// an entry.
fn refused(entries: usize, failed: Failed) -> ControlError {
    match failed.remains.as_slice() {
        // A failure of the system or of a worker is not the fault of an entry.
        [] if matches!(failed.error, ControlError::System(_) | ControlError::Silent(_))
            || failed.step >= entries =>
        {
            failed.into_error()
        }
        [] => ControlError::List(Refused { entries, wrong: 1, errors: vec![(failed.step, failed.error)] }),
        remains => ControlError::System(format!(
            "entry {}, counted from 0: {}; the entries before it are undone{}",
            failed.step,
            failed.error,
            except_for(remains)
        )),
    }
}

/// Returns the ids of the added filters.
pub(crate) fn numbers_of(model: &Model, changes: &[Change]) -> Vec<u64> {
    let number = |change: &Change| match change {
        Change::AddFilter(filter) => Some(model.plugins.binding(model.find_filter(filter).ok()?)?.number),
        _ => None,
    };
    changes.iter().filter_map(number).collect()
}

/// Checks which routes can be added. A next hop may lie in the subnet of an earlier route of the list.
pub(crate) fn try_routes(
    model: &Model,
    known: &Routes,
    routes: Numbered<Route>,
    wrong: &mut Wrong,
) -> Vec<Change> {
    let (mut subnets, mut once) = (OwnRoutes::default(), Once::default());
    let mut can_be_added = |(number, route): &(usize, Route)| {
        let prefix = *route.to.value();
        let own = &model.own_routes;
        let towards = |address: IpAddr| own.port_towards(address).or_else(|| subnets.port_towards(address));
        let planned = once.take(prefix).and_then(|()| match model.routes.contains_key(&prefix) {
            true => Err(known.there_is_one(prefix)),
            false => model.plan_route(route, towards),
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

/// Checks which prefixes have a configured route.
pub(crate) fn try_removals(
    views: &RouteViews<'_>,
    prefixes: Numbered<IpNet>,
    wrong: &mut Wrong,
) -> Vec<Change> {
    let mut once = Once::default();
    let removal = |(number, prefix): (usize, IpNet)| {
        let route = once.take(prefix).and_then(|()| views.ours(prefix));
        wrong.unless(number, route).map(Change::RemoveRoute)
    };
    prefixes.into_iter().filter_map(removal).collect()
}

/// Checks which filters the user can add. The model stays unchanged.
pub(crate) fn try_filters(
    inner: &mut Inner,
    by: &Requester,
    filters: Numbered<Filter>,
    wrong: &mut Wrong,
) -> Vec<Change> {
    let (before, mut conflicts) = (inner.model.plugins.clone(), FilterConflicts::of(&inner.model));
    let addition = |(number, filter): (usize, Filter)| {
        let right = inner.supervision.death.refuse_silent(Need::Filters);
        let right = right.and_then(|()| conflicts.add(&inner.model, &filter));
        let right =
            right.and_then(|()| refuse_unreachable(&filter, &inner.model, &inner.kernel, &inner.devices));
        let right = right.and_then(|()| {
            permitted::check(&inner.model, by, &[Change::AddFilter(filter.clone())])?;
            check_filter(&inner.model, &filter)
        });
        let added = right.and_then(|()| inner.model.add_filter(&filter));
        wrong.unless(number, added).map(|_| Change::AddFilter(filter))
    };
    let changes = filters.into_iter().filter_map(addition).collect();
    inner.model.plugins = before;
    changes
}

/// Prefixes already seen in a list; a repeated prefix is an error.
#[derive(Default)]
struct Once(HashSet<IpNet>);

impl Once {
    fn take(&mut self, prefix: IpNet) -> Result<(), ControlError> {
        if self.0.insert(prefix) {
            return Ok(());
        }
        Err(ControlError::conflict(format!("{prefix} occurs more than once in the list")))
    }
}
