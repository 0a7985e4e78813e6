//! Tests in the SDK's test router that the plugin counts its packets.

use std::net::IpAddr;

use millrace_sdk::Verdict;
use millrace_sdk::testing::{Router, frame_of_ports};
use statistics_rs::Statistics;

fn frame(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let (a, b) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
    frame_of_ports(a, b, protocol, (1, 2), payload)
}

#[test]
fn packets_and_bytes_are_counted_by_protocol() {
    let mut router = Router::<Statistics>::new("{}").unwrap();
    let fates = router.send(&[frame(17, &[0; 58]), frame(17, &[]), frame(6, &[])]);
    assert!(fates.iter().all(|fate| fate.verdict == Verdict::Pass));
    assert_eq!(
        router.control("read", "{}").unwrap(),
        r#"{"total":{"packets":3,"bytes":196},"protocols":{"6":{"packets":1,"bytes":54},"17":{"packets":2,"bytes":142}}}"#
    );
    let zero = r#"{"total":{"packets":0,"bytes":0},"protocols":{}}"#;
    assert_eq!(router.control("reset", "{}").unwrap(), zero);
}

#[test]
fn only_the_total_is_counted_if_that_is_set() {
    let mut router = Router::<Statistics>::new(r#"{"by-protocol": false}"#).unwrap();
    router.send(&[frame(17, &[])]);
    let counted = r#"{"total":{"packets":1,"bytes":42},"protocols":{}}"#;
    assert_eq!(router.control("read", "").unwrap(), counted);
}

#[test]
fn wrong_settings_and_messages_are_refused() {
    let refusal = |settings| Router::<Statistics>::new(settings).err().unwrap().0;
    assert_eq!(refusal(r#"{"by-protocol": 1}"#), "by-protocol: give true or false");
    assert_eq!(refusal(r#"{"colour": 1}"#), "colour: there is no such setting; give by-protocol");
    let mut router = Router::<Statistics>::new("{}").unwrap();
    assert_eq!(router.control("count", "{}").unwrap_err().0, "unknown message count");
}
