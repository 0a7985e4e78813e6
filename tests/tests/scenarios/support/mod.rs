//! Functions that several scenarios share.

pub mod fib;
pub mod hygiene;
pub mod reference;
pub mod traces;

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use millrace_testkit::{Background, Flow, FlowReport, Line, Millrace, Namespace, transfer};

/// Parses an address with a port.
pub fn to(address: &str) -> SocketAddr {
    address.parse().expect("an address with a port")
}

/// Returns the cells of a line of a table. Two or more blanks separate columns.
pub fn cells(line: &str) -> Vec<&str> {
    line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

/// Starts a router on both devices of the line.
pub fn router(line: &Line) -> Millrace {
    Millrace::start(&line.r, "--port r1 --port r2")
}

/// Checks that the hosts reach each other by IPv4 and IPv6, by ping and by TCP both ways.
pub fn assert_hosts_talk(line: &Line) {
    line.h1.run("ping -c 2 -i 0.2 -W 2 10.2.0.2");
    line.h2.run("ping -c 2 -i 0.2 -W 2 fd00:1::2");
    transfer(&line.h1, &line.h2, to("10.2.0.2:7000"), 4 << 20);
    transfer(&line.h2, &line.h1, to("[fd00:1::2]:7000"), 4 << 20);
}

/// Checks that the router, not its kernel, forwards packets.
pub fn assert_router_forwards(line: &Line, router: &Millrace) {
    let before = router.summary("transmitted");
    line.h1.run("ping -c 3 -i 0.1 -W 2 10.2.0.2");
    let after = router.summary("transmitted");
    assert!(after >= before + 6, "of 6 packets the router sent {}", after - before);
}

/// Sends numbered packets from `h1` to `h2` for a time.
pub fn flow_for(line: &Line, rate: u32, time: Duration) -> FlowReport {
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), rate, 64);
    flow.go_on(time);
    flow.finish()
}

/// Longest wait of a packet beside a misbehaving plugin. It allows for five slices of a call, and for pauses
/// of the machine.
const UNDISTURBED: Duration = Duration::from_millis(100);

/// Checks that a flow lost nothing and kept its order.
pub fn assert_whole(report: &FlowReport, what: &str) {
    assert!(report.received > 0, "{what}: {report:?}");
    assert_eq!((report.lost(), report.reordered, report.duplicated), (0, 0, 0), "{what}: {report:?}");
}

/// Checks that a flow lost nothing, kept its order and never waited longer than [`UNDISTURBED`].
pub fn assert_undisturbed(report: &FlowReport, what: &str) {
    assert_whole(report, what);
    assert!(report.longest_delay < UNDISTURBED, "{what}: {report:?}");
}

/// Starts an iperf3 server at a host, and waits until it listens.
pub fn iperf3_server(line: &Line, host: &Namespace) -> Background {
    let log = line.file(&format!("iperf3-{}.log", host.name()));
    let server = Background::start(host, "iperf3", &["-s", "--forceflush"], log);
    millrace_testkit::eventually("iperf3 listens", Duration::from_secs(5), || {
        server.log().contains("listening").then_some(())
    });
    server
}

/// Runs iperf3 and returns its report as JSON.
pub fn iperf3(host: &Namespace, arguments: &str) -> serde_json::Value {
    let text = host.run(&format!("iperf3 -J {arguments}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("iperf3 {arguments}: {error}: {text}"))
}

/// Returns the number of bits that the second host's link has carried to it, and the time of the reading. The
/// number includes preambles, frame check sequences and gaps. Repeats the request until the answer takes at
/// most a millisecond.
fn arrived(line: &Line) -> (f64, Instant) {
    for _ in 0..1000 {
        let (counters, at, took) = line.h2.within(|| {
            let at = Instant::now();
            (std::fs::read_to_string("/proc/thread-self/net/dev").unwrap(), at, at.elapsed())
        });
        if took < Duration::from_millis(1) {
            let device = counters.lines().find_map(|line| line.trim().strip_prefix("eth0:")).unwrap();
            let [bytes, packets] = [0, 1]
                .map(|column| device.split_ascii_whitespace().nth(column).unwrap().parse::<f64>().unwrap());
            return ((bytes + 24.0 * packets) * 8.0, at);
        }
    }
    panic!("counters can't be read within a millisecond");
}

/// Returns the rate, in bits per second, at which the second host's link carries packets to it during
/// `meanwhile`.
pub fn rate_to_h2(line: &Line, meanwhile: impl FnOnce()) -> f64 {
    let before = arrived(line);
    meanwhile();
    let after = arrived(line);
    (after.0 - before.0) / (after.1 - before.1).as_secs_f64()
}

/// Small file system, unmounted at the end of the test.
pub struct SmallDisk(pub PathBuf);

impl SmallDisk {
    /// Mounts a new file system at a new directory. `size` has the syntax of `mount`.
    pub fn new(at: PathBuf, size: &str) -> Self {
        fs::create_dir_all(&at).unwrap();
        let mut mount = Command::new("mount");
        let options = format!("size={size},mode=700");
        let mounted = mount.args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&at).status();
        assert!(mounted.is_ok_and(|status| status.success()), "mount {}", at.display());
        Self(at)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // The lazy unmount also works for a file system that is still in use.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Returns `count` routes of a configuration, at most 65,536; all use the far end of a
/// [`Line`](millrace_testkit::Line) as next hop.
pub fn routes(count: u32) -> String {
    let route = |number| {
        format!("[[route]]\nto = \"11.{}.{}.0/24\"\nvia = \"10.2.0.2\"\n", number / 256, number % 256)
    };
    (0..count).map(route).collect()
}
