//! Tests of plugin `spread`.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use millrace_packet::{FlowKey, Pool};
use millrace_units::PortId;
use proptest::prelude::*;

use super::*;

fn instance(settings: Value) -> Result<Box<dyn Instance>, PluginError> {
    PLUGIN.create(settings.as_object().unwrap())
}

fn ask(instance: &mut dyn Instance, name: &str) -> Reply {
    instance.control(&Message { name: name.to_owned(), arguments: Map::new() })
}

/// Passes a packet of each flow to the instance, and returns the target for each. Flows are given by their
/// hashes.
fn targets(instance: &mut dyn Instance, flows: &[u32]) -> Vec<u16> {
    let pool = Pool::new(flows.len().max(1) as u32).unwrap();
    let packet = |flow: &u32| {
        let mut packet = pool.packet_from(&[0; 60]).unwrap();
        packet.hash = *flow;
        packet
    };
    let mut packets: Vec<_> = flows.iter().map(packet).collect();
    let key = FlowKey::v4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 17, (1, 2), PortId(0));
    let keys = vec![key; flows.len()];
    let members: Vec<_> = (0..flows.len() as u16).collect();
    let mut verdicts = vec![Verdict::Pass; flows.len()];
    instance.process(&mut Packets::new(&mut packets, &keys, &members, &mut verdicts), Instant::ZERO);
    let number = |verdict| match verdict {
        Verdict::Instance(instance) => instance.0,
        other => panic!("{other:?}"),
    };
    verdicts.into_iter().map(number).collect()
}

#[test]
fn instances_get_about_as_many_flows_each() {
    let mut spread = instance(json!({ "to": 3, "to2": 9, "to3": 4, "to8": 7 })).unwrap();
    let mut shares: BTreeMap<u16, u32> = BTreeMap::new();
    for flow in 0..4000_u32 {
        let target = targets(&mut *spread, &[flow.wrapping_mul(0x9e37_79b9)])[0];
        *shares.entry(target).or_default() += 1;
    }
    assert_eq!(shares.keys().copied().collect::<Vec<_>>(), [3, 4, 7, 9]);
    assert!(shares.values().all(|flows| (900..1100).contains(flows)), "{shares:?}");
    let read = ask(&mut *spread, "read").unwrap();
    assert_eq!(read["settings"], json!({ "to": 3, "to2": 9, "to3": 4, "to8": 7 }));
    assert_eq!(read["packets"]["to3"], shares[&4]);
    ask(&mut *spread, "reset").unwrap();
    assert_eq!(ask(&mut *spread, "read").unwrap()["packets"]["to3"], 0);
}

proptest! {
    #[test]
    fn only_flows_of_added_or_removed_ports_move(flows in prop::collection::vec(any::<u32>(), 1..100)) {
        let mut three = instance(json!({ "to": 1, "to2": 2, "to3": 3 })).unwrap();
        let mut two = instance(json!({ "to": 3, "to5": 1 })).unwrap();
        let (before, after) = (targets(&mut *three, &flows), targets(&mut *two, &flows));
        for (before, after) in before.into_iter().zip(after) {
            prop_assert!(before == after || before == 2, "{before} {after}");
        }
    }
}

#[test]
fn counts_are_kept_per_instance() {
    let mut before = instance(json!({ "to": 1, "to2": 2 })).unwrap();
    targets(&mut *before, &(0..50).collect::<Vec<_>>());
    let counted = ask(&mut *before, "read").unwrap()["packets"]["to2"].clone();
    let mut after = instance(json!({ "to": 2, "to2": 5 })).unwrap();
    after.restore(&before.save().unwrap().unwrap(), STATE_VERSION).unwrap();
    assert_eq!(ask(&mut *after, "read").unwrap()["packets"], json!({ "to": counted, "to2": 0 }));
}

#[test]
fn wrong_settings_are_named() {
    for (settings, message) in [
        (json!({}), "plugin spread: to: it is missing; give the name of an instance, as in to=s1"),
        (json!({ "to2": 1 }), "plugin spread: to: it is missing; give the name of an instance, as in to=s1"),
        (
            json!({ "to": "s1" }),
            "plugin spread: to: \"s1\" is not an instance; give an instance name, as in to=NAME",
        ),
        (
            json!({ "to": 1, "to3": 1 }),
            "plugin spread: to3: it names the same instance as to; give another instance",
        ),
    ] {
        assert_eq!(instance(settings).err().unwrap().to_string(), message);
    }
    let properties = &PLUGIN.settings_schema().unwrap()["properties"];
    assert!(SETTINGS.iter().all(|setting| properties[setting]["format"] == "instance"));
}
