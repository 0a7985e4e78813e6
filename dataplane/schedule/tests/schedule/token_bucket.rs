//! Token buckets and the link: no interval exceeds the limit, and the long-run rate is met.

use crate::support::*;

/// Asserts, for all pairs of departures, that the bytes between them are at most burst + rate * time, in
/// exact numbers.
fn assert_conforms(sent: &[Sent], rate: u64, burst: u64) {
    for (first, start) in sent.iter().enumerate() {
        let mut total = 0_u128;
        for end in &sent[first..] {
            total += u128::from(end.frame.length);
            let allowed =
                u128::from(burst) * 8_000_000_000 + u128::from(rate) * u128::from(end.at - start.at);
            assert!(total * 8_000_000_000 <= allowed, "{total} bytes from {} to {}", start.at, end.at);
        }
    }
}

fn arrivals(gaps: &[(u64, u32)]) -> Vec<Arrival> {
    let mut now = 0;
    let arrival = |(number, (gap, length)): (usize, &(u64, u32))| {
        now += gap;
        Arrival { at: now, node: 1, frame: frame(0, number as u32, *length) }
    };
    gaps.iter().enumerate().map(arrival).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_token_bucket_conforms_over_every_interval(
        gaps in prop::collection::vec((0_u64..3_000_000, 40_u32..1500), 1..150),
        rate in 64_000_u64..1_000_000_000, burst in 1500_u32..20_000,
    ) {
        let mut port = port(None);
        add(&mut port, 0, None, Share::Only, NodeKind::TokenBucket { rate: Rate(rate), burst });
        add(&mut port, 1, 0, Share::Only, fifo());
        let sent = run(&mut port, &arrivals(&gaps), u64::MAX);
        prop_assert_eq!(sent.len(), gaps.len());
        assert_conforms(&sent, rate, burst.into());
    }

    /// Fills a link: packets leave back to back, each beginning when the previous one has ended, to the
    /// nanosecond.
    #[test]
    fn a_link_loses_no_bit_and_gains_none(
        lengths in prop::collection::vec(40_u32..9000, 1..150), rate in 64_000_u64..100_000_000_000,
    ) {
        let mut port = port(Some(rate));
        add(&mut port, 1, None, Share::Only, fifo());
        let gaps: Vec<(u64, u32)> = lengths.iter().map(|length| (0, *length)).collect();
        let sent = run(&mut port, &arrivals(&gaps), u64::MAX);
        let mut before = 0_u128;
        for sent in sent {
            let exact = (before * 8_000_000_000).div_ceil(rate.into());
            prop_assert_eq!(u128::from(sent.at), exact);
            before += u128::from(sent.frame.length);
        }
    }

    /// Calls the scheduler of a link with slack too late. The link returns to its rate, and is never more
    /// than two packets ahead of it.
    #[test]
    fn late_caller_catches_up_within_two_packets(delays in prop::collection::vec(0_u64..200_000, 200..400)) {
        let (rate, length) = (100_000_000_u64, 1250_u32);
        let link = LinkRate { rate: Some(Rate(rate)), slack: length };
        let mut port: Port = LinkScheduler::new(link, LinkOverhead::None, BufferLimits::default()).unwrap();
        add(&mut port, 1, None, Share::Only, fifo());
        for number in 0..2000 {
            put(&mut port, 1, frame(0, number, length), 0);
        }
        let (mut now, mut sent) = (0, Vec::new());
        for delay in delays {
            now += delay;
            while let Some(frame) = port.dequeue(at(now), &mut never) {
                sent.push(Sent { at: now, frame });
            }
            now = now.max(port.next_ready().as_nanos());
        }
        assert_conforms(&sent, rate, 2 * u64::from(length));
    }
}

#[test]
fn a_packet_above_the_burst_goes_from_a_full_bucket_and_leaves_a_debt() {
    let mut port = port(None);
    add(&mut port, 0, None, Share::Only, NodeKind::TokenBucket { rate: Rate(8000), burst: 100 });
    add(&mut port, 1, 0, Share::Only, fifo());
    let gaps = [(0, 1000), (0, 1000), (0, 50)];
    let times: Vec<u64> = run(&mut port, &arrivals(&gaps), u64::MAX).iter().map(|sent| sent.at).collect();
    // The bucket is full again a second after a packet of 1,000 bytes. The last packet needs only half a
    // bucket, so it leaves 50 ms earlier.
    assert_eq!(times, [0, 1_000_000_000, 1_950_000_000]);
}

#[test]
fn new_rate_holds_from_the_time_of_the_change() {
    let mut port = port(None);
    let bucket = |rate| NodeKind::TokenBucket { rate: Rate(rate), burst: 1000 };
    add(&mut port, 0, None, Share::Only, bucket(8000));
    add(&mut port, 1, 0, Share::Only, fifo());
    for number in 0..3 {
        put(&mut port, 1, frame(0, number, 1000), 0);
    }
    assert!(port.dequeue(at(0), &mut never).is_some());
    assert!(port.dequeue(at(0), &mut never).is_none());
    assert_eq!(port.next_ready(), at(1_000_000_000));
    port.edit().set(NodeId(0), &bucket(80_000), at(500_000_000)).unwrap();
    assert!(port.dequeue(at(500_000_000), &mut never).is_none());
    assert_eq!(port.next_ready(), at(550_000_000));
    assert!(port.dequeue(at(550_000_000), &mut never).is_some());
}
