//! Tests of changes to a running router without devices; a refused change has no effect.

use millrace_config::{Config, RouteKind};
use millrace_controller::{
    CaptureRequest, ControlError, FlowQuery, NewFilter, NewPlacement, NewRoute, Router, StartOptions,
    TraceRequest, WantedLevel, start,
};

const CONFIG: &str = "
[router]
route-priority = 10
flows-max = 4096

[[port]]
name = \"lan\"
kind = \"memory\"
address = [\"10.1.0.1/24\", \"fd00:1::1/64\"]

[[port]]
name = \"wan\"
kind = \"memory\"
address = [\"10.2.0.1/24\", \"fd00:2::1/64\"]

[[gate]]
name = \"firewall\"
table = \"dag\"

[[instance]]
plugin = \"statistics\"
name = \"stats1\"

[[route]]
to = \"10.66.0.0/16\"
kind = \"blackhole\"

[[filter]]
match = \"proto tcp dport 25\"
action = \"drop\"
gate = \"firewall\"
";

fn with_router<T>(work: impl AsyncFnOnce(Router) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let config = Config::parse(CONFIG, "test").unwrap();
        let router = start(config, StartOptions::default()).await.unwrap();
        let result = work(router.clone()).await;
        router.shutdown().await.unwrap();
        result
    })
}

fn filter(filter: &str, action: &str) -> NewFilter {
    NewFilter { filter: filter.into(), action: action.into(), gate: None, priority: 0 }
}

fn route(to: &str, via: &[&str]) -> NewRoute {
    let via = via.iter().map(|via| via.parse().unwrap()).collect();
    NewRoute { to: to.into(), via, port: None, kind: RouteKind::Forward }
}

fn state(router: &Router) -> String {
    format!(
        "{:?}\n{:?}",
        router.bindings(&Default::default()).unwrap().rows,
        router.routes(&Default::default()).unwrap().rows
    )
}

#[test]
fn filters_come_and_go_and_read_back() {
    with_router(async |router| {
        let actions = [
            ("drop", "drop", "route"),
            ("reject", "reject", "route"),
            ("host", "host", "route"),
            ("port wan via 10.2.0.9", "port wan via 10.2.0.9", "route"),
            ("ports wan,lan via 10.1.0.9", "ports wan,lan via 10.1.0.9", "route"),
            ("copy-to lan", "copy-to lan", "tap"),
            ("copy stats1", "instance stats1", "tap"),
        ];
        let mut ids = Vec::new();
        for (number, (written, shown, gate)) in actions.into_iter().enumerate() {
            let added =
                router.add_filter(&filter(&format!("proto udp dport {}", number + 1), written)).unwrap();
            assert_eq!((&*added.action, &*added.gate), (shown, gate));
            ids.push(added.id);
        }
        assert_eq!(router.bindings(&Default::default()).unwrap().rows.len(), 8);
        assert_eq!(router.remove_filters(&ids).unwrap().len(), 7);
        let left = router.bindings(&Default::default()).unwrap().rows;
        assert_eq!((left.len(), &*left[0].gate, &*left[0].action), (1, "firewall", "drop"));
    });
}

#[test]
fn an_expression_is_one_filter_to_the_user() {
    with_router(async |router| {
        let text = "tcp port 80,443 or (udp and not dport 0-1023)";
        let new = NewFilter { priority: 20, ..filter(text, "drop") };
        let added = router.add_filter(&new).unwrap();
        assert_eq!((&*added.filter, added.shadowed_by.as_deref().map(<[_]>::len)), (text, Some(0)));
        let rows = router.bindings(&Default::default()).unwrap().rows;
        assert_eq!(rows.iter().filter(|row| row.id == added.id).count(), 1);
        let running = router.configuration().unwrap().text;
        assert!(running.contains(&format!("match = \"{text}\"")), "{running}");
        let explain = |packet: &str| {
            let gates = router.explain_filters(packet).unwrap();
            let gate = gates.into_iter().find(|gate| gate.gate == "route").unwrap();
            let lines: Vec<_> =
                gate.candidates.iter().map(|one| (one.id, one.chosen, one.outcome.clone())).collect();
            assert_eq!(lines.len(), 1, "{lines:?}");
            lines[0].clone()
        };
        let packet = |rest: &str| format!("src 10.1.0.2 dst 10.2.0.2 {rest} in lan");
        assert!(explain(&packet("proto tcp sport 443 dport 9")).1);
        assert!(explain(&packet("proto udp sport 5 dport 5000")).1);
        let (id, chosen, outcome) = explain(&packet("proto udp sport 5 dport 53"));
        assert_eq!((id, chosen, &*outcome), (added.id, false, "no alternative matches"));
        let again = router.add_filter(&new).unwrap_err().to_string();
        assert!(again.contains("already bound"), "{again}");
        assert_eq!(router.remove_filters(&[added.id]).unwrap().len(), 1);
        assert_eq!(router.bindings(&Default::default()).unwrap().rows.len(), 1);
    });
}

#[test]
fn a_filter_for_multicast_destinations_alone_warns_that_no_packet_meets_it() {
    with_router(async |router| {
        let unreached = |text: &str| router.add_filter(&filter(text, "drop")).unwrap().unreached;
        for text in ["dst 239.1.1.0/24 proto udp", "dst ff05::/16", "dst 224.0.0.0/4 or dst ff02::5"] {
            let why = unreached(text).unwrap();
            assert!(why.contains("the kernel gets 224.0.0.0/4") && why.contains("`multicast`"), "{why}");
        }
        for text in
            ["dst 224.0.0.0/3", "dst 10.0.0.0/8 or dst 239.1.1.1", "proto udp", "src 239.1.1.1 dport 5"]
        {
            assert_eq!(unreached(text), None, "{text}");
        }
    });
}

#[test]
fn what_never_wins_is_told_with_what_shadows_it() {
    with_router(async |router| {
        let high = NewFilter { priority: 20, ..filter("proto udp", "drop") };
        let first = router.add_filter(&high).unwrap();
        assert_eq!(first.shadowed_by.map(|by| by.len()), Some(0));
        let added = router.add_filter(&filter("udp dst port 53,123", "host")).unwrap();
        let by: Vec<u64> = added.shadowed_by.unwrap().iter().map(|one| one.id).collect();
        assert_eq!(by, [first.id]);
        // One of the two alternatives can win.
        let added = router.add_filter(&filter("udp dst port 53 or tcp dst port 53", "host")).unwrap();
        assert_eq!(added.shadowed_by.map(|by| by.len()), Some(0));
        let checked = router.check_filters().await.unwrap();
        let gate = checked.iter().find(|gate| gate.gate == "route").unwrap();
        assert_eq!((gate.filters, gate.shadowed.len()), (3, 1));
    });
}

#[test]
fn what_is_refused_changes_nothing() {
    with_router(async |router| {
        router.add_filter(&filter("proto udp", "drop")).unwrap();
        let before = state(&router);
        let refuse = |new: NewFilter, said: &str| {
            let error = router.add_filter(&new).unwrap_err().to_string();
            assert!(error.contains(said) && !error.contains('\n'), "{said}: {error}");
        };
        let at = |gate: &str, new: NewFilter| NewFilter { gate: Some(gate.into()), ..new };
        refuse(filter(" ", "drop"), "write *");
        refuse(filter("src 10.0.0.1 dst fd00::1", "drop"), "one family");
        refuse(filter("proto udp dport 90-80", "drop"), "90-80");
        refuse(filter("src 10.1.2.3/8", "drop"), "10.0.0.0/8");
        refuse(filter("in lam", "drop"), "did you mean \"lan\"?");
        refuse(filter("proto tcp", "dorp"), "did you mean \"drop\"?");
        refuse(filter("proto tcp", "lane 3"), "the actions are");
        refuse(filter("proto tcp", "queue 3"), "no queue is named");
        refuse(filter("proto tcp", "port wam"), "did you mean \"wan\"?");
        refuse(filter("dst fd00::/16", "port wan via 10.2.0.9"), "IPv6 neighbour");
        refuse(filter("proto tcp", "instance stats1"), "needs a gate");
        refuse(filter("proto tcp", "copy stats2"), "stats1");
        refuse(at("firewal", filter("proto tcp", "drop")), "firewall");
        refuse(
            at("tap", filter("proto tcp", "drop")),
            "where action drop can't be: it takes early, route, late",
        );
        refuse(at("monitor", filter("proto tcp", "copy stats1")), "gates of position copy");
        refuse(filter("proto udp", "drop"), "already");
        assert!(matches!(router.remove_filters(&[0, 77]), Err(ControlError::NotFound(_))));

        let refuse = async |new: NewRoute, said: &str| {
            let error = router.add_route(&new).await.unwrap_err().to_string();
            assert!(error.contains(said), "{said}: {error}");
        };
        refuse(route("10.9.0.1/16", &["10.2.0.2"]), "the prefix is 10.9.0.0/16").await;
        refuse(route("10.9.0.0", &["10.2.0.2"]), "ADDRESS/LENGTH").await;
        refuse(route("10.9.0.0/16", &[]), "name its next hop with `via`, or its `port`").await;
        refuse(route("10.9.0.0/16", &["192.0.2.1"]), "in no subnet of a port").await;
        refuse(route("fd00:9::/48", &["10.2.0.2"]), "IPv6 next hops").await;
        refuse(NewRoute { port: Some("wam".into()), ..route("10.9.0.0/16", &[]) }, "did you mean \"wan\"?")
            .await;
        refuse(NewRoute { kind: RouteKind::Prohibit, ..route("10.9.0.0/16", &["10.2.0.2"]) }, "remove `via`")
            .await;
        refuse(route("10.66.0.0/16", &["10.2.0.2"]), "there is a route of ours to 10.66.0.0/16").await;
        let error = router.remove_route("10.2.0.0/24").await.unwrap_err().to_string();
        assert!(error.contains("follows from a port's address"), "{error}");
        assert!(matches!(router.remove_route("10.7.0.0/16").await, Err(ControlError::NotFound(_))));
        assert_eq!(state(&router), before);
    });
}

#[test]
fn routes_come_and_go() {
    with_router(async |router| {
        let added = router.add_route(&route("10.9.0.0/16", &["10.2.0.2", "10.2.0.3"])).await.unwrap();
        assert_eq!((added.next_hops.len(), &*added.next_hops[0].port, added.source), (2, "wan", "millrace"));
        assert_eq!(router.lookup_route("10.9.1.1").unwrap().to, "10.9.0.0/16");
        assert_eq!(router.lookup_route("10.66.1.1").unwrap().kind, "blackhole");
        router.remove_route("10.9.0.0/16").await.unwrap();
        assert!(matches!(router.lookup_route("10.9.1.1"), Err(ControlError::NotFound(_))));
        // A configured route precedes the connected route to its prefix until it is removed.
        let hiding = NewRoute { kind: RouteKind::Unreachable, ..route("10.1.0.0/24", &[]) };
        router.add_route(&hiding).await.unwrap();
        assert_eq!(router.lookup_route("10.1.0.7").unwrap().kind, "unreachable");
        router.remove_route("10.1.0.0/24").await.unwrap();
        assert_eq!(router.lookup_route("10.1.0.7").unwrap().kind, "forward");
    });
}

#[test]
fn an_explanation_says_why_one_filter_won() {
    with_router(async |router| {
        let add = |text: &str, priority| {
            let new = NewFilter { priority, ..filter(text, "drop") };
            router.add_filter(&new).unwrap().id
        };
        let (low, high) = (add("proto udp", 5), add("proto udp dport 53", 20));
        let other = add("proto tcp", 30);
        let explain = |packet: &str| router.explain_filters(packet).unwrap();
        let packet = "src 10.1.0.2 dst 10.2.0.2 proto udp sport 9 dport 53 in lan";
        let gates = explain(packet);
        assert_eq!(gates.iter().map(|gate| &*gate.gate).collect::<Vec<_>>(), ["firewall", "route"]);
        assert!(gates[0].candidates[0].outcome.contains("does not match"), "{gates:?}");
        let said: Vec<_> =
            gates[1].candidates.iter().map(|one| (one.id, one.chosen, one.outcome.as_str())).collect();
        assert_eq!(
            said,
            [
                (other, false, "does not match: proto differs"),
                (high, true, "chosen"),
                (low, false, "matches, but has a lower priority than the chosen one"),
            ]
        );
        // A filter with lower priority than routes loses against a route, and wins without one.
        router.remove_filters(&[high]).unwrap();
        let lost = &explain(packet)[1].candidates[1];
        assert!(
            !lost.chosen && lost.outcome.contains("the route to 10.2.0.0/24 has priority 10"),
            "{lost:?}"
        );
        let won = &explain("src 10.1.0.2 dst 192.0.2.1 proto udp in lan")[1].candidates[1];
        assert!(won.chosen, "{won:?}");
        let error = router.explain_filters("dst 10.2.0.2").unwrap_err().to_string();
        assert!(error.contains("src ADDRESS"), "{error}");
    });
}

#[test]
fn flows_of_an_idle_router_are_none() {
    with_router(async |router| {
        let flows = router.flows(&FlowQuery::default()).await.unwrap();
        assert_eq!((flows.found, flows.flows.len()), (0, 0));
        assert_eq!(router.flush_flows(Some("proto udp")).await.unwrap(), 0);
        for (filter, limit, said) in
            [("proto upd", None, "upd"), ("in lam", None, "lan"), ("*", Some(0), "limit 0")]
        {
            let query = FlowQuery { filter: Some(filter.into()), limit, ..FlowQuery::default() };
            let error = router.flows(&query).await.unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    });
}

#[test]
fn whatever_takes_a_filter_takes_an_expression() {
    with_router(async |router| {
        let text = "port 80 or icmp";
        let filter = Some(text.to_owned());
        let query = FlowQuery { filter: filter.clone(), ..FlowQuery::default() };
        assert_eq!(router.flows(&query).await.unwrap().found, 0);
        assert_eq!(router.flush_flows(Some(text)).await.unwrap(), 0);
        router.capture(&CaptureRequest { filter: filter.clone(), ..CaptureRequest::default() }).unwrap();
        router.trace(&TraceRequest { filter, ..TraceRequest::default() }).unwrap();
        let place = |flow: &str, level| NewPlacement { flow: flow.to_owned(), level };
        let placed = router.place(&place(text, WantedLevel::Worker)).await.unwrap();
        assert_eq!((&*placed.flow, placed.level), (text, "worker"));
        let listed = router.placements().await.unwrap().placements;
        assert_eq!(listed.iter().map(|one| &*one.flow).collect::<Vec<_>>(), [text]);
        router.place(&place(text, WantedLevel::Auto)).await.unwrap();
        assert!(router.placements().await.unwrap().placements.is_empty());
        let wrong = router.place(&place("port 80 or in lam", WantedLevel::Worker)).await.unwrap_err();
        assert!(wrong.to_string().contains("lan"), "{wrong}");
    });
}

#[test]
fn what_selects_packets_takes_the_complement_of_any_host_and_a_gate_that_of_an_ipv4_host() {
    with_router(async |router| {
        for text in ["not host 10.1.0.7", "not host 2001:db8::7", "udp and not host 10.1.0.7,fd00::7"] {
            let filter = Some(text.to_owned());
            let query = FlowQuery { filter: filter.clone(), ..FlowQuery::default() };
            assert_eq!(router.flows(&query).await.unwrap().found, 0);
            assert_eq!(router.flush_flows(Some(text)).await.unwrap(), 0);
            router.capture(&CaptureRequest { filter: filter.clone(), ..CaptureRequest::default() }).unwrap();
            router.trace(&TraceRequest { filter, ..TraceRequest::default() }).unwrap();
            let new = NewPlacement { flow: text.to_owned(), level: WantedLevel::Worker };
            assert_eq!(router.place(&new).await.unwrap().flow, text);
        }
        router.add_filter(&filter("not host 10.1.0.7", "accept")).unwrap();
        let refused = router.add_filter(&filter("not host 2001:db8::7", "accept")).unwrap_err().to_string();
        for words in ["16385 filters", "1280", "of higher priority with the action accept"] {
            assert!(refused.contains(words), "{refused}");
        }
        let checked = router.check_filters().await.unwrap();
        assert!(checked.iter().all(|gate| gate.ambiguous_pairs == 0), "{checked:?}");
    });
}

#[test]
fn comparisons_of_all_placements_are_bounded() {
    with_router(async |router| {
        let place = |port: u16, level| NewPlacement { flow: format!("not dport {port}"), level };
        // 256 comparisons each: 2 port ranges, 252 protocols without ports, 2 cases of unread ports.
        for port in 1..=16 {
            router.place(&place(port, WantedLevel::Worker)).await.unwrap();
        }
        let refused = router.place(&place(17, WantedLevel::Worker)).await.unwrap_err().to_string();
        assert!(refused.contains("256 comparisons") && refused.contains("limit is 4096"), "{refused}");
        router.place(&place(3, WantedLevel::Auto)).await.unwrap();
        router.place(&place(17, WantedLevel::Worker)).await.unwrap();
    });
}

#[test]
fn a_check_names_what_never_wins_and_what_is_ambiguous() {
    with_router(async |router| {
        let add = |text: &str, priority| {
            let new = NewFilter { priority, ..filter(text, "drop") };
            router.add_filter(&new).unwrap().id
        };
        let (all, shadowed) = (add("proto udp", 20), add("proto udp dport 53", 15));
        let (source, destination) =
            (add("proto tcp src 10.1.0.0/16", 5), add("proto tcp dst 10.2.0.0/16", 5));
        let gates = router.check_filters().await.unwrap();
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
        let add = |text: &str, action: &str| {
            let new = NewFilter { priority: 20, ..filter(text, action) };
            router.add_filter(&new).unwrap().id
        };
        let check = async || {
            let gates = router.check_filters().await.unwrap();
            gates.into_iter().find(|gate| gate.gate == "route").unwrap()
        };
        let not_ssh = add("not port 22", "drop");
        let alone = check().await;
        assert_eq!((alone.ambiguous_pairs, alone.ambiguous.len()), (0, 0), "{alone:?}");
        assert!(alone.shadowed.is_empty() && alone.undecided.is_empty(), "{alone:?}");
        // Many alternatives of the two filters overlap, but that is a single finding.
        let hosts = add("host 10.1.0.7", "accept");
        let both = check().await;
        let [pair] = &both.ambiguous[..] else { panic!("{both:?}") };
        let mut named = [pair.winner.id, pair.loser.id];
        named.sort_unstable();
        assert_eq!((both.ambiguous_pairs, named, both.filters), (1, [not_ssh, hosts], 2), "{both:?}");
    });
}

#[test]
fn a_table_over_its_limit_is_refused() {
    with_router(async |router| {
        let there = router.gates().unwrap().len();
        for number in there..256 {
            router.create_gate(&format!("g{number}"), "late").unwrap();
        }
        let error = router.create_gate("one-more", "late").unwrap_err().to_string();
        assert!(error.contains("256 gates") && error.contains("can't be more"), "{error}");
        assert_eq!(router.gates().unwrap().len(), 256);
    });
}

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
        let before = state(&router);
        let net = |number: u32| format!("10.{}.{}.0/24", 100 + number / 256, number % 256);
        // A next hop in the subnet of a route of the same list, and more routes than one group holds.
        let mut list = vec![NewRoute { port: Some("wan".into()), ..route("192.0.2.0/24", &[]) }];
        list.push(route("198.51.100.0/24", &["192.0.2.7"]));
        list.extend((0..5000).map(|number| route(&net(number), &["10.2.0.9"])));
        assert_eq!(router.add_routes(list.clone()).await.unwrap(), 5002);
        assert_eq!(router.lookup_route("198.51.100.9").unwrap().next_hops[0].port, "wan");
        assert_eq!(router.lookup_route("10.119.135.9").unwrap().to, net(4999));
        assert_eq!(router.status().unwrap().applying.map(|applying| applying.of), None);
        let to = |list: &[NewRoute]| list.iter().map(|route| route.to.clone()).collect::<Vec<_>>();
        assert_eq!(router.remove_routes(to(&list)).await.unwrap(), 5002);
        assert_eq!(state(&router), before);
    });
}

#[test]
fn a_list_with_wrong_routes_changes_nothing_and_names_each_of_them() {
    with_router(async |router| {
        let before = state(&router);
        let list = vec![
            route("10.100.0.0/16", &["10.2.0.9"]),
            route("10.101.0.1/16", &["10.2.0.9"]),
            route("10.100.0.0/16", &["10.2.0.9"]),
            route("10.66.0.0/16", &["10.2.0.9"]),
            NewRoute { port: Some("wam".into()), ..route("10.102.0.0/16", &[]) },
            route("10.103.0.0/16", &["203.0.113.1"]),
            route("10.104.0.0/16", &["10.1.0.9"]),
        ];
        let wrong = wrong_entries(router.add_routes(list).await.unwrap_err());
        let expected = [
            (1, "the prefix is 10.101.0.0/16"),
            (2, "stands in the list before"),
            (3, "there is a route of ours"),
            (4, "did you mean \"wan\"?"),
            (5, "in no subnet of a port"),
        ];
        assert_eq!(wrong.len(), expected.len(), "{wrong:?}");
        for ((number, text), (entry, words)) in wrong.iter().zip(expected) {
            assert!(*number == entry && text.contains(words), "{number}: {text}");
        }
        let to = ["10.66.0.0/16", "10.1.0.0/24", "10.7.0.0/16", "10.66.0.0/16", "x"].map(String::from);
        let wrong = wrong_entries(router.remove_routes(to.to_vec()).await.unwrap_err());
        assert_eq!(wrong.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 2, 3, 4], "{wrong:?}");
        assert_eq!(state(&router), before);
    });
}

#[test]
fn a_list_of_filters_comes_whole_and_with_its_ids() {
    with_router(async |router| {
        let before = state(&router);
        let list = [filter("proto udp", "drop"), filter("proto xdp", "drop"), filter("proto udp", "drop")];
        let unknown = NewFilter { gate: Some("firewal".into()), ..filter("proto tcp", "drop") };
        let wrong =
            wrong_entries(router.add_filters(list.into_iter().chain([unknown]).collect()).await.unwrap_err());
        assert_eq!(wrong.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 2, 3], "{wrong:?}");
        assert_eq!(state(&router), before);

        let list = (1..=300).map(|port| filter(&format!("proto udp dport {port}"), "drop")).collect();
        let ids = router.add_filters(list).await.unwrap().ids;
        let bindings = router.bindings(&Default::default()).unwrap().rows;
        let of = |id: u64| bindings.iter().find(|binding| binding.id == id).map(|binding| &*binding.filter);
        assert_eq!((of(ids[0]), of(ids[299])), (Some("proto udp dport 1"), Some("proto udp dport 300")));
        router.remove_filters(&ids).unwrap();
        assert_eq!(state(&router), before);
    });
}

#[test]
fn a_check_names_all_that_several_filters_outdo_together() {
    with_router(async |router| {
        let add = |text: &str, priority| {
            let new = NewFilter { priority, ..filter(text, "drop") };
            router.add_filter(&new).unwrap().id
        };
        let (low, high) = (add("proto sctp dport 1-5", 20), add("proto sctp dport 6-9", 20));
        add("proto sctp dport 100", 20);
        let never = add("src 10.1.0.0/16 proto sctp dport 2-8", 15);
        add("src 10.1.0.0/16 proto sctp dport 2-10", 15);
        let gates = router.check_filters().await.unwrap();
        let [found] = &gates[1].shadowed[..] else { panic!("{gates:?}") };
        let mut by: Vec<u64> = found.by.iter().map(|by| by.id).collect();
        by.sort_unstable();
        assert_eq!((found.filter.id, by), (never, vec![low, high]));
        assert!(gates[1].undecided.is_empty());
    });
}
