//! Faults of control: it stalls, misses messages of the kernel, or is replaced by an upgrade of the router.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use millrace_testkit::{Background, Ground, Line, Millrace, eventually, shrink_netlink_buffers};
use nix::sys::signal::Signal;

use crate::support::fib;
use crate::support::reference::Reference;
use crate::support::{assert_hosts_talk, assert_router_forwards, router};

/// Time limit for an answer of the API after a stall.
const BACK: Duration = Duration::from_secs(2);
/// Time limit for the router to have the kernel's routes after missed messages.
const RESYNC: Duration = Duration::from_secs(10);
/// Length of a stall of the control thread.
const STALL: Duration = Duration::from_millis(2500);

/// Delays the control thread after each of its waits, until the returned strace process ends.
fn delay_control(line: &Line, router: &Millrace, delay: Duration) -> Background {
    // Without -f strace traces the one thread.
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
    let flows = Reference::start(&line);
    flows.go_on(Duration::from_millis(300));
    let mut tracer = delay_control(&line, &router, STALL);
    flows.go_on(Duration::from_millis(300));
    let asked = Instant::now();
    let mut client = router.client();
    let mut waiting = client.args(["show", "summary"]).spawn().unwrap();
    flows.go_on(Duration::from_secs(2));
    let stalled = waiting.try_wait().unwrap().is_none();
    tracer.end_by(Signal::SIGTERM);
    let released = Instant::now();
    let _ = waiting.wait();
    router.summary("received");
    let back = released.elapsed();
    assert!(stalled, "the interface answered after {:?}", asked.elapsed());
    println!("the interface answered {back:?} after the stall");
    assert!(back <= BACK, "the interface answered {back:?} after the stall");
    flows.assert_undisturbed("control stalls");
    router.assert_conservation();
}

#[test]
fn fault_12_a_running_router_whose_netlink_buffer_overflows_has_the_kernels_routes_within_ten_seconds() {
    let Some(_ground) = Ground::enter_alone(&["ping", "strace"]) else { return };
    let line = Line::new();
    let router = router(&line);
    let flows = Reference::start(&line);
    assert!(shrink_netlink_buffers(router.pid()) > 0, "no netlink socket of the router listens");
    let overruns = || router.json(&["show", "status"])["mirror"]["overruns"].as_u64().unwrap();
    let before = overruns();
    let routes = 20_000;
    // Without the delay, the control thread would empty even the smallest buffer in time.
    let mut tracer = delay_control(&line, &router, Duration::from_millis(100));
    fib::change(&line, "add", 0..routes);
    fib::change(&line, "del", 0..routes / 2);
    // The same destinations get the other gateway, and forwarding must follow.
    fib::change_next_hops(&line, routes / 2..routes * 3 / 4);
    tracer.end_by(Signal::SIGTERM);
    let (took, count) = fib::assert_equal(&line, &router, RESYNC);
    println!("{count} routes equal after {took:?}, {} overruns", overruns() - before);
    assert_eq!(count, routes as usize / 2);
    assert!(overruns() > before, "the buffer did not overflow");
    flows.assert_undisturbed("messages of the kernel are lost");
    assert_router_forwards(&line, &router);
}

#[test]
fn fault_36_programs_that_take_the_processors_end_no_worker_and_lose_no_packet_account() {
    let Some(_ground) = Ground::enter_alone(&["ping", "nice"]) else { return };
    let line = Line::new();
    let mut router = router(&line);
    let flows = Reference::start(&line);
    let threads = std::thread::available_parallelism().map_or(2, usize::from) * 2;
    let spin = ["4", "sh", "-c", "while :; do :; done"];
    let start =
        |number: usize| Background::start(&line.r, "timeout", &spin, line.file(&format!("spin-{number}")));
    let stealing: Vec<Background> = (0..threads).map(start).collect();
    flows.go_on(Duration::from_secs(3));
    drop(stealing);
    for report in flows.finish() {
        println!("{threads} programs beside: {report:?}");
        // When other programs take the processor, packets are delayed. The router loses a packet only if a
        // ring is full, and counts it there.
        assert!(report.lost() <= router.drops("receive_ring_full") && report.reordered == 0, "{report:?}");
        assert!(report.lost() * 10 <= report.sent, "{report:?}");
    }
    assert!(router.is_running(), "{}", router.log());
    router.assert_conservation();
}

/// Runs a TCP session that sends a line to the server every 5 ms, and gets it back, until the sender is used
/// or dropped. The thread returns the number of lines that came back.
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

/// Upgrades the running router `upgrades` times, beside a TCP session and the reference flows.
pub fn assert_gaps_of_upgrades(upgrades: u32) {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let mut old = router(&line);
    line.h1.run("ping -c 1 10.2.0.2");
    let (stop, sessions) = session(&line);
    let flows = Reference::start(&line);
    flows.go_on(Duration::from_millis(500));
    for _ in 0..upgrades {
        assert!(old.end_by(Signal::SIGTERM).success());
        flows.go_on(Duration::from_millis(200));
        old = router(&line);
        flows.go_on(Duration::from_millis(500));
    }
    drop(stop);
    assert!(sessions.join().unwrap() > 100, "the session carried nothing");
    flows.assert_gaps(2 * upgrades, "upgrades");
    assert_hosts_talk(&line);
    old.assert_conservation();
}

#[test]
fn fault_33_an_upgrade_while_packets_flow_leaves_a_gap_of_50_ms_and_ends_no_session() {
    assert_gaps_of_upgrades(3);
}
