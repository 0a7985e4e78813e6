//! Ports without a kernel device: VLAN sub-interfaces, TAP devices, impaired ports.

use std::time::Duration;

use millrace_testkit::{Flow, Ground, Line, Millrace, RawSocket, eventually};
use millrace_tests::{ArpFrame, Frame, Ipv4Frame};
use millrace_wire::MacAddr;

use crate::support::to;

/// Time limit for a reply.
const PATIENCE: Duration = Duration::from_secs(2);
/// MAC address of the host that sends tagged frames. The test simulates it at `h1`.
const HOST: MacAddr = MacAddr([2, 0, 0, 0, 0x77, 1]);
/// VLAN tag of the host: EtherType of 802.1Q, VLAN 10.
const TAG: (u16, u16) = (0x8100, 10);

fn config(line: &Line, driver: &str) -> String {
    let text = format!(
        "[router]\non-death = \"kernel\"\n\
         [[port]]\nname = \"trunk\"\ndevice = \"r1\"\ndriver = \"{driver}\"\n\
         [[port]]\nname = \"v10\"\ndevice = \"r1\"\nvlan = 10\naddress = [\"10.10.0.1/24\", \"fd00:10::1/64\"]\n\
         [[port]]\nname = \"b\"\ndevice = \"r2\"\ndriver = \"{driver}\"\n"
    );
    line.write("vlan.toml", &text).display().to_string()
}

/// Whether a frame has the tag [`TAG`], followed by this EtherType.
fn is_tagged(frame: &[u8], ether_type: u16) -> bool {
    let tag = [TAG.0.to_be_bytes(), TAG.1.to_be_bytes(), ether_type.to_be_bytes()].concat();
    frame.get(12..18) == Some(&tag)
}

fn assert_a_tagged_host_is_served(driver: &str) {
    let Some(_ground) = Ground::enter(&["ping"]) else { return };
    let line = Line::new();
    let router = Millrace::start(&line.r, &format!("--config {}", config(&line, driver)));
    // A veth reports that it removes tags. But tags that a raw socket writes into the frame stay there.
    let warned = router.log().contains("device r1 strips VLAN tags before the XDP program");
    assert_eq!(warned, driver != "af_packet", "{}", router.log());
    line.h2.ip("route replace default via 10.2.0.1");
    let wire = RawSocket::open(&line.h1, "eth0");

    let question = ArpFrame::request("10.10.0.2", "10.10.0.1").tag(TAG.0, TAG.1).sender(HOST);
    wire.send(&question.bytes());
    let answer = wire.receive(PATIENCE, |frame| is_tagged(frame, 0x0806) && frame[25] == 2);
    let answer = answer.expect("an ARP reply with the tag");
    assert_eq!(&answer[..6], HOST.0.as_slice());
    let router_mac = MacAddr(answer[6..12].try_into().unwrap());

    let echo = |destination: &str| {
        let frame = Ipv4Frame::echo().to(router_mac).from(HOST).tag(TAG.0, TAG.1);
        frame.src("10.10.0.2").dst(destination).bytes()
    };
    let is_reply = |frame: &[u8]| is_tagged(frame, 0x0800) && frame[18 + 9] == 1 && frame[18 + 20] == 0;
    wire.send(&echo("10.10.0.1"));
    wire.receive(PATIENCE, is_reply).expect("the sub-interface answers an echo request");
    // The kernel has no such subnet: the router itself routes the echo reply of h2.
    wire.send(&echo("10.2.0.2"));
    let reply = wire.receive(PATIENCE, is_reply).expect("the host behind the other port answers");
    assert_eq!((&reply[..6], &reply[30..34]), (HOST.0.as_slice(), [10, 2, 0, 2].as_slice()));

    // In the opposite direction the router resolves the host's address with tagged frames.
    line.h2.ip("neigh flush dev eth0");
    let pinger = std::thread::scope(|scope| {
        let pinger = scope.spawn(|| line.h2.succeeds("ping -c 3 -i 0.3 -W 2 10.10.0.3"));
        let asked = wire.receive(PATIENCE, |frame| {
            is_tagged(frame, 0x0806) && frame[25] == 1 && frame[42..46] == [10, 10, 0, 3]
        });
        assert!(asked.is_some(), "an ARP request with the tag");
        let reply = ArpFrame::reply("10.10.0.3", "10.10.0.1").tag(TAG.0, TAG.1).sender(HOST).to(router_mac);
        wire.send(&reply.bytes());
        let request = wire
            .receive(PATIENCE, |frame| is_tagged(frame, 0x0800) && frame[34..38] == [10, 10, 0, 3])
            .expect("the held packet, with the tag");
        assert_eq!(request[18 + 8], 63, "its TTL");
        pinger.join().unwrap()
    });
    assert!(!pinger, "nobody has answered");

    // The router drops frames with unknown tags, and still forwards untagged frames.
    let unknown = Ipv4Frame::echo().to(router_mac).from(HOST).tag(TAG.0, 11).src("10.10.0.2").dst("10.2.0.2");
    wire.send(&unknown.bytes());
    line.h1.run("ping -c 2 -i 0.2 -W 2 10.2.0.2");
    router.assert_conservation();
}

#[test]
fn sub_interface_has_its_own_arp_and_echo_on_af_xdp() {
    assert_a_tagged_host_is_served("af_xdp");
}

#[test]
fn sub_interface_has_its_own_arp_and_echo_on_af_packet() {
    assert_a_tagged_host_is_served("af_packet");
}

#[test]
fn tap_port_has_its_own_arp_nd_and_echo_and_forwards() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let config = "[[port]]\nname = \"b\"\ndevice = \"r2\"\n\
                  [[port]]\nname = \"mrtap\"\nkind = \"tap\"\naddress = [\"10.5.0.1/24\", \"fd00:5::1/64\"]\n";
    let config = line.write("tap.toml", config).display().to_string();
    let mut router = Millrace::start(&line.r, &format!("--config {config}"));
    // The guest is a namespace, to which the TAP device is moved.
    let guest = millrace_testkit::Namespace::new("guest");
    line.r.ip(&format!("link set mrtap netns {}", guest.name()));
    guest.ip("link set mrtap up\naddress add 10.5.0.2/24 dev mrtap\naddress add fd00:5::2/64 dev mrtap nodad
              route add default via 10.5.0.1\nroute add default via fd00:5::1");
    guest.run("ping -c 2 -i 0.2 -W 2 10.5.0.1");
    guest.run("ping -c 2 -i 0.2 -W 2 fd00:5::1");
    guest.run("ping -c 2 -i 0.2 -W 2 10.2.0.2");
    guest.run("ping -c 2 -i 0.2 -W 2 fd00:2::2");
    line.h2.run("ping -c 2 -i 0.2 -W 2 10.5.0.2");
    millrace_testkit::transfer(&guest, &line.h2, to("10.2.0.2:7000"), 4 << 20);
    router.assert_conservation();
    assert!(router.end_by(nix::sys::signal::Signal::SIGTERM).success());
    assert!(!guest.succeeds("ip link show mrtap"), "the device goes with the router");
}

#[test]
fn impaired_port_loses_packets_as_configured_and_counts_them() {
    let Some(_ground) = Ground::enter_alone(&[]) else { return };
    let line = Line::new();
    let config = "[[port]]\nname = \"a\"\ndevice = \"r1\"\n\
                  [[port]]\nname = \"b\"\ndevice = \"r2\"\nimpair = { loss = 0.1, seed = 7 }\n";
    let config = line.write("impair.toml", config).display().to_string();
    let router = Millrace::start(&line.r, &format!("--config {config}"));
    // The ping resolves the neighbour. Otherwise packets held for the neighbour would be dropped.
    line.h1.succeeds("ping -c 5 -i 0.2 -W 1 10.2.0.2");
    let report = crate::support::flow_for(&line, 2000, Duration::from_secs(1));
    let part = report.lost() as f64 / report.sent as f64;
    // A tenth of 2,000 packets is 200, with a standard deviation of 13.
    assert!((0.06..0.14).contains(&part), "{report:?}");
    eventually("the losses are counted", PATIENCE, || {
        (router.drops("impaired") >= report.lost()).then_some(())
    });
    router.assert_conservation();
}

#[test]
fn impaired_port_delays_packets_as_configured() {
    let Some(_ground) = Ground::enter_alone(&["ping"]) else { return };
    let line = Line::new();
    let config = "[[port]]\nname = \"a\"\ndevice = \"r1\"\n\
                  [[port]]\nname = \"b\"\ndevice = \"r2\"\nimpair = { delay-ms = 30, seed = 7 }\n";
    let config = line.write("delay.toml", config).display().to_string();
    let router = Millrace::start(&line.r, &format!("--config {config}"));
    line.h1.run("ping -c 1 -W 2 10.2.0.2");
    let answer = line.h1.run("ping -c 5 -i 0.2 -W 2 10.2.0.2");
    let least: f64 = answer.rsplit("= ").next().unwrap().split('/').next().unwrap().parse().unwrap();
    assert!((30.0..80.0).contains(&least), "{answer}");
    let flow = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 64);
    flow.go_on(Duration::from_millis(500));
    let report = flow.finish();
    assert_eq!((report.lost(), report.reordered), (0, 0), "{report:?}");
    router.assert_conservation();
}
