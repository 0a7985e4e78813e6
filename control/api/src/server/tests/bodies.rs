//! Tests of request bodies, and of tags.

use std::collections::BTreeSet;

use super::*;

/// Sends a request with a body of `length` bytes, but without the body's last byte.
async fn almost_sent(socket: &Path, length: usize) -> UnixStream {
    let mut client = UnixStream::connect(socket).await.unwrap();
    let head = format!("POST /routes HTTP/1.1\r\nhost: m\r\ncontent-length: {length}\r\n\r\n");
    client.write_all(head.as_bytes()).await.unwrap();
    client.write_all(&vec![b' '; length - 1]).await.unwrap();
    client
}

#[tokio::test]
async fn body_declared_too_long_is_refused_before_arrival() {
    let server = Server::start().await;
    for (path, length) in [("/instances", (1 << 20) + 1), ("/configuration", (64 << 20) + 1)] {
        let mut client = UnixStream::connect(server.socket()).await.unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: m\r\ncontent-length: {length}\r\nexpect: 100-continue\r\n\r\n"
        );
        client.write_all(head.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 413");
    }
    server.end().await;
}

#[tokio::test]
async fn single_object_over_one_mebibyte_is_refused_but_lists_and_configurations_are_read() {
    let server = Server::start().await;
    let much = "1,".repeat(1 << 19);
    let object = format!(r#"{{"unknown": [{much}1]}}"#);
    for (method, path) in
        [("POST", "/routes"), ("PUT", "/routes"), ("DELETE", "/routes"), ("POST", "/filters")]
    {
        let (status, problem) = server.ask(method, path, object.clone()).await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{method} {path}: {problem}");
        assert!(problem["detail"].as_str().unwrap().contains("is 1048576 bytes"), "{problem}");
    }
    // A long configuration object is refused at its first error, before its values are read.
    let (status, problem) = server.ask("POST", "/configuration", object).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(problem["detail"].as_str().unwrap().contains("unknown field `unknown`"), "{problem}");
    let (status, problem) = server.ask("POST", "/routes", format!("[{much}1]")).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(problem["detail"].as_str().unwrap().contains("524289 of 524289 entries"), "{problem}");
    let text = format!("{CONFIG}#{}", " ".repeat(1 << 20));
    let applied = server.ask("POST", "/configuration", json!({"text": text}).to_string()).await;
    assert_eq!(applied.0, StatusCode::OK, "{}", applied.1);
    server.end().await;
}

#[tokio::test]
async fn long_bodies_share_a_memory_budget_and_short_bodies_pass() {
    let server = Server::start().await;
    let socket = server.socket();
    let third = || request(&socket, "POST", "/routes", vec![b' '; 1 << 20].into());
    let deadline = Instant::now() + Duration::from_secs(30);
    let (waiting, refused) = loop {
        let waiting = [almost_sent(&socket, 64 << 20).await, almost_sent(&socket, 64 << 20).await];
        let answer = third().await;
        if answer.status() == StatusCode::SERVICE_UNAVAILABLE {
            break (waiting, answer);
        }
        // The router charged the third request before the second body had arrived, so it refused the second
        // request instead. Try again.
        assert!(Instant::now() < deadline, "{}", answer.status());
    };
    assert_eq!(refused.headers()["retry-after"], "1");
    let short = json!({"plugin": "statistics", "name": "s1"}).to_string();
    assert_eq!(server.ask("POST", "/instances", short).await.0, StatusCode::CREATED);
    drop(waiting);
    let deadline = Instant::now() + Duration::from_secs(5);
    while third().await.status() != StatusCode::BAD_REQUEST {
        assert!(Instant::now() < deadline, "what has gone takes no memory");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server.end().await;
}

#[tokio::test]
async fn body_with_another_media_type_is_not_read() {
    let server = Server::start().await;
    for (kind, expected) in [
        ("application/json", 404),
        ("application/json; charset=utf-8", 404),
        ("application/merge-patch+json", 404),
        ("application/x-www-form-urlencoded", 415),
        ("text/plain", 415),
        ("", 415),
    ] {
        let headers = [("content-type", kind)];
        let body = r#"{"plugin": "nothing", "name": "x"}"#;
        let response = request_with(&server.socket(), "POST", "/instances", &headers, body.into()).await;
        assert_eq!(response.status(), expected, "{kind}");
    }
    server.end().await;
}

#[tokio::test]
async fn body_is_refused_where_none_is_read() {
    let server = Server::start().await;
    let mut count = 0;
    for resource in catalogue() {
        let path = resource.path.replace("{id}", "1").replace(['{', '}'], "");
        for endpoint in resource.endpoints.iter().filter(|one| one.body.is_none()) {
            let (status, problem) = server.ask(endpoint.method, &path, r#"{"revision": 12345}"#).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{} {path}: {problem}", endpoint.method);
            let text = problem["detail"].as_str().unwrap();
            assert!(text.contains(&format!("{} {path} takes no body", endpoint.method)), "{text}");
            count += 1;
        }
    }
    assert!(count > 40, "{count}");
    // An optional body is checked for unknown keys, too.
    let (status, problem) = server.ask("POST", "/configuration/confirm", r#"{"revison": 1}"#).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(problem["detail"].as_str().unwrap().contains("did you mean \"revision\""), "{problem}");
    let confirmed = server.ask("POST", "/configuration/confirm", r#"{"revision": 1}"#).await.0;
    assert_eq!(confirmed, StatusCode::CONFLICT);
    server.end().await;
}

#[tokio::test]
async fn a_change_is_made_only_where_the_tag_holds() {
    let server = Server::start().await;
    let new = json!({"plugin": "statistics", "name": "s1", "settings": {"what": "size"}}).to_string();
    server.ask("POST", "/instances", new).await;
    let (_, headers, _) = server.answer("GET", "/instances/s1", "").await;
    let tag = headers["etag"].to_str().unwrap().to_owned();
    let free = async |tag: &str| {
        let headers = [("if-match", tag)];
        let response =
            request_with(&server.socket(), "DELETE", "/instances/s1", &headers, Bytes::new()).await;
        let (head, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        (head.status.as_u16(), head.headers, serde_json::from_slice::<Value>(&bytes).unwrap())
    };
    let (status, headers, problem) = free("\"0\"").await;
    assert_eq!((status, headers["etag"].to_str().unwrap()), (412, &*tag));
    assert_eq!(problem["current"]["name"], "s1");
    // Counters don't change the tag, but a new binding does.
    let binding = json!({"instance": "s1", "gate": "monitor", "filter": "proto udp"}).to_string();
    server.ask("POST", "/bindings", binding).await;
    let (status, headers, _) = free(&tag).await;
    assert_eq!(status, 412);
    let bound = headers["etag"].to_str().unwrap();
    assert_eq!(free(&format!("\"1\", {bound}")).await.0, 200);
    assert_eq!(free("*").await.0, 404);
    server.end().await;
}

#[tokio::test]
async fn tag_of_an_instance_covers_its_service() {
    let server = Server::start().await;
    let tag = async || {
        let (_, headers, _) = server.answer("GET", "/instances/pf", "").await;
        headers["etag"].to_str().unwrap().to_owned()
    };
    let mut tags = BTreeSet::from([tag().await]);
    let moves =
        [r#"{"rate": 9, "packet": 50}"#, r#"{"rate": 8}"#, r#"{"byte": 1}"#, r#"{"level": "worker"}"#];
    for (count, service) in moves.into_iter().enumerate() {
        let (status, answer) = server.ask("POST", "/instances/pf/move", service).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        tags.insert(tag().await);
        assert_eq!(tags.len(), count + 2, "{service}");
    }
    server.end().await;
}

#[tokio::test]
async fn renamed_instance_has_its_new_name_everywhere() {
    let server = Server::start().await;
    let (status, headers, renamed) = server.answer("PATCH", "/instances/pf", r#"{"name": "new"}"#).await;
    assert_eq!((status, &renamed["name"]), (StatusCode::OK, &json!("new")));
    let binding = &renamed["bindings"][0];
    assert_eq!((&binding["instance"], &binding["action"]), (&json!("new"), &json!("instance new")));
    let (_, read, _) = server.answer("GET", "/instances/new", "").await;
    assert_eq!(headers["etag"], read["etag"], "a client may go on with the tag of the answer");
    server.end().await;
}

#[tokio::test]
async fn client_with_the_current_etag_gets_304() {
    let server = Server::start().await;
    let new = json!({"plugin": "statistics", "name": "s1"}).to_string();
    server.ask("POST", "/instances", new).await;
    let (_, headers, _) = server.answer("GET", "/instances/s1", "").await;
    let tag = headers["etag"].to_str().unwrap().to_owned();
    let get = async |path: &str, known: &str| {
        let headers = [("if-none-match", known)];
        let response = request_with(&server.socket(), "GET", path, &headers, Bytes::new()).await;
        let (head, body) = response.into_parts();
        let told = head.headers.get("etag").map(|tag| tag.to_str().unwrap().to_owned());
        (head.status.as_u16(), told, body.collect().await.unwrap().to_bytes().is_empty())
    };
    let is_known = (304, Some(tag.clone()), true);
    for known in [tag.clone(), format!("\"0\", W/{tag}"), "*".to_owned()] {
        assert_eq!(get("/instances/s1", &known).await, is_known, "{known}");
    }
    assert_eq!(get("/instances/s1", "\"0\"").await, (200, Some(tag), false));
    assert_eq!(get("/instances/s2", "*").await.0, 404);
    assert_eq!(get("/ports", "*").await, (200, None, false), "a list has no tag");
    server.end().await;
}

#[tokio::test]
async fn if_match_is_refused_where_it_has_no_effect() {
    let server = Server::start().await;
    for resource in catalogue() {
        let path = resource.path.replace("{id}", "1").replace(['{', '}'], "");
        for endpoint in resource.endpoints.iter().filter(|one| one.method != "GET" && !one.tagged) {
            let headers = [("if-match", "\"1\"")];
            let answer = request_with(&server.socket(), endpoint.method, &path, &headers, Bytes::new()).await;
            let (head, body) = answer.into_parts();
            let bytes = body.collect().await.unwrap().to_bytes();
            let problem: Value = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(head.status.as_u16(), 412, "{} {path}: {problem}", endpoint.method);
            assert!(problem["detail"].as_str().unwrap().contains("leave it out"), "{problem}");
        }
    }
    server.end().await;
}
