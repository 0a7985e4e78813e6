//! Tests of lists in bodies, and of pages of lists.

use super::*;

#[tokio::test]
async fn a_list_is_done_whole_or_each_wrong_entry_is_named() {
    let server = Server::start().await;
    let list = json!([{"to": "10.60.0.0/16", "port": "lan"}, {"to": "10.61.0.0/16", "port": "lan"}]);
    let (status, answer) = server.ask("POST", "/routes", list.to_string()).await;
    assert_eq!((status, answer), (StatusCode::CREATED, json!({"added": 2})));
    let list = json!([{"to": "10.60.0.0/16"}, {"to": "10.61.0.0/16"}]);
    let (status, answer) = server.ask("DELETE", "/routes", format!(" {list}")).await;
    assert_eq!((status, answer), (StatusCode::OK, json!({"removed": 2})));

    let list =
        json!([{"to": "10.60.0.0/16"}, {"too": "10.9.0.0/16"}, {"to": "10.9.0.0/16", "via": ["x"]}, 7]);
    let before = server.ask("GET", "/routes", "").await.1;
    let (status, answer) = server.ask("POST", "/routes", list.to_string()).await;
    assert_eq!((status, &answer["wrong"]), (StatusCode::BAD_REQUEST, &json!(3)));
    let errors = answer["errors"].as_array().unwrap();
    assert_eq!(errors.iter().map(|error| error["entry"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(errors[0]["detail"].as_str().unwrap().contains("did you mean \"to\"?"), "{answer}");
    assert_eq!(server.ask("GET", "/routes", "").await.1, before, "nothing was added");

    let list = json!([{"match": "proto udp dport 9", "action": "drop"}, {"match": "proto udp dport 10", "action": "drop"}]);
    let (status, answer) = server.ask("POST", "/filters", list.to_string()).await;
    assert_eq!((status, &answer["added"], &answer["shadowed"]), (StatusCode::CREATED, &json!(2), &json!([])));
    let ids: Vec<u64> = answer["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
    assert_eq!(ids[1], ids[0] + 1);
    let list = json!([{"match": "*", "action": "drop"}, {"match": "*", "action": "sing"}]);
    let (status, answer) = server.ask("POST", "/filters", list.to_string()).await;
    assert_eq!((status, &answer["errors"][0]["entry"]), (StatusCode::BAD_REQUEST, &json!(1)));
    server.end().await;
}

#[tokio::test]
async fn a_list_may_be_longer_than_other_requests() {
    let server = Server::start().await;
    let route =
        |number: u32| json!({"to": format!("10.100.{}.{}/32", number / 256, number % 256), "port": "lan"});
    let list: Vec<Value> = (0..40_000).map(route).collect();
    let body = Value::from(list).to_string();
    assert!(body.len() > 1 << 20);
    assert_eq!(server.ask("POST", "/routes", body.clone()).await.1, json!({"added": 40_000}));
    assert_eq!(server.ask("POST", "/bindings", body).await.0, StatusCode::PAYLOAD_TOO_LARGE);
    server.end().await;
}

#[tokio::test]
async fn a_list_comes_in_pages_that_lead_to_each_other() {
    let server = Server::start().await;
    for port in 60..65 {
        let new = json!({"match": format!("proto udp dport {port}"), "action": "drop"}).to_string();
        assert_eq!(server.ask("POST", "/filters", new).await.0, StatusCode::CREATED);
    }
    let ids_of = |page: &Value| -> Vec<u64> {
        page.as_array().unwrap().iter().map(|filter| filter["id"].as_u64().unwrap()).collect()
    };
    let all = ids_of(&server.ask("GET", "/filters", "").await.1);
    let (mut path, mut ids, mut pages) = ("/filters?limit=2".to_owned(), Vec::new(), 0);
    loop {
        let (_, headers, page) = server.answer("GET", &path, "").await;
        let page = ids_of(&page);
        assert!(page.len() <= 2, "{page:?}");
        (ids, pages) = ([ids, page].concat(), pages + 1);
        let Some(link) = headers.get("link") else { break };
        path = link.to_str().unwrap().strip_suffix(">; rel=\"next\"").unwrap()[1..].to_owned();
        assert!(path.contains("limit=2") && path.contains("cursor="), "{path}");
    }
    assert_eq!((ids.len(), pages), (all.len(), all.len().div_ceil(2)));
    assert_eq!(ids, all);
    server.end().await;
}
