//! Tests in the SDK's test router that the plugin drops packets by port.

use std::net::IpAddr;

use millrace_sdk::Verdict;
use millrace_sdk::testing::{Router, frame_of_ports};
use port_filter_rs::PortFilter;

fn frame(protocol: u8, port: u16) -> Vec<u8> {
    let (a, b) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
    frame_of_ports(a, b, protocol, (4000, port), b"payload")
}

fn verdicts(router: &mut Router<PortFilter>, frames: &[Vec<u8>]) -> Vec<Verdict> {
    router.send(frames).iter().map(|fate| fate.verdict).collect()
}

#[test]
fn ports_in_the_ranges_are_dropped() {
    let mut router = Router::<PortFilter>::new(r#"{"ports": "80, 1000-2000"}"#).unwrap();
    let frames = [frame(6, 80), frame(17, 1500), frame(17, 2001), frame(1, 80)];
    let (pass, dropped) = (Verdict::Pass, Verdict::Drop(0));
    assert_eq!(verdicts(&mut router, &frames), [dropped, dropped, pass, pass]);
    let read = router.control("read", "{}").unwrap();
    assert_eq!(read, r#"{"ports":"80, 1000-2000","packets":4,"dropped":2}"#);
}

#[test]
fn packet_with_hidden_ports_does_not_pass() {
    let mut router = Router::<PortFilter>::new(r#"{"ports": 80}"#).unwrap();
    let mut cut = frame(6, 80);
    cut.truncate(14 + 20 + 2);
    let mut fragment = frame(6, 80);
    fragment[14 + 7] = 1;
    assert_eq!(verdicts(&mut router, &[cut, fragment]), [Verdict::Drop(1), Verdict::Pass]);
}

#[test]
fn changed_ports_apply_between_packets_and_are_logged() {
    let mut router = Router::<PortFilter>::new("{}").unwrap();
    assert_eq!(verdicts(&mut router, &[frame(17, 53)]), [Verdict::Pass]);
    router.control("set", r#"{"ports": 53}"#).unwrap();
    assert_eq!(verdicts(&mut router, &[frame(17, 53)]), [Verdict::Drop(0)]);
    assert_eq!(router.record().log[0].1, "ports are now 53");
}

#[test]
fn wrong_ports_are_refused_and_change_nothing() {
    let mut router = Router::<PortFilter>::new(r#"{"ports": 80}"#).unwrap();
    for ports in ["1,2,3,4,5,6", "9-5", "http", "65536", "80,"] {
        assert!(router.control("set", &format!(r#"{{"ports": "{ports}"}}"#)).is_err(), "{ports}");
    }
    assert_eq!(verdicts(&mut router, &[frame(6, 80)]), [Verdict::Drop(0)]);
}
