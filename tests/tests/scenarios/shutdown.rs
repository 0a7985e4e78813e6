//! An orderly end leaves nothing, and two routers never share a port or a socket.

use std::os::unix::net::UnixListener;
use std::time::Duration;

use millrace_testkit::{Flow, Ground, Line, Millrace, run_to_end};
use nix::sys::signal::Signal;

use crate::support::{assert_hosts_talk, assert_router_forwards, router, to};

/// What the kernel knows of a namespace that a router could leave something in.
fn traces(line: &Line) -> String {
    // Counters and the index of what came before are left out.
    let links = line.r.run("ip -o -d link | sed 's/ prog\\/xdp id [0-9]*//'");
    let routes =
        line.r.run("ip route show table all; ip -6 route show table all | grep -v ' dev lo '; ip rule");
    let filters = line.r.run("for d in r1 r2; do tc qdisc show dev $d; tc filter show dev $d ingress; done");
    let sockets = line.r.run("cat /proc/net/packet | wc -l; ls /sys/fs/bpf 2>/dev/null || true");
    format!("{links}\n{routes}\n{filters}\n{sockets}")
}

#[test]
fn sigterm_and_sigint_leave_no_program_route_socket_or_file() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    line.h1.run("ping -c 1 10.2.0.2; ping -c 1 fd00:2::2");
    let before = traces(&line);
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
        assert_eq!(traces(&line), before, "{driver} {signal}");
        line.h1.run("ping -c 1 -W 2 10.2.0.2");
    }
}

#[test]
fn an_orderly_end_under_load_hands_the_flow_to_the_kernel() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let mut router = router(&line);
    line.h1.run("ping -c 1 10.2.0.2");
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 64);
    flow.go_on(Duration::from_millis(400));
    assert!(router.end_by(Signal::SIGTERM).success());
    flow.go_on(Duration::from_millis(400));
    let report = flow.finish();
    assert!(report.longest_delay <= Duration::from_millis(200), "{report:?}");
    assert!(report.lost() <= 100, "{report:?}");
}

#[test]
fn a_second_router_on_a_port_is_refused_and_told_who_has_it() {
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

    // A stale one: its listener is gone, its file is not.
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

    // Killed: its socket is stale now.
    let mut router = start();
    assert!(router.end_by(Signal::SIGTERM).success());
    assert!(!path.exists());

    std::fs::write(&path, "a file").unwrap();
    let refused = run_to_end(&line.r, &["run", "--port", "r3", "--socket", socket]);
    refused.assert_refused(1, &[socket, "no socket"]);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "a file");
}
