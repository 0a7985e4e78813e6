//! Bad input: one clear line with the error, its place and the remedy, exit code 1 or 2, and no change.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use millrace_testkit::{Ground, Line, Millrace, binary, run_to_end};

/// Checks that the router refuses to start, and that the attempt changed nothing.
fn assert_run_is_refused(line: &Line, arguments: &str, code: i32, words: &[&str]) {
    let look = || line.r.run("ip -o -d link; ip route; ip -6 route");
    let before = look();
    let refused = match Millrace::try_start(&line.r, arguments) {
        Ok(_) => panic!("started: {arguments}"),
        Err(refused) => refused,
    };
    refused.assert_refused(code, words);
    assert_eq!(look(), before, "{arguments}");
}

fn port(name: &str, more: &str) -> String {
    format!("[[port]]\nname = \"{name}\"\n{more}\n")
}

#[test]
fn devices_that_cannot_be_ports_are_refused() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    line.r.ip("link add r8 type veth peer name r9");
    assert_run_is_refused(&line, "--port r1 --port eth2", 1, &["eth2"]);
    assert_run_is_refused(&line, "--port r1 --port r22", 1, &["r22", "r2"]);
    assert_run_is_refused(&line, "--port r1 --port r8", 1, &["r8", "down", "ip link set r8 up"]);
    assert_run_is_refused(&line, "--port r1 --port lo", 1, &["lo"]);
    assert_run_is_refused(&line, "--port r1 --port r1", 2, &["r1", "twice"]);
}

#[test]
fn configurations_that_are_wrong_are_refused_with_file_line_and_remedy() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    let (a, b) = (port("a", "device = \"r1\""), port("b", "device = \"r2\""));
    let cases: &[(&str, &str, &[&str])] = &[
        ("no-toml", "[[port\n", &[":1"]),
        ("key", "[[port]]\nname = \"a\"\ndevcie = \"r1\"\n", &[":3", "devcie", "device"]),
        ("table", "[[prot]]\nname = \"a\"\n", &["prot", "port"]),
        ("twice", &(a.clone() + &port("a", "device = \"r2\"")), &[":5", "\"a\""]),
        ("kind", &port("a", "kind = \"tab\""), &["tab", "tap"]),
        ("driver", &port("a", "device = \"r1\"\ndriver = \"afxdp\""), &["afxdp", "af_xdp"]),
        ("address", &port("a", "kind = \"tap\"\naddress = [\"10.1.0.300/24\"]"), &[":4", "10.1.0.300"]),
        ("host-address", &port("a", "device = \"r1\"\naddress = [\"10.1.0.1/24\"]"), &["ip address"]),
        ("mtu", &port("a", "kind = \"tap\"\nmtu = 12"), &["mtu", "68"]),
        ("via", &format!("{a}[[route]]\nto = \"10.9.0.0/16\"\nvia = \"10.2.0\"\n"), &["via"]),
        ("prefix", &format!("{a}[[route]]\nto = \"10.9.0.0/33\"\nvia = \"10.1.0.2\"\n"), &["10.9.0.0/33"]),
        (
            "filter",
            &format!(
                "{a}{b}[[instance]]\nplugin = \"statistics\"\nname = \"s\"\n[[bind]]\ninstance = \"s\"\n\
                 gate = \"monitor\"\nfilter = \"proto upd\"\n"
            ),
            &["upd"],
        ),
        (
            "on-death",
            &format!(
                "{a}{b}[[instance]]\nplugin = \"statistics\"\nname = \"s\"\n[[bind]]\ninstance = \"s\"\n\
                 gate = \"monitor\"\nfilter = \"\"\n"
            ),
            &["on-death"],
        ),
        (
            "plugin",
            &format!("{a}[[instance]]\nplugin = \"statistic\"\nname = \"s\"\n"),
            &["\"s\"", "statistics"],
        ),
        (
            "setting",
            &format!("{a}[[instance]]\nplugin = \"statistics\"\nname = \"s\"\nsettings = {{ wat = 1 }}\n"),
            &["instance \"s\"", "wat", "what"],
        ),
    ];
    for (name, text, words) in cases {
        let file = line.write(&format!("{name}.toml"), text);
        let path = file.to_str().unwrap();
        let words = [&[path], *words].concat();
        run_to_end(&line.r, &["check", path]).assert_refused(1, &words);
        assert_run_is_refused(&line, &format!("--config {path}"), 1, &words[1..]);
    }
    let absent = line.file("absent.toml").display().to_string();
    assert_run_is_refused(&line, &format!("--config {absent}"), 1, &[&absent]);
    let good = line.write("good.toml", &(a + &b));
    assert_eq!(run_to_end(&line.r, &["check", good.to_str().unwrap()]).code, Some(0));
}

#[test]
fn wrong_usage_has_exit_code_2() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    for arguments in [
        &["rnu"][..],
        &["run"],
        &["run", "--port"],
        &["run", "--port", "r1", "--driver", "xdp"],
        &["show", "prots"],
        &["bind", "x"],
    ] {
        let ended = run_to_end(&line.r, arguments);
        assert_eq!(ended.code, Some(2), "{arguments:?}: {ended:?}");
        assert!(!ended.stderr.is_empty() && ended.stdout.is_empty(), "{ended:?}");
    }
}

#[test]
fn client_without_a_router_fails_within_two_seconds() {
    let Some(_ground) = Ground::enter_alone(&[]) else { return };
    let line = Line::new();
    let socket = line.file("none.sock").display().to_string();
    let start = std::time::Instant::now();
    run_to_end(&line.r, &["--socket", &socket, "show", "ports"])
        .assert_refused(1, &[&socket, "millrace run"]);
    let took = start.elapsed().as_secs_f64();
    assert!((1.8..4.0).contains(&took), "{took}");
}

#[test]
fn user_without_permissions_gets_the_missing_ones() {
    let Some(_ground) = Ground::enter(&["setpriv"]) else { return };
    let line = Line::new();
    // Other users may have no access to the binary's folder, so they run a copy.
    let own = std::path::PathBuf::from(format!("/tmp/mr{}-binary", std::process::id()));
    std::fs::copy(binary(), &own).unwrap();
    std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o755)).unwrap();
    let before = line.r.run("ip -o -d link");
    let socket = format!("/tmp/mr{}-nobody.sock", std::process::id());
    let mut command: Command = line.r.command("timeout");
    command.args(["20", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]);
    command.arg(&own).args(["--socket", &socket, "run", "--port", "r1", "--port", "r2"]);
    let output = command.output().unwrap();
    std::fs::remove_file(&own).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("millrace: ")).collect();
    assert!(lines.len() == 1 && lines[0].contains("root"), "{said}");
    assert!(!std::path::Path::new(&socket).exists());
    assert_eq!(line.r.run("ip -o -d link"), before);
}

#[test]
fn full_disk_is_reported_and_affects_nothing_else() {
    let Some(_ground) = Ground::enter(&["ping"]) else { return };
    let line = Line::new();
    let router = crate::support::router(&line);
    let socket = router.socket().to_str().unwrap().to_owned();
    let ping = std::thread::scope(|scope| {
        let ping = scope.spawn(|| line.h1.run("ping -c 10 -i 0.1 10.2.0.2"));
        let full = run_to_end(&line.r, &["--socket", &socket, "capture", "any", "-w", "/dev/full"]);
        full.assert_refused(1, &["/dev/full", "No space left"]);
        ping.join().is_ok()
    });
    assert!(ping);
    router.assert_conservation();

    let packets = line.file("in.pcapng");
    std::thread::scope(|scope| {
        scope.spawn(|| line.h1.run("ping -c 10 -i 0.1 10.2.0.2"));
        router.ask(&["capture", "r1", "--count", "4", "-w", packets.to_str().unwrap()]);
    });
    let config = port("r1", "kind = \"memory\"\naddress = [\"10.1.0.1/24\"]")
        + &port("r2", "kind = \"memory\"\naddress = [\"10.2.0.1/24\"]");
    let config = line.write("replay.toml", &config);
    let [packets, config] = [&packets, &config].map(|path| path.to_str().unwrap());
    run_to_end(&line.r, &["replay", "--in", packets, "--out", "/dev/full", "--config", config])
        .assert_refused(1, &["/dev/full", "No space left"]);
    run_to_end(&line.r, &["replay", "--in", config, "--out", "/dev/null", "--config", config])
        .assert_refused(1, &[config]);
}

#[test]
fn the_examples_are_valid() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    for example in ["router.toml", "replay.toml"] {
        let path = format!("../examples/{example}");
        let checked = run_to_end(&line.r, &["check", &path]);
        assert_eq!(checked.code, Some(0), "{checked:?}");
    }
}
