//! Tests of plugin `port-filter`.

use std::net::{Ipv4Addr, Ipv6Addr};

use millrace_packet::Pool;
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

fn v4(protocol: u8, port: u16) -> FlowKey {
    FlowKey::v4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2), protocol, (4000, port), PortId(0))
}

/// Passes a packet of each flow to the instance. Returns whether the plugin drops it.
fn drops(instance: &mut dyn Instance, flows: &[(FlowKey, Exceptions)]) -> Vec<bool> {
    let pool = Pool::new(flows.len() as u32).unwrap();
    let packet = |(_, exceptions): &(FlowKey, Exceptions)| {
        let mut packet = pool.packet_from(&[0; 60]).unwrap();
        packet.exceptions = *exceptions;
        packet
    };
    let mut packets: Vec<_> = flows.iter().map(packet).collect();
    let keys: Vec<_> = flows.iter().map(|(key, _)| *key).collect();
    let members: Vec<_> = (0..flows.len() as u16).collect();
    let mut verdicts = vec![Verdict::Pass; flows.len()];
    instance.process(&mut Packets::new(&mut packets, &keys, &members, &mut verdicts), Instant::ZERO);
    verdicts.iter().map(|verdict| *verdict == Verdict::Drop(0)).collect()
}

fn plain(flows: &[FlowKey]) -> Vec<(FlowKey, Exceptions)> {
    flows.iter().map(|key| (*key, Exceptions::NONE)).collect()
}

#[test]
fn counters_go_over_to_another_instance() {
    let mut old = instance(json!({ "ports": "80,443" })).unwrap();
    drops(&mut *old, &plain(&[v4(6, 80), v4(6, 443), v4(6, 443), v4(6, 1)]));
    let saved = old.save().unwrap().unwrap();
    for (settings, of_ranges) in
        [(json!({ "ports": "80,443", "protocol": "tcp" }), 2), (json!({ "ports": 443 }), 0)]
    {
        let mut new = instance(settings).unwrap();
        assert!(new.restore(&saved, 0).is_err() && new.restore(b"[]", 1).is_err());
        new.restore(&saved, PLUGIN.state_version()).unwrap();
        let read = read(&mut *new);
        assert_eq!((&read["packets"], &read["dropped"]), (&json!(4), &json!(3)));
        assert_eq!(read["ranges"].as_array().unwrap().last().unwrap()["dropped"], of_ranges);
    }
}

#[test]
fn ports_in_the_ranges_are_dropped() {
    let mut instance = instance(json!({ "ports": "80,443,1000-2000" })).unwrap();
    let ports = [79, 80, 81, 443, 999, 1000, 1500, 2000, 2001, 0];
    let flows: Vec<_> = ports.iter().map(|port| v4(17, *port)).collect();
    let expected = [false, true, false, true, false, true, true, true, false, false];
    assert_eq!(drops(&mut *instance, &plain(&flows)), expected);
    let v6 = FlowKey::v6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST, 6, (80, 443), PortId(0));
    assert_eq!(drops(&mut *instance, &plain(&[v6])), [true]);
    let said = read(&mut *instance);
    assert_eq!((&said["packets"], &said["dropped"]), (&json!(11), &json!(6)));
    assert_eq!(said["ranges"][1], json!({ "ports": "443", "dropped": 2 }));
    assert_eq!(said["ranges"][2], json!({ "ports": "1000-2000", "dropped": 3 }));
    assert_eq!(read(&mut *instance), said);
}

#[test]
fn only_the_protocol_that_was_set_is_dropped() {
    for (protocol, expected) in [
        ("tcp", [true, false, false, false]),
        ("udp", [false, true, false, false]),
        ("any", [true, true, true, false]),
    ] {
        let mut instance = instance(json!({ "ports": "0-65535", "protocol": protocol })).unwrap();
        let flows = [v4(6, 80), v4(17, 80), v4(132, 80), v4(50, 0)];
        assert_eq!(drops(&mut *instance, &plain(&flows)), expected, "{protocol}");
    }
}

#[test]
fn packet_with_hidden_ports_does_not_pass() {
    let flows = [
        (v4(6, 0), Exceptions::CUT),
        (v4(17, 0), Exceptions::CUT),
        // IPv6 packet with more extension headers than the router reads.
        (v4(60, 0), Exceptions::CUT),
        (v4(1, 0), Exceptions::CUT),
        (v4(6, 0), Exceptions::FRAGMENT),
    ];
    let mut strict = instance(json!({ "ports": "80", "protocol": "tcp" })).unwrap();
    assert_eq!(drops(&mut *strict, &flows), [true, false, true, false, false]);
    assert_eq!(read(&mut *strict)["dropped_cut"], 2);
    let mut lax = instance(json!({ "ports": "80", "cut": "pass" })).unwrap();
    assert_eq!(drops(&mut *lax, &flows), [false; 5]);
    let mut idle = instance(json!({})).unwrap();
    assert_eq!(drops(&mut *idle, &flows), [false; 5]);
}

#[test]
fn settings_change_between_packets() {
    let mut instance = instance(json!({ "ports": 80, "protocol": "udp" })).unwrap();
    assert_eq!(drops(&mut *instance, &plain(&[v4(17, 80), v4(17, 81)])), [true, false]);
    ask(&mut *instance, "set", json!({ "ports": ["81", 82, "90-99"] })).unwrap();
    assert_eq!(drops(&mut *instance, &plain(&[v4(17, 80), v4(17, 81), v4(6, 81)])), [false, true, false]);
    let said = read(&mut *instance);
    assert_eq!((&said["ports"], &said["dropped"]), (&json!("81,82,90-99"), &json!(2)));
    assert_eq!(said["ranges"][0], json!({ "ports": "81", "dropped": 1 }));
    ask(&mut *instance, "set", json!({ "ports": "" })).unwrap();
    assert_eq!(drops(&mut *instance, &plain(&[v4(17, 81)])), [false]);
    ask(&mut *instance, "reset", json!({})).unwrap();
    assert_eq!(read(&mut *instance)["packets"], 0);
}

#[test]
fn wrong_settings_are_refused_and_change_nothing() {
    let mut instance = instance(json!({ "ports": "80" })).unwrap();
    let before = read(&mut *instance);
    for (arguments, message) in [
        (
            json!({ "ports": "1,2,3,4,5,6" }),
            "plugin port-filter: ports: 6 ranges given; the limit is 5: join ranges, or use a second \
             instance",
        ),
        (
            json!({ "protocol": "udp", "ports": "9-5" }),
            "plugin port-filter: ports: range 9-5 starts above its end; give 5-9",
        ),
        (
            json!({ "ports": "http" }),
            "plugin port-filter: ports: \"http\" is not a port; give ports from 0 to 65535 and ranges, as in \
             80,1000-2000",
        ),
        (
            json!({ "ports": true }),
            "plugin port-filter: ports: true is not a list of ports; give ports as in 80,443,1000-2000",
        ),
        (
            json!({ "protocol": "icmp" }),
            "plugin port-filter: protocol: \"icmp\" is not an allowed value; give tcp, udp or any",
        ),
        (
            json!({ "port": 80 }),
            "plugin port-filter: port: there is no such setting; give ports, protocol, cut",
        ),
        (json!({}), "plugin port-filter: set: nothing to set; give ports, protocol or cut"),
    ] {
        assert_eq!(ask(&mut *instance, "set", arguments).unwrap_err().to_string(), message);
    }
    for ports in ["65536", "80,", "+80", "1-2-3", "-5"] {
        assert!(ask(&mut *instance, "set", json!({ "ports": ports })).is_err(), "{ports}");
    }
    assert_eq!(read(&mut *instance), before);
    assert!(ask(&mut *instance, "read", json!({ "a": 1 })).is_err());
    assert!(ask(&mut *instance, "drop", json!({})).is_err());
}
