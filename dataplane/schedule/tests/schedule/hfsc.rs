//! H-FSC compared with the guarantees of its paper: service curves, delay independent of rate, fair sharing
//! after idle times.

use crate::support::*;

const MS: u64 = 1_000_000;

fn leaf(real_time: Option<Curve>, link_sharing: Option<Curve>) -> Share {
    Share::Curves(Curves { real_time, link_sharing, upper_limit: None })
}

fn sharing(rate: u64) -> Share {
    Share::Curves(Curves::sharing(Rate(rate)))
}

fn steady(node: u32, flow: u32, length: u32, gap: u64, from: u64, to: u64) -> Vec<Arrival> {
    let times =
        (0..).map(|number| (number, from + u64::from(number) * gap)).take_while(|(_, time)| *time < to);
    times.map(|(number, at)| Arrival { at, node, frame: frame(flow, number, length) }).collect()
}

fn merged(mut lists: Vec<Vec<Arrival>>) -> Vec<Arrival> {
    let mut all: Vec<Arrival> = lists.drain(..).flatten().collect();
    all.sort_by_key(|arrival| arrival.at);
    all
}

/// Returns the longest time from the arrival of a packet to the end of its transmission, over the packets of
/// a flow.
fn worst_delay(arrivals: &[Arrival], sent: &[Sent], flow: u32, rate: u64) -> u64 {
    let came: std::collections::HashMap<u32, u64> =
        arrivals.iter().filter(|a| a.frame.flow == flow).map(|a| (a.frame.number, a.at)).collect();
    let delays = sent.iter().filter(|sent| sent.frame.flow == flow);
    delays
        .map(|sent| sent.at + Rate(rate).time_for(sent.frame.length.into()) - came[&sent.frame.number])
        .max()
        .unwrap()
}

/// Runs the paper's example (sections II and VI): an audio session of 64 kb/s, with packets of 160 bytes that
/// must be sent within 5 ms, on a link of 10 Mb/s. File transfers fill the link, and 75 more audio sessions
/// send at the same moment. With a straight curve of 64 kb/s, a packet may take 20 ms.
#[test]
fn delay_is_decoupled_from_rate() {
    let link = 10_000_000;
    // By the mapping of section VI, 160 bytes within 5 ms need 256 kb/s, which is above the session's rate.
    let steep = Curve { first: Rate(256_001), duration: 5 * MS, then: Rate(64_000) };
    for (curve, from, to) in
        [(steep, 0, 5 * MS + 1_200_000), (Curve::linear(Rate(64_000)), 9 * MS, 21_200_000)]
    {
        let mut port = port(Some(link));
        add(&mut port, 0, None, Share::Only, NodeKind::Hfsc);
        add(&mut port, 1, 0, leaf(Some(curve), None), fifo());
        add(&mut port, 2, 0, sharing(9_000_000), fifo());
        let mut lists = vec![steady(2, 2, 1500, 1_200_000, 0, 2000 * MS)];
        for node in 3..78 {
            add(&mut port, node, 0, leaf(Some(Curve::linear(Rate(70_000))), None), fifo());
            lists.push(steady(node, node, 160, 20 * MS, 7 * MS, 2000 * MS));
        }
        lists.push(steady(1, 1, 160, 20 * MS, 7 * MS, 2000 * MS));
        let arrivals = merged(lists);
        let sent = run(&mut port, &arrivals, 3000 * MS);
        let worst = worst_delay(&arrivals, &sent, 1, link);
        assert!((from..=to).contains(&worst), "{curve:?}: {worst} ns");
    }
}

/// Checks theorem 2: a packet misses its deadline by at most the transmission time of the longest packet.
/// Guarantees with concave, convex and linear curves use the whole link.
#[test]
fn guarantees_of_all_shapes_hold_at_full_load() {
    let link = 10_000_000;
    let mut port = port(Some(link));
    add(&mut port, 0, None, Share::Only, NodeKind::Hfsc);
    let concave = Curve { first: Rate(4_000_000), duration: 10 * MS, then: Rate(1_000_000) };
    let convex = Curve { first: Rate(1_000_000), duration: 10 * MS, then: Rate(4_000_000) };
    let straight = Curve::linear(Rate(5_000_000));
    for (node, curve) in [(1, concave), (2, convex), (3, straight)] {
        add(&mut port, node, 0, leaf(Some(curve), Some(curve)), fifo());
    }
    let arrivals = merged(vec![
        steady(1, 1, 1250, 1250 * 8000, 0, 2000 * MS),
        steady(2, 2, 1000, 2 * MS, 100 * MS, 2000 * MS),
        steady(3, 3, 1500, 2_400_000, 0, 2000 * MS),
    ]);
    let sent = run(&mut port, &arrivals, 3000 * MS);
    for (flow, from) in [(2, 100 * MS), (3, 0)] {
        let curve = if flow == 2 { convex } else { straight };
        // The flow sends at its rate or above, so it is backlogged from its first packet on. At any time it
        // has received its curve, less one packet of another flow and the packet in transmission.
        for tick in 1..150 {
            let time = tick * 10 * MS;
            let got = bytes(&sent, flow, from, from + time);
            let due = curve.bytes_after(time.saturating_sub(1_200_000));
            assert!(got + 1500 >= due, "flow {flow} after {time}: {got} < {due}");
        }
    }
    // Flow 1 sends a packet of 1,250 bytes every 10 ms. Its first piece of 4 Mb/s takes 2.5 ms for the
    // packet, after one packet of another flow.
    assert!(worst_delay(&arrivals, &sent, 1, link) <= 2_500_000 + 1_200_000);
}

/// Checks section III.B: excess goes to siblings by their curves, first inside a class, then outside. Two
/// organisations have two kinds of traffic each.
#[test]
fn idle_shares_stay_with_siblings_and_return_with_the_class() {
    let mut port = port(Some(10_000_000));
    add(&mut port, 0, None, Share::Only, NodeKind::Hfsc);
    add(&mut port, 1, 0, sharing(6_000_000), NodeKind::Hfsc);
    add(&mut port, 2, 0, sharing(4_000_000), NodeKind::Hfsc);
    for (node, parent, rate) in [(3, 1, 4_000_000), (4, 1, 2_000_000), (5, 2, 3_000_000), (6, 2, 1_000_000)] {
        add(&mut port, node, parent, sharing(rate), fifo());
    }
    // Class 4 pauses in the second second, class 1 in the fourth.
    let second = 1000 * MS;
    let burst = |node: u32, from: u64, rate: u64, time: u64| -> Vec<Arrival> {
        let count = rate * time / second / 8 / 1000;
        let one = |number| Arrival { at: from, node, frame: frame(node, number as u32, 1000) };
        (0..count).map(one).collect()
    };
    let arrivals = merged(vec![
        burst(3, 0, 14_000_000, second),
        burst(4, 0, 2_000_000, second),
        burst(4, 2 * second, 2_000_000, second),
        burst(5, 0, 100_000_000, second),
        burst(6, 0, 100_000_000, second),
    ]);
    let sent = run(&mut port, &arrivals, 4 * second);
    let check = |from: u64, expected: [u64; 4]| {
        for (node, rate) in (3..).zip(expected) {
            let got = bytes(&sent, node, from, from + second) * 8;
            assert!(got.abs_diff(rate) <= 50_000, "class {node} from {from}: {got} b/s, not {rate}");
        }
    };
    check(0, [4_000_000, 2_000_000, 3_000_000, 1_000_000]);
    check(second, [6_000_000, 0, 3_000_000, 1_000_000]);
    check(2 * second, [4_000_000, 2_000_000, 3_000_000, 1_000_000]);
    check(3 * second, [0, 0, 7_500_000, 2_500_000]);
}

/// Lets one class use the whole link: it isn't punished when other classes become active (section III.C), and
/// its guarantee holds from the next packet on.
#[test]
fn excess_used_before_costs_no_guarantee_later() {
    let link = 10_000_000;
    let mut port = port(Some(link));
    add(&mut port, 0, None, Share::Only, NodeKind::Hfsc);
    let rate = Curve::linear(Rate(5_000_000));
    for node in [1, 2] {
        add(&mut port, node, 0, leaf(Some(rate), Some(rate)), fifo());
    }
    let arrivals = merged(vec![
        steady(1, 1, 1000, 800_000, 0, 2000 * MS),
        steady(2, 2, 1000, 800_000, 1000 * MS, 2000 * MS),
    ]);
    let sent = run(&mut port, &arrivals, 2000 * MS);
    for tick in 0..99 {
        let from = 1000 * MS + tick * 10 * MS;
        let (one, other) = (bytes(&sent, 1, from, from + 10 * MS), bytes(&sent, 2, from, from + 10 * MS));
        assert!(one.abs_diff(6250) <= 1000 && other.abs_diff(6250) <= 1000, "{tick}: {one}, {other}");
    }
}

#[test]
fn upper_limit_holds_and_its_excess_goes_to_other_classes() {
    let mut port = port(Some(10_000_000));
    add(&mut port, 0, None, Share::Only, NodeKind::Hfsc);
    let limited =
        Curves { upper_limit: Some(Curve::linear(Rate(2_000_000))), ..Curves::sharing(Rate(8_000_000)) };
    add(&mut port, 1, 0, Share::Curves(limited), NodeKind::Hfsc);
    add(&mut port, 2, 1, sharing(1_000_000), fifo());
    add(&mut port, 3, 0, sharing(2_000_000), fifo());
    let second = 1000 * MS;
    let arrivals = merged(vec![
        steady(2, 2, 1000, 500_000, 0, 4 * second),
        steady(3, 3, 1000, 500_000, second, 2 * second),
    ]);
    let sent = run(&mut port, &arrivals, 4 * second);
    for from in 0..4 {
        let got = bytes(&sent, 2, from * second, (from + 1) * second) * 8;
        assert!(got.abs_diff(2_000_000) <= 16_000, "{from}: {got}");
    }
    // Flow 3 gets 16 Mb in one second. It may send 8 Mb/s, so it takes two seconds.
    for from in [1, 2] {
        let got = bytes(&sent, 3, from * second, (from + 1) * second) * 8;
        assert!(got.abs_diff(8_000_000) <= 24_000, "{from}: {got}");
    }
}

#[test]
fn curves_change_under_load_from_the_next_packet_on() {
    let mut port = port(Some(10_000_000));
    add(&mut port, 0, None, Share::Only, NodeKind::Hfsc);
    add(&mut port, 1, 0, sharing(5_000_000), fifo());
    add(&mut port, 2, 0, sharing(5_000_000), fifo());
    let second = 1000 * MS;
    for number in 0..4000 {
        put(&mut port, 1, frame(1, number, 1000), 0);
        put(&mut port, 2, frame(2, number, 1000), 0);
    }
    let mut sent = run(&mut port, &[], second);
    port.edit().set_share(NodeId(1), sharing(9_000_000), at(second)).unwrap();
    port.edit().set_share(NodeId(2), sharing(1_000_000), at(second)).unwrap();
    sent.extend(run_from(&mut port, second, 2 * second));
    assert!((bytes(&sent, 1, 0, second) * 8).abs_diff(5_000_000) <= 16_000);
    let got = bytes(&sent, 1, second, 2 * second) * 8;
    assert!(got.abs_diff(9_000_000) <= 50_000, "{got}");
}

fn run_from(port: &mut Port, mut now: u64, until: u64) -> Vec<Sent> {
    let mut sent = Vec::new();
    while now < until {
        while let Some(frame) = port.dequeue(at(now), &mut never) {
            sent.push(Sent { at: now, frame });
        }
        now = port.next_ready().as_nanos();
    }
    sent
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Checks the definition of a guaranteed service curve (section II). At the end of each transmission, the
    /// session has received at least its curve since the start of some backlog. The link may be one packet
    /// late (theorem 2).
    #[test]
    fn every_session_gets_its_service_curve(
        shapes in prop::collection::vec((0_u64..3, 1_u64..40, 1_u64..4), 2..6),
        traffic in prop::collection::vec((0_u64..8_000_000, 0_usize..6, 1_u32..8, 100_u32..1500), 20..120),
    ) {
        let link = 20_000_000_u64;
        let mut port = port(Some(link));
        add(&mut port, 0, None, Share::Only, NodeKind::Hfsc);
        let unit = link / 4 / shapes.len() as u64;
        let curves: Vec<Curve> = shapes.iter().map(|(shape, duration, steep)| {
            let (first, then) = match shape { 0 => (unit * steep, unit), 1 => (0, unit * steep), _ => (unit, unit) };
            Curve { first: Rate(first), duration: duration * MS, then: Rate(then) }
        }).collect();
        for (index, curve) in curves.iter().enumerate() {
            add(&mut port, index as u32 + 1, 0, leaf(Some(*curve), Some(Curve::linear(curve.then))), fifo());
        }
        let (mut now, mut arrivals) = (0, Vec::new());
        for (pause, session, count, length) in traffic {
            now += pause;
            let session = session as u32 % curves.len() as u32 + 1;
            for number in 0..count {
                arrivals.push(Arrival { at: now, node: session, frame: frame(session, number, length) });
            }
        }
        let sent = run(&mut port, &arrivals, u64::MAX);
        prop_assert_eq!(sent.len(), arrivals.len());
        for (index, curve) in curves.iter().enumerate() {
            assert_service_curve(&arrivals, &sent, index as u32 + 1, curve, link);
        }
    }
}

fn assert_service_curve(arrivals: &[Arrival], sent: &[Sent], flow: u32, curve: &Curve, link: u64) {
    // Backlog periods of the flow: their starts, and the bytes sent before each.
    let came: Vec<(u64, u64)> =
        arrivals.iter().filter(|a| a.frame.flow == flow).map(|a| (a.at, u64::from(a.frame.length))).collect();
    let gone: Vec<(u64, u64)> = sent
        .iter()
        .filter(|sent| sent.frame.flow == flow)
        .map(|sent| (sent.at, u64::from(sent.frame.length)))
        .collect();
    let (mut starts, mut total) = (Vec::new(), 0);
    for (number, (start, length)) in gone.iter().enumerate() {
        let arrival = came[number].0;
        let idle = number == 0 || gone[number - 1].0 < arrival;
        if idle {
            starts.push((arrival, total));
        }
        total += length;
        let end = start + Rate(link).time_for(*length);
        let late = Rate(link).time_for(1500) + 2;
        let kept = starts.iter().any(|(start, before)| {
            let time = end.saturating_sub(*start).saturating_sub(late);
            total - before + 1 >= curve.bytes_after(time)
        });
        assert!(
            kept,
            "session {flow}, packet {number} ended at {end}: {total} bytes, starts {starts:?}, {curve:?}"
        );
    }
}

/// Lets a class with a guarantee far above its share run ahead of its siblings in virtual time: bytes sent by
/// a real-time curve advance the virtual time, too. A class that becomes active later must not start as far
/// ahead.
#[test]
fn late_class_shares_at_once_even_beside_a_class_ahead_of_its_share() {
    let mut port = port(Some(12_000_000));
    add(&mut port, 0, None, Share::Only, NodeKind::Hfsc);
    let [guaranteed, shared] = [Rate(8_000_000), Rate(64_000)].map(|rate| Some(Curve::linear(rate)));
    add(&mut port, 1, 0, leaf(guaranteed, shared), fifo());
    add(&mut port, 2, 0, sharing(2_000_000), fifo());
    add(&mut port, 3, 0, sharing(2_000_000), fifo());
    let second = 1000 * MS;
    let arrivals = merged(vec![
        steady(1, 1, 1000, MS, 0, 22 * second),
        steady(2, 2, 1000, MS, 0, 22 * second),
        steady(3, 3, 1000, MS, 20 * second, 22 * second),
    ]);
    let sent = run(&mut port, &arrivals, 22 * second);
    let [first, others, late] = [1, 2, 3].map(|flow| bytes(&sent, flow, 20 * second, 22 * second) * 4);
    assert!(first.abs_diff(8_000_000) <= 40_000, "{first}");
    assert!(
        late.abs_diff(2_000_000) <= 40_000 && others.abs_diff(2_000_000) <= 40_000,
        "{late} beside {others}"
    );
}

/// Returns the bytes that each leaf sends in `millis` from `now` on, and advances `now`. The leaves of `busy`
/// always have packets.
fn while_busy(port: &mut Port, now: &mut u64, millis: u64, busy: &[u32]) -> [u64; 8] {
    let (until, mut sent, mut number) = (*now + millis * MS, [0; 8], 0);
    while *now < until {
        for &node in busy {
            while port.report().view(NodeId(node)).unwrap().held_packets < 2 {
                number += 1;
                put(port, node, frame(node, number, 1000), *now);
            }
        }
        match port.dequeue(at(*now), &mut never) {
            Some(gone) => sent[gone.flow as usize] += 1000,
            None => *now = port.next_ready().as_nanos().clamp(*now + 1, until),
        }
    }
    sent
}

fn three_curves(real_time: Option<u64>, link_sharing: Option<u64>, upper_limit: Option<u64>) -> Share {
    let curve = |rate: Option<u64>| rate.map(|rate| Curve::linear(Rate(rate)));
    Share::Curves(Curves {
        real_time: curve(real_time),
        link_sharing: curve(link_sharing),
        upper_limit: curve(upper_limit),
    })
}

const LINK: u64 = 10_000_000;
/// Bytes per second of the link.
const ALL: u64 = LINK / 8;

/// Removes the guarantee of a class whose guaranteed bytes took it ahead of its siblings in virtual time.
/// From then on the class sends by its share.
#[test]
fn class_without_its_removed_guarantee_continues_by_its_share() {
    let mut port = port(Some(LINK));
    add(&mut port, 0, None, Share::Only, NodeKind::Hfsc);
    add(&mut port, 1, 0, three_curves(Some(9_000_000), Some(1_000_000), None), fifo());
    add(&mut port, 2, 0, sharing(1_000_000), fifo());
    let mut now = 0;
    let before = while_busy(&mut port, &mut now, 5000, &[1, 2]);
    assert!(before[1] > 4 * ALL, "{before:?}");
    port.edit().set_share(NodeId(1), three_curves(None, Some(1_000_000), None), at(now)).unwrap();
    let behind = while_busy(&mut port, &mut now, 1000, &[1, 2]);
    assert!(behind[1].abs_diff(ALL / 2) <= 3000, "{behind:?}");
}

/// Lets a guarantee send bytes of a leaf while the leaf's class is idle in link sharing. The class is not
/// charged for these bytes later.
#[test]
fn returning_class_is_not_charged_for_guarantees_kept_while_idle() {
    let mut port = port(Some(LINK));
    add(&mut port, 0, None, Share::Only, NodeKind::Hfsc);
    add(&mut port, 1, 0, sharing(5_000_000), NodeKind::Hfsc);
    add(&mut port, 2, 0, sharing(5_000_000), fifo());
    add(&mut port, 3, 1, leaf(Some(Curve::linear(Rate(2_000_000))), None), fifo());
    add(&mut port, 4, 1, sharing(5_000_000), fifo());
    let mut now = 0;
    while_busy(&mut port, &mut now, 10_000, &[3]);
    while_busy(&mut port, &mut now, 500, &[2, 3]);
    let returned = while_busy(&mut port, &mut now, 1000, &[2, 3, 4]);
    // While the class is active, bytes sent by the guarantee count for its share, as in the paper.
    assert!(returned[4].abs_diff(ALL * 3 / 10) <= 4000, "{returned:?}");
}

/// Lets its siblings keep a class below its upper limit for a time. Later the class must not exceed the limit
/// to make up for this time.
#[test]
fn an_upper_limit_holds_behind_a_time_with_less() {
    let mut port = port(Some(LINK));
    add(&mut port, 0, None, Share::Only, NodeKind::Hfsc);
    add(&mut port, 1, 0, three_curves(None, Some(500_000), Some(2_000_000)), fifo());
    add(&mut port, 2, 0, sharing(9_500_000), fifo());
    let mut now = 0;
    while_busy(&mut port, &mut now, 7000, &[1, 2]);
    let alone = while_busy(&mut port, &mut now, 1000, &[1]);
    assert!(alone[1] <= ALL / 5 + 5000 && alone[1] + 2000 >= ALL / 5, "{alone:?}");
    // Beside a sibling that leaves enough rate, the class gets its whole limit.
    port.edit().set_share(NodeId(1), three_curves(None, Some(4_000_000), Some(2_000_000)), at(now)).unwrap();
    port.edit().set_share(NodeId(2), sharing(6_000_000), at(now)).unwrap();
    let beside = while_busy(&mut port, &mut now, 1000, &[1, 2]);
    assert!(beside[1].abs_diff(ALL / 5) <= ALL / 100, "{beside:?}");
}
