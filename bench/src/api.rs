//! `api`: a flood of API requests over TLS, while the router forwards a flow with a reserved rate.
//!
//! The load generator wrk keeps 400 connections busy, on the router's own machine. Promises: the flow loses
//! no packet, the router's memory grows little, and answers over the router's Unix socket stay fast. In a
//! second flood, the clients have no token.

use std::fs;
use std::path::Path;
use std::time::Duration;

use millrace_testkit::{Background, Flow, Line, answer_times, eventually, percentile, resident};

use crate::interrupt::check;
use crate::testbed::process::{is_installed, run as run_command};
use crate::{BenchError, Bound, Measurement, Options};

/// Duration of each flood in seconds.
const SECONDS: u64 = 30;
/// Rate of the forwarded flow in packets per second.
const RATE: u32 = 5_000;
/// Time limit for the start of the router.
const PATIENCE: Duration = Duration::from_secs(20);
/// Promised maximum: number of packets that the flow loses.
const LOSS_LIMIT: f64 = 0.0;
/// Promised maximum: growth of the router's memory in MiB.
const MEMORY_LIMIT: f64 = 64.0;
/// Promised maximum: 99th percentile of the answer time over the router's Unix socket in milliseconds.
const ANSWER_LIMIT: f64 = 100.0;

/// Runs all cases of the benchmark `api`.
pub(crate) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    if !is_installed("wrk") {
        return Err(BenchError::measurement("api", "wrk is not installed: apt-get install wrk"));
    }
    let line = Line::new();
    line.r.ip("link set lo up");
    let (socket, state) = (line.file("router"), line.file("state"));
    let config = line.write("router.toml", &configuration(&state));
    let binary = options.binary.to_string_lossy().into_owned();
    let words = ["--socket", &*socket.to_string_lossy(), "run", "--config", &*config.to_string_lossy()];
    let _router = Background::start(&line.r, &binary, &words, line.file("router.log"));
    eventually("the router answers", PATIENCE, || socket.exists().then_some(()));
    let tell = |arguments: &[&str]| {
        run_command(&binary, &[&["--socket", &*socket.to_string_lossy()], arguments].concat())
    };
    let made = parsed(&tell(&["token", "create", "wrk", "--role", "viewer", "--json"])?)?;
    let token = made["token"].as_str();
    let token = token
        .ok_or_else(|| BenchError::measurement("api", format!("can't read an API token from {made}")))?;
    // Make the router learn the neighbours before the flow begins.
    line.h1.run("ping -c 2 -i 0.2 10.2.0.2");
    let mut results = Vec::new();
    for (who, header) in [
        ("with a token", format!("Authorization: Bearer {}", token)),
        ("without a token", "X-Nothing: 0".to_owned()),
    ] {
        check()?;
        (options.progress)(&format!("{SECONDS} s of 400 connections {who}"));
        let pid = process_of(&socket)?;
        let before = resident(pid);
        let flow = Flow::start(&line.h1, &line.h2, ([10, 2, 0, 2], 9000).into(), RATE, 64);
        let log = line.file("wrk.log");
        let wrk = format!("-t1 -c400 -d{SECONDS}s");
        let mut words: Vec<&str> = wrk.split(' ').collect();
        words.extend(["-H", &header, "https://127.0.0.1:8443/status"]);
        let mut flood = Background::start(&line.r, "wrk", &words, log);
        let times = answer_times(&socket, "/status", Duration::from_secs(SECONDS - 1));
        let grown = resident(pid).saturating_sub(before);
        let ended = flood.wait(Duration::from_secs(20)).is_some_and(|status| status.success());
        let report = flow.finish();
        let case = |what: &str| format!("400 connections {who}: {what}");
        let requests = requests(&flood.log()).filter(|requests| ended && *requests > 0.0);
        let requests = requests.ok_or_else(|| BenchError::measurement("api", flood.log()))?;
        results.extend([
            Measurement::of(case("answered requests"), requests, "1/s"),
            Measurement::of(case("lost packets of a reserved flow"), report.lost() as f64, "packets")
                .promising(Bound::AtMost, LOSS_LIMIT),
            Measurement::of(case("memory growth"), grown as f64 / f64::from(1 << 20), "MiB")
                .promising(Bound::AtMost, MEMORY_LIMIT),
            Measurement::of(
                case("answer time at the Unix socket, 99th percentile"),
                percentile(&times, 99).as_secs_f64() * 1000.0,
                "ms",
            )
            .promising(Bound::AtMost, ANSWER_LIMIT),
        ]);
    }
    Ok(results)
}

/// Returns the configuration: the router's ports, the reserved rate of the flow, and the address of the API.
fn configuration(state: &Path) -> String {
    format!(
        "[router]\non-death = \"kernel\"\n[plugins]\nstate = \"{}\"\n[api]\nlisten = [\"127.0.0.1:8443\"]\n\
         [[port]]\nname = \"lan\"\ndevice = \"r1\"\n[[port]]\nname = \"wan\"\ndevice = \"r2\"\n\
         [port.scheduler]\nrate = \"1gbit\"\nnode = [{{ name = \"flows\", kind = \"flow-queues\", rate = \"100mbit\" }}]\n\
         [[filter]]\nmatch = \"proto udp dport 9000\"\naction = \"queue flows\"\n",
        state.display()
    )
}

/// Returns the process ID of the router.
fn process_of(socket: &Path) -> Result<u32, BenchError> {
    let status = run_command("curl", &["-s", "--unix-socket", &socket.to_string_lossy(), "http://m/status"])?;
    let status = parsed(&status)?;
    let pid = status["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
    let pid = pid.filter(|pid| fs::metadata(format!("/proc/{pid}")).is_ok());
    pid.ok_or_else(|| BenchError::measurement("api", "the router's answer has no process id"))
}

fn parsed(text: &str) -> Result<serde_json::Value, BenchError> {
    serde_json::from_str(text).map_err(|error| BenchError::measurement("api", format!("{error}: {text}")))
}

/// Parses the requests per second that wrk prints.
fn requests(said: &str) -> Option<f64> {
    said.lines().find_map(|line| line.trim().strip_prefix("Requests/sec:"))?.trim().parse().ok()
}
