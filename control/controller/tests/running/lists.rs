//! Tests of lists of routes and filters. A list is added or removed as a whole. If a list is refused, nothing
//! changes, and the error names each wrong entry.

use millrace_controller::operation::{AddFilters, AddRoutes, GetStatus, RemoveRoutes};

use super::*;

fn wrong_entries(error: ControlError) -> Vec<(usize, String)> {
    match error {
        ControlError::List(refused) => {
            assert_eq!(refused.wrong, refused.errors.len());
            refused.errors.into_iter().map(|(number, error)| (number, error.to_string())).collect()
        }
        other => panic!("{other:?} is not about a list"),
    }
}

#[test]
fn a_list_of_routes_comes_and_goes_whole() {
    with_router(async |router| {
        let before = state(&router).await;
        let net = |number: u32| format!("10.{}.{}.0/24", 100 + number / 256, number % 256);
        // The list has more routes than one group holds, and a next hop in the subnet of an earlier route of
        // the list.
        let mut list = vec![NewRoute { port: Some("wan".into()), ..route("192.0.2.0/24", &[]) }];
        list.push(route("198.51.100.0/24", &["192.0.2.7"]));
        list.extend((0..5000).map(|number| route(&net(number), &["10.2.0.9"])));
        assert_eq!(ask(&router, AddRoutes(list.clone())).await.unwrap(), 5002);
        assert_eq!(lookup_route(&router, "198.51.100.9").await.unwrap().next_hops[0].port, "wan");
        assert_eq!(lookup_route(&router, "10.119.135.9").await.unwrap().to, net(4999));
        assert_eq!(ask(&router, GetStatus).await.unwrap().applying.map(|applying| applying.of), None);
        let to = |list: &[NewRoute]| list.iter().map(|route| route.to.clone()).collect::<Vec<_>>();
        assert_eq!(ask(&router, RemoveRoutes(to(&list))).await.unwrap(), 5002);
        assert_eq!(state(&router).await, before);
    });
}

#[test]
fn list_with_wrong_routes_changes_nothing_and_names_each_wrong_route() {
    with_router(async |router| {
        let before = state(&router).await;
        let list = vec![
            route("10.100.0.0/16", &["10.2.0.9"]),
            route("10.101.0.1/16", &["10.2.0.9"]),
            route("10.100.0.0/16", &["10.2.0.9"]),
            route("10.66.0.0/16", &["10.2.0.9"]),
            NewRoute { port: Some("wam".into()), ..route("10.102.0.0/16", &[]) },
            route("10.103.0.0/16", &["203.0.113.1"]),
            route("10.104.0.0/16", &["10.1.0.9"]),
        ];
        let wrong = wrong_entries(ask(&router, AddRoutes(list)).await.unwrap_err());
        let expected = [
            (1, "the prefix is 10.101.0.0/16"),
            (2, "occurs more than once in the list"),
            (3, "a configured route to"),
            (4, "did you mean \"wan\"?"),
            (5, "in no subnet of a port"),
        ];
        assert_eq!(wrong.len(), expected.len(), "{wrong:?}");
        for ((number, text), (entry, words)) in wrong.iter().zip(expected) {
            assert!(*number == entry && text.contains(words), "{number}: {text}");
        }
        let to = ["10.66.0.0/16", "10.1.0.0/24", "10.7.0.0/16", "10.66.0.0/16", "x"].map(String::from);
        let wrong = wrong_entries(ask(&router, RemoveRoutes(to.to_vec())).await.unwrap_err());
        assert_eq!(wrong.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 2, 3, 4], "{wrong:?}");
        assert_eq!(state(&router).await, before);
    });
}

#[test]
fn list_of_filters_is_added_atomically_with_ids() {
    with_router(async |router| {
        let before = state(&router).await;
        let list = [filter("proto udp", "drop"), filter("proto xdp", "drop"), filter("proto udp", "drop")];
        let unknown = NewFilter { gate: Some("firewal".into()), ..filter("proto tcp", "drop") };
        let list = list.into_iter().chain([unknown]).collect();
        let wrong = wrong_entries(ask(&router, AddFilters(list)).await.unwrap_err());
        assert_eq!(wrong.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 2, 3], "{wrong:?}");
        assert_eq!(state(&router).await, before);

        let list = (1..=300).map(|port| filter(&format!("proto udp dport {port}"), "drop")).collect();
        let ids = ask(&router, AddFilters(list)).await.unwrap().ids;
        let bindings = bindings(&router).await;
        let of = |id: u64| bindings.iter().find(|binding| binding.id == id).map(|binding| &*binding.filter);
        assert_eq!((of(ids[0]), of(ids[299])), (Some("proto udp dport 1"), Some("proto udp dport 300")));
        remove_filters(&router, &ids).await.unwrap();
        assert_eq!(state(&router).await, before);
    });
}
