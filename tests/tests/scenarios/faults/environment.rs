//! Faults of the machine and attacks: a full disk, floods, and names with control characters.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use millrace_testkit::{Ground, Line, Millrace, RawSocket, eventually};
use serde_json::json;

use crate::support::reference::Reference;
use crate::support::{SmallDisk, router};

const PATIENCE: Duration = Duration::from_secs(20);

/// Makes a router's disk refuse writes, and then accept them again. In between the router must refuse changes
/// for this `reason`, and lose no packet.
fn assert_survives_disk(
    reason: &str,
    breaks: impl Fn(&SmallDisk, &Millrace),
    mends: impl Fn(&SmallDisk, &Millrace),
) {
    let Some(_ground) = Ground::enter_alone(&["mount", "nsenter", "curl", "ping"]) else { return };
    let line = Line::new();
    let disk = SmallDisk::new(line.file("state"), "4m");
    let text = format!(
        "[router]\non-death = \"kernel\"\n[plugins]\nstate = \"{}\"\n\
         [[port]]\nname = \"lan\"\ndevice = \"r1\"\n[[port]]\nname = \"wan\"\ndevice = \"r2\"\n",
        disk.0.display()
    );
    let config = line.write("router.toml", &text).display().to_string();
    let more_text = format!("{text}[[filter]]\nmatch = \"proto udp dport 99\"\naction = \"drop\"\n");
    let more = line.write("more.toml", &more_text).display().to_string();
    let router = Millrace::start(&line.r, &format!("--config {config}"));
    let flows = Reference::start(&line);
    breaks(&disk, &router);
    router
        .try_ask(&["apply", &more])
        .assert_refused(1, &["store the revision", reason, "all changes are undone"]);
    assert!(router.ask(&["diff", &config]).contains("equals the running configuration"));
    let apply = json!({"text": more_text, "origin": "more.toml"}).to_string();
    let token = json!({"name": "t", "role": "viewer"}).to_string();
    let post = |path: &str, body: &str| post(&line, &router, path, body);
    for (path, body) in [("/configuration", &*apply), ("/tokens", &token)] {
        let answer = post(path, body);
        assert!(answer.starts_with("507 application/problem+json"), "{path}: {answer}");
        assert!(answer.contains(reason), "{path}: {answer}");
    }
    assert!(router.json(&["events", "--last", "50"]).to_string().contains("audit-failed"));
    mends(&disk, &router);
    assert!(post("/tokens", &token).starts_with("201 "));
    router.ask(&["apply", &more]);
    assert_eq!(router.json(&["history"])[0]["changes"], 1);
    flows.assert_undisturbed(reason);
    router.assert_conservation();
    drop(router);
}

#[test]
fn a_disk_that_is_full_refuses_changes_until_there_is_room_and_costs_no_packet() {
    let full = |disk: &SmallDisk| disk.0.join("full");
    assert_survives_disk(
        "No space left on device",
        // Writes until the disk is full.
        |disk, _| drop(fs::write(full(disk), vec![0; 8 << 20]).unwrap_err()),
        |disk, _| fs::remove_file(full(disk)).unwrap(),
    );
}

/// Runs a shell script in the mount namespace of a router, with a directory as `$0`.
fn among_mounts(router: &Millrace, directory: &Path, script: &str) {
    let mut command = Command::new("nsenter");
    command.args(["-t", &router.pid().to_string(), "-m", "sh", "-ec", script]).arg(directory);
    let output = command.output().expect("nsenter");
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn fault_27_read_only_disk_refuses_changes_until_writable_and_costs_no_packet() {
    // A file system with files open for writing can't be remounted, so the test mounts a read-only one over
    // it.
    let read_only = "mount --bind \"$0\" \"$0\"; mount -o remount,bind,ro \"$0\"";
    assert_survives_disk(
        "Read-only file system",
        |disk, router| among_mounts(router, &disk.0, read_only),
        |disk, router| among_mounts(router, &disk.0, "umount \"$0\""),
    );
}

#[test]
fn fault_27_slow_disk_delays_only_its_writers() {
    let Some(_ground) = Ground::enter_alone(&["strace", "ping"]) else { return };
    let line = Line::new();
    let text = format!(
        "[router]\non-death = \"kernel\"\n[plugins]\nstate = \"{}\"\n\
         [[port]]\nname = \"lan\"\ndevice = \"r1\"\n[[port]]\nname = \"wan\"\ndevice = \"r2\"\n",
        line.file("state").display()
    );
    let config = line.write("router.toml", &text).display().to_string();
    let more = format!("{text}[[filter]]\nmatch = \"proto udp dport 99\"\naction = \"drop\"\n");
    let more = line.write("more.toml", &more).display().to_string();
    // Each call that syncs the disk takes a second; strace doesn't delay other calls.
    let inject = "inject=fsync,fdatasync:delay_enter=1000000";
    let by = [
        "strace",
        "-D",
        "-f",
        "-qq",
        "--seccomp-bpf",
        "-o",
        "/dev/null",
        "-e",
        "trace=fsync,fdatasync",
        "-e",
        inject,
    ];
    let router = Millrace::try_start_by(&line.r, &by, &format!("--config {config}")).unwrap();
    let flows = Reference::start(&line);
    let begin = Instant::now();
    let mut apply = router.client().args(["apply", &more]).spawn().expect("a client");
    let (mut answers, mut longest) = (0, Duration::ZERO);
    while apply.try_wait().expect("a client").is_none() {
        let asked = Instant::now();
        router.ask(&["show", "summary"]);
        (answers, longest) = (answers + 1, longest.max(asked.elapsed()));
    }
    let took = begin.elapsed();
    println!("applied in {took:?}; {answers} answers meanwhile, in {longest:?} at most");
    assert!(apply.wait().expect("a client").success());
    assert!(took > Duration::from_secs(1), "the disk was not slow: {took:?}");
    assert!(longest < Duration::from_millis(500), "others waited {longest:?} for the disk");
    flows.assert_undisturbed("a slow disk");
    router.assert_conservation();
}

/// Sends a body to the API. Returns the status, the content type, and the answer.
fn post(line: &Line, router: &Millrace, path: &str, body: &str) -> String {
    let file = line.write("body.json", body);
    line.r.run(&format!(
        "curl -s -o {answer} -w '%{{http_code}} %{{content_type}} ' --unix-socket {socket} -X POST http://m{path} \
         -H 'content-type: application/json' --data-binary @{file} && cat {answer}",
        answer = line.file("answer").display(),
        socket = router.socket().display(),
        file = file.display()
    ))
}

#[test]
fn a_flood_of_packets_that_are_dropped_fills_no_log() {
    let Some(_ground) = Ground::enter_alone(&[]) else { return };
    let line = Line::new();
    let router = router(&line);
    let socket = RawSocket::open(&line.h1, "eth0");
    let (source, target) = (line.h1.mac_of("eth0"), line.r.mac_of("r1"));
    let before = router.log().lines().count();
    let begun = Instant::now();
    let mut sent = 0_u32;
    while begun.elapsed() < Duration::from_secs(3) {
        // The source address is forbidden, and most destinations don't exist.
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

/// Returns a frame with a UDP datagram.
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
