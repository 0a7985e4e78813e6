//! First hour of an operator: warnings, short forms of commands, and commands before a router runs.

use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;
use std::time::Duration;

use millrace_testkit::{Background, Ended, Flow, Ground, Line, Millrace, binary, eventually, run_to_end};

use crate::support::{router, to};

const PATIENCE: Duration = Duration::from_secs(10);

/// Runs a command that succeeds. Returns its standard error.
fn warned(router: &Millrace, arguments: &[&str]) -> String {
    let ended = router.try_ask(arguments);
    assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}");
    ended.stderr
}

#[test]
fn unbind_removes_an_only_binding_by_name_and_several_with_all() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    let router = router(&line);
    router.ask(&["instance", "create", "statistics", "s"]);
    let bind = |filter: &str| router.ask(&["bind", "s", "--gate", "monitor", "--filter", filter]);
    let bindings = || router.json(&["show", "bindings"]).as_array().map(Vec::len);
    router.try_ask(&["unbind", "s"]).assert_refused(1, &["\"s\" is not bound", "show bindings"]);
    bind("dport 1");
    assert_eq!(router.ask(&["unbind", "s"]), "s unbound at gate monitor, filter: dport 1\n");
    assert_eq!(bindings(), Some(0));
    bind("dport 1");
    bind("dport 2");
    let words = ["has 2 bindings", "--all", "--gate monitor --filter 'dport 1'", "--filter 'dport 2'"];
    router.try_ask(&["unbind", "s"]).assert_refused(2, &words);
    assert_eq!(bindings(), Some(2));
    assert_eq!(router.ask(&["unbind", "s", "--all"]).lines().count(), 2);
    assert_eq!(bindings(), Some(0));
    router.try_ask(&["unbind", "t", "--all"]).assert_refused(1, &["\"t\""]);
}

#[test]
fn instances_are_shown_with_packets_and_packets_a_second() {
    let Some(_ground) = Ground::enter(&["ping"]) else { return };
    let line = Line::new();
    let router = router(&line);
    line.h1.run("ping -c 1 10.2.0.2");
    router.ask(&["instance", "create", "statistics", "s"]);
    router.ask(&["bind", "s", "--gate", "monitor", "--filter", "dport 9000"]);
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 64);
    let row = eventually("packets and their rate are shown", PATIENCE, || {
        let row = router.row("instances", "name", "s");
        (row["packet_rate"].as_f64() > Some(0.0)).then_some(row)
    });
    assert!(row["packets"].as_u64() > Some(0), "{row:#}");
    let table = router.ask(&["show", "instances"]);
    let heading: Vec<&str> = table.lines().next().unwrap_or_default().split_whitespace().collect();
    let at = |word| heading.iter().position(|heading| *heading == word);
    assert!(at("packets").is_some() && at("packets/s") == at("packets").map(|at| at + 1), "{table}");
    drop(flow);
}

#[test]
fn a_capture_warns_that_tcp_slows_down() {
    let Some(_ground) = Ground::enter(&["ping"]) else { return };
    let line = Line::new();
    let router = router(&line);
    let ping = Background::start(&line.h1, "ping", &["-i", "0.1", "10.2.0.2"], line.file("ping.log"));
    let file = line.file("one.pcapng").display().to_string();
    let said = warned(&router, &["capture", "r1", "-w", &file, "--count", "1"]);
    assert!(
        said.contains("matching flows are not offloaded while the capture runs, and TCP slows down"),
        "{said}"
    );
    drop(ping);
}

/// Filter with priority over the filters of the next test, so that these never match.
const WIDE: &str = "[[filter]]\nmatch = \"proto udp\"\naction = \"drop\"\npriority = 5\n";

#[test]
fn filter_that_never_wins_causes_a_warning_on_every_path() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    let ports = "[router]\non-death = \"drop\"\n[[port]]\nname = \"r1\"\ndevice = \"r1\"\n\
                 [[port]]\nname = \"r2\"\ndevice = \"r2\"\n";
    let base = line.write("base.toml", &format!("{ports}{WIDE}")).display().to_string();
    let router = Millrace::start(&line.r, &format!("--config {base}"));
    let never = "never wins: filter 0 (drop for proto udp, priority 5) precedes it";
    let added = warned(&router, &["filter", "add", "proto udp dport 9", "--action", "reject"]);
    assert!(added.starts_with("warning: the filter ") && added.contains(never), "{added}");
    let bind = |name: &str, more: &[&str]| {
        router.ask(&["instance", "create", "statistics", name]);
        warned(&router, &[&["bind", name, "--gate", "monitor", "--filter"], more].concat())
    };
    assert_eq!(bind("wide", &["proto udp", "--priority", "5"]), "");
    let bound = bind("narrow", &["proto udp dport 10"]);
    assert!(
        bound.starts_with("warning: the filter never wins: filter ")
            && bound.contains(" for proto udp, priority 5)"),
        "{bound}"
    );
    assert!(
        bound.ends_with("precedes it; raise its --priority, or remove the preceding filters\n"),
        "{bound}"
    );
    let list =
        line.write("list", "proto tcp action drop\nproto udp dport 11 action reject\n").display().to_string();
    let listed = warned(&router, &["filter", "add", "--from", &list]);
    assert!(listed.starts_with("warning: filter ") && listed.contains("proto udp dport 11"), "{listed}");
    assert!(listed.contains(never) && listed.lines().count() == 1, "{listed}");
    let more = format!("{ports}{WIDE}[[filter]]\nmatch = \"proto udp dport 12\"\naction = \"reject\"\n");
    let more = line.write("more.toml", &more).display().to_string();
    let applied = warned(&router, &["apply", &more]);
    assert!(applied.contains("(reject for proto udp dport 12, priority 0)"), "{applied}");
    assert!(applied.contains(never) && applied.lines().count() == 1, "{applied}");
    let checked = run_to_end(&line.r, &["check", &more]);
    assert_eq!((checked.code, checked.stderr.lines().count()), (Some(0), 1), "{checked:?}");
    assert!(checked.stderr.contains("proto udp dport 12") && checked.stderr.contains(never), "{checked:?}");
    let json = run_to_end(&line.r, &["check", &more, "--json"]).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["shadowed"].as_array().map(Vec::len), Some(1), "{json:#}");
    assert_eq!(warned(&router, &["apply", &base]), "");
}

/// Runs a command in a namespace, as a user without privileges.
fn unprivileged(line: &Line, arguments: &[&str]) -> Ended {
    // The copy is readable and executable for all users.
    let copy = std::env::temp_dir().join(format!("mr{}-unprivileged", std::process::id()));
    std::fs::copy(binary(), &copy).unwrap();
    let mut command: Command = line.r.command("timeout");
    command.args(["20", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]);
    let output = command.arg(&copy).args(arguments).output().unwrap();
    std::fs::remove_file(&copy).unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let (code, signal) = (output.status.code(), output.status.signal());
    Ended { code, signal, stdout: text(output.stdout), stderr: text(output.stderr) }
}

#[test]
fn doctor_without_privileges_lists_skipped_checks() {
    let Some(_ground) = Ground::enter(&["setpriv"]) else { return };
    let line = Line::new();
    let ended = unprivileged(&line, &["doctor", "r1"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let text = "not root: driver features, eBPF programs and nftables of devices are not checked; run `millrace \
                doctor` as root";
    let is_told = |line: &str| line.starts_with("!!  privileges ") && line.ends_with(text);
    assert!(ended.stdout.lines().any(is_told), "{ended:?}");
    assert!(ended.stdout.contains("r1"), "{ended:?}");
}

#[test]
fn init_writes_the_devices_addresses_and_routes_of_a_namespace() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    line.r.ip("route add 10.9.0.0/16 via 10.2.0.2");
    let file = line.file("init.toml").display().to_string();
    let ended = run_to_end(&line.r, &["init", "r1", "--output", &file]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let text = std::fs::read_to_string(&file).unwrap();
    let r1 = "#   address 10.1.0.1/24\n";
    assert!(text.contains(r1) && text.contains("\n[[port]]\nname = \"r1\"\ndevice = \"r1\"\n"), "{text}");
    assert!(text.contains("# No port: not named.\n# [[port]]\n# name = \"r2\"\n"), "{text}");
    assert!(text.contains("#   10.9.0.0/16 via 10.2.0.2 dev r2\n"), "{text}");
    let checked = run_to_end(&line.r, &["check", &file]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    assert!(checked.stdout.contains(": 1 port, "), "{checked:?}");
    let again = run_to_end(&line.r, &["init", "--output", &file]);
    assert_eq!(again.code, Some(1), "{again:?}");
    assert!(again.stderr.contains("--force overwrites it"), "{again:?}");
}
