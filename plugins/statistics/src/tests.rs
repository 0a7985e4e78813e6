//! Tests of plugin `statistics`.

use std::net::{Ipv4Addr, Ipv6Addr};

use millrace_packet::{FlowKey, Pool};
use millrace_units::PortId;

use super::*;

fn instance(settings: Value) -> Result<Box<dyn Instance>, PluginError> {
    PLUGIN.create(settings.as_object().unwrap())
}

fn ask(instance: &mut dyn Instance, name: &str, arguments: Value) -> Reply {
    instance.control(&Message { name: name.to_owned(), arguments: arguments.as_object().unwrap().clone() })
}

fn read(instance: &mut dyn Instance) -> Value {
    ask(instance, "read", json!({})).unwrap()
}

fn v4(protocol: u8) -> FlowKey {
    FlowKey::v4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2), protocol, (1, 2), PortId(0))
}

fn v6(protocol: u8) -> FlowKey {
    FlowKey::v6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST, protocol, (1, 2), PortId(0))
}

/// Passes frames of these flows and lengths to the instance.
fn send(instance: &mut dyn Instance, frames: &[(FlowKey, usize)]) {
    let pool = Pool::new(4 * frames.len() as u32).unwrap();
    let mut packets: Vec<_> =
        frames.iter().map(|(_, length)| pool.packet_from(&vec![0; *length]).unwrap()).collect();
    let keys: Vec<_> = frames.iter().map(|(key, _)| *key).collect();
    let members: Vec<_> = (0..frames.len() as u16).collect();
    let mut verdicts = vec![Verdict::Pass; frames.len()];
    instance.process(&mut Packets::new(&mut packets, &keys, &members, &mut verdicts), Instant::ZERO);
    assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Pass));
}

#[test]
fn packets_and_bytes_are_counted_by_protocol_and_family() {
    let mut instance = instance(json!({})).unwrap();
    send(
        &mut *instance,
        &[(v4(17), 60), (v4(17), 100), (v6(17), 1000), (v4(6), 1518), (v6(58), 90), (v4(253), 64)],
    );
    let said = read(&mut *instance);
    assert_eq!(said["packets"], json!({ "udp": 3, "tcp": 1, "icmpv6": 1, "253": 1 }));
    assert_eq!(said["bytes"], json!({ "udp": 1160, "tcp": 1518, "icmpv6": 90, "253": 64 }));
    assert_eq!(said["ipv4"]["packets"], json!({ "udp": 2, "tcp": 1, "253": 1 }));
    assert_eq!(said["ipv6"]["bytes"], json!({ "udp": 1000, "icmpv6": 90 }));
    assert_eq!(said["total"], json!({ "packets": 6, "bytes": 2832 }));
    assert_eq!(
        said["sizes"],
        json!({ "0-63": 1, "64-127": 3, "128-255": 0, "256-511": 0, "512-1023": 1, "1024-1518": 1, "1519-": 0 })
    );
}

#[test]
fn reading_changes_nothing_and_a_reset_everything() {
    let mut instance = instance(json!({})).unwrap();
    send(&mut *instance, &[(v4(1), 98)]);
    let said = read(&mut *instance);
    assert_eq!(read(&mut *instance), said);
    ask(&mut *instance, "reset", json!({})).unwrap();
    assert_eq!(read(&mut *instance)["packets"], json!({}));
    assert_eq!(read(&mut *instance)["total"], json!({ "packets": 0, "bytes": 0 }));
}

#[test]
fn counted_fields_change_between_packets() {
    let mut instance = instance(json!({ "what": "protocol" })).unwrap();
    send(&mut *instance, &[(v4(17), 60)]);
    ask(&mut *instance, "configure", json!({ "what": "size" })).unwrap();
    send(&mut *instance, &[(v4(17), 4000)]);
    let said = read(&mut *instance);
    assert_eq!(said["packets"], json!({ "udp": 1 }));
    assert_eq!((&said["sizes"]["0-63"], &said["sizes"]["1519-"]), (&json!(0), &json!(1)));
    assert_eq!(said["total"], json!({ "packets": 2, "bytes": 4060 }));
    assert_eq!(said["what"], "size");
}

#[test]
fn wrong_settings_are_refused_and_change_nothing() {
    assert!(instance(json!({ "what": "colour" })).is_err());
    assert!(instance(json!({ "which": "size" })).is_err());
    let mut instance = instance(json!({})).unwrap();
    let error = ask(&mut *instance, "configure", json!({ "what": 1 })).unwrap_err();
    assert_eq!(
        error.to_string(),
        "plugin statistics: what: 1 is not an allowed value; give protocol, size or all"
    );
    assert!(ask(&mut *instance, "configure", json!({})).is_err());
    assert!(ask(&mut *instance, "read", json!({ "what": "size" })).is_err());
    assert!(ask(&mut *instance, "count", json!({})).is_err());
    assert_eq!(read(&mut *instance)["what"], "all");
}

#[test]
fn every_length_has_a_class() {
    for (index, (_, limit)) in SIZES.iter().enumerate() {
        assert_eq!(size_class(*limit), index);
        assert_eq!(size_class(limit.saturating_add(1)), (index + 1).min(SIZES.len() - 1));
    }
}

#[test]
fn counters_go_over_to_another_instance() {
    let mut old = instance(json!({})).unwrap();
    send(&mut *old, &[(v4(17), 60), (v6(6), 1000), (v4(253), 64)]);
    let state = old.save().unwrap().unwrap();
    let mut new = instance(json!({})).unwrap();
    new.restore(&state, STATE_VERSION).unwrap();
    assert_eq!(read(&mut *new), read(&mut *old));
    for (state, version) in [(&state[1..], STATE_VERSION), (&state[8..], STATE_VERSION), (&state[..], 0)] {
        assert!(new.restore(state, version).unwrap_err().to_string().contains("not counters of this plugin"));
    }
    assert_eq!(read(&mut *new), read(&mut *old));
}
