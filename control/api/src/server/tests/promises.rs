//! Many clients at once never get more than there is.

use super::*;

/// Sends a request until no other transaction is in the way.
async fn settled(socket: PathBuf, method: &'static str, path: String, body: String) -> (StatusCode, String) {
    loop {
        let (head, body) = request(&socket, method, &path, body.clone().into()).await.into_parts();
        let text = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        if head.status != StatusCode::CONFLICT || !text.contains("is being applied") {
            return (head.status, text);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn sixteen_clients_at_once_get_exactly_what_there_is() {
    let server = Server::with(&format!("{CONFIG}\n[admission]\nmemory = \"9MiB\"\nlink = \"80 %\"\n")).await;
    let add = |client: usize, number: usize| {
        let (name, socket) = (format!("c{client}-{number}"), server.socket());
        let body = json!({"name": name, "link": {"wan": "1mbit"}, "memory": "1MiB"}).to_string();
        async move { (name, settled(socket, "POST", "/principals".to_owned(), body).await) }
    };
    // Each client asks twice: 32 requests for 8 Mbit/s and 9 MiB.
    let clients = (0..16).map(|client| {
        let (first, second) = (add(client, 1), add(client, 2));
        tokio::spawn(async move { [first.await, second.await] })
    });
    let mut got = Vec::new();
    for client in clients.collect::<Vec<_>>() {
        for (name, (status, answer)) in client.await.unwrap() {
            match status {
                StatusCode::CREATED => got.push(name),
                _ => assert!(
                    status == StatusCode::CONFLICT && answer.contains("port \\\"wan\\\""),
                    "{status} {answer}"
                ),
            }
        }
    }
    assert_eq!(got.len(), 8, "{got:?}");
    let promised = async |component: &str| {
        let (_, admission) = server.ask("GET", "/admission", "").await;
        let all = admission["components"].as_array().cloned().unwrap_or_default();
        let found = all.into_iter().find(|one| one["component"] == component).unwrap();
        (found["promised"].as_f64().unwrap(), found["left"].as_f64().unwrap())
    };
    assert_eq!(promised("link wan").await, (8e6, 0.0));
    assert_eq!(promised("memory").await, (f64::from(8 << 20), f64::from(1 << 20)));
    let gone = got.into_iter().map(|name| {
        tokio::spawn(settled(server.socket(), "DELETE", format!("/principals/{name}"), String::new()))
    });
    for one in gone.collect::<Vec<_>>() {
        assert_eq!(one.await.unwrap().0, StatusCode::OK);
    }
    assert_eq!(
        (promised("link wan").await, promised("memory").await),
        ((0.0, 8e6), (0.0, f64::from(9 << 20)))
    );
    server.end().await;
}

#[tokio::test]
async fn dry_run_answers_with_a_trial_and_changes_nothing() {
    let server = Server::start().await;
    let principal = r#"{"name": "p", "link": {"wan": "1mbit"}}"#;
    for (method, path, body, change) in [
        ("POST", "/principals?dry_run=true", principal, "principal add p"),
        ("POST", "/principals?dry-run=true", principal, "principal add p"),
        (
            "POST",
            "/bindings?dry_run=true",
            r#"{"instance": "pf", "gate": "audit", "filter": "proto tcp"}"#,
            "bind pf --gate audit",
        ),
        ("POST", "/instances?dry_run=true", r#"{"plugin": "null", "name": "o"}"#, "instance create null o"),
    ] {
        let (status, trial) = server.ask(method, path, body).await;
        assert_eq!(status, StatusCode::OK, "{trial}");
        assert!(trial["changes"][0].as_str().unwrap().starts_with(change), "{trial}");
        assert!(trial["components"].as_array().unwrap().iter().any(|one| one["component"] == "link wan"));
    }
    let (_, listed) = server.ask("GET", "/principals", "").await;
    assert_eq!(listed, json!([]));
    assert_eq!(server.ask("POST", "/principals?dry_run=false", principal).await.0, StatusCode::CREATED);
    let (status, trial) = server.ask("PATCH", "/principals/p?dry_run=true", r#"{"memory": "1MiB"}"#).await;
    assert_eq!((status, &trial["changes"]), (StatusCode::OK, &json!(["principal set p memory=1MiB"])));
    let (status, problem) = server.ask("POST", "/principals?dry_run=true", principal).await;
    assert_eq!(status, StatusCode::CONFLICT, "{problem}");
    server.end().await;
}
