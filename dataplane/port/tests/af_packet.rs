//! AF_PACKET ports on veths, in network namespaces.

mod support;

use millrace_packet::{Batch, DropReason, Pool};
use millrace_port::af_packet::Options;
use millrace_port::{AfPacket, Port, PortError};
use millrace_units::Instant;
use support::stream::Stream;
use support::{Raw, device, enter_namespace, eventually, frame, veth};

const NOW: Instant = Instant::ZERO;

fn options(name: &str, mtu: u16) -> Options {
    let (ifindex, mac) = device(name);
    Options::new(name, ifindex, mac, mtu)
}

fn receive_one(pool: &Pool, port: &mut AfPacket) -> Vec<u8> {
    let mut batch = Batch::new();
    assert!(eventually(|| {
        port.receive(pool, NOW, &mut batch);
        !batch.is_empty()
    }));
    assert_eq!(batch.len(), 1);
    batch[0].to_vec()
}

fn echo_sizes(mtu: u16, sizes: &[usize]) {
    veth("near", "far", mtu.into(), 1);
    let pool = Pool::new(1024).unwrap();
    let mut port = AfPacket::open(options("near", mtu)).unwrap();
    let far = Raw::open("far");
    let mut batch = Batch::new();
    for (number, size) in sizes.iter().enumerate() {
        let sent = frame(number as u32, *size);
        far.send(&sent).unwrap();
        assert_eq!(receive_one(&pool, &mut port), sent, "{size} bytes in");
        batch.push(pool.packet_from(&sent).unwrap()).unwrap();
        port.transmit(&pool, NOW, &mut batch);
        port.flush(&pool, NOW);
        let mut echoed = None;
        assert!(eventually(|| {
            echoed = far.receive();
            echoed.is_some()
        }));
        assert_eq!(echoed.unwrap(), sent, "{size} bytes back");
    }
    let counters = port.counters();
    let bytes = sizes.iter().sum::<usize>() as u64;
    assert_eq!((counters.received, counters.received_bytes), (sizes.len() as u64, bytes));
    assert_eq!((counters.transmitted, counters.transmitted_bytes), (sizes.len() as u64, bytes));
    assert_eq!((counters.drops.total(), counters.held, pool.in_use()), (0, 0, 0));
}

#[test]
fn frames_of_all_sizes_pass_and_return_unchanged() {
    if enter_namespace("AF_PACKET echo") {
        echo_sizes(1500, &(60..=1514).step_by(31).chain([1514]).collect::<Vec<_>>());
    }
}

#[test]
fn jumbo_frames_pass_in_chains() {
    if enter_namespace("AF_PACKET jumbo frames") {
        echo_sizes(9000, &[60, 1792, 1793, 5000, 9014]);
    }
}

#[test]
fn tags_that_the_kernel_took_out_are_put_back() {
    if !enter_namespace("AF_PACKET VLAN tags") {
        return;
    }
    veth("near", "far", 1500, 1);
    let pool = Pool::new(1024).unwrap();
    let mut port = AfPacket::open(options("near", 1500)).unwrap();
    let far = Raw::open("far");
    let plain = frame(1, 1514);
    let single = [&plain[..12], &[0x81, 0, 0x20, 10], &plain[12..]].concat();
    let double = [&plain[..12], &[0x88, 0xa8, 0xe0, 100, 0x81, 0, 0, 10], &plain[12..1506]].concat();
    for sent in [single, double] {
        far.send(&sent).unwrap();
        assert_eq!(receive_one(&pool, &mut port), sent);
    }
}

#[test]
fn every_frame_is_accounted_for() {
    if !enter_namespace("AF_PACKET conservation") {
        return;
    }
    const FRAMES: u64 = 20_000;
    veth("near", "far", 1500, 1);
    let pool = Pool::new(1024).unwrap();
    let mut port = AfPacket::open(Options { ring_size: 256, ..options("near", 1500) }).unwrap();
    let (far, mut batch) = (Raw::open("far"), Batch::new());
    let (mut given, mut echoed) = (0, 0);
    assert_eq!(port.has_arrivals(), Some(false));
    let mut serve = |port: &mut AfPacket| {
        port.receive(&pool, NOW, &mut batch);
        given += batch.len() as u64;
        port.transmit(&pool, NOW, &mut batch);
        port.flush(&pool, NOW);
    };
    for number in 0..FRAMES {
        far.send(&frame(number as u32, 60 + number as usize % 1400)).unwrap();
        if number % 32 == 0 && number % 5_000 > 1_000 {
            serve(&mut port);
            while far.receive().is_some() {
                echoed += 1;
            }
        }
    }
    assert_eq!(port.has_arrivals(), Some(true));
    assert!(eventually(|| {
        serve(&mut port);
        port.counters().received == FRAMES
    }));
    assert_eq!(port.has_arrivals(), Some(false));
    while far.receive().is_some() {
        echoed += 1;
    }
    let counters = port.counters();
    let lost = counters.drops.get(DropReason::ReceiveRingFull);
    assert!(lost > 0, "{counters:?}");
    assert_eq!((counters.received, counters.drops.total()), (given + lost, lost));
    assert_eq!((counters.transmitted, echoed), (given, given));
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn a_stream_of_super_frames_from_a_host_with_default_offloads_arrives_intact() {
    if !enter_namespace("AF_PACKET and host offloads") {
        return;
    }
    let stream = Stream::prepare();
    let pool = Pool::new(16384).unwrap();
    let mut left = AfPacket::open(options("r1", 1500)).unwrap();
    let mut right = AfPacket::open(options("r2", 1500)).unwrap();
    stream.run(&pool, &mut left, &mut right);
    let counters = left.counters();
    assert!(counters.created > 0, "{counters:?}");
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn a_filter_keeps_frames_out() {
    if !enter_namespace("AF_PACKET filters") {
        return;
    }
    veth("near", "far", 1500, 1);
    let filter = support::redirect::refuse_all().unwrap();
    let mut port = AfPacket::open(Options { filter: Some(filter), ..options("near", 1500) }).unwrap();
    let mut open = AfPacket::open(options("near", 1500)).unwrap();
    let (pool, mut batch) = (Pool::new(64).unwrap(), Batch::new());
    Raw::open("far").send(&frame(1, 100)).unwrap();
    assert_eq!(receive_one(&pool, &mut open), frame(1, 100));
    port.receive(&pool, NOW, &mut batch);
    assert_eq!((batch.len(), port.counters().received), (0, 0));
}

#[test]
fn invalid_options_are_refused_with_a_reason() {
    if !enter_namespace("AF_PACKET errors") {
        return;
    }
    veth("near", "far", 1500, 1);
    let size = AfPacket::open(Options { ring_size: 1000, ..options("near", 1500) }).unwrap_err();
    assert!(matches!(size, PortError::RingSize { size: 1000, .. }), "{size}");
    let gone = AfPacket::open(Options { ifindex: 9999, ..options("near", 1500) }).unwrap_err();
    assert!(matches!(gone, PortError::UnknownDevice { .. }), "{gone}");
}
