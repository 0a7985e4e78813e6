//! Changes of a running configuration: all differences are applied or none, and other flows lose nothing.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use millrace_testkit::{Background, Flow, Ground, Line, Millrace, binary, eventually};
use nix::sys::signal::Signal;

use crate::support::{SmallDisk, routes, to};

/// Configuration of a router between the two hosts, with every setting that the tests change.
pub const BASE: &str = r#"# The branch office 👩‍🌾.
[router]
on-death = "kernel"

[[port]]
name = "lan"
device = "r1"

[[port]]
name = "wan"   # to the provider
device = "r2"

[[filter]]
match = "in lan proto tcp dport 25"   # no mail
action = "drop"
"#;

/// Additions to the configuration: a route and a filter.
const MORE: &str = r#"
[[filter]]
match = "in lan proto udp dport 53"
action = "reject"

[[route]]
to = "10.9.0.0/16"
via = "10.2.0.2"
"#;

pub fn start(line: &Line, text: &str) -> (Millrace, String) {
    let file = line.write("router.toml", text).display().to_string();
    (Millrace::start(&line.r, &format!("--config {file}")), file)
}

/// Writes a configuration file and returns its path.
pub fn file(line: &Line, name: &str, text: &str) -> String {
    line.write(name, text).display().to_string()
}

pub fn kernel_has(line: &Line, prefix: &str) -> bool {
    line.r.run("ip route show proto 213").lines().any(|route| route.starts_with(prefix))
}

#[test]
fn apply_costs_unrelated_flows_no_packet() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let (router, base) = start(&line, BASE);
    let more = file(&line, "more.toml", &format!("{BASE}{MORE}"));
    // The ping resolves the neighbour. Otherwise the first packets would be held, and some dropped.
    line.h1.run("ping -c 1 10.2.0.2");
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 2000, 64);
    flow.wait_for_arrival();

    let difference = router.try_ask(&["diff", &more]);
    assert_eq!(difference.code, Some(1), "{difference:?}");
    let commands =
        "filter add 'proto udp dport 53 in lan' --action reject\nroute add 10.9.0.0/16 via 10.2.0.2\n";
    assert_eq!(difference.stdout, commands);
    let applied = router.json(&["apply", &more, "--comment", "the second branch"]);
    assert_eq!((applied["revision"].as_u64(), applied["changes"].as_array().unwrap().len()), (Some(2), 2));
    assert!(kernel_has(&line, "10.9.0.0/16 via 10.2.0.2"));
    // Applying the same file again changes nothing.
    assert!(router.ask(&["apply", &more]).contains("nothing changed"));
    assert!(router.ask(&["diff", &more]).contains("equals the running configuration"));
    assert!(router.ask(&["diff"]).contains("equals the running configuration"));
    // The effect of a single command is a difference from the file; applying the file removes it.
    router.ask(&["route", "add", "10.8.0.0/16", "via", "10.2.0.2"]);
    let told = router.try_ask(&["diff"]).stdout;
    let (direction, commands) = told.split_once('\n').expect("two lines");
    assert!(direction.starts_with("# changes that would restore ") && direction.contains(&more), "{told}");
    assert_eq!(commands, "route remove 10.8.0.0/16\n");
    // `diff` exits with another code for an error than for a difference.
    router.try_ask(&["diff", "/nowhere.toml"]).assert_refused(2, &["can't read /nowhere.toml"]);
    let wrong = file(&line, "wrong.toml", "[[prt]]\n");
    router.try_ask(&["diff", &wrong]).assert_refused(2, &["did you mean \"port\""]);
    router.ask(&["apply", &base]);
    assert!(!kernel_has(&line, "10."), "both routes are gone");
    assert_eq!(router.json(&["filter", "list"]).as_array().unwrap().len(), 1);

    let report = flow.finish();
    let drops = router.ask(&["show", "drops"]);
    assert_eq!((report.lost(), report.duplicated), (0, 0), "{report:?}\n{drops}");
    let history = router.json(&["history"]);
    // The route added by a command is in neither file, so the router saved its configuration as a revision of
    // its own.
    assert_eq!(history[1]["comment"], "previous configuration");
    assert!(router.ask(&["history", "show", "3"]).contains("10.8.0.0/16"));
    let first = &history[3];
    assert_eq!((first["number"].as_u64(), first["who"]["name"].as_str()), (Some(1), Some("router")));
    let (who, comment) = (&history[2]["who"], &history[2]["comment"]);
    assert_eq!((who["uid"].as_u64(), comment.as_str()), (Some(0), Some("the second branch")));
    assert_eq!(router.ask(&["history", "show", "2"]), format!("{BASE}{MORE}"));
    // Rolls back to the second revision, which becomes the fifth.
    assert!(router.ask(&["rollback", "2"]).contains("revision 5 runs: 2 changes"));
    assert!(kernel_has(&line, "10.9.0.0/16"));
    assert!(router.ask(&["history"]).lines().nth(1).is_some_and(|newest| newest.contains(" runs ")));
    // `save` writes to the file that the text came from.
    let saved = router.json(&["save"]);
    assert_eq!(saved["file"], history[2]["origin"]);
    router.assert_conservation();
}

#[test]
fn apply_that_cannot_complete_changes_nothing() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    let (router, base) = start(&line, BASE);
    let refused = |name: &str, text: &str, words: &[&str]| {
        let path = file(&line, name, text);
        router.try_ask(&["apply", &path]).assert_refused(1, words);
        assert!(router.ask(&["diff", &base]).contains("equals the running configuration"), "after {name}");
    };
    // For an error in the file itself, the message names the place and the correct key.
    let slip = format!("{BASE}{MORE}").replace("action = \"reject\"", "acton = \"reject\"");
    refused("slip.toml", &slip, &["slip.toml:19:1", "unknown key \"acton\"", "did you mean \"action\""]);
    refused("cut.toml", &BASE[..BASE.len() - 4], &["cut.toml:15:"]);
    // The message names settings that need a restart. The router then applies no other change of the file
    // either.
    let more = format!("{BASE}{MORE}");
    refused(
        "workers.toml",
        &more.replace("[router]", "[router]\nworkers = 2"),
        &["only a restart", "router.workers: 1 runs"],
    );
    // The kernel has a route that another program added. So the router's step fails, and the router undoes
    // earlier steps.
    line.r.run("ip route add 10.9.0.0/16 via 10.2.0.2 proto static");
    refused(
        "kernel.toml",
        &more,
        &["step 2 of 2", "route add 10.9.0.0/16", "protocol static", "the step before it is undone"],
    );
    assert_eq!(router.json(&["filter", "list"]).as_array().unwrap().len(), 1);
    assert_eq!(router.json(&["history"]), serde_json::json!([]));
}

/// Ports in memory, with every setting that can be changed separately.
const ALONE: &str = r#"
[router]
icmp-rate = 200
redirects = false

[[port]]
name = "lan"
kind = "memory"
address = ["10.1.0.1/24", "fd00:1::1/64"]
reverse-path = "strict"
input-weight = 64

[[port]]
name = "wan"
kind = "memory"
address = ["10.2.0.1/24"]

[port.scheduler]
rate = "10mbit"
overhead = "atm"
node = [
    { name = "top", kind = "hfsc" },
    { name = "voice", kind = "fifo", under = "top", real-time = "1mbit 10ms 64kbit" },
    { name = "flows", kind = "flow-queues", under = "top", link-sharing = "2mbit", rate = "2mbit" },
]
flow = [{ queue = "flows", flow = "src 10.1.0.2 dst 10.2.0.2 proto udp sport 4 dport 5 in lan", rate = "64kbit" }]

[[neighbour]]
port = "wan"
address = "10.2.0.77"
mac = "02:00:00:00:00:07"

[[gate]]
name = "audit"
position = "late"
table = "linear"

[[instance]]
plugin = "port-filter"
name = "pf1"
settings = { ports = "80,8000-8080" }

[[bind]]
instance = "pf1"
gate = "audit"
filter = "in lan proto tcp"
priority = -3
on-fault = "bypass"
budget = "400us"

[[filter]]
match = "in lan proto udp dport 53"
action = "queue voice"

[[filter]]
match = "src 10.1.7.0/24"
action = "port wan via 10.2.0.77"
priority = -1

[[route]]
to = "10.9.0.0/16"
via = ["10.2.0.7", "10.2.0.8"]
"#;

/// Configuration of the same ports with fewer settings.
const LESS: &str = r#"
[[port]]
name = "lan"
kind = "memory"
address = ["10.1.0.1/24"]

[[port]]
name = "wan"
kind = "memory"
address = ["10.2.0.1/24"]

[[route]]
to = "10.9.0.0/16"
via = "10.2.0.7"
"#;

#[test]
fn commands_of_a_difference_produce_it() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    let (router, less) = start(&line, LESS);
    let all = file(&line, "all.toml", ALONE);
    for wanted in [&all, &less] {
        let difference = router.try_ask(&["diff", wanted]);
        let commands = &difference.stdout;
        assert!(commands.lines().count() > 10, "{difference:?}");
        for command in commands.lines() {
            let millrace = format!("{} --socket {}", binary().display(), router.socket().display());
            let ended = Command::new("sh").args(["-c", &format!("{millrace} {command}")]).output().unwrap();
            assert!(ended.status.success(), "{command}: {ended:?}");
        }
        assert!(router.ask(&["diff", wanted]).contains("equals the running configuration"));
    }
    // A wrong setting in a command changes nothing.
    for (command, words) in [
        (&["router", "set", "icmp-rat=9"][..], &["icmp-rat", "did you mean \"icmp-rate\""][..]),
        (&["router", "set", "icmp-dscp=64"], &["icmp-dscp", "0 to 63"]),
        (&["router", "set", "workers=2", "icmp-rate=7"], &["only a restart", "router.workers"]),
        (&["neighbour", "add", "lan", "10.1.0.9", "02:00"], &["is no MAC address"]),
        (&["neighbour", "remove", "wan", "10.2.0.78"], &["no static neighbour 10.2.0.78"]),
        (
            &["port", "set", "lan", "address=10.1.0.1"],
            &["port \"lan\"", "give an address with prefix length"],
        ),
        (
            &["route", "replace", "10.9.0.0/16", "via", "10.77.0.1"],
            &["its next hop is in no subnet of a port"],
        ),
        (&["filter", "remove", "dport 9", "--action", "drop"], &["no filter \"dport 9\" has the action"]),
    ] {
        router.try_ask(command).assert_refused(1, words);
    }
    assert!(router.ask(&["diff", &less]).contains("equals the running configuration"));
}

#[test]
fn unconfirmed_configuration_is_reverted() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    let (router, base) = start(&line, BASE);
    let more = file(&line, "more.toml", &format!("{BASE}{MORE}"));
    let back = || router.ask(&["diff", &base]).contains("equals the running configuration").then_some(());

    router.ask(&["apply", &more, "--confirm", "1h"]);
    assert!(router.ask(&["history"]).contains("waiting, 3"));
    assert!(router.ask(&["show", "status"]).contains("revision 2 is unconfirmed"));
    assert!(router.ask(&["diff", &more]).starts_with("# revision 2 is unconfirmed"));
    router.try_ask(&["save"]).assert_refused(1, &["revision 2 waits to be confirmed"]);
    assert_eq!(fs::read_to_string(&base).unwrap(), BASE);
    router.ask(&["rollback"]);
    assert!(router.ask(&["apply", &more, "--confirm", "1s"]).contains("reverts it in 1s unless"));
    router.try_ask(&["apply", &base]).assert_refused(1, &["revision 3 waits to be confirmed"]);
    let lines = line.write("lost", "proto udp dport 53 action drop\n").display().to_string();
    for lost in [
        &["filter", "add", "proto udp dport 53", "--action", "drop"][..],
        &["filter", "add", "--from", &lines],
        &["port", "set", "lan", "reverse-path=strict"],
        &["router", "set", "icmp-rate=9"],
        &["neighbour", "add", "lan", "10.1.0.9", "02:00:00:00:00:09"],
        &["neighbour", "remove", "lan", "10.1.0.9"],
        &["route", "replace", "10.9.0.0/16", "via", "10.2.0.2"],
        &["scheduler", "remove", "lan", "nothing"],
    ] {
        router.try_ask(lost).assert_refused(1, &["revision 3 waits to be confirmed"]);
    }
    eventually("the router goes back", Duration::from_secs(10), || {
        (router.try_ask(&["diff", &base]).code == Some(0)).then_some(())
    });
    router.try_ask(&["confirm"]).assert_refused(1, &["there is no unconfirmed revision"]);
    assert_eq!(router.json(&["history"])[0]["state"], "withdrawn");
    // With a request, the rollback is immediate.
    router.ask(&["apply", &more, "--confirm", "1h"]);
    assert!(router.ask(&["rollback"]).contains("reverted to"));
    back().expect("what ran before runs");
    // There is no rollback after `confirm`.
    router.ask(&["apply", &more, "--confirm", "2s"]);
    assert_eq!(router.ask(&["confirm"]), "revision 5 confirmed\n");
    std::thread::sleep(Duration::from_secs(3));
    assert!(kernel_has(&line, "10.9.0.0/16"));
    assert_eq!(router.json(&["history"])[0]["state"], "good");
}

#[test]
fn full_disk_is_reported_and_forwarding_continues() {
    let Some(_ground) = Ground::enter_alone(&["mount"]) else { return };
    let line = Line::new();
    let disk = SmallDisk::new(line.file("state"), "256k");
    let text = format!("{BASE}[plugins]\nstate = \"{}\"\n", disk.0.display());
    let (router, base) = start(&line, &text);
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 64);
    flow.wait_for_arrival();
    // Comments are part of a revision: these don't fit on the disk.
    let long = format!("{text}{MORE}{}", "# a long comment\n".repeat(40_000));
    let long = file(&line, "long.toml", &long);
    router
        .try_ask(&["apply", &long])
        .assert_refused(1, &["store the revision", "No space left", "all changes are undone"]);
    assert!(router.ask(&["diff", &base]).contains("equals the running configuration"));
    assert!(!kernel_has(&line, "10.9.0.0/16"));
    let report = flow.finish();
    assert_eq!(report.lost(), 0, "{report:?}");
}

#[test]
fn a_router_starts_from_the_last_revision_that_counts() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    let state = format!("[plugins]\nstate = \"{}\"\n", line.file("state").display());
    let (router, base) = start(&line, &format!("{BASE}{state}"));
    let more = file(&line, "more.toml", &format!("{BASE}{MORE}{state}"));
    let third = file(&line, "third.toml", &format!("{BASE}{state}").replace("dport 25", "dport 26"));
    router.ask(&["apply", &more]);
    // A revision that is unconfirmed when the router dies is not good, so the next start doesn't use it.
    router.ask(&["apply", &third, "--confirm", "1h"]);
    drop(router);
    let router = Millrace::start(&line.r, &format!("--config {base}"));
    assert!(!kernel_has(&line, "10.9.0.0/16"), "the file counts unless something else is said");
    drop(router);
    let router = Millrace::start(&line.r, &format!("--config {base} --last-good"));
    assert!(router.log().contains("starting from revision 2"), "{}", router.log());
    assert!(
        kernel_has(&line, "10.9.0.0/16")
            && router.ask(&["diff", &more]).contains("equals the running configuration")
    );
    drop(router);
    // The setting `boot` in the file has the same effect as `--last-good`.
    let boot = format!("{BASE}{state}").replace("[router]", "[router]\nboot = \"last-good\"");
    let boot = file(&line, "boot.toml", &boot);
    let router = Millrace::start(&line.r, &format!("--config {boot}"));
    assert!(kernel_has(&line, "10.9.0.0/16"));
    drop(router);
    // With a broken file the router can't start from a revision, because only the file names the state
    // directory.
    let broken = file(&line, "broken.toml", "[[prt]]\n");
    let Err(refused) = Millrace::try_start(&line.r, &format!("--config {broken}")) else {
        panic!("it starts")
    };
    refused.assert_refused(1, &["unknown key \"prt\"", "did you mean \"port\""]);
}

#[test]
fn a_router_that_can_t_start_from_the_last_revision_starts_from_an_older_one() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    let state = format!("[plugins]\nstate = \"{}\"\n", line.file("state").display());
    let (router, _) = start(&line, &format!("{BASE}{state}"));
    let more = file(&line, "more.toml", &format!("{BASE}{MORE}{state}"));
    router.ask(&["apply", &more]);
    drop(router);
    // The later revisions have a port on a device that is gone at the last start.
    line.r.run("ip link add extra type veth peer name other");
    line.r.run("ip link set extra up");
    line.r.run("ip link set other up");
    let wider = format!("{BASE}\n[[port]]\nname = \"extra\"\ndevice = \"extra\"\n{state}");
    let (router, base) = start(&line, &wider);
    let later = file(&line, "later.toml", &wider.replace("dport 25", "dport 26"));
    router.ask(&["apply", &later]);
    drop(router);
    line.r.run("ip link delete extra");
    let router = Millrace::start(&line.r, &format!("--config {base} --last-good"));
    let log = router.log();
    for words in ["can't start from revision ", "trying revision 2: ", "starting from revision 2"] {
        assert!(log.contains(words), "{words}: {log}");
    }
    assert!(log.contains("extra"), "{log}");
    assert!(router.ask(&["diff", &more]).contains("equals the running configuration"));
}

#[test]
fn a_change_that_a_worker_does_not_answer_is_unmade() {
    let Some(_ground) = Ground::enter(&["strace"]) else { return };
    let line = Line::new();
    let own = "[[port]]\nname = \"own\"\nkind = \"tap\"\naddress = [\"10.7.0.1/24\"]\n";
    let (router, _) = start(&line, &format!("{BASE}{own}"));
    let before = router.json(&["router", "show"]);
    let neighbours = router.json(&["neighbour", "list"]);
    // strace makes the worker sleep in one call for longer than control waits for an answer.
    let worker =
        fs::read_dir(format!("/proc/{}/task", router.pid())).expect("threads").flatten().find(|task| {
            fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim() == "worker-0")
        });
    let worker = worker.expect("the worker").file_name().to_string_lossy().into_owned();
    let add = ["neighbour", "add", "own", "10.7.0.9", "02:00:00:00:00:09"];
    for change in [&["router", "set", "icmp-rate=77"][..], &add] {
        let words = ["-p", &*worker, "-e", "inject=ppoll:delay_enter=12000000"];
        let asleep = Background::start(&line.r, "strace", &words, line.file("strace.log"));
        eventually("the worker is held", Duration::from_secs(5), || {
            asleep.log().contains("attached").then_some(())
        });
        std::thread::sleep(Duration::from_millis(500));
        let refused = eventually("the worker doesn't answer", Duration::from_secs(60), || {
            let asked = router.try_ask(change);
            (asked.code != Some(0)).then_some(asked.stderr)
        });
        assert!(refused.contains("did not answer within 5 s"), "{refused}");
        drop(asleep);
        let same = || {
            router.json(&["router", "show"]) == before && router.json(&["neighbour", "list"]) == neighbours
        };
        eventually("all is as before", Duration::from_secs(30), || same().then_some(()));
    }
    router.assert_conservation();
}

#[test]
fn router_ends_during_an_apply_when_asked() {
    let Some(_ground) = Ground::enter(&["ip"]) else { return };
    let line = Line::new();
    let (mut router, _) = start(&line, BASE);
    let many = file(&line, "many.toml", &format!("{BASE}{}", routes(20_000)));
    let mut apply = router.client();
    let apply = apply.args(["apply", &many]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    eventually("some changes are made", Duration::from_secs(60), || {
        (router.json(&["show", "status"])["applying"]["made"].as_u64() > Some(2000)).then_some(())
    });
    // During an apply, the configuration can't be saved or compared.
    router.try_ask(&["save", "-"]).assert_refused(1, &["is being applied"]);
    let status = router.end_by(Signal::SIGTERM);
    assert!(status.success(), "{status:?}: {}", router.log());
    let told = apply.and_then(Child::wait_with_output).expect("the client ends");
    assert!(!told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let kept = line.r.run("ip route show proto 213");
    assert!(!kept.lines().any(|route| route.starts_with("11.")), "routes stay in the kernel: {kept}");
}

#[test]
fn routers_of_a_machine_have_separate_revisions_and_refuse_foreign_ones_by_name() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    let port =
        |name: &str| format!("[[port]]\nname = \"{name}\"\nkind = \"memory\"\naddress = [\"10.1.0.1/24\"]\n");
    let shared = line.file("shared").display().to_string();
    let arguments = |name: &str| {
        let config = file(&line, &format!("{name}.toml"), &port(name));
        format!("--config {config} --state {shared}")
    };
    let mut one = Millrace::start(&line.r, &arguments("one"));
    let own = one.socket().display().to_string();
    let changed = file(&line, "changed.toml", &format!("[router]\nicmp-rate = 200\n{}", port("one")));
    one.ask(&["apply", &changed]);
    // A state directory belongs to one router at a time.
    let ended = Millrace::try_start(&line.r, &arguments("two")).unwrap_err();
    assert!(
        ended.code == Some(1) && ended.stderr.contains(&own) && ended.stderr.contains("--state"),
        "{ended:?}"
    );
    one.end_by(Signal::SIGTERM);
    // The next router finds the revisions of the first router, and does not use them as its own.
    let mut two =
        Millrace::start_at(&line.r, &format!("{} --last-good", arguments("two")), &line.file("two.sock"));
    assert!(two.json(&["show", "ports"]).to_string().contains("\"two\""));
    let foreign = two.json(&["history"])[0].clone();
    assert_eq!(foreign["router"], own.as_str(), "{foreign}");
    let number = foreign["number"].to_string();
    let other = two.socket().display().to_string();
    two.try_ask(&["rollback", &number]).assert_refused(1, &["revision", &own, &other]);
    two.try_ask(&["rollback"]).assert_refused(1, &["no good revision differs from the running"]);
    assert!(two.ask(&["history", "show", &number]).contains("icmp-rate = 200"));
    two.end_by(Signal::SIGTERM);
}
