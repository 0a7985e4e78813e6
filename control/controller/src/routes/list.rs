//! List of routes, ordered by prefix: as a whole or in pages.
//!
//! A page is made by walking the tables from the last prefix of the previous page on. So the cost of a page
//! depends on the length of the page, not on the size of the tables.

use ipnet::IpNet;
use millrace_forward::Route;
use millrace_host::{HostRoute, PrefixRange, merged};

use crate::routes::changes::kernel_view;
use crate::routes::views::RouteViews;
use crate::view::RouteView;
use crate::{ControlError, Page, PageQuery, show};

enum Listed<'a> {
    /// Route that only the workers hold.
    Own(&'a Route),
    Kernel(HostRoute),
    /// Configured route that the kernel lacks.
    Missing(&'a millrace_config::Route),
}

/// Returns a page of the routes in a range, with their views.
pub(crate) fn listed(
    views: &RouteViews<'_>,
    range: PrefixRange,
    query: &PageQuery,
) -> Result<Page<(IpNet, RouteView)>, ControlError> {
    let RouteViews { model, routes, kernel, devices } = views;
    let ports = devices.by_index();
    let view = |(prefix, route): (IpNet, Listed<'_>)| match route {
        Listed::Own(route) => Some((prefix, show::route(&prefix, route, None, model))),
        Listed::Kernel(route) => {
            Some((prefix, routes.with_missing(prefix, kernel_view(&route, &ports, model)?)))
        }
        Listed::Missing(route) => {
            Some((prefix, routes.with_missing(prefix, show::wanted_route(route, model))))
        }
    };
    let own = model.own_routes.range(range).map(|(prefix, route)| (prefix, Listed::Own(route)));
    let Some(mirror) = &kernel.mirror else {
        return page(own.filter_map(view), query);
    };
    let state = mirror.state();
    let kernel = state.routes_in(range).map(|route| (route.prefix, Listed::Kernel(route)));
    let wanted = |(prefix, _)| Some((prefix, Listed::Missing(model.routes.get(&prefix)?)));
    let missing = routes.wanted.missing(range).filter_map(wanted);
    page(merged(merged(own, kernel), missing).filter_map(view), query)
}

/// Returns the first entries of `walk`, up to the page's limit.
fn page<T>(
    mut walk: impl Iterator<Item = (IpNet, T)>,
    query: &PageQuery,
) -> Result<Page<(IpNet, T)>, ControlError> {
    let most = query.most()?;
    if !query.is_asked() {
        return Ok(Page::whole(walk.collect()));
    }
    let rows: Vec<(IpNet, T)> = walk.by_ref().take(most).collect();
    let more = walk.next().is_some();
    let next = rows.last().filter(|_| more).map(|(prefix, _)| prefix.to_string());
    Ok(Page { rows, next })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn any_prefix() -> impl Strategy<Value = IpNet> {
        let prefix = |(bits, length): (u32, u8)| IpNet::new_assert(bits.to_be_bytes().into(), length).trunc();
        ((0..200_u32).prop_map(|bits| bits << 20), 4..=20_u8).prop_map(prefix)
    }

    proptest! {
        #[test]
        fn pages_equal_the_sorted_list(
            table in prop::collection::btree_map(any_prefix(), any::<u16>(), 0..60),
            within in prop::option::of(any_prefix()),
            limit in 1..9_usize,
        ) {
            // The reference is a sorted list of all entries.
            let mut simple: Vec<(IpNet, u16)> = table.iter().map(|(prefix, value)| (*prefix, *value)).collect();
            simple.retain(|(prefix, _)| within.is_none_or(|within| within.contains(prefix)));
            let mut expected = simple.chunks(limit);
            let mut query = PageQuery { limit: Some(limit), cursor: None };
            loop {
                let after = query.after().unwrap();
                let range = PrefixRange { after, within };
                let walk = range.of(&table).map(|(prefix, value)| (prefix, *value));
                let found = page(walk, &query).unwrap();
                prop_assert_eq!(&found.rows[..], expected.next().unwrap_or_default());
                query.cursor = found.next;
                if query.cursor.is_none() {
                    break;
                }
            }
            prop_assert!(expected.next().is_none());
        }
    }

    #[test]
    fn page_visits_no_more_entries_than_it_has() {
        let table: BTreeMap<IpNet, ()> = (0..100_000_u32)
            .map(|number| (IpNet::new_assert((number << 8).to_be_bytes().into(), 24), ()))
            .collect();
        let mut seen = 0;
        let after = Some("1.0.0.0/24".parse().unwrap());
        let walk = PrefixRange { after, within: None }.of(&table).inspect(|_| seen += 1);
        let query = PageQuery { limit: Some(10), cursor: None };
        let found = page(walk, &query).unwrap();
        assert_eq!((found.rows[0].0.to_string(), found.rows.len()), ("1.0.1.0/24".to_owned(), 10));
        assert_eq!(seen, 11);
    }
}
