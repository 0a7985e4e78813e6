//! Tests of resources from creation to removal, and of errors.

use super::*;

#[tokio::test]
async fn every_resource_answers_each_of_its_methods_and_no_other() {
    let server = Server::start().await;
    let (_, list) = server.ask("GET", "/", "").await;
    let all = catalogue();
    assert_eq!(list["resources"].as_array().unwrap().len(), all.len());
    for resource in all {
        let methods: Vec<_> = resource.endpoints.iter().map(|endpoint| endpoint.method).collect();
        let path = resource.path.replace("{name}", "x").replace("{id}", "0");
        for method in ["GET", "POST", "PUT", "DELETE", "PATCH"] {
            let path = match &*path {
                "/trace" => "/trace?time=1s",
                "/rates" => "/rates?hz=10",
                path => path,
            };
            let response = request(&server.socket(), method, path, Bytes::new()).await;
            let (head, body) = response.into_parts();
            let taken = methods.contains(&method);
            assert_eq!(
                head.status != StatusCode::METHOD_NOT_ALLOWED,
                taken,
                "{method} {path}: {}",
                head.status
            );
            if !taken {
                let allow = head.headers["allow"].to_str().unwrap();
                assert!(methods.iter().all(|method| allow.contains(method)), "{path} allows {allow}");
                let body = body.collect().await.unwrap().to_bytes();
                assert_eq!(serde_json::from_slice::<Value>(&body).unwrap()["status"], 405);
            }
        }
    }
    server.end().await;
}

#[tokio::test]
async fn an_instance_lives_from_post_to_delete() {
    let server = Server::start().await;
    let new = json!({"plugin": "statistics", "name": "s1", "settings": {"what": "size"}}).to_string();
    let (status, instance) = server.ask("POST", "/instances", new.clone()).await;
    assert_eq!((status, &instance["settings"]["what"]), (StatusCode::CREATED, &json!("size")));
    assert_eq!(server.ask("POST", "/instances", new).await.0, StatusCode::CONFLICT);
    assert_eq!(server.ask("GET", "/instances/s1", "").await.1["plugin"], "statistics");
    let message = json!({"message": "configure", "arguments": {"what": "all"}}).to_string();
    assert_eq!(server.ask("POST", "/instances/s1/control", message).await.0, StatusCode::OK);
    let message = json!({"message": "read"}).to_string();
    let (status, reply) = server.ask("POST", "/instances/s1/control", message).await;
    assert_eq!((status, &reply["what"]), (StatusCode::OK, &json!("all")));
    let message = json!({"message": "read", "companion": true}).to_string();
    let (status, reply) = server.ask("POST", "/instances/s1/control", message).await;
    assert!(
        status.is_client_error() && reply["detail"].as_str().unwrap().contains("host companion"),
        "{reply}"
    );
    let binding = json!({"instance": "s1", "gate": "monitor", "filter": "proto udp"}).to_string();
    let (status, bound) = server.ask("POST", "/bindings", binding.clone()).await;
    assert_eq!((status, &bound["priority"]), (StatusCode::CREATED, &json!(0)));
    assert_eq!(server.ask("GET", "/gates/monitor", "").await.1["bindings"][0]["filter"], "proto udp");
    assert_eq!(server.ask("DELETE", "/bindings", binding.clone()).await.0, StatusCode::OK);
    let (status, problem) = server.ask("DELETE", "/bindings", binding).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "{problem}");
    assert_eq!(server.ask("DELETE", "/instances/s1", "").await.0, StatusCode::OK);
    assert_eq!(server.ask("GET", "/instances/s1", "").await.0, StatusCode::NOT_FOUND);
    server.end().await;
}

#[tokio::test]
async fn a_filter_lives_from_post_to_delete() {
    let server = Server::start().await;
    let mut ids = Vec::new();
    for port in 53..57 {
        let new = json!({"match": format!("proto udp dport {port}"), "action": "drop", "priority": 3});
        let (status, filter) = server.ask("POST", "/filters", new.to_string()).await;
        let seen = (status, &filter["gate"], &filter["priority"]);
        assert_eq!(seen, (StatusCode::CREATED, &json!("route"), &json!(3)));
        ids.push(filter["id"].as_u64().unwrap());
    }
    let listed = async || {
        let (_, filters) = server.ask("GET", "/filters", "").await;
        let ids = filters.as_array().unwrap().iter().map(|one| one["id"].as_u64().unwrap());
        ids.collect::<Vec<_>>()
    };
    let before = listed().await;
    assert!(ids.iter().all(|id| before.contains(id)), "{before:?}");
    let third = format!("/filters/{}", ids[2]);
    assert_eq!(server.ask("GET", &third, "").await.1["action"], "drop");
    assert_eq!(server.ask("DELETE", &third, "").await.1["id"], ids[2]);
    assert_eq!(server.ask("DELETE", &third, "").await.0, StatusCode::NOT_FOUND);
    let (status, _) = server.ask("DELETE", "/filters", json!({"ids": [ids[0], ids[2]]}).to_string()).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "one of them is gone");
    let (status, gone) = server.ask("DELETE", "/filters", json!({"ids": [ids[0], ids[3]]}).to_string()).await;
    assert_eq!((status, gone.as_array().map(Vec::len)), (StatusCode::OK, Some(2)));
    assert_eq!(listed().await.len(), before.len() - 3);
    let packet = "/filters/explain?packet=src+10.1.0.7+dst+10.9.0.1+proto+udp+dport+54+in+lan";
    let (_, gates) = server.ask("GET", packet, "").await;
    let route = gates.as_array().unwrap().iter().find(|gate| gate["gate"] == "route").unwrap();
    assert_eq!(
        (&route["candidates"][0]["id"], &route["candidates"][0]["chosen"]),
        (&json!(ids[1]), &json!(true))
    );
    server.end().await;
}

#[tokio::test]
async fn a_route_lives_from_post_to_delete() {
    let server = Server::start().await;
    let new = json!({"to": "10.60.0.0/16", "via": ["10.2.0.2", "10.2.0.3"], "port": "wan"}).to_string();
    let (status, route) = server.ask("POST", "/routes", new).await;
    assert_eq!((status, &route["to"]), (StatusCode::CREATED, &json!("10.60.0.0/16")));
    let next_hops = route["next_hops"].as_array().unwrap();
    assert_eq!((next_hops.len(), &next_hops[0]["port"]), (2, &json!("wan")));
    let (status, route) = server.ask("GET", "/routes/lookup?address=10.60.1.1", "").await;
    assert_eq!((status, &route["to"]), (StatusCode::OK, &json!("10.60.0.0/16")));
    let old = json!({"to": "10.60.0.0/16"}).to_string();
    assert_eq!(server.ask("DELETE", "/routes", old.clone()).await.0, StatusCode::OK);
    assert_eq!(server.ask("DELETE", "/routes", old).await.0, StatusCode::NOT_FOUND);
    assert_eq!(server.ask("GET", "/routes/lookup?address=10.60.1.1", "").await.0, StatusCode::NOT_FOUND);
    server.end().await;
}

#[tokio::test]
async fn flows_are_asked_for_in_an_order_and_forgotten() {
    use axum::extract::Query;
    use millrace_controller::{FlowOrder, FlowQuery};
    let asked = |arguments: &str| {
        let uri: hyper::Uri = format!("/flows{arguments}").parse().unwrap();
        Query::<FlowQuery>::try_from_uri(&uri).unwrap().0
    };
    assert_eq!((asked("").order, asked("").limit), (FlowOrder::Bytes, None));
    let recent = asked("?filter=proto+udp&order=recent&limit=7");
    assert_eq!((recent.order, recent.limit), (FlowOrder::Recent, Some(7)));
    assert_eq!(recent.filter.as_deref(), Some("proto udp"));

    let server = Server::start().await;
    assert_eq!(server.ask("GET", "/flows", "").await.1, json!({"found": 0, "flows": []}));
    let (status, _) = server.ask("GET", "/flows?filter=proto+udp&order=recent&limit=7", "").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(server.ask("GET", "/connections", "").await.1, json!({"found": 0, "connections": []}));
    let (status, _) = server.ask("GET", "/connections?filter=proto+udp&limit=7", "").await;
    assert_eq!(status, 200);
    assert_eq!(server.ask("DELETE", "/flows", "").await.1, json!({"flushed": 0}));
    assert_eq!(server.ask("DELETE", "/flows?filter=proto+udp", "").await.1, json!({"flushed": 0}));
    server.end().await;
}

/// Invalid requests: method, path, body, expected status, and a part of the expected detail.
const WRONG: &[(&str, &str, &str, u16, &str)] = &[
    ("GET", "/statsu", "", 404, "did you mean \"/status\""),
    ("GET", "/ports/la", "", 404, "no port is named \"la\""),
    ("GET", "/schedulers/lan", "", 404, "port \"lan\" has no scheduler: `scheduler add lan"),
    ("GET", "/schedulers/nowhere", "", 404, "no port is named \"nowhere\"; ports here: lan, wan"),
    ("POST", "/routes", r#"{"to": "10.9.0.0/16", "vai": []}"#, 400, "did you mean \"via\""),
    ("POST", "/routes", r#"{"to": "10.9.0.0/16", "via": ["10.2.0"]}"#, 400, "IP address"),
    ("POST", "/routes", r#"{"to": "10.9.0.0/16", "kind": "blackhol"}"#, 400, "blackhole"),
    ("DELETE", "/routes", r#"{"to": "10.99.0.0/16"}"#, 404, "10.99.0.0/16"),
    ("GET", "/routes/lookup?adress=10.0.0.1", "", 400, "did you mean \"address\""),
    ("POST", "/filters", r#"{"match": "*", "action": "dorp"}"#, 400, "no action"),
    ("POST", "/filters", r#"{"match": "*", "acton": "drop"}"#, 400, "did you mean \"action\""),
    ("POST", "/filters", r#"{"match": "*"}"#, 400, "lacks the key \"action\""),
    ("DELETE", "/filters/one", "", 400, "id \"one\" is not a number"),
    ("GET", "/filters/5", "", 404, "no filter has the id 5"),
    ("DELETE", "/filters", r#"{"ids": [-1]}"#, 400, "\"ids[0]\" is -1"),
    ("GET", "/filters/explain", "", 400, "lacks the key \"packet\""),
    ("GET", "/flows?order=size", "", 400, "\"order\": no value here is named \"size\""),
    ("GET", "/connections?limit=0", "", 400, "limit"),
    ("GET", "/connections?order=rate", "", 400, "keys here: filter, limit"),
    ("GET", "/flows?limit=x", "", 400, "\"limit\" is the string \"x\": give a whole number"),
    ("DELETE", "/flows?flter=x", "", 400, "did you mean \"filter\""),
    ("GET", "/flows?colour=red", "", 400, "keys here: filter, order, limit"),
    ("GET", "/ports?filter=lan", "", 400, "\"filter\" is no key of the request; no keys here"),
    ("GET", "/ports/lan?x", "", 400, "\"x\" is no key of the request; no keys here"),
    ("DELETE", "/counters?ports=lan", "", 400, "\"ports\" is no key of the request; no keys here"),
    ("POST", "/plugins", r#"{"file": "/p.wasm", "allow-downgrade": true}"#, 400, "\"allow_downgrade\""),
    ("POST", "/lookup", "", 400, "no body"),
    ("POST", "/lookup", "{", 400, "EOF"),
    ("POST", "/lookup", "\u{fffd}", 400, "line 1"),
    ("POST", "/lookup", "[]", 400, "no JSON object"),
    ("POST", "/lookup", "{}", 400, "lacks the key \"packet\""),
    ("POST", "/instances", r#"{"plugin": "a", "nmae": "b"}"#, 400, "did you mean \"name\""),
    ("POST", "/instances", r#"{"plugin": "statistic", "name": "b"}"#, 404, "did you mean \"statistics\""),
    ("POST", "/gates", r#"{"name": "g", "position": "odd"}"#, 400, "unknown position"),
    ("DELETE", "/instances/none", "", 404, "no instance"),
    ("DELETE", "/instances/%ff", "", 400, "UTF-8"),
    (
        "POST",
        "/bindings",
        r#"{"instance":"x","gate":"g","filter":"","priority":1e99}"#,
        400,
        "\"priority\" is 1e",
    ),
    ("PUT", "/ports", "", 405, "/ports does not support PUT"),
    ("POST", "/routes", "[[]]", 400, "no JSON object"),
    ("GET", "/bindings?limit=0", "", 400, "1 to 10000"),
    ("GET", "/neighbours?limit=x", "", 400, "limit"),
    ("GET", "/events?kind=link", "", 400, "no kind of event is named \"link\""),
    ("GET", "/audit?last=0", "", 400, "1 to 10000"),
    ("GET", "/rates?hz=11", "", 400, "1 to 10"),
    ("GET", "/plugins/nobody", "", 404, "no plugin"),
    ("GET", "/capture?prot=lan", "", 400, "did you mean \"port\""),
    ("GET", "/capture?snap=-1", "", 400, "snap"),
    ("GET", "/capture?port=nowhere", "", 404, "no port"),
];

#[tokio::test]
async fn errors_are_problem_details_with_a_remedy() {
    let server = Server::start().await;
    let large = format!("{{\"packet\": \"{}\"}}", "x".repeat(2 << 20));
    let too_large = ("POST", "/lookup", &*large, 413, "the limit of this operation is 1048576 bytes");
    for (method, path, body, expected, detail) in WRONG.iter().chain([&too_large]) {
        let (status, headers, problem) = server.answer(method, path, (*body).to_owned()).await;
        assert_eq!(status, *expected, "{method} {path}: {problem}");
        assert_eq!(headers["content-type"], "application/problem+json", "{method} {path}");
        assert!(
            problem["status"] == *expected
                && problem["title"].is_string()
                && problem["type"] == "about:blank",
            "{problem}"
        );
        let text = problem["detail"].as_str().unwrap();
        assert!(text.contains(detail) && !text.contains('\n'), "{method} {path}: {text}");
    }
    server.end().await;
}

#[tokio::test]
async fn configuration_is_applied_in_the_name_of_its_sender() {
    let server = Server::start().await;
    // The body is longer than the limit of other operations.
    let text = format!("{}{}", "# a comment\n".repeat(200_000), CONFIG.replace("dport 25", "dport 26"));
    let body = json!({"text": text, "origin": "router.toml", "comment": "why", "confirm": "60s"}).to_string();
    let (status, value) = server.ask("POST", "/configuration", body).await;
    assert_eq!(
        (status, &value["revision"], &value["confirm"]),
        (StatusCode::OK, &json!(2), &json!("1m")),
        "{value}"
    );
    let (_, revisions) = server.ask("GET", "/revisions", "").await;
    let applied = &revisions[0];
    assert_eq!((&applied["number"], &applied["comment"]), (&json!(2), &json!("why")));
    assert_eq!(applied["who"]["uid"], nix::unistd::geteuid().as_raw());
    assert_eq!(server.ask("POST", "/configuration/confirm", "").await.0, StatusCode::OK);
    let (status, value) =
        server.ask("POST", "/configuration/rollback", r#"{"revision": 1, "comment": "back"}"#).await;
    assert_eq!((status, &value["origin"]), (StatusCode::OK, &json!("revision 1")), "{value}");
    let running = server.ask("GET", "/configuration", "").await.1["text"].to_string();
    assert!(running.contains("dport 25"), "{running}");
    let (status, _) = server.ask("POST", "/configuration", r#"{"txt": ""}"#).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let (status, value) = server.ask("POST", "/configuration/diff", r#"{}"#).await;
    assert_eq!((status, &value["changes"]), (StatusCode::OK, &json!([])), "{value}");
    assert_eq!(server.ask("POST", "/configuration/confirm", "").await.0, StatusCode::CONFLICT);
    assert_eq!(server.ask("GET", "/revisions/99", "").await.0, StatusCode::NOT_FOUND);
    assert_eq!(server.ask("GET", "/revisions/three", "").await.0, StatusCode::BAD_REQUEST);
    server.end().await;
}
