//! Tests of selections: filter expressions that select the packets of flow lists, captures, traces and
//! placements.

use millrace_controller::operation::{
    CheckFilters, ListFlows, ListPlacements, PlaceFlows, StartCapture, StartTrace,
};
use millrace_controller::{CaptureRequest, FlowQuery, NewPlacement, TraceRequest, WantedLevel};

use super::*;

#[test]
fn flows_of_an_idle_router_are_none() {
    with_router(async |router| {
        let flows = ask(&router, ListFlows(FlowQuery::default())).await.unwrap();
        assert_eq!((flows.found, flows.flows.len()), (0, 0));
        assert_eq!(flush_flows(&router, "proto udp").await.unwrap(), 0);
        for (filter, limit, said) in
            [("proto upd", None, "upd"), ("in lam", None, "lan"), ("*", Some(0), "limit must")]
        {
            let query = FlowQuery { filter: Some(filter.into()), limit, ..FlowQuery::default() };
            let error = ask(&router, ListFlows(query)).await.unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    });
}

#[test]
fn every_filter_argument_accepts_an_expression() {
    with_router(async |router| {
        let text = "port 80 or icmp";
        let filter = Some(text.to_owned());
        let query = FlowQuery { filter: filter.clone(), ..FlowQuery::default() };
        assert_eq!(ask(&router, ListFlows(query)).await.unwrap().found, 0);
        assert_eq!(flush_flows(&router, text).await.unwrap(), 0);
        let capture = CaptureRequest { filter: filter.clone(), ..CaptureRequest::default() };
        ask(&router, StartCapture(capture)).await.unwrap();
        ask(&router, StartTrace(TraceRequest { filter, ..TraceRequest::default() })).await.unwrap();
        let place = |flow: &str, level| NewPlacement { flow: flow.to_owned(), level };
        let placed = ask(&router, PlaceFlows(place(text, WantedLevel::Worker))).await.unwrap();
        assert_eq!((&*placed.flow, placed.level), (text, "worker"));
        let listed = ask(&router, ListPlacements).await.unwrap().placements;
        assert_eq!(listed.iter().map(|one| &*one.flow).collect::<Vec<_>>(), [text]);
        ask(&router, PlaceFlows(place(text, WantedLevel::Auto))).await.unwrap();
        assert!(ask(&router, ListPlacements).await.unwrap().placements.is_empty());
        let wrong =
            ask(&router, PlaceFlows(place("port 80 or in lam", WantedLevel::Worker))).await.unwrap_err();
        assert!(wrong.to_string().contains("lan"), "{wrong}");
    });
}

#[test]
fn packet_selections_accept_any_complement_and_gates_accept_ipv4_host_complements() {
    with_router(async |router| {
        for text in ["not host 10.1.0.7", "not host 2001:db8::7", "udp and not host 10.1.0.7,fd00::7"] {
            let filter = Some(text.to_owned());
            let query = FlowQuery { filter: filter.clone(), ..FlowQuery::default() };
            assert_eq!(ask(&router, ListFlows(query)).await.unwrap().found, 0);
            assert_eq!(flush_flows(&router, text).await.unwrap(), 0);
            let capture = CaptureRequest { filter: filter.clone(), ..CaptureRequest::default() };
            ask(&router, StartCapture(capture)).await.unwrap();
            ask(&router, StartTrace(TraceRequest { filter, ..TraceRequest::default() })).await.unwrap();
            let new = NewPlacement { flow: text.to_owned(), level: WantedLevel::Worker };
            assert_eq!(ask(&router, PlaceFlows(new)).await.unwrap().flow, text);
        }
        add_filter(&router, filter("not host 10.1.0.7", "accept")).await.unwrap();
        let refused =
            add_filter(&router, filter("not host 2001:db8::7", "accept")).await.unwrap_err().to_string();
        for words in ["16385 filters", "1280", "of higher priority with the action accept"] {
            assert!(refused.contains(words), "{refused}");
        }
        let checked = ask(&router, CheckFilters).await.unwrap();
        assert!(checked.iter().all(|gate| gate.ambiguous_pairs == 0), "{checked:?}");
    });
}

#[test]
fn comparisons_of_all_placements_are_bounded() {
    with_router(async |router| {
        let place = |port: u16, level| NewPlacement { flow: format!("not dport {port}"), level };
        // Each placement needs 256 comparisons: 2 for port ranges, 252 for protocols without ports, and 2 for
        // unread ports.
        for port in 1..=16 {
            ask(&router, PlaceFlows(place(port, WantedLevel::Worker))).await.unwrap();
        }
        let refused = ask(&router, PlaceFlows(place(17, WantedLevel::Worker))).await.unwrap_err().to_string();
        assert!(refused.contains("256 comparisons") && refused.contains("limit is 4096"), "{refused}");
        ask(&router, PlaceFlows(place(3, WantedLevel::Auto))).await.unwrap();
        ask(&router, PlaceFlows(place(17, WantedLevel::Worker))).await.unwrap();
    });
}
