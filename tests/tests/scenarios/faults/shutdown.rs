//! Orderly end of the router: it leaves nothing behind. Two routers never share a port or a socket.

use std::os::unix::net::UnixListener;
use std::time::Duration;

use millrace_testkit::{Ground, Line, Millrace, run_to_end};
use nix::sys::signal::Signal;

use crate::support::reference::Reference;
use crate::support::traces::{Traces, assert_none_left};
use crate::support::{assert_hosts_talk, assert_router_forwards, router};

#[test]
fn sigterm_and_sigint_leave_no_program_route_socket_or_file() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    line.h1.run("ping -c 1 10.2.0.2; ping -c 1 fd00:2::2");
    let before = Traces::of(&line);
    for (driver, signal) in
        [("auto", Signal::SIGTERM), ("auto", Signal::SIGINT), ("af_packet", Signal::SIGTERM)]
    {
        let mut router = Millrace::start(&line.r, &format!("--port r1 --port r2 --driver {driver}"));
        assert_hosts_talk(&line);
        router.assert_conservation();
        assert!(router.socket().exists());
        let status = router.end_by(signal);
        assert_eq!(status.code(), Some(0), "{signal}: {}", router.log());
        assert!(!router.socket().exists(), "{signal}");
        assert_none_left(&line, &before, &format!("{driver} {signal}"));
        line.h1.run("ping -c 1 -W 2 10.2.0.2");
    }
}

#[test]
fn an_orderly_end_under_load_hands_the_flows_to_the_kernel() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let mut router = router(&line);
    let flows = Reference::start(&line);
    flows.go_on(Duration::from_millis(400));
    assert!(router.end_by(Signal::SIGTERM).success());
    flows.go_on(Duration::from_millis(400));
    flows.assert_gaps(1, "an orderly end");
}

#[test]
fn second_router_on_a_port_is_refused_with_the_owner() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let router = router(&line);
    let second = Millrace::try_start(&line.r, "--port r2").unwrap_err();
    second.assert_refused(1, &["r2", &router.pid().to_string()]);
    assert_router_forwards(&line, &router);
    assert_hosts_talk(&line);
    router.assert_conservation();
}

#[test]
fn an_occupied_socket_is_refused_and_a_stale_one_replaced() {
    let Some(_ground) = Ground::enter(&["ping"]) else { return };
    let line = Line::new();
    let third = millrace_testkit::Namespace::new("h3");
    line.connect(&third, "eth0", 3, 1500);
    let path = line.file("own.sock");
    let socket = path.to_str().unwrap();

    // A stale socket: no process listens, but the file exists.
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let start = || Millrace::start_at(&line.r, "--port r1 --port r2", &path);
    let mut router = start();
    let state = run_to_end(&line.r, &["--socket", socket, "show", "status", "--json"]);
    assert!(state.code == Some(0) && state.stdout.contains(&router.pid().to_string()), "{state:?}");
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);

    let second = run_to_end(&line.r, &["run", "--port", "r3", "--socket", socket]);
    second.assert_refused(1, &[socket, &router.pid().to_string()]);
    assert_router_forwards(&line, &router);
    router.kill();

    // After a kill the socket is stale.
    let mut router = start();
    assert!(router.end_by(Signal::SIGTERM).success());
    assert!(!path.exists());

    std::fs::write(&path, "a file").unwrap();
    let refused = run_to_end(&line.r, &["run", "--port", "r3", "--socket", socket]);
    refused.assert_refused(1, &[socket, "no socket"]);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "a file");
}
