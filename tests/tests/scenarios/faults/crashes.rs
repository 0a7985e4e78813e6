//! Panics of workers: forwarding meanwhile, the crash capture, and the report at the next start.
//!
//! A debug build of the router has a plugin `panic` for these tests, enabled by an environment variable.

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use millrace_testkit::{Flow, Ground, Line, Millrace, eventually, wait_until};
use serde_json::Value;

use crate::support::reference::Reference;
use crate::support::{assert_hosts_talk, to};

/// Time limit for the end of the router's process after a worker panic. A debug build takes up to a second
/// for the names in a backtrace.
const END: Duration = Duration::from_secs(6);

/// Returns the debug build of the router, which cargo leaves beside the tests of the workspace.
fn debug_binary() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let binary = test.ancestors().nth(2).unwrap().join("millrace");
    assert!(binary.is_file(), "{}: `cargo test --workspace` builds it", binary.display());
    binary
}

/// Starts the debug build with an instance of `panic` bound to UDP port 6666.
fn start(line: &Line, more: &str) -> Millrace {
    start_with(line, "kernel", more)
}

/// Starts the debug build as [`start`] does, with a value of `on-death`.
fn start_with(line: &Line, on_death: &str, more: &str) -> Millrace {
    let state = line.file("state");
    let config = format!(
        "[router]\non-death = \"{on_death}\"\n{more}[plugins]\nstate = \"{}\"\n\
         [[port]]\nname = \"r1\"\ndevice = \"r1\"\n[[port]]\nname = \"r2\"\ndevice = \"r2\"\n\
         [[instance]]\nplugin = \"panic\"\nname = \"boom\"\n\
         [[bind]]\ninstance = \"boom\"\ngate = \"firewall\"\nfilter = \"proto udp dport 6666\"\n",
        state.display()
    );
    let file = line.write("router.toml", &config);
    // The script's first argument is the release binary, in place of which it starts the debug build.
    let script = format!("shift; exec env MILLRACE_TEST_PLUGINS=1 {} \"$@\"", debug_binary().display());
    let by = ["sh", "-c", &script, "sh"];
    let started = Millrace::try_start_by(&line.r, &by, &format!("--config {}", file.display()));
    started.unwrap_or_else(|ended| panic!("{ended:?}"))
}

/// Sends the packet that makes the worker panic.
fn provoke(line: &Line) {
    let socket = line.h1.within(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    socket.send_to(b"panic", "10.2.0.2:6666").unwrap();
}

fn replay(capture: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(debug_binary());
    command.env("MILLRACE_TEST_PLUGINS", "1").args(["replay", "--crash"]).arg(capture).args(more);
    command.output().unwrap()
}

/// Makes the worker panic while packets flow both ways, and starts the next router. Returns the time until
/// the process ended.
fn crash_under_load(
    line: &Line,
    router: &mut Millrace,
    start_next: impl FnOnce() -> Millrace,
) -> (Duration, Millrace) {
    let flows = Reference::start(line);
    flows.go_on(Duration::from_millis(700));
    let begin = Instant::now();
    provoke(line);
    let status = router.wait_for_end();
    let took = begin.elapsed();
    assert_eq!(status.code(), Some(1), "{}", router.log());
    let next = start_next();
    flows.go_on(Duration::from_millis(700));
    flows.assert_gaps(2, "a panic and a start");
    (took, next)
}

#[test]
fn worker_panic_leaves_a_gap_of_50_ms_and_a_capture_that_reproduces_it() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let mut first = start(&line, "");
    let (took, second) = crash_under_load(&line, &mut first, || start(&line, ""));
    assert!(took < END, "the process ended after {took:?}");
    let log = first.log();
    assert!(log.contains("a worker panicked at ") && log.contains("plugin panic got 1 packet"), "{log}");
    // The next start reports the crash, and puts the instance into quarantine.
    let status = second.json(&["show", "status"]);
    let crashes = status["crashes"].as_array().unwrap();
    assert_eq!(crashes.len(), 1, "{status:#}");
    assert_eq!(crashes[0]["message"], "plugin panic got 1 packet");
    assert_eq!(crashes[0]["instance"], "boom");
    let events = second.json(&["events", "--kind", "worker-panicked"]);
    assert!(events.to_string().contains("plugin panic got 1 packet"), "{events:#}");
    let doctor = second.try_ask(&["doctor", "--json"]).stdout;
    let doctor: Value = serde_json::from_str(&doctor).unwrap();
    let checks = doctor["system"]["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["topic"] == "crashes").unwrap();
    assert!(check["fine"] == false && check["text"].as_str().unwrap().contains("plugin panic"), "{check}");
    provoke(&line);
    assert_hosts_talk(&line);
    // The crash capture reproduces the panic, also on another router.
    let capture = PathBuf::from(crashes[0]["capture"].as_str().unwrap());
    let replayed = replay(&capture, &[]);
    let said = String::from_utf8_lossy(&replayed.stdout).into_owned();
    assert!(replayed.status.success(), "{replayed:?}");
    assert!(said.starts_with("reproduced: same panic at ") && said.contains("panic_plugin.rs:"), "{said}");
    let replayed: Value = serde_json::from_slice(&replay(&capture, &["--json"]).stdout).unwrap();
    assert_eq!((&replayed["reproduced"], replayed["frames"].as_u64() >= Some(1)), (&true.into(), true));
    second.assert_conservation();
}

#[test]
fn a_panic_of_one_worker_of_two_ends_both_and_is_captured() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let mut router = start(&line, "workers = 2\n");
    let _next = crash_under_load(&line, &mut router, || start(&line, "workers = 2\n"));
    let captures = std::fs::read_dir(line.file("state").join("crash-captures")).unwrap();
    let count =
        captures.flatten().filter(|entry| entry.path().extension().is_some_and(|end| end == "pcapng"));
    assert_eq!(count.count(), 1);
}

#[test]
fn callers_hear_at_once_that_a_worker_has_panicked() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let mut router = start(&line, "");
    provoke(&line);
    eventually("the panic is logged", END, || router.log().contains("a worker panicked at ").then_some(()));
    // The process still writes its crash capture. A request fails now, and waits at most until the process
    // ends.
    let mut client = router.client();
    let mut asking = client.args(["show", "summary"]).stderr(Stdio::null()).spawn().unwrap();
    assert_eq!(router.wait_for_end().code(), Some(1), "{}", router.log());
    let told = wait_until(Duration::from_secs(3), || asking.try_wait().unwrap().is_some());
    assert!(told.is_some(), "a caller still waits for a router that has ended");
    assert_eq!(asking.wait().unwrap().code(), Some(1), "a question to a router without its worker succeeds");
}

#[test]
fn with_on_death_drop_a_panic_opens_nothing() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let start = || start_with(&line, "drop", "");
    let mut router = start();
    line.h1.run("ping -c 1 -W 2 10.2.0.2");
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 64);
    flow.wait_for_arrival();
    provoke(&line);
    eventually("the panic is logged", END, || router.log().contains("a worker panicked at ").then_some(()));
    // Waits until the receiver has read all packets that arrived before the panic.
    eventually("nothing passes", Duration::from_secs(1), || {
        let received = flow.received();
        flow.go_on(Duration::from_millis(100));
        (flow.received() == received).then_some(())
    });
    let (received, sent) = (flow.received(), flow.sent());
    router.wait_for_end();
    flow.go_on(Duration::from_millis(500));
    assert_eq!(flow.received(), received, "packets passed while the router ended, or after");
    assert!(flow.sent() > sent + 400, "{} packets were tried", flow.sent() - sent);
    let _next = start();
    flow.wait_for_arrival();
    flow.finish();
    assert_hosts_talk(&line);
}
