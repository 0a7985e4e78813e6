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

/// Sixteen clients ask twice each, for 32 Mbit/s in all. `limit` leaves 8 Mbit/s: so many they get, and all others are
/// refused for a reason that contains `refusal`. A reservation is two changes, between which other requests run.
async fn sixteen_clients_share(limit: &str, refusal: &str) {
    let server = Server::with(&format!("{CONFIG}\n[admission]\n{limit}\n")).await;
    let add = |client: usize, number: usize| {
        let (name, socket) = (format!("c{client}-{number}"), server.socket());
        let filter = format!("proto udp sport {} dport {number}", client + 1);
        let body = json!({"principal": name, "filter": filter, "link": "1mbit", "port": "wan"}).to_string();
        async move { (name, settled(socket, "POST", "/reservations".to_owned(), body).await) }
    };
    let clients = (0..16).map(|client| {
        let (first, second) = (add(client, 1), add(client, 2));
        tokio::spawn(async move { [first.await, second.await] })
    });
    let mut got = Vec::new();
    for client in clients.collect::<Vec<_>>() {
        for (name, (status, answer)) in client.await.unwrap() {
            match status {
                StatusCode::CREATED => got.push(name),
                _ => assert!(answer.contains(refusal), "{status} {answer}"),
            }
        }
    }
    assert_eq!(got.len(), 8, "{got:?}");
    let promised = async || {
        let (_, admission) = server.ask("GET", "/admission", "").await;
        let all = admission["components"].as_array().cloned().unwrap_or_default();
        let found = all.into_iter().find(|one| one["component"] == "link wan").unwrap();
        found["promised"].as_f64().unwrap()
    };
    assert_eq!(promised().await, 8e6);
    let gone = got.into_iter().map(|name| {
        tokio::spawn(settled(server.socket(), "DELETE", format!("/reservations/{name}"), String::new()))
    });
    for one in gone.collect::<Vec<_>>() {
        assert_eq!(one.await.unwrap().0, StatusCode::OK);
    }
    assert_eq!(promised().await, 0.0);
    server.end().await;
}

#[tokio::test]
async fn sixteen_clients_at_once_get_exactly_what_there_is() {
    sixteen_clients_share("link = \"80 %\"", "port \\\"wan\\\"").await;
}

#[tokio::test]
async fn sixteen_clients_of_a_user_at_once_get_exactly_the_allowance() {
    let limit = "[[admission.allowance]]\nname = \"all\"\nrole = [\"admin\"]\nlink = { wan = \"8mbit\" }";
    sixteen_clients_share(limit, "allowance \\\"all\\\"").await;
}

/// Sixteen clients create two services each, which need far more time of the workers than core leaves.
#[tokio::test]
async fn sixteen_clients_at_once_get_no_more_time_of_the_workers_than_there_is() {
    let server = Server::start().await;
    let create = |client: usize, number: usize| {
        let (name, socket) = (format!("s{client}-{number}"), server.socket());
        let load = json!({"rate": 400_000, "packet": 1_000});
        let body = json!({"plugin": "null", "name": name, "service": load}).to_string();
        async move { (name, settled(socket, "POST", "/instances".to_owned(), body).await) }
    };
    let clients = (0..16).map(|client| {
        let (first, second) = (create(client, 1), create(client, 2));
        tokio::spawn(async move { [first.await, second.await] })
    });
    let (mut got, mut refused) = (Vec::new(), 0);
    for client in clients.collect::<Vec<_>>() {
        for (name, (status, answer)) in client.await.unwrap() {
            match status {
                StatusCode::CREATED => got.push(name),
                _ if answer.contains("level worker: lacks") => refused += 1,
                _ => panic!("{status} {answer}"),
            }
        }
    }
    assert!(!got.is_empty() && refused > 0, "{got:?}");
    let workers = async || {
        let (_, admission) = server.ask("GET", "/admission", "").await;
        let all = admission["components"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|one| one["component"] == "workers").unwrap()
    };
    let promised = workers().await;
    let claims = promised["claims"].as_array().unwrap();
    assert_eq!(claims.len(), got.len(), "{promised}");
    let [sum, whole] = ["promised", "whole"].map(|key| promised[key].as_f64().unwrap());
    let each = claims[0]["amount"].as_f64().unwrap();
    assert!(sum <= whole && sum + each > whole, "{promised}");
    let gone = got.into_iter().map(|name| {
        tokio::spawn(settled(server.socket(), "DELETE", format!("/instances/{name}"), String::new()))
    });
    for one in gone.collect::<Vec<_>>() {
        assert_eq!(one.await.unwrap().0, StatusCode::OK);
    }
    assert_eq!(workers().await["promised"], 0.0);
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

#[tokio::test]
async fn dry_run_of_limits_and_moves_answers_with_a_trial_and_changes_nothing() {
    let server = Server::start().await;
    let allowance = r#"{"name": "students", "user": ["alice"], "principals": 2}"#;
    assert_eq!(server.ask("POST", "/allowances", allowance).await.0, StatusCode::CREATED);
    let before = server.ask("GET", "/configuration", "").await.1;
    for (method, path, body, change) in [
        ("POST", "/instances/n/move", r#"{"level": "worker"}"#, "instance move n --level worker"),
        ("PATCH", "/admission", r#"{"link": "50 %"}"#, "admission set 'link=50 %'"),
        ("PATCH", "/allowances/students", r#"{"principals": 7}"#, "allowance set students principals=7"),
        ("POST", "/allowances", r#"{"name": "guests", "user": ["bob"]}"#, "allowance add guests"),
        ("PATCH", "/router", r#"{"icmp_rate": 7}"#, "router set icmp-rate=7"),
    ] {
        let (status, trial) = server.ask(method, &format!("{path}?dry_run=true"), body).await;
        assert_eq!(status, StatusCode::OK, "{trial}");
        assert!(trial["changes"][0].as_str().unwrap().starts_with(change), "{trial}");
        let level = if path.ends_with("move") { json!({"n": "worker"}) } else { json!({}) };
        assert_eq!(trial["levels"], level, "{trial}");
        assert_eq!(trial["allowance"].is_object(), path.starts_with("/allowances"), "{trial}");
        assert_eq!(server.ask("GET", "/configuration", "").await.1, before, "{path}");
    }
    let (status, problem) = server.ask("POST", "/allowances?dry_run=true", allowance).await;
    assert_eq!(status, StatusCode::CONFLICT, "{problem}");
    let (status, problem) =
        server.ask("POST", "/instances/n/move?dry_run=true", r#"{"level": "host"}"#).await;
    assert!(!status.is_success() && problem["detail"].as_str().unwrap().contains("built in"), "{problem}");
    server.end().await;
}
