//! Unmodified routing daemons beside the router. The router forwards by their routes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use millrace_testkit::{Background, Flow, FlowReport, Ground, Line, Millrace, Namespace, eventually};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::{assert_whole, to};

/// Longest delay of a packet while a daemon dies or restarts. If the router paused, the delay would be
/// longer; a short pause of a busy machine stays below.
const LONGEST_DELAY: Duration = Duration::from_secs(1);
/// Time limit for two daemons to become neighbours.
const PATIENCE: Duration = Duration::from_secs(40);
/// Time for which a flow continues after a change, so that its lost packets are counted.
const SETTLED: Duration = Duration::from_millis(300);

/// Checks that a flow lost nothing, kept its order and was not delayed.
fn assert_forwarded(report: &FlowReport, what: &str) {
    assert_whole(report, what);
    assert!(report.longest_delay < LONGEST_DELAY, "{what}: {report:?}");
}

/// Guard that prints the logs of all daemons if its test fails. A test must declare the guard before the
/// daemons, so that it is dropped last.
struct Logs<'a>(&'a Line);

impl Logs<'_> {
    /// Returns the log file of a daemon's next run. Logs of earlier runs stay.
    fn next(line: &Line, name: &str) -> PathBuf {
        (1..)
            .map(|run| line.file(&format!("{name}-{run}.log")))
            .find(|path| !path.exists())
            .expect("a free name")
    }
}

impl Drop for Logs<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let entries = std::fs::read_dir(self.0.directory.path()).into_iter().flatten().flatten();
        let mut logs: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        logs.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
        logs.sort();
        for path in logs {
            println!("--- {}\n{}", path.display(), std::fs::read_to_string(&path).unwrap_or_default());
        }
    }
}

/// Starts BIRD in the foreground, with its own configuration and control socket.
fn bird(line: &Line, host: &Namespace, name: &str, config: &str) -> Background {
    bird_with(line, host, name, config, &[])
}

/// Starts BIRD as [`bird`] does, with further arguments.
fn bird_with(line: &Line, host: &Namespace, name: &str, config: &str, more: &[&str]) -> Background {
    let config = format!("log stderr all;\ndebug protocols {{ states, events }};\n{config}");
    let file = line.write(&format!("{name}.conf"), &config).display().to_string();
    let control = line.file(&format!("{name}.ctl")).display().to_string();
    let pid = format!("{control}.pid");
    let arguments = ["-f", "-c", &file, "-s", &control, "-P", &pid];
    Background::start(host, "bird", &[&arguments, more].concat(), Logs::next(line, name))
}

const KERNEL: &str = "protocol device { scan time 2; }\n\
                      protocol kernel { ipv4 { import none; export all; }; }\n\
                      protocol kernel { ipv6 { import none; export all; }; }\n";

/// Returns a BIRD configuration of OSPF on a device, with the shortest intervals.
fn ospf(id: &str, device: &str, stub4: &str, stub6: &str) -> String {
    let interface =
        format!("interface \"{device}\" {{ type broadcast; hello 1; dead 4; wait 2; retransmit 2; }};");
    format!(
        "router id {id};\n{KERNEL}\
         protocol ospf v2 o4 {{ ipv4 {{ import all; export none; }}; area 0 {{ {interface}\n{stub4} }}; }}\n\
         protocol ospf v3 o6 {{ ipv6 {{ import all; export none; }}; area 0 {{ {interface}\n{stub6} }}; }}\n"
    )
}

#[test]
fn routes_that_bird_learns_by_ospf_are_forwarded_by_and_withdrawn() {
    let Some(_ground) = Ground::enter(&["ping", "bird"]) else { return };
    let line = Line::new();
    line.h2.ip("address add 10.9.0.1/32 dev lo\naddress add fd00:9::1/128 dev lo nodad");
    let _logs = Logs(&line);
    let router = crate::support::router(&line);
    let _here = bird(&line, &line.r, "here", &ospf("10.2.0.1", "r2", "", ""));
    let mut there = bird(
        &line,
        &line.h2,
        "there",
        &ospf("10.2.0.2", "eth0", "stubnet 10.9.0.0/16;", "stubnet fd00:9::/48;"),
    );
    let learned = |prefix: &str| {
        let routes = router.json(&["show", "routes"]);
        routes.as_array().unwrap().iter().any(|route| route["to"] == prefix && route["kind"] == "forward")
    };
    eventually("the router has what OSPF learned", PATIENCE, || learned("10.9.0.0/16").then_some(()));
    line.h1.run("ping -c 2 -i 0.2 -W 2 10.9.0.1");
    eventually("the same by IPv6", PATIENCE, || learned("fd00:9::/48").then_some(()));
    line.h1.run("ping -c 2 -i 0.2 -W 2 fd00:9::1");
    crate::support::assert_router_forwards(&line, &router);
    there.end_by(Signal::SIGTERM);
    eventually("the route is withdrawn", PATIENCE, || (!learned("10.9.0.0/16")).then_some(()));
    assert!(!line.h1.succeeds("ping -c 1 -W 1 10.9.0.1"));
    router.assert_conservation();
}

/// FRR beside the router, and BIRD at the far host as its BGP neighbour, which announces [`LEARNED`].
struct Bgp {
    directory: PathBuf,
    there: Background,
}

/// Returns the configuration of the BGP speaker at the far host. The speaker is passive, so no two
/// connections collide. After an error it accepts a new connection within a second.
fn announces(prefixes: &str) -> String {
    format!(
        "router id 10.2.0.2;\nprotocol device {{ scan time 2; }}\nprotocol static own {{ ipv4; {prefixes} }}\n\
         protocol bgp up {{ local 10.2.0.2 as 65002; neighbor 10.2.0.1 as 65001; passive on;\n\
         error wait time 1, 1; error forget time 1; graceful restart on; ipv4 {{ import none; export all; }}; }}\n"
    )
}

/// Restarts the BGP speaker at the far host with one route less.
fn withdraw_one(line: &Line, there: &mut Background) {
    assert!(there.end_by(Signal::SIGTERM).is_some(), "bird still runs: {}", there.log());
    *there = bird(line, &line.h2, "there", &announces(ONE));
}

/// Configuration of bgpd. The forwarding state is preserved. So bgpd notifies zebra when it has all routes of
/// the neighbour, and zebra then removes stale routes. All timers are longer than a scenario, so no timer
/// decides the outcome.
const BGPD: &str = "debug bgp neighbor-events\ndebug bgp graceful-restart\nrouter bgp 65001\n no bgp ebgp-requires-policy\n \
    bgp router-id 10.2.0.1\n bgp graceful-restart\n bgp graceful-restart preserve-fw-state\n \
    bgp graceful-restart restart-time 300\n bgp graceful-restart select-defer-time 300\n \
    bgp graceful-restart rib-stale-time 300\n neighbor 10.2.0.2 remote-as 65002\n \
    neighbor 10.2.0.2 timers connect 1\n";

/// Routes of the far host after a withdrawal.
const ONE: &str = "route 10.9.0.0/16 blackhole;";
const BOTH: &str = "route 10.9.0.0/16 blackhole; route 10.8.0.0/16 blackhole;";

impl Bgp {
    fn new(line: &Line) -> Self {
        line.h2.ip("address add 10.9.0.1/32 dev lo");
        let there = bird(line, &line.h2, "there", &announces(BOTH));
        let directory = line.directory.path().join("frr");
        std::fs::create_dir(&directory).unwrap();
        // FRR drops its privileges, so its user needs write access to this directory.
        line.r.run(&format!("chmod 755 {0}; chown frr:frr {0}", directory.display()));
        line.r.run(&format!("chmod 755 {}", line.directory.path().display()));
        let bgp = Self { directory, there };
        std::fs::write(bgp.file("zebra.conf"), "hostname r\ndebug zebra events\n").unwrap();
        std::fs::write(bgp.file("bgpd.conf"), BGPD).unwrap();
        bgp
    }

    fn file(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    /// Starts a daemon of FRR, with further arguments.
    fn start(&self, line: &Line, daemon: &str, more: &[&str]) -> Background {
        let program = format!("/usr/lib/frr/{daemon}");
        let [config, pid] = ["conf", "pid"].map(|extension| self.file(&format!("{daemon}.{extension}")));
        let (vty, api) = (self.directory.display().to_string(), self.file("zserv.api"));
        let arguments = ["-f", &config, "-i", &pid, "-z", &api, "--vty_socket", &vty, "-P", "0"];
        let logs = ["--log", "stdout", "--log-level", "debug"];
        let arguments = [&arguments, &logs[..], more].concat();
        Background::start(&line.r, &program, &arguments, Logs::next(line, daemon))
    }

    /// Waits until zebra has had all learned routes for a second. Zebra compares whole seconds: a route
    /// learned in the same second in which bgpd dies never becomes stale.
    fn wait_for_age(&self, line: &Line) {
        let ask =
            format!("vtysh --vty_socket {} -d zebra -c 'show ip route bgp json'", self.directory.display());
        eventually("zebra has had the learned routes for a second", PATIENCE, || {
            let table: Value = serde_json::from_str(&line.r.run(&ask)).ok()?;
            let is_old = |prefix: &&str| {
                table[prefix][0]["uptime"].as_str().is_some_and(|uptime| uptime != "00:00:00")
            };
            LEARNED.iter().all(is_old).then_some(())
        });
    }

    fn start_zebra(&self, line: &Line, more: &[&str]) -> Background {
        let api = self.file("zserv.api");
        let _ = std::fs::remove_file(&api);
        let zebra = self.start(line, "zebra", more);
        eventually("zebra listens", PATIENCE, || Path::new(&api).exists().then_some(()));
        zebra
    }
}

/// Whether the router has a route to exactly this prefix.
fn has(router: &Millrace, prefix: &str) -> bool {
    let routes = router.json(&["show", "routes"]);
    routes.as_array().unwrap().iter().any(|route| route["to"] == prefix)
}

/// Prefixes that the far host announces.
const LEARNED: [&str; 2] = ["10.8.0.0/16", "10.9.0.0/16"];

/// Returns those of [`LEARNED`] that the router's kernel has.
fn learned_by_kernel(line: &Line) -> Vec<&'static str> {
    let table = line.r.run("ip route show");
    let has =
        |prefix: &&str| table.lines().any(|route| route.split_ascii_whitespace().next() == Some(prefix));
    LEARNED.into_iter().filter(has).collect()
}

/// Waits until both router and kernel have exactly the routes `wanted` of [`LEARNED`].
fn wait_for_learned(line: &Line, router: &Millrace, wanted: &[&str]) {
    let kernel = || learned_by_kernel(line);
    let ours = || LEARNED.into_iter().filter(|prefix| has(router, prefix)).collect::<Vec<_>>();
    let equal = millrace_testkit::wait_until(PATIENCE, || kernel() == wanted && ours() == wanted);
    assert!(equal.is_some(), "{wanted:?}: the kernel has {:?}, the router {:?}", kernel(), ours());
}

#[test]
fn routes_that_frr_learns_by_bgp_are_forwarded_by() {
    let Some(_ground) = Ground::enter(&["ping", "bird", "zebra"]) else { return };
    let line = Line::new();
    let _logs = Logs(&line);
    let router = crate::support::router(&line);
    let bgp = Bgp::new(&line);
    let _zebra = bgp.start_zebra(&line, &[]);
    let _bgpd = bgp.start(&line, "bgpd", &[]);
    wait_for_learned(&line, &router, &LEARNED);
    line.h1.run("ping -c 2 -i 0.2 -W 2 10.9.0.1");
    crate::support::assert_router_forwards(&line, &router);
    router.assert_conservation();
}

#[test]
fn fault_11_zebra_and_bgpd_killed_cost_no_packet_and_bring_their_routes_back() {
    let Some(_ground) = Ground::enter_alone(&["ping", "bird", "zebra"]) else { return };
    let line = Line::new();
    let _logs = Logs(&line);
    let router = crate::support::router(&line);
    let mut bgp = Bgp::new(&line);
    let mut zebra = bgp.start_zebra(&line, &[]);
    let mut bgpd = bgp.start(&line, "bgpd", &[]);
    wait_for_learned(&line, &router, &LEARNED);
    line.h1.run("ping -c 1 -W 2 10.9.0.1");
    // The kernel keeps the routes when zebra is dead, and so does the router.
    let through = Flow::start(&line.h1, &line.h2, to("10.9.0.1:9000"), 1000, 64);
    through.go_on(Duration::from_millis(300));
    zebra.end_by(Signal::SIGKILL);
    through.go_on(Duration::from_secs(2));
    bgpd.end_by(Signal::SIGKILL);
    through.go_on(Duration::from_secs(1));
    wait_for_learned(&line, &router, &LEARNED);
    assert_forwarded(&through.finish(), "zebra and bgpd are dead");
    withdraw_one(&line, &mut bgp.there);
    // A starting zebra removes its old routes, so this flow uses a connected route.
    let connected = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 64);
    let _zebra = bgp.start_zebra(&line, &[]);
    // Both routes disappear before bgpd starts. Otherwise a remaining route could be an old one.
    wait_for_learned(&line, &router, &[]);
    let _bgpd = bgp.start(&line, "bgpd", &[]);
    wait_for_learned(&line, &router, &["10.9.0.0/16"]);
    line.h1.run("ping -c 1 -W 2 10.9.0.1");
    assert_forwarded(&connected.finish(), "zebra and bgpd are back");
    router.assert_conservation();
}

#[test]
fn fault_11_bgpd_killed_beside_a_living_zebra_costs_no_packet_and_leaves_no_stale_route() {
    let Some(_ground) = Ground::enter_alone(&["ping", "bird", "zebra", "vtysh"]) else { return };
    let line = Line::new();
    let _logs = Logs(&line);
    let router = crate::support::router(&line);
    let mut bgp = Bgp::new(&line);
    let _zebra = bgp.start_zebra(&line, &[]);
    let mut bgpd = bgp.start(&line, "bgpd", &[]);
    wait_for_learned(&line, &router, &LEARNED);
    bgp.wait_for_age(&line);
    line.h1.run("ping -c 1 -W 2 10.9.0.1");
    let through = Flow::start(&line.h1, &line.h2, to("10.9.0.1:9000"), 1000, 64);
    through.go_on(Duration::from_millis(300));
    bgpd.end_by(Signal::SIGKILL);
    // With graceful restart zebra keeps the routes when bgpd is dead. During that time the neighbour
    // withdraws one route.
    withdraw_one(&line, &mut bgp.there);
    through.go_on(Duration::from_secs(2));
    wait_for_learned(&line, &router, &LEARNED);
    let _bgpd = bgp.start(&line, "bgpd", &[]);
    wait_for_learned(&line, &router, &["10.9.0.0/16"]);
    through.go_on(SETTLED);
    wait_for_learned(&line, &router, &["10.9.0.0/16"]);
    assert_forwarded(&through.finish(), "bgpd was killed beside zebra");
    router.assert_conservation();
}

#[test]
fn fault_11_killed_bird_costs_no_packet_and_leaves_no_stale_route_after_its_return() {
    let Some(_ground) = Ground::enter_alone(&["ping", "bird"]) else { return };
    let line = Line::new();
    line.h2.ip("address add 10.9.0.1/32 dev lo");
    let _logs = Logs(&line);
    let router = crate::support::router(&line);
    // Recovery ends with the neighbour's last route, long before the graceful restart time ends.
    let learns = "router id 10.2.0.1;\ngraceful restart wait 300;\nprotocol device { scan time 2; }\n\
                  protocol kernel { graceful restart; ipv4 { import none; export all; }; }\n\
                  protocol bgp up { local 10.2.0.1 as 65001; neighbor 10.2.0.2 as 65002;\n\
                  connect delay time 1; connect retry time 1; error wait time 1, 1; error forget time 1;\n\
                  graceful restart on; ipv4 { import all; export none; }; }\n";
    let mut there = bird(&line, &line.h2, "there", &announces(BOTH));
    let mut here = bird(&line, &line.r, "here", learns);
    wait_for_learned(&line, &router, &LEARNED);
    line.h1.run("ping -c 1 -W 2 10.9.0.1");
    let flow = Flow::start(&line.h1, &line.h2, to("10.9.0.1:9000"), 1000, 64);
    flow.go_on(Duration::from_millis(300));
    here.end_by(Signal::SIGKILL);
    // While BIRD is dead, the neighbour withdraws one of the two routes.
    withdraw_one(&line, &mut there);
    flow.go_on(Duration::from_secs(2));
    // The kernel keeps the routes when the daemon is dead.
    wait_for_learned(&line, &router, &LEARNED);
    let _here = bird_with(&line, &line.r, "here", learns, &["-R"]);
    wait_for_learned(&line, &router, &["10.9.0.0/16"]);
    flow.go_on(SETTLED);
    wait_for_learned(&line, &router, &["10.9.0.0/16"]);
    assert_forwarded(&flow.finish(), "bird was killed");
    router.assert_conservation();
}
