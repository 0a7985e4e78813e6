//! Packets that an instance writes to, cuts or lengthens, at gates of every position. A packet that becomes
//! malformed counts as the instance's fault, and later stages don't rely on its headers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrace_packet::{DropReason, Packet};
use millrace_plugin_abi::{
    Instance, Instant, Message, Packets, Plugin, PluginError, Position, Progress, Reply, Verdict,
};
use millrace_testkit::Random;
use millrace_tests::{Frame, Ipv4Frame, Ipv6Frame, STANDARD, Scenario};
use millrace_units::{PortId, QueueId};
use serde_json::{Map, Value};

/// Gates of each position: early, route, late, copy, queue.
const GATES: [&str; 7] = ["options", "security-in", "firewall", "route", "process", "monitor", "schedule"];

/// Change of a packet, with the functions that a sandboxed plugin has.
#[derive(Clone, Debug)]
enum Change {
    /// Cut or lengthening at the front by `packet_resize`, in bytes.
    Resize(i32),
    /// Bytes written at an offset, by `packet_write` or in the window.
    Write(usize, Vec<u8>),
    /// Correction of the IPv4 header checksum.
    Checksum,
    /// Verdict of the packet.
    Verdict(Verdict),
}

/// Changes that the instance makes to the next packets, one list for each packet.
type Script = Arc<Mutex<VecDeque<Vec<Change>>>>;

struct Vandal(Script);

impl Plugin for Vandal {
    fn name(&self) -> &'static str {
        "vandal"
    }

    fn version(&self) -> &'static str {
        "1.0.0"
    }

    fn summary(&self) -> &'static str {
        "Changes packets as a test says."
    }

    fn positions(&self) -> &[Position] {
        &[Position::Early, Position::Route, Position::Late, Position::Copy, Position::Queue]
    }

    fn messages(&self) -> &[(&'static str, &'static str)] {
        &[]
    }

    fn create(&self, _: &Map<String, Value>) -> Result<Box<dyn Instance>, PluginError> {
        Ok(Box::new(Vandal(self.0.clone())))
    }
}

impl Instance for Vandal {
    fn process(&mut self, packets: &mut Packets<'_>, now: Instant) -> Progress {
        let mut script = self.0.lock().unwrap();
        packets.for_each(|_, packet| {
            let mut verdict = Verdict::Pass;
            for change in script.pop_front().unwrap_or_default() {
                match change {
                    Change::Verdict(Verdict::Hold(_)) => {
                        verdict = Verdict::Hold(now + Duration::from_millis(1))
                    }
                    Change::Verdict(other) => verdict = other,
                    other => carry_out(packet, other),
                }
            }
            verdict
        });
        Progress::Done
    }

    fn control(&mut self, _: &Message) -> Reply {
        Ok(Value::Null)
    }
}

fn carry_out(packet: &mut Packet, change: Change) {
    match change {
        Change::Resize(bytes) => {
            let count = bytes.unsigned_abs() as usize;
            if bytes < 0 {
                let _ = packet.trim_front(count);
            } else if let Some(data) = packet.prepend(count) {
                data[..count].fill(0);
            }
        }
        Change::Write(at, bytes) => {
            let room = packet.data_mut().get_mut(at..).unwrap_or_default();
            let count = room.len().min(bytes.len());
            room[..count].copy_from_slice(&bytes[..count]);
        }
        Change::Checksum => {
            let header = packet.network_mut();
            let length = usize::from(header.first().copied().unwrap_or(0) & 15) * 4;
            if (20..=header.len()).contains(&length) {
                header[10..12].fill(0);
                let sum = millrace_tests::checksum(&header[..length]).to_be_bytes();
                header[10..12].copy_from_slice(&sum);
            }
        }
        Change::Verdict(_) => {}
    }
}

fn router(gate: &str, script: &Script, more: &str) -> Scenario {
    let text = format!(
        "[router]\nframes = 2048\n[plugins]\nfaults = 1000\nfault-window = \"1s\"\n{STANDARD}\n\
         [[instance]]\nplugin = \"vandal\"\nname = \"vandal\"\n\
         [[bind]]\ninstance = \"vandal\"\ngate = \"{gate}\"\nfilter = \"*\"\n{more}"
    );
    Scenario::with_plugin(&text, Arc::new(Vandal(script.clone())))
}

fn frames() -> Vec<Vec<u8>> {
    let frames: Vec<Box<dyn Frame>> = vec![
        Box::new(Ipv4Frame::udp()),
        Box::new(Ipv4Frame::udp().payload(b"")),
        Box::new(Ipv4Frame::tcp()),
        Box::new(Ipv4Frame::udp().dst("198.51.100.1")),
        Box::new(Ipv4Frame::echo().dst("10.1.0.1")),
        Box::new(Ipv4Frame::udp().length(1500)),
        Box::new(Ipv4Frame::udp().length(6000)),
        Box::new(Ipv4Frame::raw(17).offset(1480).more_fragments()),
        Box::new(Ipv4Frame::udp().options(&[7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0, 1])),
        Box::new(Ipv6Frame::udp()),
        Box::new(Ipv6Frame::udp().length(1500)),
        Box::new(Ipv6Frame::udp().length(6000)),
        // A packet whose header would also be complete if read as IPv4.
        Box::new(Ipv6Frame::udp().length(1500).traffic_class(0xb8).flow_label(1500)),
        Box::new(Ipv6Frame::echo().dst("fd00:1::1")),
        Box::new(Ipv6Frame::udp().extension(0, &[0, 5, 2, 0, 0, 0, 0]).extension(60, &[0, 1, 4, 0, 0, 0, 0])),
        Box::new(Ipv6Frame::udp().fragment(0, true, 7)),
    ];
    frames.iter().map(|frame| frame.bytes()).collect()
}

/// Wrong values for header bytes.
const WRONG: [u8; 12] = [0, 1, 2, 4, 5, 0x40, 0x45, 0x4f, 0x60, 0x86, 0xfe, 0xff];

fn next_change(random: &mut Random) -> Change {
    match random.below(8) {
        0 => Change::Resize(-(random.below(70) as i32)),
        1 => Change::Resize(*random.pick(&[-14, -16, -33, -34, -35, -54, -2048, 1, 14, 100, 256])),
        2..=4 => Change::Write(12 + random.below(60), vec![*random.pick(&WRONG)]),
        5 => {
            let length = random.below(40);
            Change::Write(random.below(60), random.bytes(length))
        }
        6 => Change::Checksum,
        _ => Change::Verdict(*random.pick(&[
            Verdict::Hold(Instant::ZERO),
            Verdict::Classify,
            Verdict::Port(PortId(1)),
            Verdict::Ports(0b110),
            Verdict::Port(PortId(9)),
            Verdict::Queue(QueueId(77)),
            Verdict::Drop(3),
            Verdict::Fault,
        ])),
    }
}

fn check_outputs(router: &mut Scenario, what: &dyn std::fmt::Debug) {
    for output in router.take_all().into_values().flatten() {
        match output.ether_type() {
            0x0800 => {
                let header = output.ipv4();
                assert!(header.ttl() > 0, "{what:?}: {output:?}");
                assert_eq!(usize::from(header.total_len()), output.network().len(), "{what:?}: {output:?}");
            }
            0x86dd => {
                assert!(output.ipv6().hop_limit() > 0, "{what:?}: {output:?}");
                assert_eq!(output.ipv6().total_len(), output.network().len(), "{what:?}: {output:?}");
            }
            0x0806 => drop(output.arp()),
            other => panic!("{what:?} led to a frame of type {other:#06x}: {output:?}"),
        }
    }
}

fn arbitrary_changes(gate: &str, seed: u64, more: &str) {
    let (script, mut random, frames) = (Script::default(), Random::new(seed), frames());
    let mut router = router(gate, &script, more);
    for number in 0..1500 {
        let frame = random.pick(&frames).clone();
        if random.below(2) == 0 {
            // Sends the frame once without changes, so that its flow is known.
            script.lock().unwrap().clear();
            router.send("a", &frame);
        }
        let changes: Vec<Change> = (0..=random.below(4)).map(|_| next_change(&mut random)).collect();
        script.lock().unwrap().push_back(changes.clone());
        router.send("a", &frame);
        script.lock().unwrap().clear();
        router.advance(Duration::from_millis(1001));
        let what = (gate, seed, number, changes);
        check_outputs(&mut router, &what);
        router.check_conservation();
    }
    let summary = router.router.summary();
    assert!(summary.transmitted > 100, "{gate}: hardly a packet left: {summary:?}");
    assert!(router.dropped(DropReason::PluginFailed) > 100 || gate == "monitor", "{gate}: {summary:?}");
}

#[test]
fn arbitrary_writes_and_resizes_neither_panic_nor_leave_malformed() {
    for (seed, gate) in (0..).zip(GATES) {
        arbitrary_changes(gate, seed, "");
    }
}

#[test]
fn arbitrary_changes_of_packets_with_copies_neither_panic_nor_leave_malformed() {
    let copies = "[[filter]]\nmatch = \"*\"\naction = \"copy-to c via 10.3.0.2\"\n";
    for (seed, gate) in (100..).zip(["security-in", "process", "schedule"]) {
        arbitrary_changes(gate, seed, copies);
    }
}

#[test]
fn packet_kept_at_the_queue_while_the_mtu_became_smaller_is_refused_and_not_fragmented() {
    let script = Script::default();
    let mut router = router("schedule", &script, "");
    let frame = Ipv6Frame::udp().length(1500).traffic_class(0xb8).flow_label(1500);
    script.lock().unwrap().push_back(vec![Change::Verdict(Verdict::Hold(Instant::ZERO))]);
    router.send("a", &frame);
    router.router.set_mtu("b", 1400);
    router.advance(Duration::from_millis(2));
    let sent = router.take_all();
    assert!(!sent.contains_key("b"), "{sent:?}");
    assert_eq!(router.dropped(DropReason::TooBig), 1);
    router.check_conservation();
}

#[test]
fn cut_packet_is_dropped_as_plugin_failed_and_counts_against_the_instance() {
    let script = Script::default();
    let mut router = router("firewall", &script, "");
    script.lock().unwrap().push_back(vec![Change::Resize(-34)]);
    router.expect_drop("a", &Ipv4Frame::udp().payload(b""), DropReason::PluginFailed);
    router.advance(Duration::from_secs(2));
    // After the pause of the instance, packets pass again.
    router.expect_forwarded("a", &Ipv4Frame::udp(), "b");
}

#[test]
fn repeated_malformed_packets_quarantine_the_instance() {
    let script = Script::default();
    let text = format!(
        "{STANDARD}\n[[instance]]\nplugin = \"vandal\"\nname = \"vandal\"\n\
         [[bind]]\ninstance = \"vandal\"\ngate = \"firewall\"\nfilter = \"*\"\n"
    );
    let mut router = Scenario::with_plugin(&text, Arc::new(Vandal(script.clone())));
    for _ in 0..8 {
        script.lock().unwrap().push_back(vec![Change::Resize(-34)]);
        router.expect_drop("a", &Ipv4Frame::udp(), DropReason::PluginFailed);
        router.advance(Duration::from_secs(2));
    }
    script.lock().unwrap().clear();
    router.expect_drop("a", &Ipv4Frame::udp(), DropReason::PluginFailed);
    router.advance(Duration::from_secs(30));
    router.expect_drop("a", &Ipv4Frame::udp(), DropReason::PluginFailed);
}
