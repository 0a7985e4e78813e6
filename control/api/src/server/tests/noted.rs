//! What was asked for stands in the audit log.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;

use millrace_store::{AuditLimits, AuditLog};

use super::*;

#[tokio::test]
async fn changes_and_refusals_are_noted_and_questions_are_not() {
    let server = Server::start();
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
}

#[tokio::test]
async fn who_looks_at_packets_is_noted_with_place_and_filter() {
    let server = Server::start();
    let wanted = "/capture?count=1&gate=firewall&filter=proto%20udp%20dport%2053";
    assert_eq!(server.ask("GET", wanted, "").await.0, StatusCode::OK);
    server.ask("GET", "/capture?gate=a&port=b", "").await;
    server.ask("GET", "/trace?count=1", "").await;
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
}

#[tokio::test]
async fn a_change_whose_client_goes_before_it_is_answered_is_noted() {
    let server = Server::start();
    let mut client = UnixStream::connect(server.socket()).await.unwrap();
    let body = r#"{"text": "slow"}"#;
    let head =
        format!("POST /configuration HTTP/1.1\r\nhost: m\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    client.write_all(head.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(client);
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let (_, lines) = server.ask("GET", "/audit", "").await;
        if lines[0]["outcome"] == "abandoned" {
            assert_eq!(lines[0]["request"]["text"], "slow");
            break;
        }
        assert!(Instant::now() < deadline, "{lines}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_change_is_answered_when_its_line_is_written_and_a_disk_that_stalls_is_not_waited_for_long() {
    let folder = TestDirectory::new();
    let path = folder.join("audit.jsonl");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    // Whoever writes to a full pipe waits.
    let mut pipe = std::fs::OpenOptions::new();
    let mut pipe = pipe.read(true).write(true).custom_flags(nix::libc::O_NONBLOCK).open(&path).unwrap();
    while pipe.write(&[b'\n'; 4096]).is_ok() {}
    while pipe.write(b"\n").is_ok() {}
    let audited = AuditLog::open(&folder.0, AuditLimits::default(), |_| {}).unwrap();
    let mut control = TestControl::default();
    control.audited = audited;
    let server = Server::of(control);
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
    // The pipe is emptied.
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
    // It is full again: the answer is given all the same.
    let second = tokio::time::timeout(Duration::from_secs(20), change("s2")).await;
    assert_eq!(second.expect("an answer").unwrap(), StatusCode::CREATED);
}

#[tokio::test]
async fn a_handler_that_panics_is_a_500_and_an_event_and_harms_no_other_request() {
    let server = Server::start();
    for _ in 0..2 {
        let (status, problem) = server.ask("POST", "/lookup", r#"{"packet": "panic"}"#).await;
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains("POST /lookup panicked"), "{problem}");
    }
    let page = server.control.events().page(&Default::default());
    let event = page.events.iter().find(|event| event.kind.name() == "handler-panicked").unwrap();
    assert_eq!(event.subject, "POST /lookup");
    assert_eq!(server.ask("GET", "/status", "").await.0, StatusCode::OK);
}
