//! Plugin `firewall` between two hosts: connections from inside work in both directions, others are refused.

use std::io::{Error, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use millrace_testkit::{Ground, Line, Millrace, eventually, transfer};
use serde_json::{Value, json};

use crate::support::to;

const PATIENCE: Duration = Duration::from_secs(5);
/// Port of the inside host at which nothing may arrive.
const INSIDE: &str = "10.1.0.2:7001";

/// Starts a router with a firewall: connections from `h1` are allowed, those from `h2` are rejected.
fn guarded(line: &Line, workers: u32) -> Millrace {
    let router = Millrace::start(&line.r, &format!("--port r1 --port r2 --workers {workers}"));
    let zones = r#"zones={"lan":["r1"],"wan":["r2"]}"#;
    let policies = r#"policies=["allow lan to wan","reject any to any"]"#;
    router.ask(&["instance", "create", "firewall", "edge", zones, policies]);
    router.ask(&["gate", "create", "queue", "guard"]);
    router.ask(&["bind", "edge", "--gate", "guard", "--filter", "*"]);
    router
}

fn counters(router: &Millrace) -> Value {
    router.json(&["control", "edge", "read"])
}

/// Opens a TCP connection from `h1` to `h2`. Returns both ends.
fn connected(line: &Line, at: &str) -> (TcpStream, TcpStream) {
    let listener = line.h2.within(|| TcpListener::bind(to(at))).unwrap();
    let client = line.h1.within(|| TcpStream::connect_timeout(&to(at), PATIENCE)).unwrap();
    let (server, _) = listener.accept().unwrap();
    for end in [&client, &server] {
        end.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    (client, server)
}

/// Connects in vain, and returns the error. On a busy machine, the end of an attempt may be seen without its error, so
/// there are several attempts.
fn refusal(at: &str) -> Error {
    let attempt = || TcpStream::connect_timeout(&to(at), PATIENCE).unwrap_err();
    let is_told = |error: &Error| error.raw_os_error().is_some() || error.kind() == ErrorKind::TimedOut;
    (0..5).map(|_| attempt()).find(is_told).expect("no attempt has told its error")
}

/// Sends a text each way.
fn assert_talks((client, server): &(TcpStream, TcpStream), what: &str) {
    for (mut from, mut to) in [(client, server), (server, client)] {
        from.write_all(b"hello").unwrap();
        let mut text = [0; 5];
        to.read_exact(&mut text).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(&text, b"hello");
    }
}

fn assert_guards(workers: u32) {
    let line = Line::new();
    let router = guarded(&line, workers);
    line.h1.run("ping -c 2 -i 0.2 -W 2 10.2.0.2");
    line.h1.run("ping -c 2 -i 0.2 -W 2 fd00:2::2");
    transfer(&line.h1, &line.h2, to("10.2.0.2:7000"), 4 << 20);
    transfer(&line.h1, &line.h2, to("[fd00:2::2]:7000"), 1 << 20);
    // Fragments of pings belong to their connections.
    line.h1.run("ping -c 2 -i 0.2 -W 2 -s 3000 10.2.0.2");
    // From outside, a connection gets an ICMP error, although a program listens.
    let listener = line.h1.within(|| TcpListener::bind(to(INSIDE))).unwrap();
    let refused = line.h2.within(|| refusal(INSIDE));
    assert_eq!(refused.kind(), ErrorKind::HostUnreachable, "{refused}");
    drop(listener);
    assert!(!line.h2.succeeds("ping -c 1 -W 1 10.1.0.2"), "an echo request from outside passed");
    // The answer to a datagram for a closed port is an ICMP error of the connection.
    let socket = line.h1.within(|| UdpSocket::bind(to("10.1.0.2:0"))).unwrap();
    socket.connect(to("10.2.0.2:9")).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.send(b"?").unwrap();
    let refused = socket.recv(&mut [0; 8]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{refused}");
    let said = counters(&router);
    assert!(
        said["related"].as_u64() >= Some(1) && said["policies"][1]["packets"].as_u64() >= Some(2),
        "{said:#}"
    );
    assert_eq!((&said["unmatched"], &said["invalid"]), (&json!(0), &json!(0)), "{said:#}");
    router.assert_conservation();
}

#[test]
fn firewall_lets_connections_from_inside_pass_and_refuses_those_from_outside() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    assert_guards(1);
}

#[test]
fn firewall_works_with_two_workers() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    assert_guards(2);
}

#[test]
fn upgrade_of_the_firewall_keeps_its_connections() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let router = guarded(&line, 2);
    line.h1.run("ping -c 1 10.2.0.2");
    let all: Vec<_> = (7100..7108).map(|port| connected(&line, &format!("10.2.0.2:{port}"))).collect();
    all.iter().for_each(|ends| assert_talks(ends, "before the upgrade"));
    // New settings replace the instance. No policy allows a connection any more, but those that are open go on.
    router.ask(&["instance", "set", "edge", r#"policies=["reject any to any"]"#]);
    all.iter().for_each(|ends| assert_talks(ends, "after the upgrade"));
    let refused = line.h1.within(|| refusal("10.2.0.2:7000"));
    assert_eq!(refused.kind(), ErrorKind::HostUnreachable, "{refused}");
    drop(all);
    eventually("both sides have closed", PATIENCE, || (router.summary("held") == 0).then_some(()));
    router.assert_conservation();
}

#[test]
fn wrong_settings_of_the_firewall_are_refused_with_their_place() {
    let Some(_ground) = Ground::enter_alone(&[]) else { return };
    let line = Line::new();
    let router = Millrace::start(&line.r, "--port r1 --port r2");
    for (setting, words) in [
        (r#"zones={"lan":["r7"]}"#, "zones: no port \"r7\""),
        (
            r#"policies=["allow lan to any"]"#,
            "policies.0: \"allow lan to any\": no zone \"lan\"; zones here: any",
        ),
        (
            r#"policies=["allow any to any", "pass any to any"]"#,
            "policies.1: \"pass any to any\": unknown action",
        ),
    ] {
        router.try_ask(&["instance", "create", "firewall", "f", setting]).assert_refused(1, &[words]);
    }
}
