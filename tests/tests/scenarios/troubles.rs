//! What the machine does to a router: its clock jumps, its memory and its disk give out, strangers flood it and write names that no
//! terminal should see.

use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use millrace_testkit::{Background, Flow, Ground, Line, Millrace, RawSocket, binary, eventually};
use serde_json::{Value, json};

use crate::support::{router, to};

const PATIENCE: Duration = Duration::from_secs(20);

/// The library that moves the wall clock of a process.
fn clock_mover() -> String {
    let folders = fs::read_dir("/usr/lib").expect("/usr/lib").flatten();
    let mut found = folders.map(|folder| folder.path().join("faketime/libfaketime.so.1"));
    let path = found.find(|path| path.exists()).expect("the library of faketime");
    path.display().to_string()
}

#[test]
fn a_clock_that_jumps_by_a_day_ends_no_flow_no_waiting_and_no_rate() {
    let Some(_ground) = Ground::enter(&["faketime", "curl"]) else { return };
    let line = Line::new();
    let clock = line.write("clock", "+0");
    let text = format!(
        "[plugins]\nstate = \"{}\"\n[[port]]\nname = \"lan\"\ndevice = \"r1\"\n[[port]]\nname = \"wan\"\ndevice = \"r2\"\n",
        line.file("state").display()
    );
    let config = line.write("router.toml", &text).display().to_string();
    let more = format!("{text}[[filter]]\nmatch = \"proto udp dport 99\"\naction = \"drop\"\n");
    let more = line.write("more.toml", &more).display().to_string();
    let socket = line.file("clock.sock");
    let settings = [
        format!("LD_PRELOAD={}", clock_mover()),
        format!("FAKETIME_TIMESTAMP_FILE={}", clock.display()),
        "FAKETIME_NO_CACHE=1".to_owned(),
        "DONT_FAKE_MONOTONIC=1".to_owned(),
        format!("STATE_DIRECTORY={}", line.file("state").display()),
        binary().display().to_string(),
        "--socket".to_owned(),
        socket.display().to_string(),
    ];
    let arguments: Vec<&str> = settings
        .iter()
        .map(String::as_str)
        .chain(["run", "--config", &config, "--on-death", "kernel"])
        .collect();
    let router = Background::start(&line.r, "env", &arguments, line.file("router.log"));
    let ask = |words: &[&str]| {
        let mut command = Command::new(binary());
        command.arg("--socket").arg(&socket).args(words).stdin(Stdio::null());
        let output = command.output().expect("millrace");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let json =
        |words: &[&str]| -> Value { serde_json::from_str(&ask(words).expect("an answer")).expect("JSON") };
    eventually("it forwards", PATIENCE, || router.log().contains("listening at").then_some(()));
    ask(&["token", "create", "ci", "--role", "viewer", "--expires", "1h"]).expect("a token");
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 64);
    flow.wait_for_arrival();
    ask(&["apply", &more, "--confirm", "10m"]).expect("applied");
    for jump in ["+1d", "-1d", "+3650d", "+0"] {
        fs::write(&clock, jump).unwrap();
        std::thread::sleep(Duration::from_millis(1500));
        let pending = json(&["history"])[0].clone();
        assert_eq!(pending["state"], "waiting", "{jump}: {pending}");
        let left = json(&["show", "status"])["pending"]["seconds"].as_u64().unwrap();
        assert!((500..=600).contains(&left), "{jump}: {left}");
        let rates = json(&["rates"]);
        let lan = rates["ports"].as_array().unwrap().iter().find(|port| port["name"] == "lan").unwrap();
        let rate = lan["rx_rate"].as_f64().unwrap();
        assert!((900.0..1100.0).contains(&rate), "{jump}: {rate}");
        let flows = json(&["flow", "list"]).to_string();
        assert!(flows.contains("9000"), "{jump}: {flows}");
    }
    let report = flow.finish();
    assert_eq!((report.lost(), report.reordered), (0, 0), "{report:?}");
}

#[test]
fn a_router_for_which_there_is_not_enough_memory_says_what_it_lacked_and_ends() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    let text = format!("[plugins]\nstate = \"{}\"\n", line.file("state").display());
    let port = |name: &str, net: u8| {
        format!("[[port]]\nname = \"{name}\"\nkind = \"memory\"\naddress = [\"10.{net}.0.1/24\"]\n")
    };
    let config = line.write("router.toml", &(text + &port("a", 1) + &port("b", 2)));
    let socket = line.file("memory.sock");
    let mut named = 0;
    for kilobytes in (200..1600).step_by(50).map(|mebibytes| mebibytes * 1024) {
        let run = format!(
            "ulimit -v {kilobytes}; exec timeout -s KILL 10 {} --socket {} run --config {}",
            binary().display(),
            socket.display(),
            config.display()
        );
        let output = line.r.command("sh").args(["-c", &run]).output().expect("sh");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // Where there is enough it runs until it is killed.
        if said.contains("listening at") {
            break;
        }
        assert_eq!(output.status.code(), Some(1), "{kilobytes} KiB: {said}");
        let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("millrace: ")).collect();
        assert!(lines.len() == 1 && !said.contains("panicked"), "{kilobytes} KiB: {said}");
        named += usize::from(said.contains("memory") || said.contains("thread"));
    }
    assert!(named >= 3, "{named} said what they lacked");
}

/// A file system with some room, which goes with the test.
struct Disk(PathBuf);

impl Disk {
    fn new(at: PathBuf) -> Self {
        fs::create_dir_all(&at).unwrap();
        let disk = Self(at);
        assert!(disk.mount("size=4m,mode=700"));
        disk
    }

    fn mount(&self, options: &str) -> bool {
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&self.0).status();
        mounted.is_ok_and(|status| status.success())
    }

    fn remount(&self, option: &str) {
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-o", &format!("remount,{option}")]).arg(&self.0).status();
        assert!(mounted.is_ok_and(|status| status.success()), "remount {option}");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_disk_that_can_only_be_read_refuses_changes_until_it_can_be_written_and_costs_no_packet() {
    let Some(_ground) = Ground::enter(&["mount"]) else { return };
    let line = Line::new();
    let disk = Disk::new(line.file("state"));
    let text = format!(
        "[plugins]\nstate = \"{}\"\n[[port]]\nname = \"lan\"\ndevice = \"r1\"\n[[port]]\nname = \"wan\"\ndevice = \"r2\"\n",
        disk.0.display()
    );
    let config = line.write("router.toml", &text);
    let more = format!("{text}[[filter]]\nmatch = \"proto udp dport 99\"\naction = \"drop\"\n");
    let more = line.write("more.toml", &more).display().to_string();
    let router = Millrace::start(&line.r, &format!("--config {} --on-death kernel", config.display()));
    router.ask(&["apply", &config.display().to_string()]);
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 64);
    flow.wait_for_arrival();
    disk.remount("ro");
    router
        .try_ask(&["apply", &more])
        .assert_refused(1, &["remember the revision", "Read-only", "changed back"]);
    assert!(router.ask(&["diff", &config.display().to_string()]).contains("is what runs"));
    assert!(router.json(&["events", "--last", "50"]).to_string().contains("audit-failed"));
    disk.remount("rw");
    router.ask(&["apply", &more]);
    assert_eq!(router.json(&["history"])[0]["changes"], 1);
    let report = flow.finish();
    assert_eq!(report.lost(), 0, "{report:?}");
    drop(router);
}

#[test]
fn a_flood_of_packets_that_are_dropped_fills_no_log() {
    let Some(_ground) = Ground::enter(&[]) else { return };
    let line = Line::new();
    let router = router(&line);
    let socket = RawSocket::open(&line.h1, "eth0");
    let (source, target) = (line.h1.mac_of("eth0"), line.r.mac_of("r1"));
    let before = router.log().lines().count();
    let begun = std::time::Instant::now();
    let mut sent = 0_u32;
    while begun.elapsed() < Duration::from_secs(3) {
        // From nowhere, and to nowhere.
        let frame =
            udp(target, source, Ipv4Addr::new(127, 0, 0, 1), Ipv4Addr::from_bits(0x0a02_0002 + sent % 200));
        socket.try_send(&frame).expect("a frame is sent");
        sent += 1;
    }
    eventually("they are dropped", PATIENCE, || (router.drops("martian_source") > 100).then_some(()));
    let lines = router.log().lines().count() - before;
    assert!(lines < 30, "{lines} lines for {sent} packets: {}", router.log());
    let events = router.json(&["events", "--last", "1000"]);
    assert!(events.to_string().len() < 64 << 10, "{events}");
    router.assert_conservation();
}

/// A frame with a datagram.
fn udp(target: [u8; 6], source: [u8; 6], from: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
    let mut header = [0x45, 0, 0, 46, 0, 1, 0, 0, 64, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    header[12..16].copy_from_slice(&from.octets());
    header[16..20].copy_from_slice(&to.octets());
    let sum: u32 = header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    [&target[..], &source, &[8, 0], &header, &[0, 7, 0, 9, 0, 26, 0, 0], &[0; 18]].concat()
}

#[test]
fn names_that_no_terminal_should_see_are_refused_and_stand_in_one_line_of_each_log() {
    let Some(_ground) = Ground::enter(&["curl"]) else { return };
    let line = Line::new();
    let router = router(&line);
    let names = [
        "<script>alert(1)</script>\n",
        "a\r\nHTTP/1.1 200 OK",
        "../../etc/passwd",
        "a\0b",
        "\u{202e}gnp.exe",
        "\u{1b}[2J\u{1b}]0;x\u{7}",
        "",
        &"x".repeat(1 << 19),
    ];
    let before = router.log().lines().count();
    for name in names {
        let body = line.write("body.json", &json!({"plugin": "statistics", "name": name}).to_string());
        let asked = format!(
            "curl -s -o /dev/null -w '%{{http_code}}' --unix-socket {} -X POST http://m/instances \
             -H 'content-type: application/json' --data-binary @{}",
            router.socket().display(),
            body.display()
        );
        let status = line.r.run(&asked);
        assert_eq!(status.trim(), "400", "{:?}", name.chars().take(40).collect::<String>());
    }
    let raw = router.log();
    assert!(raw.lines().count() - before <= names.len(), "{raw}");
    let is_harmless = |text: &str| {
        !text.chars().any(|letter| {
            letter.is_control() && letter != '\n' || ('\u{202a}'..='\u{202e}').contains(&letter)
        })
    };
    assert!(is_harmless(&raw), "{raw:?}");
    let shown = router.ask(&["audit"]);
    assert!(is_harmless(&shown), "{shown:?}");
    assert_eq!(shown.lines().filter(|line| line.contains("POST /instances")).count(), names.len(), "{shown}");
    assert!(router.json(&["show", "instances"]).as_array().is_some_and(Vec::is_empty));
}
