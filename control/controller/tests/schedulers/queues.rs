//! Tests of the settings of queues, and of single flows at queues.

use super::*;

#[test]
fn all_spellings_of_a_flow_are_one_reservation() {
    with_router(async |router| {
        add(&router, "wan", json!({"name": "f", "kind": "flow-queues", "rate": "8mbit"})).await;
        let set = async |flow: &str, said: Value| set_queue(&router, "f", Some(flow), said).await;
        set(FLOW, json!({"rate": "6mbit"})).await.unwrap();
        // The same flow in another spelling changes the reservation, and causes no conflict.
        let other = "in lan dport 5 sport 4 proto 17 dst 10.2.0.2/32 src 10.1.0.2";
        set(other, json!({"rate": "7mbit"})).await.unwrap();
        let shown = flows(&router).await;
        let shown: Vec<_> = shown.iter().map(|flow| (flow.flow.as_deref(), flow.rate)).collect();
        assert_eq!(shown, [(Some(FLOW), Some(7_000_000))]);
        let text = running(&router).await;
        assert_eq!(text.matches("[[port.scheduler.flow]]").count(), 1, "{text}");
        assert!(text.contains(FLOW), "{text}");
        // The same flow from another ingress port shares the flow's queue, so it can't have settings of its
        // own.
        let by_wan = FLOW.replace("in lan", "in wan");
        for said in [json!({"rate": "1mbit"}), json!({"rate": null})] {
            let refused = set(&by_wan, said).await.unwrap_err();
            assert!(matches!(refused, ControlError::Conflict(_)), "{refused}");
            assert!(refused.to_string().contains(FLOW), "{refused}");
        }
        for (less, missing) in [
            (FLOW.replace(" in lan", ""), "`in PORT` is missing"),
            (FLOW.replace("proto udp", ""), "`proto udp`"),
            (FLOW.replace(" sport 4 dport 5", ""), "`sport NUMBER`, `dport NUMBER` is missing"),
        ] {
            let refused = set(&less, json!({"rate": "1mbit"})).await.unwrap_err().to_string();
            assert!(refused.contains(missing), "{refused}");
        }
        assert_eq!(running(&router).await, text);
        set(other, json!({"rate": null})).await.unwrap();
        assert!(!running(&router).await.contains("flow]]"));
    });
}

#[test]
fn queue_errors_name_the_given_values() {
    with_router(async |router| {
        add(&router, "wan", json!({"name": "flows", "kind": "flow-queues", "rate": "8mbit"})).await;
        set_queue(&router, "flows", Some(FLOW), json!({"rate": "6mbit"})).await.unwrap();
        let refused = set_queue(&router, "flows", None, json!({"rate": null})).await.unwrap_err();
        let text = "node \"flows\": it needs a rate above 6.00 Mb/s, which is reserved for one of its flows";
        assert!(refused.to_string().contains(text), "{refused}");
        to_queue(&router, "dport 1", "flows").await;
        let twice =
            NewFilter { filter: "dport 1".into(), action: "queue flows".into(), gate: None, priority: 0 };
        let refused = ask(&router, AddFilter(twice.clone())).await.unwrap_err().to_string();
        assert!(refused.contains("queue flows is already bound at gate \"schedule\""), "{refused}");
        let elsewhere = NewFilter { gate: Some("route".into()), filter: "dport 2".into(), ..twice };
        let refused = ask(&router, AddFilter(elsewhere)).await.unwrap_err().to_string();
        assert!(
            refused.contains("action queue flows: use a gate at one of the positions early, late, queue"),
            "{refused}"
        );
        // A leaf can change its kind only if its flows have no settings.
        let to_fifo = object(json!({"kind": "fifo", "rate": null}));
        assert!(set_node(&router, "flows", to_fifo.clone()).await.is_err());
        set_queue(&router, "flows", Some(FLOW), json!({"rate": null})).await.unwrap();
        let shown = set_node(&router, "flows", to_fifo).await.unwrap();
        assert_eq!((shown.nodes[0].kind, shown.nodes[0].id), ("fifo", 1));
        assert!(shown.room_packets > 0 && shown.room_bytes > 0);
        let refused = set_node(&router, "flows", object(json!({"kind": "hfsc"}))).await.unwrap_err();
        assert!(refused.to_string().contains("is a fifo: only a leaf can change its kind"), "{refused}");
    });
}
