//! Faults of control: it stalls, it misses messages of the kernel, it is replaced.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use millrace_testkit::{
    Background, Flow, FlowReport, Ground, Line, Millrace, eventually, shrink_netlink_buffers, wait_until,
};
use nix::sys::signal::Signal;

use crate::support::{assert_hosts_talk, assert_router_forwards, router, to};

/// Longest gap while one router replaces another, each way.
const GAP: Duration = Duration::from_millis(50);
/// How soon the interface answers after a stall.
const BACK: Duration = Duration::from_secs(2);
/// How soon the tables are equal after messages were missed.
const RESYNC: Duration = Duration::from_secs(10);
/// How long the control thread stalls.
const STALL: Duration = Duration::from_millis(2500);

/// Reference flows both ways.
fn reference(line: &Line) -> [Flow; 2] {
    [
        Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 64),
        Flow::start(&line.h2, &line.h1, to("10.1.0.2:9000"), 1000, 64),
    ]
}

fn finish(flows: [Flow; 2]) -> [FlowReport; 2] {
    flows.map(Flow::finish)
}

/// Delays the control thread after each of its waits, until the program that does so ends.
fn delay_control(line: &Line, router: &Millrace, delay: Duration) -> Background {
    // Without -f strace holds the one thread.
    let (pid, delay) = (router.pid().to_string(), delay.as_micros());
    let inject = format!("inject=epoll_wait,epoll_pwait,epoll_pwait2:delay_exit={delay}");
    let arguments = ["-p", &pid, "-e", "trace=epoll_wait,epoll_pwait,epoll_pwait2", "-e", &inject];
    let tracer = Background::start(&line.r, "strace", &arguments, line.file("strace.log"));
    eventually("control is traced", Duration::from_secs(5), || {
        tracer.log().contains("attached").then_some(())
    });
    tracer
}

#[test]
fn fault_9_a_stalled_control_thread_costs_no_packet_and_answers_within_two_seconds_after() {
    let Some(_ground) = Ground::enter_alone(&["ping", "strace"]) else { return };
    let line = Line::new();
    let router = router(&line);
    line.h1.run("ping -c 1 10.2.0.2");
    let flows = reference(&line);
    flows[0].go_on(Duration::from_millis(300));
    let mut tracer = delay_control(&line, &router, STALL);
    flows[0].go_on(Duration::from_millis(300));
    let asked = Instant::now();
    let mut client = router.client();
    let mut waiting = client.args(["show", "summary"]).spawn().unwrap();
    flows[0].go_on(Duration::from_secs(2));
    let stalled = waiting.try_wait().unwrap().is_none();
    tracer.end_by(Signal::SIGTERM);
    let released = Instant::now();
    let _ = waiting.wait();
    router.summary("received");
    let back = released.elapsed();
    let reports = finish(flows);
    assert!(stalled, "the interface answered after {:?}", asked.elapsed());
    assert!(back <= STALL + BACK, "the interface answered {back:?} after the stall");
    for report in reports {
        assert_eq!(report.lost(), 0, "{report:?}");
    }
    router.assert_conservation();
}

#[test]
fn fault_12_a_running_router_whose_netlink_buffer_overflows_has_the_kernels_routes_within_ten_seconds() {
    let Some(_ground) = Ground::enter_alone(&["ping", "strace"]) else { return };
    let line = Line::new();
    let router = router(&line);
    let flows = reference(&line);
    assert!(shrink_netlink_buffers(router.pid()) > 0, "no netlink socket of the router listens");
    let overruns = || router.json(&["show", "status"])["mirror"]["overruns"].as_u64().unwrap();
    let before = overruns();
    let routes = 20_000;
    let batch = |verb: &str, from: u32, to: u32| -> String {
        let one = |n: u32| format!("route {verb} 11.{}.{}.0/24 via 10.2.0.2\n", n / 256, n % 256);
        (from..to).map(one).collect()
    };
    // A fast control thread empties even the smallest buffer in time.
    let mut tracer = delay_control(&line, &router, Duration::from_millis(100));
    for (verb, to) in [("add", routes), ("del", routes / 2)] {
        let file = line.write("batch", &batch(verb, 0, to));
        line.r.run(&format!("ip -batch {}", file.display()));
    }
    tracer.end_by(Signal::SIGTERM);
    let ours = || -> BTreeSet<String> {
        let rows = router.json(&["show", "routes"]);
        let to = rows.as_array().unwrap().iter().filter_map(|row| row["to"].as_str());
        to.filter(|to| to.starts_with("11.")).map(str::to_owned).collect()
    };
    let kernels: BTreeSet<String> =
        (routes / 2..routes).map(|n| format!("11.{}.{}.0/24", n / 256, n % 256)).collect();
    let equal = wait_until(RESYNC, || ours() == kernels);
    let reports = finish(flows);
    assert!(overruns() > before, "the buffer did not overflow");
    assert!(equal.is_some(), "{} routes of {} in the kernel", ours().len(), kernels.len());
    for report in reports {
        assert_eq!(report.lost(), 0, "{report:?}");
    }
    assert_router_forwards(&line, &router);
}

/// A TCP session that carries a line back and forth every 5 ms until it is told to end. Returns how many came back.
fn session(line: &Line) -> (std::sync::mpsc::Sender<()>, std::thread::JoinHandle<u64>) {
    let listener = line.h2.within(|| TcpListener::bind("10.2.0.2:7100")).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = [0; 64];
        while let Ok(length @ 1..) = stream.read(&mut bytes) {
            if stream.write_all(&bytes[..length]).is_err() {
                return;
            }
        }
    });
    let mut stream = line.h1.within(|| TcpStream::connect("10.2.0.2:7100")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let (stop, stopped) = std::sync::mpsc::channel();
    let body = move || {
        let mut count = 0;
        while stopped.recv_timeout(Duration::from_millis(5))
            == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
        {
            let mut bytes = [0; 8];
            stream.write_all(b"a line\r\n").expect("the session lives");
            stream.read_exact(&mut bytes).expect("the session answers");
            count += 1;
        }
        count
    };
    (stop, std::thread::spawn(body))
}

#[test]
fn fault_33_an_upgrade_while_packets_flow_leaves_a_gap_of_50_ms_and_ends_no_session() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let mut old = router(&line);
    line.h1.run("ping -c 1 10.2.0.2");
    let (stop, sessions) = session(&line);
    let flows = reference(&line);
    flows[0].go_on(Duration::from_millis(500));
    for _ in 0..3 {
        assert!(old.end_by(Signal::SIGTERM).success());
        flows[0].go_on(Duration::from_millis(200));
        old = router(&line);
        flows[0].go_on(Duration::from_millis(500));
    }
    let reports = finish(flows);
    drop(stop);
    assert!(sessions.join().unwrap() > 100, "the session carried nothing");
    for report in reports {
        assert!(report.longest_loss <= GAP && report.longest_delay <= GAP, "{report:?}");
    }
    assert_hosts_talk(&line);
    old.assert_conservation();
}
