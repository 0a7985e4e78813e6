//! Tests of plugin `sample`.

use std::net::Ipv4Addr;

use millrace_packet::{FlowKey, Pool};
use millrace_units::PortId;
use proptest::prelude::*;

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

/// Passes `copies` copies of 60 bytes to the instance, in calls of 7. Returns its verdicts.
fn verdicts(instance: &mut dyn Instance, copies: usize) -> Vec<Verdict> {
    let pool = Pool::new(8).unwrap();
    let keys = [FlowKey::v4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 17, (1, 2), PortId(0)); 7];
    let mut all = Vec::new();
    while all.len() < copies {
        let count = (copies - all.len()).min(7);
        let mut packets: Vec<_> = (0..count).map(|_| pool.packet_from(&[0; 60]).unwrap()).collect();
        let members: Vec<_> = (0..count as u16).collect();
        let mut verdicts = vec![Verdict::Pass; count];
        instance.process(&mut Packets::new(&mut packets, &keys, &members, &mut verdicts), Instant::ZERO);
        all.append(&mut verdicts);
    }
    all
}

fn sent(instance: &mut dyn Instance, copies: usize) -> Vec<bool> {
    let is_sent = |verdict: &Verdict| match verdict {
        Verdict::Port(PortId(3)) => true,
        Verdict::Consume => false,
        other => panic!("{other:?}"),
    };
    verdicts(instance, copies).iter().map(is_sent).collect()
}

proptest! {
    #[test]
    fn every_so_manyth_copy_is_sent(one_in in 1..40_u32, copies in 0..200_usize) {
        let mut instance = instance(json!({ "to": 3, "one-in": one_in })).unwrap();
        let expected: Vec<_> = (1..=copies).map(|number| number % one_in as usize == 0).collect();
        prop_assert_eq!(sent(&mut *instance, copies), expected);
        let said = read(&mut *instance);
        let number = copies / one_in as usize;
        prop_assert_eq!(&said["copies"], &json!(copies));
        prop_assert_eq!(&said["sent"], &json!(number));
        prop_assert_eq!(&said["sent_bytes"], &json!(number * 60));
    }

    /// The bounds are six standard deviations from the mean, so one run in 500 million fails by chance.
    #[test]
    fn random_sampling_sends_about_one_in_n_packets(one_in in 1..20_u32, seed in prop_oneof![1..100_u64, 1..u64::MAX]) {
        let mut instance =
            instance(json!({ "to": 3, "one-in": one_in, "mode": "random", "seed": seed })).unwrap();
        let (copies, chance) = (2000.0, 1.0 / f64::from(one_in));
        let number = sent(&mut *instance, copies as usize).into_iter().filter(|sent| *sent).count() as f64;
        let deviation = (copies * chance * (1.0 - chance)).sqrt();
        prop_assert!((number - copies * chance).abs() <= 6.0 * deviation, "{number} at 1 in {one_in}");
    }
}

#[test]
fn the_same_choices_follow_from_the_same_seed() {
    let settings = json!({ "to": 3, "one-in": 5, "mode": "random", "seed": 77 });
    let (mut one, mut other) = (instance(settings.clone()).unwrap(), instance(settings).unwrap());
    let first = sent(&mut *one, 500);
    assert_eq!(sent(&mut *other, 500), first);
    assert_ne!(sent(&mut *one, 500), first);
    ask(&mut *one, "set", json!({ "seed": 77 })).unwrap();
    assert_eq!(sent(&mut *one, 500), first);
}

#[test]
fn settings_change_between_copies() {
    let mut instance = instance(json!({ "to": 3, "one-in": 3 })).unwrap();
    assert_eq!(sent(&mut *instance, 5), [false, false, true, false, false]);
    ask(&mut *instance, "set", json!({ "one-in": 2 })).unwrap();
    assert_eq!(sent(&mut *instance, 4), [false, true, false, true]);
    ask(&mut *instance, "reset", json!({})).unwrap();
    let expected = json!({ "copies": 0, "sent": 0, "sent_bytes": 0,
        "settings": { "to": 3, "one-in": 2, "mode": "every", "seed": 1 } });
    assert_eq!(read(&mut *instance), expected);
}

#[test]
fn wrong_settings_are_refused_and_change_nothing() {
    let mut instance = instance(json!({ "to": 3, "one-in": 4 })).unwrap();
    let before = read(&mut *instance);
    for (arguments, message) in [
        (json!({ "one-in": 0 }), "plugin sample: one-in: 0 is not a whole number from 1 to 4294967295"),
        (
            json!({ "mode": "every", "one-in": 1_u64 << 32 }),
            "plugin sample: one-in: 4294967296 is not a whole number from 1 to 4294967295",
        ),
        (json!({ "one-in": 1.5 }), "plugin sample: one-in: 1.5 is not a whole number from 1 to 4294967295"),
        (
            json!({ "mode": "odd" }),
            "plugin sample: mode: \"odd\" is not an allowed value; give every or random",
        ),
        (
            json!({ "one-in": 2, "seed": 0 }),
            "plugin sample: seed: 0 is not a whole number from 1 to 18446744073709551615",
        ),
        (json!({ "to": 1 }), "plugin sample: to: there is no such setting; give one-in, mode, seed"),
        (json!({}), "plugin sample: set: nothing to set; give one-in, mode or seed"),
    ] {
        assert_eq!(ask(&mut *instance, "set", arguments).unwrap_err().to_string(), message);
    }
    assert_eq!(read(&mut *instance), before);
    assert!(ask(&mut *instance, "read", json!({ "a": 1 })).is_err());
    assert!(ask(&mut *instance, "send", json!({})).is_err());
}

#[test]
fn a_port_must_be_named() {
    let missing = instance(json!({ "one-in": 2 })).err().unwrap().to_string();
    assert_eq!(missing, "plugin sample: to: it is missing; give the name of a port, as in to=probe");
    for wrong in [json!("probe"), json!(65_536), json!(-1), json!(null)] {
        let refused = instance(json!({ "to": wrong })).err().unwrap().to_string();
        assert!(refused.contains("is not a port"), "{refused}");
    }
}

#[test]
fn the_schema_names_the_port_and_every_setting() {
    let schema = PLUGIN.settings_schema().unwrap();
    assert_eq!(schema["properties"]["to"]["format"], "port");
    let settings = read(&mut *instance(json!({ "to": 3 })).unwrap())["settings"].clone();
    let (known, said) = (schema["properties"].as_object().unwrap(), settings.as_object().unwrap());
    assert!(known.keys().eq(said.keys()), "{known:?} {said:?}");
}

#[test]
fn answers_of_workers_add_up_and_settings_stay() {
    let reply = |sent| json!({ "copies": 10, "sent": sent, "settings": { "one-in": 5, "to": 3 } });
    let message = Message { name: "read".to_owned(), arguments: Map::new() };
    let expected = json!({ "copies": 20, "sent": 5, "settings": { "one-in": 5, "to": 3 } });
    assert_eq!(PLUGIN.merge(&message, vec![reply(2), reply(3)]), expected);
}

#[test]
fn counters_go_over_to_another_instance() {
    let mut old = instance(json!({ "to": 3 })).unwrap();
    sent(&mut *old, 9);
    let saved = old.save().unwrap().unwrap();
    let mut new = instance(json!({ "to": 4, "one-in": 5 })).unwrap();
    for (state, version) in [(&saved[..], 0), (&saved[1..], 1), (b"[]", 1), (b"", 1)] {
        assert!(new.restore(state, version).unwrap_err().to_string().contains("can't restore"));
    }
    new.restore(&saved, PLUGIN.state_version()).unwrap();
    let (before, after) = (read(&mut *old), read(&mut *new));
    for name in ["copies", "sent", "sent_bytes"] {
        assert_eq!(after[name], before[name], "{name}");
    }
}
