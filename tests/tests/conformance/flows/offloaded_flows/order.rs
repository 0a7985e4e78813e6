//! Order inside flows: no packet overtakes an earlier packet of its flow, wherever both are in a router with
//! several workers and queues.

use std::collections::BTreeMap;

use millrace_testkit::Random;
use millrace_tests::{Frame, Ipv4Frame};

use super::model::OffloadModel;
use super::pair::Pair;

/// Returns the packet numbers of each flow in the order of transmission. Of a fragmented packet, only the
/// first fragment counts.
fn numbers(frames: &[Vec<u8>]) -> BTreeMap<u16, Vec<u32>> {
    let mut flows: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for frame in frames.iter().filter(|frame| frame[23] == 17 && frame[20] & 0x1f == 0 && frame[21] == 0) {
        let number = u32::from_be_bytes(frame[42..46].try_into().unwrap());
        flows.entry(u16::from_be_bytes([frame[34], frame[35]])).or_default().push(number);
    }
    flows
}

/// Sends packets of a few flows while earlier packets are still at any stage of the router. Some packets are
/// too long for the offload. Returns the number of packets that the offload forwarded.
fn sends_in_order(workers: usize, queues: usize, seed: u64) -> u64 {
    let (mut pair, mut random) = (Pair::of_workers(Some(64), workers, queues), Random::new(seed));
    pair.router.router.set_mtu("b", 1280);
    // With this weight some queues wait while the router reads others.
    pair.router.router.set_input_weight("a", 2);
    for number in 0..6000_u32 {
        let flow = 1000 + random.below(8) as u16;
        let more = if random.below(12) == 0 { 1400 } else { 36 };
        let payload = [number.to_be_bytes().as_slice(), &vec![0; more]].concat();
        let frame = Ipv4Frame::udp().ports(flow, 9).payload(&payload).id(number as u16);
        pair.receive_by("a", usize::from(flow) % queues, &frame.bytes());
        if random.below(3) == 0 {
            pair.router.router.iterate();
        }
        pair.take();
        if random.below(100) == 0 {
            pair.run();
            pair.advance(1);
        }
    }
    pair.run();
    let flows = numbers(&pair.sent["b"]);
    assert_eq!(flows.values().map(Vec::len).sum::<usize>(), 6000);
    for (flow, numbers) in flows {
        let overtaken = numbers.windows(2).find(|two| two[0] > two[1]);
        assert_eq!(overtaken, None, "{workers} workers, {queues} queues, flow {flow}");
    }
    pair.router.check_conservation();
    pair.offload.as_ref().map_or(0, OffloadModel::forwarded)
}

#[test]
fn no_packet_overtakes_a_packet_between_workers() {
    for (workers, queues) in [(1, 1), (2, 1), (3, 1), (1, 3), (3, 2), (5, 4)] {
        for seed in 0..3 {
            let forwarded = sends_in_order(workers, queues, seed);
            assert!(forwarded > 500, "{workers} workers, {queues} queues: {forwarded} of 6000");
        }
    }
}
