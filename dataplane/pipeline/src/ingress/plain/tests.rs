//! Compares the results of reading plain frames in brief with the results of the receive and parse stages.

use std::time::Duration;

use millrace_classify::FlowTableConfig;
use millrace_packet::Pool;
use millrace_wire::checksum::checksum;
use millrace_wire::mac_addr::MacAddr;
use proptest::prelude::*;

use super::*;
use crate::ingress::receive::receive;
use crate::parse::parse;
use crate::ports::{PortSettings, ReversePath, Stack};
use crate::work::Fate;

const DEVICE: DeviceId = DeviceId(0);
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

fn ports() -> PortTable {
    let mut ports = PortTable::default();
    for (id, tags) in [(3, Tags::NONE), (4, Tags::single(10))] {
        let settings = PortSettings {
            name: format!("p{id}"),
            device: DEVICE,
            tags,
            stack: Stack::Own,
            mac: MacAddr(MAC),
            mtu: 100,
            up: true,
            forwards4: true,
            forwards6: true,
            reverse_path: ReversePath::Off,
            input_weight: 256,
            output_weight: 256,
            addresses: Vec::new(),
        };
        ports.set(PortId(id), settings);
    }
    ports
}

/// Returns a plain frame of a family, protocol, tag and payload, with `padding` bytes behind it.
fn frame(v6: bool, tcp: bool, tag: Option<u16>, payload: &[u8], padding: usize) -> Vec<u8> {
    let transport = if tcp { 20 } else { 8 };
    let length = (transport + payload.len()) as u16;
    let protocol = if tcp { TCP } else { UDP };
    let mut frame = [MAC, [2, 0, 0, 0, 0, 9]].concat();
    if let Some(tag) = tag {
        frame.extend([EtherType::VLAN.0, tag].map(u16::to_be_bytes).concat());
    }
    if v6 {
        frame.extend(EtherType::IPV6.0.to_be_bytes());
        frame.extend([&[0x6a, 0xbc, 0, 1][..], &length.to_be_bytes(), &[protocol, 64]].concat());
        frame.extend([0xfd, 0, 0, 1].iter().chain(&[0; 11]).chain(&[2]));
        frame.extend([0xfd, 0, 0, 9].iter().chain(&[0; 11]).chain(&[1]));
    } else {
        frame.extend(EtherType::IPV4.0.to_be_bytes());
        let mut header =
            [&[0x45, 0xb8][..], &(20 + length).to_be_bytes(), &[0, 7, 0x40, 0, 64, protocol, 0, 0]].concat();
        header.extend([10, 1, 0, 2, 10, 9, 0, 1]);
        let sum = checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        frame.extend(header);
    }
    let ports = [&[0x30, 0x39, 0x01, 0xbb][..], &vec![0x5a; transport - 4]].concat();
    frame.extend(ports.iter().chain(payload));
    frame.resize(frame.len() + padding, 0);
    frame
}

type Change = (usize, u8, bool);

fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let tag =
        prop_oneof![3 => Just(None), 1 => prop::sample::select(vec![0_u16, 10, 11, 0x600a]).prop_map(Some)];
    let payload = prop::collection::vec(any::<u8>(), 0..70);
    let change = prop::option::of((0..70_usize, any::<u8>(), any::<bool>()));
    let cut = prop_oneof![5 => Just(usize::MAX), 1 => 0..80_usize];
    (any::<bool>(), any::<bool>(), tag, payload, 0..20_usize, change, cut).prop_map(
        |(v6, tcp, tag, payload, padding, change, cut): (_, _, _, _, _, Option<Change>, _)| {
            let mut frame = frame(v6, tcp, tag, &payload, padding);
            if let Some((at, value, mends)) = change
                && let Some(byte) = frame.get_mut(at)
            {
                *byte = value;
                if mends && !v6 && tag.is_none() {
                    frame[24..26].fill(0);
                    let sum = checksum(&frame[14..34]);
                    frame[24..26].copy_from_slice(&sum.to_be_bytes());
                }
            }
            frame.truncate(cut);
            frame
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    /// Reads random frames with the plain frame reader and with the stages; results must be equal, and most
    /// frames plain.
    #[test]
    fn plain_frames_are_read_as_by_the_stages(frames in prop::collection::vec(any_frame(), 1..80)) {
        let pool = Pool::new(1024).unwrap();
        let idle = Duration::from_secs(30);
        let config = FlowTableConfig { maximum: 1024, idle, seed: 5, ..FlowTableConfig::default() };
        let flows = FlowTable::new(config).unwrap();
        let (mut ports, mut twins) = (ports(), ports());
        let (mut work, mut others) = (Work::default(), Vec::new());
        for frame in &frames {
            work.packets.push(pool.packet_from(frame).unwrap()).unwrap();
        }
        work.begin();
        read_plain(&mut ports, DEVICE, &mut work, (&flows, true), &mut others);
        prop_assert!(others.is_sorted());
        work.complete_all();
        for (index, frame) in frames.iter().enumerate() {
            let mut twin = pool.packet_from(frame).unwrap();
            if others.contains(&(index as u16)) {
                continue;
            }
            let link = receive(&mut twins, DEVICE, &mut twin);
            prop_assert_eq!(link.fate, Fate::Forward);
            let parsed = parse(&mut twin, link.ether_type).unwrap();
            let (own, hashes) = (&work.packets[index], flows.hashes(&parsed.key));
            prop_assert!(parsed.fragment.is_none());
            prop_assert_eq!(work.keys[index], parsed.key);
            prop_assert_eq!(work.reading.nears[index], NearKey::of(&parsed.key));
            prop_assert_eq!((work.hashes[index], own.hash), hashes);
            prop_assert_eq!(format!("{:?}", work.varying[index]), format!("{:?}", parsed.varying));
            prop_assert_eq!((own.port, own.exceptions), (twin.port, twin.exceptions));
            let places = |packet: &Packet| (packet.network_offset(), packet.transport_offset(), packet.len());
            prop_assert_eq!(places(own), places(&twin));
        }
        for port in [3, 4].map(PortId) {
            let count = |ports: &PortTable| {
                let count = &ports.get(port).unwrap().count;
                (count.rx_packets, count.rx_bytes)
            };
            prop_assert_eq!(count(&ports), count(&twins));
        }
    }
}

#[test]
fn whole_frames_are_plain() {
    let (pool, flows) = (Pool::new(64).unwrap(), FlowTable::new(FlowTableConfig::default()).unwrap());
    let (mut ports, mut work, mut others) = (ports(), Work::default(), Vec::new());
    for choice in 0..8 {
        let tag = (choice & 4 != 0).then_some(10);
        let frame = frame(choice & 1 != 0, choice & 2 != 0, tag, &[7; 18], choice);
        work.packets.push(pool.packet_from(&frame).unwrap()).unwrap();
    }
    read_plain(&mut ports, DEVICE, &mut work, (&flows, true), &mut others);
    assert!(others.is_empty(), "{others:?}");
}
