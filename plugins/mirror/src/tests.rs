//! Tests of plugin `mirror`.

use std::net::Ipv4Addr;

use millrace_packet::{FlowKey, Pool};
use proptest::prelude::*;

use super::*;

fn instance(settings: Value) -> Result<Box<dyn Instance>, PluginError> {
    PLUGIN.create(settings.as_object().unwrap())
}

fn ask(instance: &mut dyn Instance, name: &str) -> Reply {
    instance.control(&Message { name: name.to_owned(), arguments: Map::new() })
}

/// Passes copies of these lengths to the instance, and returns its verdicts.
fn verdicts(instance: &mut dyn Instance, lengths: &[usize]) -> Vec<Verdict> {
    let pool = Pool::new(4 * lengths.len().max(1) as u32).unwrap();
    let mut packets: Vec<_> =
        lengths.iter().map(|length| pool.packet_from(&vec![0; *length]).unwrap()).collect();
    let key = FlowKey::v4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 17, (1, 2), PortId(0));
    let keys = vec![key; lengths.len()];
    let members: Vec<_> = (0..lengths.len() as u16).collect();
    let mut verdicts = vec![Verdict::Pass; lengths.len()];
    instance.process(&mut Packets::new(&mut packets, &keys, &members, &mut verdicts), Instant::ZERO);
    verdicts
}

proptest! {
    #[test]
    fn every_copy_goes_to_every_port_named(
        to in 0..64_u16,
        also in 0..64_u16,
        lengths in prop::collection::vec(1..2000_usize, 0..20),
    ) {
        let bytes: usize = lengths.iter().sum();
        let mut one = instance(json!({ "to": to })).unwrap();
        prop_assert_eq!(verdicts(&mut *one, &lengths), vec![Verdict::Port(PortId(to)); lengths.len()]);
        let read = json!({ "packets": lengths.len(), "bytes": bytes, "settings": { "to": to } });
        prop_assert_eq!(ask(&mut *one, "read").unwrap(), read);
        let Ok(mut two) = instance(json!({ "to": to, "also": also })) else {
            prop_assert_eq!(to, also);
            return Ok(());
        };
        for verdict in verdicts(&mut *two, &lengths) {
            let Verdict::Ports(ports) = verdict else { panic!("{verdict:?}") };
            let named: Vec<u16> = (0..64).filter(|port| ports >> port & 1 == 1).collect();
            prop_assert_eq!(named, [to.min(also), to.max(also)]);
        }
    }
}

#[test]
fn reading_changes_nothing_and_a_reset_everything() {
    let mut instance = instance(json!({ "to": 3, "also": 4 })).unwrap();
    verdicts(&mut *instance, &[60, 4000]);
    for _ in 0..2 {
        let read = json!({ "packets": 2, "bytes": 4060, "settings": { "to": 3, "also": 4 } });
        assert_eq!(ask(&mut *instance, "read").unwrap(), read);
    }
    let zero = json!({ "packets": 0, "bytes": 0, "settings": { "to": 3, "also": 4 } });
    assert_eq!(ask(&mut *instance, "reset").unwrap(), zero);
    assert!(ask(&mut *instance, "set").is_err());
}

#[test]
fn a_port_above_the_first_64_can_be_named_alone() {
    let mut far = instance(json!({ "to": 64 })).unwrap();
    assert_eq!(verdicts(&mut *far, &[60]), [Verdict::Port(PortId(64))]);
}

#[test]
fn wrong_settings_are_refused() {
    for (settings, message) in [
        (json!({}), "plugin mirror: to: it is missing; give the name of a port, as in to=recorder"),
        (
            json!({ "also": 1 }),
            "plugin mirror: to: it is missing; give the name of a port, as in to=recorder",
        ),
        (
            json!({ "to": "recorder" }),
            "plugin mirror: to: \"recorder\" is not a port; give a port name, as in to=wan",
        ),
        (
            json!({ "to": 1, "also": 65_536 }),
            "plugin mirror: also: 65536 is not a port; give a port name, as in also=wan",
        ),
        (
            json!({ "to": 1, "also": 1 }),
            "plugin mirror: also: it names the same port as `to`; give another port, or omit it",
        ),
        (
            json!({ "to": 64, "also": 1 }),
            "plugin mirror: to: port 64 is not among the first 64 ports, as two ports require; give another port",
        ),
        (
            json!({ "to": 1, "also": 99 }),
            "plugin mirror: also: port 99 is not among the first 64 ports, as two ports require; give another port",
        ),
    ] {
        assert_eq!(instance(settings).err().unwrap().to_string(), message);
    }
    assert_eq!(PLUGIN.settings_schema().unwrap()["additionalProperties"], false);
}

#[test]
fn the_schema_has_both_ports() {
    let properties = &PLUGIN.settings_schema().unwrap()["properties"];
    assert_eq!(
        (&properties["to"]["format"], &properties["also"]["format"]),
        (&json!("port"), &json!("port"))
    );
}

#[test]
fn answers_of_workers_add_up_and_settings_stay() {
    let reply = json!({ "packets": 2, "bytes": 120, "settings": { "to": 3, "also": 4 } });
    let message = Message { name: "read".to_owned(), arguments: Map::new() };
    let expected = json!({ "packets": 4, "bytes": 240, "settings": { "to": 3, "also": 4 } });
    assert_eq!(PLUGIN.merge(&message, vec![reply.clone(), reply]), expected);
}

#[test]
fn counters_go_over_to_another_instance() {
    let mut old = instance(json!({ "to": 3 })).unwrap();
    verdicts(&mut *old, &[60, 70]);
    let saved = old.save().unwrap().unwrap();
    let mut new = instance(json!({ "to": 4, "also": 5 })).unwrap();
    for (state, version) in [(&saved[..], 0), (&saved[1..], 1), (b"[]", 1), (b"", 1)] {
        assert!(new.restore(state, version).unwrap_err().to_string().contains("can't restore"));
    }
    new.restore(&saved, PLUGIN.state_version()).unwrap();
    let (before, after) = (ask(&mut *old, "read").unwrap(), ask(&mut *new, "read").unwrap());
    for name in ["packets", "bytes"] {
        assert_eq!(after[name], before[name], "{name}");
    }
}
