//! Control-plane policing: a flood to the router itself causes loss only in its own class.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use millrace_offload::{Flows, FrameSource};
use millrace_testkit::{Background, Ground, Line, Millrace, Namespace, eventually};
use serde_json::Value;

/// Number of frames sent between two pauses. A veth holds 256 frames; if it lost any, they would not reach
/// the policer.
const PIECE: u32 = 192;
const BATCH: u32 = 32;

/// Returns a frame with an IPv4 packet that has a correct header checksum.
pub fn frame(
    line: &Line,
    host: (&Namespace, &str),
    to: ([u8; 6], [u8; 4]),
    protocol: u8,
    payload: &[u8],
) -> Vec<u8> {
    let options: &[u8] = if protocol == 46 { &[0x94, 4, 0, 0] } else { &[] };
    let header = 20 + options.len();
    let mut packet = vec![0; header];
    packet[0] = 0x40 | (header / 4) as u8;
    packet[2..4].copy_from_slice(&((header + payload.len()) as u16).to_be_bytes());
    (packet[8], packet[9]) = (64, protocol);
    // An unused address in the host's network.
    packet[12..16].copy_from_slice(&[10, if host.0.name() == line.h1.name() { 1 } else { 2 }, 0, 77]);
    packet[16..20].copy_from_slice(&to.1);
    packet[20..header].copy_from_slice(options);
    let sum: u32 = packet.chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    let own = host.0.mac_of(host.1);
    [&to.0[..], &own, &[8, 0], &packet, payload].concat()
}

/// Adds a static neighbour for the source address of floods. Otherwise, answers to the unresolved address
/// would fill the only buffer that the kernel has for echo replies.
fn know_the_flooder(line: &Line) {
    for (host, device, address) in [(&line.h1, "r1", "10.1.0.77"), (&line.h2, "r2", "10.2.0.77")] {
        let mac = host.mac_of("eth0").map(|byte| format!("{byte:02x}")).join(":");
        line.r.ip(&format!("neigh replace {address} lladdr {mac} dev {device}"));
    }
}

/// Returns a frame of this class for a flood, from a host to the router's address on its link.
fn flood_of(line: &Line, class: &str, host: (&Namespace, &str), (device, own): (&str, [u8; 4])) -> Vec<u8> {
    let mac = line.r.mac_of(device);
    let syn = [0xc0, 0, 0, 179, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0];
    let group = ([1, 0, 0x5e, 0, 0, 5], [224, 0, 0, 5]);
    match class {
        "bgp" => frame(line, host, (mac, own), 6, &syn),
        "ospf" => {
            frame(line, host, group, 89, &[2, 1, 0, 44, 9, 9, 9, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
        }
        "icmp" => frame(line, host, (mac, own), 1, &[8, 0, 0xf7, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        "options" => frame(line, host, (mac, own), 46, &[0x10, 1, 0, 0, 64, 0, 0, 8]),
        other => panic!("no flood of {other}"),
    }
}

/// Sends copies of a frame for this time. Returns their number.
pub fn flood(host: (&Namespace, &str), frame: &[u8], time: Duration) -> u64 {
    let device = host.0.index_of(host.1);
    host.0.within(|| {
        let mut source = FrameSource::new(&[frame], Flows::default()).unwrap();
        let (start, mut sent) = (Instant::now(), 0);
        while start.elapsed() < time {
            sent += source.send(device, PIECE, BATCH).unwrap();
            thread::sleep(Duration::from_micros(300));
        }
        sent
    })
}

fn classes(router: &Millrace) -> Vec<(String, u64, u64)> {
    let value = router.json(&["control-plane", "show"]);
    let class = |row: &Value| {
        let count = |key: &str| row[key].as_u64().unwrap_or_else(|| panic!("no {key}: {row:#}"));
        (row["class"].as_str().unwrap_or_default().to_owned(), count("passed"), count("dropped"))
    };
    value["classes"].as_array().into_iter().flatten().map(class).collect()
}

fn of(router: &Millrace, class: &str) -> (u64, u64) {
    let found = classes(router).into_iter().find(|(name, ..)| name == class);
    found.map(|(_, passed, dropped)| (passed, dropped)).unwrap_or_else(|| panic!("no class {class}"))
}

/// Runs a TCP connection to an echo server at the router, with one word in flight, for this time. Returns the
/// number of words and the longest answer time.
fn talk(line: &Line, time: Duration) -> (u64, Duration) {
    let listener = line.r.within(|| TcpListener::bind("10.1.0.1:7000").unwrap());
    thread::scope(|scope| {
        scope.spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut word = [0; 8];
            while stream.read_exact(&mut word).is_ok() {
                stream.write_all(&word).unwrap();
            }
        });
        let mut stream = line.h1.within(|| TcpStream::connect("10.1.0.1:7000").unwrap());
        stream.set_nodelay(true).unwrap();
        let (start, mut words, mut longest) = (Instant::now(), 0_u64, Duration::ZERO);
        while start.elapsed() < time {
            let sent = Instant::now();
            stream.write_all(&words.to_be_bytes()).unwrap();
            let mut answer = [0; 8];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(u64::from_be_bytes(answer), words);
            words += 1;
            longest = longest.max(sent.elapsed());
            thread::sleep(Duration::from_millis(2));
        }
        (words, longest)
    })
}

/// Floods each class in turn. Checks that no other class loses packets, and that every packet is counted.
fn assert_classes_are_kept_apart(line: &Line, router: &Millrace) {
    know_the_flooder(line);
    line.h1.run("ping -c 2 -i 0.2 10.1.0.1");
    let host = (&line.h1, "eth0");
    for class in ["bgp", "ospf", "icmp", "options"] {
        let frame = flood_of(line, class, host, ("r1", [10, 1, 0, 1]));
        let before = classes(router);
        let time = Duration::from_millis(1500);
        // If another class is flooded, the pings check that `icmp` loses no packet.
        let (sent, answers) = thread::scope(|scope| {
            let talking = scope.spawn(|| talk(line, time));
            let pinging = scope.spawn(|| line.h1.run("ping -q -c 50 -i 0.02 -W 1 10.2.0.1 || true"));
            let sent = flood(host, &frame, time);
            let (words, longest) = talking.join().unwrap();
            assert!(words > 50 && longest < Duration::from_secs(1), "{class}: {words} words, {longest:?}");
            (sent, pinging.join().unwrap())
        });
        let after = classes(router);
        if class != "icmp" {
            // A flood may overflow the ring of a veth before the policer. The router must have answered all
            // echo requests that passed the ring.
            let (came, _) = of(router, "icmp");
            let was = before.iter().find(|(name, ..)| name == "icmp").unwrap().1;
            assert!(
                answers.contains(&format!(" {} received", came - was)),
                "{class}: {} came: {answers}",
                came - was
            );
            assert!(came - was > 25, "{class}: {answers}");
        }
        for ((name, _, dropped), (_, _, was)) in after.iter().zip(&before) {
            assert!(name == class || dropped == was, "a flood of {class} lost {} of {name}", dropped - was);
        }
        let (passed, dropped) = of(router, class);
        let was = before.iter().find(|(name, ..)| name == class).unwrap();
        assert!(sent > 20_000, "{class}: only {sent} were sent");
        assert!(dropped - was.2 > sent / 2, "{class}: {dropped} dropped of {sent}");
        assert!(passed - was.1 < 10_000, "{class}: {passed} passed of {sent}");
    }
    let dropped: u64 = classes(router).iter().map(|(_, _, dropped)| dropped).sum();
    assert_eq!(router.drops("control_plane"), dropped);
    let metrics = router.ask(&["metrics"]);
    assert!(
        metrics
            .contains("millrace_control_plane_packets_total{port=\"r1\",class=\"icmp\",outcome=\"dropped\"}"),
        "{metrics}"
    );
    router.assert_conservation();
}

#[test]
fn flood_to_the_router_loses_packets_in_its_class_only() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let router = crate::support::router(&line);
    assert_classes_are_kept_apart(&line, &router);
    // Then the test changes rates at run time, and uses a configuration without policing.
    router.ask(&["control-plane", "set", "icmp=5", "bgp=7000"]);
    let shown = router.json(&["control-plane", "show"]);
    assert_eq!((&shown["classes"][1]["rate"], &shown["classes"][1]["burst"]), (&7000.into(), &700.into()));
    let configuration = router.ask(&["show", "configuration"]);
    assert!(configuration.contains("[control-plane]\nbgp = 7000\nicmp = 5\n"), "{configuration}");
    let (_, before) = of(&router, "icmp");
    line.h1.try_run("ping -q -c 100 -i 0.002 -W 1 10.1.0.1");
    assert!(of(&router, "icmp").1 > before + 30, "{:?}", classes(&router));
    router.ask(&["control-plane", "set", "police=false"]);
    let answers = line.h1.run("ping -q -c 100 -i 0.002 -W 1 10.1.0.1");
    assert!(answers.contains(" 0% packet loss"), "{answers}");
    let refused = router.try_ask(&["control-plane", "set", "bgp=0"]);
    refused.assert_refused(1, &["control-plane.bgp must be 1 to 10000000 packets per second, not 0"]);
    router.ask(&["clear"]);
    assert_eq!(of(&router, "bgp"), (0, 0));
    router.assert_conservation();
}

#[test]
fn af_packet_port_polices_packets_to_the_router() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let ports = ["r1", "r2"]
        .map(|name| format!("[[port]]\nname = \"{name}\"\ndevice = \"{name}\"\ndriver = \"af_packet\"\n"));
    let file = line.write("packet.toml", &ports.concat());
    // A veth with neither GRO nor an XDP program loses the frames that an XDP program redirects to it.
    ["r1", "r2"].iter().for_each(|device| drop(line.r.run(&format!("ethtool -K {device} gro on"))));
    let router = Millrace::start(&line.r, &format!("--config {}", file.display()));
    assert_classes_are_kept_apart(&line, &router);
}

fn bird(line: &Line, host: &Namespace, name: &str, own: (&str, u32), other: (&str, u32)) -> Background {
    let config = format!(
        "router id {};\nprotocol device {{ }}\nprotocol static own {{ ipv4; }}\n\
         protocol bgp peer {{ local {} as {}; neighbor {} as {}; hold time 3; keepalive time 1; connect retry time 1;\n\
         ipv4 {{ import all; export none; }}; }}\n",
        own.0, own.0, own.1, other.0, other.1
    );
    let file = line.write(&format!("{name}.conf"), &config).display().to_string();
    let [control, log] = ["ctl", "log"].map(|extension| line.file(&format!("{name}.{extension}")));
    let control = control.display().to_string();
    let arguments = ["-f", "-c", &file, "-s", &control, "-P", &format!("{control}.pid")];
    Background::start(host, "bird", &arguments, log)
}

/// Returns whether two lines of birdc show one established session. birdc computes the time of its beginning from
/// its age, so that it varies by a millisecond.
fn is_same_session(one: &str, other: &str) -> bool {
    let begun = |line: &str| {
        let time = line.split_whitespace().nth(4)?.replace('.', ":");
        let mut parts = time.split(':').map(|part| part.parse::<u64>().ok());
        let mut next = || parts.next().flatten();
        Some(((next()? * 60 + next()?) * 60 + next()?) * 1000 + next()?)
    };
    let is_up = |line: &str| line.contains("Established");
    let near = begun(one).zip(begun(other)).is_some_and(|(one, other)| one.abs_diff(other) < 100);
    is_up(one) && is_up(other) && near
}

/// Floods the router with each class for `time`, while a BGP session stays up.
pub fn assert_session_stays_up(time: Duration) {
    let Some(_ground) = Ground::enter_alone(&["ping", "bird", "birdc"]) else { return };
    let line = Line::new();
    let router = crate::support::router(&line);
    let _here = bird(&line, &line.r, "here", ("10.2.0.1", 65001), ("10.2.0.2", 65002));
    let _there = bird(&line, &line.h2, "there", ("10.2.0.2", 65002), ("10.2.0.1", 65001));
    let control = line.file("here.ctl").display().to_string();
    let session = || {
        let told = line.r.try_run(&format!("birdc -s {control} show protocols peer"));
        String::from_utf8_lossy(&told.stdout).lines().last().unwrap_or_default().to_owned()
    };
    eventually("the session is up", Duration::from_secs(30), || {
        session().contains("Established").then_some(())
    });
    let since = session();
    know_the_flooder(&line);
    // The floods arrive at the port of the BGP session.
    let host = (&line.h2, "eth0");
    for class in ["bgp", "ospf", "icmp", "options"] {
        let frame = flood_of(&line, class, host, ("r2", [10, 2, 0, 1]));
        let sent = flood(host, &frame, time);
        let now = session();
        assert!(is_same_session(&now, &since), "after {sent} of {class}: {now:?}, before {since:?}");
        assert!(of(&router, class).1 > sent / 2, "{class}: {:?} of {sent}", of(&router, class));
    }
    assert_eq!(of(&router, "established").1, 0, "{:?}", classes(&router));
    router.assert_conservation();
}

#[test]
fn a_session_of_bgp_stays_up_through_ten_seconds_of_floods() {
    assert_session_stays_up(Duration::from_millis(2500));
}
