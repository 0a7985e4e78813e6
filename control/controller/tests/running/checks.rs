//! Tests of the filter check, which names three kinds of filters: filters that never win, ambiguous filters,
//! and filters that lose against routes.

use millrace_controller::operation::CheckFilters;

use super::*;

#[test]
fn shadowed_filters_are_reported_with_the_shadowing_filters() {
    with_router(async |router| {
        let high = NewFilter { priority: 20, ..filter("proto udp", "drop") };
        let first = add_filter(&router, high).await.unwrap();
        assert_eq!(first.shadowed_by.map(|by| by.len()), Some(0));
        let added = add_filter(&router, filter("udp dst port 53,123", "host")).await.unwrap();
        let by: Vec<u64> = added.shadowed_by.unwrap().iter().map(|one| one.id).collect();
        assert_eq!(by, [first.id]);
        // Only one of the two alternatives is shadowed, so the filter can win.
        let added = add_filter(&router, filter("udp dst port 53 or tcp dst port 53", "host")).await.unwrap();
        assert_eq!(added.shadowed_by.map(|by| by.len()), Some(0));
        let checked = ask(&router, CheckFilters).await.unwrap();
        let gate = checked.iter().find(|gate| gate.gate == "route").unwrap();
        assert_eq!((gate.filters, gate.shadowed.len()), (3, 1));
    });
}

#[test]
fn check_names_shadowed_and_ambiguous_filters() {
    with_router(async |router| {
        let add = async |text: &str, priority| {
            let new = NewFilter { priority, ..filter(text, "drop") };
            add_filter(&router, new).await.unwrap().id
        };
        let (all, shadowed) = (add("proto udp", 20).await, add("proto udp dport 53", 15).await);
        let (source, destination) =
            (add("proto tcp src 10.1.0.0/16", 5).await, add("proto tcp dst 10.2.0.0/16", 5).await);
        let gates = ask(&router, CheckFilters).await.unwrap();
        assert_eq!(gates.iter().map(|gate| &*gate.gate).collect::<Vec<_>>(), ["firewall", "route"]);
        assert!(
            gates[0].shadowed.is_empty() && gates[0].ambiguous_pairs == 0 && gates[0].below_routes.is_empty()
        );
        let route = &gates[1];
        let [never] = &route.shadowed[..] else { panic!("{route:?}") };
        assert_eq!(
            (never.filter.id, &*never.by.iter().map(|by| by.id).collect::<Vec<_>>()),
            (shadowed, &[all][..])
        );
        let [pair] = &route.ambiguous[..] else { panic!("{route:?}") };
        assert_eq!((pair.winner.id, pair.loser.id, &*pair.decided_by), (source, destination, "src"));
        let below: Vec<u64> = route.below_routes.iter().map(|filter| filter.id).collect();
        assert_eq!((below.len(), route.filters, route.ambiguous_pairs), (2, 4, 1), "{route:?}");
    });
}

#[test]
fn a_check_compares_expressions_and_not_the_alternatives_of_one() {
    with_router(async |router| {
        let add = async |text: &str, action: &str| {
            let new = NewFilter { priority: 20, ..filter(text, action) };
            add_filter(&router, new).await.unwrap().id
        };
        let check = async || {
            let gates = ask(&router, CheckFilters).await.unwrap();
            gates.into_iter().find(|gate| gate.gate == "route").unwrap()
        };
        let not_ssh = add("not port 22", "drop").await;
        let alone = check().await;
        assert_eq!((alone.ambiguous_pairs, alone.ambiguous.len()), (0, 0), "{alone:?}");
        assert!(alone.shadowed.is_empty() && alone.undecided.is_empty(), "{alone:?}");
        // Many alternatives of the two filters overlap, but the check reports a single pair.
        let hosts = add("host 10.1.0.7", "accept").await;
        let both = check().await;
        let [pair] = &both.ambiguous[..] else { panic!("{both:?}") };
        let mut named = [pair.winner.id, pair.loser.id];
        named.sort_unstable();
        assert_eq!((both.ambiguous_pairs, named, both.filters), (1, [not_ssh, hosts], 2), "{both:?}");
    });
}

#[test]
fn a_check_names_all_that_several_filters_outdo_together() {
    with_router(async |router| {
        let add = async |text: &str, priority| {
            let new = NewFilter { priority, ..filter(text, "drop") };
            add_filter(&router, new).await.unwrap().id
        };
        let (low, high) = (add("proto sctp dport 1-5", 20).await, add("proto sctp dport 6-9", 20).await);
        add("proto sctp dport 100", 20).await;
        let never = add("src 10.1.0.0/16 proto sctp dport 2-8", 15).await;
        add("src 10.1.0.0/16 proto sctp dport 2-10", 15).await;
        let gates = ask(&router, CheckFilters).await.unwrap();
        let [found] = &gates[1].shadowed[..] else { panic!("{gates:?}") };
        let mut by: Vec<u64> = found.by.iter().map(|by| by.id).collect();
        by.sort_unstable();
        assert_eq!((found.filter.id, by), (never, vec![low, high]));
        assert!(gates[1].undecided.is_empty());
    });
}
