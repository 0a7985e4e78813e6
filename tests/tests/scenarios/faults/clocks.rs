//! Changes of the system time while packets are forwarded. Only displayed times of day may change.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use millrace_testkit::{Background, Flow, Ground, Line, Millrace, eventually, repository};

use crate::support::{iperf3_server, rate_to_h2, to};

pub const DAY: i64 = 86_400;
const PATIENCE: Duration = Duration::from_secs(10);
/// Configured rate of a port, in bits per second.
const RATE: f64 = 8e6;
const TOLERANCE: f64 = 0.01;
/// Relative tolerance for the rate of a single step of 0.7 s: a delayed interrupt moves packets to the next
/// step.
const STEP_TOLERANCE: f64 = 0.05;
/// Offsets of the clock from real time, one for each step, in seconds.
const STEPS: [i64; 8] = [DAY, -DAY, 0, DAY, 1, -DAY, 365 * DAY, 0];
/// Maximum number of measurements, if the machine is busy.
const MEASUREMENTS: usize = 3;

/// System time of one router, set by the test.
pub struct Clock {
    file: File,
    /// Command prefix that starts a program under this clock.
    pub by: Vec<String>,
}

impl Clock {
    pub fn new(line: &Line) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let (library, path) = (line.file("clock.so"), line.file(&format!("clock-{number}")));
        let source = repository().join("tests/tests/scenarios/faults/clock.c");
        if !library.exists() {
            let mut compile = Command::new("clang");
            let built = compile.args(["-O1", "-shared", "-fPIC", "-o"]).arg(&library).arg(source).status();
            assert!(built.is_ok_and(|status| status.success()), "{compile:?}");
        }
        std::fs::write(&path, [0; 4096]).unwrap();
        let by = [
            "env".to_owned(),
            format!("LD_PRELOAD={}", library.display()),
            format!("CLOCK_FILE={}", path.display()),
        ];
        Self { file: OpenOptions::new().write(true).open(path).unwrap(), by: by.into() }
    }

    /// Sets the clock `ahead` seconds ahead of real time; negative numbers set it behind.
    pub fn set(&self, ahead: i64) {
        self.file.write_all_at(&ahead.to_ne_bytes(), 0).unwrap();
    }

    /// Starts a router under this clock.
    pub fn router(&self, line: &Line, arguments: &str) -> Millrace {
        let by: Vec<&str> = self.by.iter().map(String::as_str).collect();
        Millrace::try_start_by(&line.r, &by, arguments).unwrap()
    }
}

/// Returns the processor time of a process, in seconds.
fn run_time(router: &Millrace) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{}/stat", router.pid())).unwrap();
    let after_name: Vec<&str> = text.rsplit(')').next().unwrap().split_ascii_whitespace().collect();
    // User and system time, in hundredths of a second.
    after_name[11..13].iter().map(|ticks| ticks.parse::<f64>().unwrap()).sum::<f64>() / 100.0
}

/// Returns the seconds that threads of the process were ready but had no processor, plus the time stolen by
/// the hypervisor.
fn waited(router: &Millrace) -> f64 {
    let threads = std::fs::read_dir(format!("/proc/{}/task", router.pid())).unwrap();
    let nanoseconds = |path: PathBuf| {
        let text = std::fs::read_to_string(path.join("schedstat")).ok()?;
        text.split_ascii_whitespace().nth(1)?.parse::<f64>().ok()
    };
    let ready = threads.flatten().filter_map(|thread| nanoseconds(thread.path())).sum::<f64>() / 1e9;
    let processors = std::fs::read_to_string("/proc/stat").unwrap();
    // "cpu", user, nice, system, idle, iowait, irq, softirq, steal, in hundredths of a second.
    let stolen = processors.split_ascii_whitespace().nth(8).and_then(|ticks| ticks.parse::<f64>().ok());
    ready + stolen.unwrap_or(0.0) / 100.0
}

#[test]
fn a_clock_that_is_set_by_a_day_delays_loses_and_expires_nothing() {
    let Some(_ground) = Ground::enter_alone(&["clang", "ping", "iperf3"]) else { return };
    let line = Line::new();
    let clock = Clock::new(&line);
    let router = clock.router(&line, "--port r1 --port r2 --mode interrupt");
    line.h1.run("ping -c 1 10.2.0.2");
    // One flow is idle and its record must stay; the other flow is active.
    line.h1.run("ping -c 2 -i 0.2 fd00:2::2");
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 64);
    flow.wait_for_arrival();
    let (before, began) = (run_time(&router), Instant::now());
    flow.go_on(Duration::from_secs(2));
    let usual = (run_time(&router) - before) / began.elapsed().as_secs_f64();
    let (before, began) = (run_time(&router), Instant::now());
    for ahead in [DAY, -DAY, 0, DAY, -DAY, 365 * DAY, DAY] {
        clock.set(ahead);
        flow.go_on(Duration::from_millis(300));
    }
    let stepped = (run_time(&router) - before) / began.elapsed().as_secs_f64();
    assert!(stepped <= usual * 1.5 + 0.1, "a share of {usual} of a processor became {stepped}");
    let report = flow.finish();
    assert_eq!((report.lost(), report.reordered), (0, 0), "{report:?}");
    assert!(report.longest_delay < Duration::from_millis(100), "{report:?}");
    let idle = router.json(&["flow", "list", "proto icmp6"]);
    assert!(idle["flows"].as_array().is_some_and(|flows| !flows.is_empty()), "{idle}");
    let uptime = router.json(&["show", "status"])["uptime"].as_f64();
    assert!(uptime.is_some_and(|seconds| seconds < 60.0), "{uptime:?}");
    router.assert_conservation();
}

#[test]
fn a_rate_is_kept_while_the_clock_is_set() {
    let Some(_ground) = Ground::enter_alone(&["clang", "ping", "iperf3"]) else { return };
    let line = Line::new();
    let clock = Clock::new(&line);
    let router = clock.router(&line, "--port r1 --port r2");
    line.h1.run("ping -c 1 10.2.0.2");
    router.ask(&["scheduler", "add", "r2", "all", "--kind", "fifo"]);
    router.ask(&["scheduler", "set", "r2", "rate=8mbit"]);
    let _server = iperf3_server(&line, &line.h2);
    let log = line.file("iperf3-client.log");
    let _client =
        Background::start(&line.h1, "iperf3", &["-c", "10.2.0.2", "-u", "-b", "16M", "-t", "60"], log);
    std::thread::sleep(Duration::from_secs(1));
    for attempt in 0..MEASUREMENTS {
        let (rates, mean, idle) = rates_while_set(&line, &router, &clock);
        println!("{rates:?}, {mean} in all, {idle} of the time without a processor");
        let (least, most) = (RATE * (1.0 - TOLERANCE - idle), RATE * (1.0 + TOLERANCE));
        let most_of_step = RATE * (1.0 + STEP_TOLERANCE);
        assert!(
            rates.iter().all(|rate| *rate < most_of_step),
            "measurement {attempt}: {rates:?} at {STEPS:?}"
        );
        assert!(
            (least..most).contains(&mean),
            "measurement {attempt}: {mean}, not {least} to {most}: {rates:?}"
        );
        // Each measurement must be within both bounds. If the machine was so busy that the lower bound was
        // loose, another measurement follows.
        if idle < 0.05 {
            break;
        }
    }
}

/// Sets the clock in steps. Returns the rate of each step, the mean rate, and the share of time in which the
/// router waited for a processor. In that time the router sends less, and does not catch up later.
fn rates_while_set(line: &Line, router: &Millrace, clock: &Clock) -> (Vec<f64>, f64, f64) {
    let mut rates = Vec::new();
    let (before, began) = (waited(router), Instant::now());
    let mean = rate_to_h2(line, || {
        for ahead in STEPS {
            rates.push(rate_to_h2(line, || {
                std::thread::sleep(Duration::from_millis(300));
                clock.set(ahead);
                std::thread::sleep(Duration::from_millis(400));
            }));
        }
    });
    (rates, mean, (waited(router) - before) / began.elapsed().as_secs_f64())
}

#[test]
fn confirmation_time_is_independent_of_clock_changes() {
    let Some(_ground) = Ground::enter_alone(&["clang"]) else { return };
    let line = Line::new();
    let clock = Clock::new(&line);
    let base = "[router]\non-death = \"kernel\"\n[[port]]\nname = \"lan\"\ndevice = \"r1\"\n[[port]]\nname = \"wan\"\ndevice = \"r2\"\n";
    let more = format!("{base}[[filter]]\nmatch = \"proto udp dport 99\"\naction = \"drop\"\n");
    let (base, more) = (line.write("base.toml", base), line.write("more.toml", &more).display().to_string());
    let router = clock.router(&line, &format!("--config {}", base.display()));
    router.ask(&["apply", &more, "--confirm", "30s"]);
    clock.set(DAY);
    std::thread::sleep(Duration::from_millis(1500));
    let left = router.json(&["show", "status"])["pending"]["seconds"].as_u64();
    assert!(left.is_some_and(|left| (20..=29).contains(&left)), "{left:?}");
    router.ask(&["confirm"]);
    router.ask(&["apply", &base.display().to_string(), "--confirm", "2s"]);
    let began = Instant::now();
    clock.set(-DAY);
    eventually("it goes back", PATIENCE, || {
        (!router.try_ask(&["diff", &more]).stdout.contains("is unconfirmed")).then_some(())
    });
    let waited = began.elapsed();
    assert!(waited > Duration::from_millis(1500) && waited < Duration::from_secs(5), "{waited:?}");
}

#[test]
fn a_token_ends_by_the_clock_on_the_wall() {
    let Some(_ground) = Ground::enter(&["clang", "curl"]) else { return };
    let line = Line::new();
    line.r.ip("link set lo up");
    let clock = Clock::new(&line);
    let state: PathBuf = line.file("state");
    let text = format!(
        "[plugins]\nstate = \"{}\"\n[api]\nlisten = [\"127.0.0.1:8443\"]\n\
         [[port]]\nname = \"lan\"\ndevice = \"r1\"\n[[port]]\nname = \"wan\"\ndevice = \"r2\"\n",
        state.display()
    );
    let config = line.write("router.toml", &text);
    let router = clock.router(&line, &format!("--config {}", config.display()));
    let tokens = ["ends", "stays"].map(|name| {
        let end: &[&str] = if name == "ends" { &["--expires", "1h"] } else { &[] };
        router.ask(&[&["token", "create", name, "--role", "viewer"], end].concat()).trim().to_owned()
    });
    let statuses = || {
        tokens.each_ref().map(|token| {
            line.r.run(&format!(
                "curl -s -o /dev/null -w '%{{http_code}}' --cacert {} -H 'Authorization: Bearer {token}' \
                 https://127.0.0.1:8443/status",
                state.join("interface.crt").display()
            ))
        })
    };
    for (ahead, expected) in
        [(0, ["200", "200"]), (DAY, ["401", "200"]), (-DAY, ["200", "200"]), (3500, ["200", "200"])]
    {
        clock.set(ahead);
        assert_eq!(statuses(), expected, "{ahead} s ahead");
    }
}
