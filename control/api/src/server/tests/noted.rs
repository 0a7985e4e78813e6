//! Tests of the audit log's lines.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;

use axum::extract::Request as Asked;
use axum::{Extension, middleware, routing};

use super::*;
use millrace_controller::Principal;

#[tokio::test]
async fn changes_and_refusals_are_noted_and_questions_are_not() {
    let server = Server::start().await;
    server.ask("POST", "/lookup", r#"{"packet": "src 10.0.0.1"}"#).await;
    server.ask("GET", "/instances/none", "").await;
    server.ask("DELETE", "/instances/none", "").await;
    server.ask("POST", "/instances", r#"{"plugin": "statistics", "name": "s1"}"#).await;
    let (_, lines) = server.ask("GET", "/audit?last=10", "").await;
    let operations: Vec<_> =
        lines.as_array().unwrap().iter().map(|line| (&line["operation"], &line["outcome"])).collect();
    assert_eq!(
        operations,
        [(&json!("DELETE /instances/none"), &json!("refused")), (&json!("POST /instances"), &json!("done"))]
    );
    assert_eq!(lines[1]["request"]["plugin"], "statistics");
    assert_eq!(lines[1]["who"]["uid"], nix::unistd::geteuid().as_raw());
    server.end().await;
}

#[tokio::test]
async fn captures_and_traces_are_audited_with_place_and_filter() {
    let server = Server::start().await;
    let wanted = "/capture?count=1&gate=firewall&filter=proto%20udp%20dport%2053";
    let capture = request(&server.socket(), "GET", wanted, Bytes::new()).await;
    assert_eq!(capture.status(), StatusCode::OK);
    server.ask("GET", "/capture?gate=a&port=b", "").await;
    server.ask("GET", "/trace?time=1s", "").await;
    let (_, lines) = server.ask("GET", "/audit", "").await;
    let line = |number: usize| (&lines[number]["operation"], &lines[number]["outcome"]);
    assert_eq!(line(0), (&json!("GET /capture"), &json!("done")));
    assert_eq!(
        lines[0]["request"],
        json!({"count": "1", "gate": "firewall", "filter": "proto udp dport 53"})
    );
    assert_eq!(lines[0]["who"]["uid"], nix::unistd::geteuid().as_raw());
    assert_eq!(line(1), (&json!("GET /capture"), &json!("refused")));
    assert_eq!(lines[2]["operation"], "GET /trace");
    server.end().await;
}

#[tokio::test]
async fn change_of_a_client_that_disconnects_is_audited() {
    let server = Server::start().await;
    let (_end, ending) = watch::channel(false);
    let interface = Arc::new(Interface::at(&server.socket(), None));
    let served = Served::new(server.control.clone(), ending, Limits::default(), interface);
    let never = routing::post(|_: crate::http::extract::Body<Value>| std::future::pending::<()>());
    let slow = axum::Router::new()
        .route("/configuration", never)
        .layer(middleware::from_fn_with_state(served, crate::resources::observe::audit::note))
        .layer(Extension(Principal::user(Some(7), None)));
    let asked = Asked::post("/configuration").header("content-type", "application/json");
    let asked = asked.body(axum::body::Body::from(r#"{"text": "slow"}"#)).unwrap();
    let answer = hyper::service::Service::call(&TowerToHyperService::new(slow), asked);
    assert!(tokio::time::timeout(Duration::from_millis(100), answer).await.is_err(), "it is not answered");
    let (_, lines) = server.ask("GET", "/audit", "").await;
    assert_eq!((&lines[0]["outcome"], &lines[0]["request"]["text"]), (&json!("abandoned"), &json!("slow")));
    server.end().await;
}

#[tokio::test]
async fn change_is_answered_after_its_audit_line_or_a_short_wait_for_a_stalled_disk() {
    let folder = TestDirectory::new();
    let path = folder.join("audit.jsonl");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    // The audit log is a full pipe, so writing to it blocks.
    let mut pipe = std::fs::OpenOptions::new();
    let mut pipe = pipe.read(true).write(true).custom_flags(nix::libc::O_NONBLOCK).open(&path).unwrap();
    while pipe.write(&[b'\n'; 4096]).is_ok() {}
    while pipe.write(b"\n").is_ok() {}
    let state = format!("state = {:?}", folder.0.to_str().unwrap());
    let server = Server::with(&CONFIG.replace("state = \"none\"", &state)).await;
    let socket = server.socket();
    let change = |name: &str| {
        let (socket, body) = (socket.clone(), json!({"plugin": "statistics", "name": name}).to_string());
        let answer = async move { request(&socket, "POST", "/instances", body.into()).await.status() };
        tokio::spawn(answer)
    };
    let first = change("s1");
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!first.is_finished(), "its line is not written");
    assert_eq!(server.ask("GET", "/instances", "").await.0, StatusCode::OK, "questions don't wait");
    // Reading the pipe lets the log continue.
    let mut read = Vec::new();
    let reading = std::thread::spawn(move || {
        let (deadline, mut piece) = (Instant::now() + Duration::from_secs(10), vec![0; 1 << 16]);
        while !String::from_utf8_lossy(&read).contains("POST /instances") && Instant::now() < deadline {
            match std::io::Read::read(&mut pipe, &mut piece) {
                Ok(length) => read.extend_from_slice(&piece[..length]),
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        while pipe.write(&[b'\n'; 4096]).is_ok() {}
        while pipe.write(b"\n").is_ok() {}
        (String::from_utf8(read).unwrap(), pipe)
    });
    assert_eq!(first.await.unwrap(), StatusCode::CREATED);
    let (text, _full) = reading.join().unwrap();
    assert!(text.contains("POST /instances"), "{text}");
    // The pipe is full again: the answer is sent after a wait, without the audit line.
    let second = tokio::time::timeout(Duration::from_secs(20), change("s2")).await;
    assert_eq!(second.expect("an answer").unwrap(), StatusCode::CREATED);
    server.end().await;
}
