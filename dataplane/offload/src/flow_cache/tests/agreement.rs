//! Programs with a flow cache, compared with their twin on random frames.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::super::dry_runs::{Bench, OWN, PORT, WAY};
use super::super::forward_twin::{forwarded, read, udp_key};
use super::{V4, V6};
use crate::classifier::dry_runs::ones_complement;
use crate::test_support::{can_load, frame_to, ipv4_packet, ipv6_packet};

/// Returns packets of the two flows, with changed bytes or bits, cut or padded.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let payload = prop_oneof![Just(4_usize), Just(18), 0..60_usize, Just(1480)];
    let whole = (any::<bool>(), payload).prop_map(|(v6, payload)| match v6 {
        true => frame_to(OWN, 0x86dd, &ipv6_packet(V6.0, V6.1, payload)),
        false => frame_to(OWN, 0x0800, &ipv4_packet(V4.0, V4.1, payload)),
    });
    let change = prop_oneof![
        3 => Just(Change::None),
        3 => (12..60_usize, 0..8_u32).prop_map(|(at, bit)| Change::Bit(at, bit)),
        2 => (20..60_usize, any::<u8>()).prop_map(|(at, to)| Change::Byte(at, to)),
        1 => Just(Change::Partial),
        1 => (1..30_usize).prop_map(Change::Pad),
        1 => (15..70_usize).prop_map(Change::Cut),
    ];
    (whole, change, any::<bool>()).prop_map(|(mut frame, change, repair)| {
        change.make(&mut frame);
        // Programs look at the fields of an IPv4 header only if its checksum is correct.
        if repair && frame.len() >= 34 && frame[12..14] == [8, 0] {
            frame[24..26].fill(0);
            let sum = !ones_complement(&frame[14..34]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        frame
    })
}

#[derive(Clone, Debug)]
enum Change {
    None,
    Bit(usize, u32),
    Byte(usize, u8),
    /// The sender leaves the checksum to its network card.
    Partial,
    Pad(usize),
    Cut(usize),
}

impl Change {
    fn make(&self, frame: &mut Vec<u8>) {
        match *self {
            Self::None => {}
            Self::Bit(at, bit) if at < frame.len() => frame[at] ^= 1 << bit,
            Self::Byte(at, to) if at < frame.len() => frame[at] = to,
            Self::Bit(..) | Self::Byte(..) => {}
            Self::Partial => {
                let (transport, addresses) = if frame[12] == 8 { (34, 26..34) } else { (54, 22..54) };
                let length = ((frame.len() - transport) as u16).to_be_bytes();
                let pseudo = ones_complement(&[&frame[addresses], &[0, 17], &length[..]].concat());
                frame[transport + 6..transport + 8].copy_from_slice(&pseudo.to_be_bytes());
            }
            Self::Pad(more) => frame.extend(std::iter::repeat_n(0, more)),
            Self::Cut(to) => frame.truncate(to),
        }
    }
}

#[test]
fn programs_agree_with_their_twin_on_any_frame() {
    if !can_load() {
        return;
    }
    let mut bench = Bench::new(16);
    bench.begin(V4.0, V4.1);
    bench.begin(V6.0, V6.1);
    let known = [udp_key(V4.0, V4.1, PORT), udp_key(V6.0, V6.1, PORT)];
    let bench = std::cell::RefCell::new(bench);
    let (forwarded_here, gone_up) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 6_000, failure_persistence: None, ..Default::default() });
    let outcome = runner.run(&any_frame(), |frame| {
        let mut bench = bench.borrow_mut();
        let read = read(&frame, PORT);
        let expected = read
            .filter(|read| known.contains(&read.key) && read.network_length <= usize::from(WAY.mtu))
            .map(|_| forwarded(&frame, &WAY));
        let counter = if expected.is_some() { &forwarded_here } else { &gone_up };
        counter.set(counter.get() + 1);
        let found = bench.run(0, &frame);
        prop_assert_eq!(found, expected);
        let up = bench.writer.up(PORT);
        bench.writer.set_done(PORT, up);
        Ok(())
    });
    outcome.unwrap();
    assert!(forwarded_here.get() > 500 && gone_up.get() > 500, "{forwarded_here:?} {gone_up:?}");
}
