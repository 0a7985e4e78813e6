//! Tests of plugin `minimal-ip`.

use std::net::{Ipv4Addr, Ipv6Addr};

use millrace_packet::{FlowKey, Pool};
use proptest::prelude::*;

use super::*;

/// Bytes of the link header in front of each packet.
const LINK: usize = 14;

fn instance(settings: Value) -> Result<Box<dyn Instance>, PluginError> {
    PLUGIN.create(settings.as_object().unwrap())
}

fn ask(instance: &mut dyn Instance, name: &str) -> Reply {
    instance.control(&Message { name: name.to_owned(), arguments: Map::new() })
}

/// Returns the verdict about a packet. `network` is the packet from its network header on.
fn verdict(instance: &mut dyn Instance, family: Family, network: &[u8]) -> Verdict {
    let pool = Pool::new(64).unwrap();
    let mut packet = pool.packet_from(&[&[0; LINK], network].concat()).unwrap();
    packet.set_network(LINK);
    let key = match family {
        Family::V4 => FlowKey::v4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 17, (1, 2), PortId(0)),
        Family::V6 => FlowKey::v6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST, 17, (1, 2), PortId(0)),
    };
    let mut verdicts = [Verdict::Consume];
    instance.process(&mut Packets::new(&mut [packet], &[key], &[0], &mut verdicts), Instant::ZERO);
    verdicts[0]
}

/// Creates a valid IPv4 packet with `options` 32-bit words of options.
fn v4(options: u8, payload: usize) -> Vec<u8> {
    let header = 20 + 4 * usize::from(options);
    let mut bytes = vec![0; header + payload];
    bytes[0] = 0x45 + options;
    bytes[2..4].copy_from_slice(&((header + payload) as u16).to_be_bytes());
    bytes[8..10].copy_from_slice(&[64, 17]);
    bytes[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    let sum = !slow_sum(&bytes[..header]);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// Creates a valid IPv6 packet.
fn v6(payload: usize) -> Vec<u8> {
    let mut bytes = vec![0; 40 + payload];
    bytes[0] = 0x60;
    bytes[4..6].copy_from_slice(&(payload as u16).to_be_bytes());
    bytes[6..8].copy_from_slice(&[17, 64]);
    bytes
}

/// Computes the checksum of RFC 1071 word by word, as a reference.
fn slow_sum(header: &[u8]) -> u16 {
    header.chunks(2).fold(0, |sum: u16, word| {
        let (sum, carry) = sum.overflowing_add(u16::from_be_bytes([word[0], word[1]]));
        sum + u16::from(carry)
    })
}

/// Whether a packet may be forwarded, by the literal rules of RFC 1812, 5.2.2.
fn slow_sound4(bytes: &[u8]) -> bool {
    let Some(first) = bytes.first() else { return false };
    let header = 4 * usize::from(first & 15);
    let total = bytes.get(2..4).map_or(0, |total| usize::from(u16::from_be_bytes([total[0], total[1]])));
    bytes.len() >= 20
        && first >> 4 == 4
        && header >= 20
        && total >= header
        && total <= bytes.len()
        && slow_sum(&bytes[..header]) == 0xffff
}

proptest! {
    #[test]
    fn packets_valid_by_rfc_1812_continue_and_others_are_dropped(
        mut bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..80),
            (0..11_u8, 0..40_usize).prop_map(|(options, payload)| v4(options, payload)),
        ],
        change in prop::option::of((0..60_usize, any::<u8>())),
        longer in 0..3_usize,
        shorter in 0..3_usize,
    ) {
        bytes.extend(std::iter::repeat_n(0, longer));
        bytes.truncate(bytes.len().saturating_sub(shorter));
        if let Some((place, value)) = change && let Some(byte) = bytes.get_mut(place) {
            *byte = value;
        }
        let mut instance = instance(json!({ "port": 3 })).unwrap();
        let verdict = verdict(&mut *instance, Family::V4, &bytes);
        prop_assert_eq!(verdict == Verdict::Port(PortId(3)), slow_sound4(&bytes), "{:?}", verdict);
    }

    #[test]
    fn any_bytes_of_ipv6_get_a_verdict(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let length = bytes.get(4..6).map_or(0, |length| usize::from(u16::from_be_bytes([length[0], length[1]])));
        let sound = bytes.len() >= 40 && bytes[0] >> 4 == 6 && bytes.len() >= 40 + length
            && !(length == 0 && bytes[6] == 0);
        let mut instance = instance(json!({})).unwrap();
        prop_assert_eq!(verdict(&mut *instance, Family::V6, &bytes) == Verdict::Pass, sound);
    }
}

#[test]
fn each_fault_has_a_separate_reason() {
    let changed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = v4(1, 8);
        change(&mut bytes);
        bytes
    };
    let (four, six) = (Family::V4, Family::V6);
    let mut instance = instance(json!({})).unwrap();
    let mut length_of_options = v6(0);
    length_of_options[6] = 0;
    for (name, family, bytes) in [
        ("short", four, vec![0x45; 19]),
        ("version", four, changed(&|bytes| bytes[0] = 0x65)),
        ("header_length", four, changed(&|bytes| bytes[0] = 0x44)),
        ("total_length", four, changed(&|bytes| bytes[3] = 23)),
        ("truncated", four, changed(&|bytes| bytes.truncate(31))),
        ("checksum", four, changed(&|bytes| bytes[8] -= 1)),
        ("short", six, vec![0x60; 39]),
        ("version", six, vec![0x45; 60]),
        ("total_length", six, length_of_options),
        ("truncated", six, v6(9)[..48].to_vec()),
    ] {
        let before = ask(&mut *instance, "read").unwrap()["dropped"][name].as_u64().unwrap();
        let reason = Fault::NAMES.iter().position(|known| *known == name).unwrap();
        assert_eq!(verdict(&mut *instance, family, &bytes), Verdict::Drop(reason as u8), "{name}");
        assert_eq!(ask(&mut *instance, "read").unwrap()["dropped"][name], before + 1, "{name}");
    }
    assert_eq!(ask(&mut *instance, "read").unwrap()["sent"], 0);
}

#[test]
fn valid_packets_with_options_and_padding_continue() {
    let mut routed = instance(json!({})).unwrap();
    for bytes in [v4(0, 0), v4(10, 100), v4(0, 3000), [v4(0, 6), vec![0; 20]].concat()] {
        assert_eq!(verdict(&mut *routed, Family::V4, &bytes), Verdict::Pass);
    }
    assert_eq!(verdict(&mut *routed, Family::V6, &v6(3000)), Verdict::Pass);
    let said = ask(&mut *routed, "read").unwrap();
    assert_eq!((&said["packets"], &said["sent"], said.get("port")), (&json!(5), &json!(5), None));
    assert_eq!(said["bytes"], 5 * LINK + 20 + 160 + 3020 + 46 + 3040);
    let mut directed = instance(json!({ "port": 7 })).unwrap();
    assert_eq!(verdict(&mut *directed, Family::V4, &v4(0, 0)), Verdict::Port(PortId(7)));
    assert_eq!(ask(&mut *directed, "read").unwrap()["port"], 7);
    assert_eq!(ask(&mut *directed, "reset").unwrap()["packets"], 0);
}

#[test]
fn wrong_settings_and_messages_are_refused() {
    for wrong in [json!("wan"), json!(65_536), json!(-1), json!(null)] {
        let refused = instance(json!({ "port": wrong })).err().unwrap().to_string();
        let expected =
            format!("plugin minimal-ip: port: {wrong} is not a port; give a port name, as in port=wan");
        assert_eq!(refused, expected);
    }
    assert_eq!(PLUGIN.settings_schema().unwrap()["additionalProperties"], false);
    let mut instance = instance(json!({})).unwrap();
    assert!(ask(&mut *instance, "set").is_err());
    assert_eq!(PLUGIN.settings_schema().unwrap()["properties"]["port"]["format"], "port");
}

#[test]
fn answers_of_workers_add_up_and_the_port_stays() {
    let reply = json!({ "packets": 2, "dropped": { "short": 1 }, "port": 3 });
    let message = Message { name: "read".to_owned(), arguments: Map::new() };
    let expected = json!({ "packets": 4, "dropped": { "short": 2 }, "port": 3 });
    assert_eq!(PLUGIN.merge(&message, vec![reply.clone(), reply]), expected);
}

#[test]
fn counters_go_over_to_another_instance() {
    let mut old = instance(json!({})).unwrap();
    verdict(&mut *old, Family::V4, &v4(0, 0));
    verdict(&mut *old, Family::V6, &v4(0, 0));
    let saved = old.save().unwrap().unwrap();
    let mut new = instance(json!({ "port": 4 })).unwrap();
    for (state, version) in [(&saved[..], 0), (&saved[1..], 1), (b"[]", 1), (b"", 1)] {
        assert!(new.restore(state, version).unwrap_err().to_string().contains("can't restore"));
    }
    new.restore(&saved, PLUGIN.state_version()).unwrap();
    let (before, after) = (ask(&mut *old, "read").unwrap(), ask(&mut *new, "read").unwrap());
    for name in ["packets", "bytes", "sent", "dropped"] {
        assert_eq!(after[name], before[name], "{name}");
    }
}
