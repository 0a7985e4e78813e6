//! Tests that add and remove filters and filter expressions, and that explain which filter wins.

use millrace_controller::operation::GetConfiguration;

use super::*;

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
            let new = filter(&format!("proto udp dport {}", number + 1), written);
            let added = add_filter(&router, new).await.unwrap();
            assert_eq!((&*added.action, &*added.gate), (shown, gate));
            ids.push(added.id);
        }
        assert_eq!(bindings(&router).await.len(), 8);
        assert_eq!(remove_filters(&router, &ids).await.unwrap().len(), 7);
        let left = bindings(&router).await;
        assert_eq!((left.len(), &*left[0].gate, &*left[0].action), (1, "firewall", "drop"));
    });
}

#[test]
fn an_expression_is_one_filter_to_the_user() {
    with_router(async |router| {
        let text = "tcp port 80,443 or (udp and not dport 0-1023)";
        let new = NewFilter { priority: 20, ..filter(text, "drop") };
        let added = add_filter(&router, new.clone()).await.unwrap();
        assert_eq!((&*added.filter, added.shadowed_by.as_deref().map(<[_]>::len)), (text, Some(0)));
        let rows = bindings(&router).await;
        assert_eq!(rows.iter().filter(|row| row.id == added.id).count(), 1);
        let running = ask(&router, GetConfiguration).await.unwrap().text;
        assert!(running.contains(&format!("match = \"{text}\"")), "{running}");
        let explain = async |packet: &str| {
            let gates = explain(&router, packet).await.unwrap();
            let gate = gates.into_iter().find(|gate| gate.gate == "route").unwrap();
            let lines: Vec<_> =
                gate.candidates.iter().map(|one| (one.id, one.chosen, one.outcome.clone())).collect();
            assert_eq!(lines.len(), 1, "{lines:?}");
            lines[0].clone()
        };
        let packet = |rest: &str| format!("src 10.1.0.2 dst 10.2.0.2 {rest} in lan");
        assert!(explain(&packet("proto tcp sport 443 dport 9")).await.1);
        assert!(explain(&packet("proto udp sport 5 dport 5000")).await.1);
        let (id, chosen, outcome) = explain(&packet("proto udp sport 5 dport 53")).await;
        assert_eq!((id, chosen, &*outcome), (added.id, false, "no alternative matches"));
        let again = add_filter(&router, new).await.unwrap_err().to_string();
        assert!(again.contains("already bound"), "{again}");
        assert_eq!(remove_filters(&router, &[added.id]).await.unwrap().len(), 1);
        assert_eq!(bindings(&router).await.len(), 1);
    });
}

#[test]
fn filter_for_multicast_destinations_alone_warns_that_no_packet_matches() {
    with_router(async |router| {
        let unreached = async |text: &str| add_filter(&router, filter(text, "drop")).await.unwrap().unreached;
        for text in ["dst 239.1.1.0/24 proto udp", "dst ff05::/16", "dst 224.0.0.0/4 or dst ff02::5"] {
            let why = unreached(text).await.unwrap();
            assert!(why.contains("punt 224.0.0.0/4") && why.contains("`multicast`"), "{why}");
        }
        for text in
            ["dst 224.0.0.0/3", "dst 10.0.0.0/8 or dst 239.1.1.1", "proto udp", "src 239.1.1.1 dport 5"]
        {
            assert_eq!(unreached(text).await, None, "{text}");
        }
    });
}

#[test]
fn explanation_gives_the_reason_why_a_filter_won() {
    with_router(async |router| {
        let add = async |text: &str, priority| {
            let new = NewFilter { priority, ..filter(text, "drop") };
            add_filter(&router, new).await.unwrap().id
        };
        let (low, high) = (add("proto udp", 5).await, add("proto udp dport 53", 20).await);
        let other = add("proto tcp", 30).await;
        let explain = async |packet: &str| explain(&router, packet).await;
        let packet = "src 10.1.0.2 dst 10.2.0.2 proto udp sport 9 dport 53 in lan";
        let gates = explain(packet).await.unwrap();
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
        // A filter with a lower priority than routes loses against a route. Without a route it wins.
        remove_filters(&router, &[high]).await.unwrap();
        let gates = explain(packet).await.unwrap();
        let lost = &gates[1].candidates[1];
        assert!(
            !lost.chosen && lost.outcome.contains("the route to 10.2.0.0/24 has priority 10"),
            "{lost:?}"
        );
        let gates = explain("src 10.1.0.2 dst 192.0.2.1 proto udp in lan").await.unwrap();
        let won = &gates[1].candidates[1];
        assert!(won.chosen, "{won:?}");
        let error = explain("dst 10.2.0.2").await.unwrap_err().to_string();
        assert!(error.contains("src ADDRESS"), "{error}");
    });
}
