//! RED, CoDel and FQ-CoDel compared with independent implementations of their papers' pseudo-code.

use std::collections::VecDeque;

use crate::support::*;

/// CoDel of RFC 8289, appendix A, line by line, with ECN marks as in section 5.8 and Linux.
#[derive(Default)]
struct ReferenceCodel {
    target: u64,
    interval: u64,
    ecn: bool,
    maxpacket: u32,
    first_above_time: u64,
    drop_next: u64,
    count: u32,
    lastcount: u32,
    dropping: bool,
}

type Queue = VecDeque<(u64, Frame)>;

impl ReferenceCodel {
    fn dodequeue(&mut self, queue: &mut Queue, now: u64) -> (Option<Frame>, bool) {
        let Some((tstamp, p)) = queue.pop_front() else {
            self.first_above_time = 0;
            return (None, false);
        };
        let mut ok_to_drop = false;
        let sojourn_time = now - tstamp;
        let bytes: u32 = queue.iter().map(|(_, frame)| frame.length).sum();
        if sojourn_time < self.target || bytes <= self.maxpacket {
            self.first_above_time = 0;
        } else if self.first_above_time == 0 {
            self.first_above_time = now + self.interval;
        } else if now >= self.first_above_time {
            ok_to_drop = true;
        }
        (Some(p), ok_to_drop)
    }

    fn control_law(&self, t: u64) -> u64 {
        t + (self.interval as f64 / f64::from(self.count).sqrt()) as u64
    }

    fn deque(&mut self, queue: &mut Queue, now: u64, drops: &mut Vec<Frame>) -> Option<Frame> {
        let mark = |frame: &mut Option<Frame>, ecn| ecn && frame.as_mut().is_some_and(Item::mark_congestion);
        let (mut p, mut ok_to_drop) = self.dodequeue(queue, now);
        if self.dropping {
            if !ok_to_drop {
                self.dropping = false;
            }
            while self.dropping && now >= self.drop_next {
                self.count += 1;
                if mark(&mut p, self.ecn) {
                    self.drop_next = self.control_law(self.drop_next);
                    break;
                }
                drops.extend(p);
                (p, ok_to_drop) = self.dodequeue(queue, now);
                if ok_to_drop {
                    self.drop_next = self.control_law(self.drop_next);
                } else {
                    self.dropping = false;
                }
            }
        } else if ok_to_drop {
            if !mark(&mut p, self.ecn) {
                drops.extend(p);
                (p, _) = self.dodequeue(queue, now);
            }
            self.dropping = true;
            let delta = self.count.wrapping_sub(self.lastcount);
            self.count = 1;
            if delta > 1 && now.saturating_sub(self.drop_next) < 16 * self.interval {
                self.count = delta;
            }
            self.drop_next = self.control_law(now);
            self.lastcount = self.count;
        }
        p
    }
}

fn traffic() -> impl Strategy<Value = Vec<(u64, bool, u32, bool)>> {
    let step = (0_u64..4_000_000, prop::bool::weighted(0.6), 40_u32..1500, any::<bool>());
    prop::collection::vec(step, 1..1500)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn codel_is_the_rfcs(steps in traffic(), ecn in any::<bool>(), target in 1_u64..20_000_000) {
        let settings = CodelSettings { target, interval: 20_000_000 + target, ecn };
        let mut port = port(None);
        let aqm = Aqm::Codel(settings);
        add(&mut port, 0, None, Share::Only, NodeKind::Fifo(QueueSettings { threshold: 1 << 30, aqm }));
        let mut twin = ReferenceCodel { target, interval: settings.interval, ecn, ..Default::default() };
        let (mut queue, mut now) = (Queue::new(), 0);
        let (mut dropped, mut expected) = (Vec::new(), Vec::new());
        for (number, (pause, arrives, length, capable)) in steps.into_iter().enumerate() {
            now += pause;
            if arrives {
                let frame = Frame { capable, ..frame(0, number as u32, length) };
                twin.maxpacket = twin.maxpacket.max(length);
                queue.push_back((now, frame.clone()));
                put(&mut port, 0, frame, now);
            } else {
                let mut sink = |frame: Frame, cause| {
                    assert_eq!(cause, DropCause::Sojourn);
                    dropped.push(frame);
                };
                let sent = port.dequeue(at(now), &mut sink);
                prop_assert_eq!(sent, twin.deque(&mut queue, now, &mut expected));
            }
            prop_assert_eq!(&dropped, &expected);
        }
        let view = port.report().view(NodeId(0)).unwrap();
        prop_assert_eq!(view.drops.get(DropCause::Sojourn), expected.len() as u64);
        prop_assert_eq!(view.held_packets as usize, queue.len());
    }

    #[test]
    fn red_is_the_papers(
        steps in traffic(), seed in any::<u64>(), gentle in any::<bool>(), ecn in any::<bool>(), packets in any::<bool>(),
    ) {
        let (unit, scale) = if packets { (RedUnit::Packets, 1) } else { (RedUnit::Bytes, 1000) };
        let settings = RedSettings {
            unit, minimum: 3 * scale, maximum: 9 * scale, probability: 0.2, weight: 0.05, gentle, ecn, seed,
            rate: Rate(10_000_000), mean_packet: 1000,
        };
        let mut port = port(None);
        let aqm = Aqm::Red(settings);
        add(&mut port, 0, None, Share::Only, NodeKind::Fifo(QueueSettings { threshold: 1 << 30, aqm }));
        let mut twin = ReferenceRed { settings, avg: 0.0, count: -1, q_time: 0, random: seed | 1 };
        let (mut queue, mut now, mut bytes) = (VecDeque::new(), 0, 0);
        for (number, (pause, arrives, length, capable)) in steps.into_iter().enumerate() {
            now += pause / 4;
            if !arrives {
                let expected: Option<Frame> = queue.pop_front();
                if let Some(gone) = &expected {
                    bytes -= gone.length;
                    twin.q_time = now;
                }
                prop_assert_eq!(port.dequeue(at(now), &mut never), expected);
                continue;
            }
            let mut frame = Frame { capable, ..frame(0, number as u32, length) };
            let arrived = frame.clone();
            let length_of_queue = if packets { queue.len() as u32 } else { bytes };
            let expected = twin.arrival(&mut frame, length_of_queue, now);
            if expected.is_none() {
                bytes += length;
                queue.push_back(frame);
            }
            let mut cause = None;
            port.enqueue(NodeId(0), FlowNumber(0), arrived, at(now), &mut |_: Frame, why| cause = Some(why));
            prop_assert_eq!(cause, expected);
        }
    }

    #[test]
    fn fq_codel_is_the_rfcs(
        steps in prop::collection::vec((0_u64..3_000_000, prop::bool::weighted(0.6), 40_u32..1500, 0_u32..30), 1..1200),
        quantum in 256_u32..3000, limit in 1_u32..60, seed in any::<u64>(),
    ) {
        let codel = CodelSettings { target: 2_000_000, interval: 20_000_000, ecn: true };
        let settings = FqCodelSettings { flows: 8, quantum, limit, codel, seed };
        let mut port = port(None);
        add(&mut port, 0, None, Share::Only, NodeKind::FqCodel(settings));
        let mut twin = ReferenceFqCodel::new(settings);
        let (mut now, mut dropped, mut expected) = (0, Vec::new(), Vec::new());
        for (number, (pause, arrives, length, flow)) in steps.into_iter().enumerate() {
            now += pause;
            let mut sink = |frame: Frame, _: DropCause| dropped.push(frame);
            if arrives {
                let frame = Frame { capable: number % 5 == 0, ..frame(flow, number as u32, length) };
                twin.enqueue(frame.clone(), now, &mut expected);
                port.enqueue(NodeId(0), FlowNumber(flow), frame, at(now), &mut sink);
            } else {
                let sent = port.dequeue(at(now), &mut sink);
                prop_assert_eq!(sent, twin.dequeue(now, &mut expected));
                if port.held_packets() == 0 {
                    // A link dequeues once more, and finds no packet.
                    prop_assert_eq!(twin.dequeue(now, &mut expected), None);
                }
            }
            prop_assert_eq!(&dropped, &expected);
            prop_assert_eq!(port.held_packets() as usize, twin.flows.iter().map(|flow| flow.0.len()).sum::<usize>());
        }
    }
}

/// RED of Floyd and Jacobson, figure 2, with the gentle range. Lengths are in the unit of the thresholds.
struct ReferenceRed {
    settings: RedSettings,
    avg: f64,
    count: i64,
    q_time: u64,
    random: u64,
}

impl ReferenceRed {
    /// Draws a number with xorshift64*, as the library documents it.
    fn draw(&mut self) -> f64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn arrival(&mut self, frame: &mut Frame, q: u32, time: u64) -> Option<DropCause> {
        let RedSettings { minimum, maximum, probability: maxp, weight: wq, gentle, ecn, .. } = self.settings;
        let (minth, maxth) = (f64::from(minimum), f64::from(maximum));
        if q > 0 {
            self.avg += wq * (f64::from(q) - self.avg);
        } else {
            // A packet of 1,000 bytes takes 800 microseconds at 10 Mb/s.
            let m = (time - self.q_time) as f64 / 800_000.0;
            self.avg *= (1.0 - wq).powf(m);
            self.q_time = time;
        }
        if self.avg < minth {
            self.count = -1;
            return None;
        }
        let above = self.avg >= maxth;
        if above && !(gentle && self.avg < 2.0 * maxth) {
            self.count = 0;
            return Some(DropCause::Forced);
        }
        let pb = if above {
            maxp + (1.0 - maxp) * (self.avg - maxth) / maxth
        } else {
            maxp * (self.avg - minth) / (maxth - minth)
        };
        self.count += 1;
        let below_one = 1.0 - self.count as f64 * pb;
        if below_one > 0.0 && self.draw() >= pb / below_one {
            return None;
        }
        self.count = 0;
        (above || !ecn || !frame.mark_congestion()).then_some(DropCause::Early)
    }
}

/// Returns the numbers of the arrivals that RED chooses. The queue stays at `bytes` bytes, so the average
/// queue length is `bytes`.
fn chosen_at(settings: RedSettings, bytes: u32, arrivals: u32) -> Vec<u32> {
    let mut port = port(None);
    let red = Aqm::Red(RedSettings { weight: 1.0, ecn: false, ..settings });
    let queue = |aqm| NodeKind::Fifo(QueueSettings { threshold: 1 << 30, aqm });
    add(&mut port, 0, None, Share::Only, queue(Aqm::TailDrop));
    (0..bytes / 100).for_each(|_| put(&mut port, 0, frame(0, 0, 100), 0));
    port.edit().set(NodeId(0), &queue(red), at(0)).unwrap();
    let mut chosen = Vec::new();
    for number in 1..=arrivals {
        let mut sink = |_: Frame, _: DropCause| chosen.push(number);
        if port.enqueue(NodeId(0), FlowNumber(0), frame(0, number, 100), at(0), &mut sink) {
            // Removes one packet, so that the queue length stays constant.
            port.dequeue(at(0), &mut never).unwrap();
        }
    }
    chosen
}

/// Checks the gaps between packets that RED chooses (Floyd and Jacobson 1993, section 7). The chance grows
/// with the count of packets since the last choice. So the gap between two choices is uniform from 1 to 1/p -
/// 1, because the count of figure 2 includes the arriving packet. Here p is the drop probability at that
/// average, on the straight line from 0 to `maxp`.
#[test]
fn red_drops_are_spaced_as_in_its_paper() {
    let settings = RedSettings { minimum: 10_000, maximum: 30_000, probability: 0.1, ..Default::default() };
    // 1/p is 20 at half of the range, and 40 at a quarter.
    for (bytes, longest) in [(20_000, 19), (15_000, 39)] {
        let settings = RedSettings { seed: 7, ..settings };
        let chosen = chosen_at(settings, bytes, 40_000);
        let gaps: Vec<u32> = chosen.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!((gaps.iter().min(), gaps.iter().max()), (Some(&1), Some(&longest)), "{bytes}");
        let mean = gaps.iter().map(|gap| f64::from(*gap)).sum::<f64>() / gaps.len() as f64;
        let expected = f64::from(1 + longest) / 2.0;
        assert!((mean / expected - 1.0).abs() < 0.03, "{bytes}: {mean}, not {expected}");
        // All gaps are equally likely.
        let rarest = (1..=longest).map(|gap| gaps.iter().filter(|own| **own == gap).count()).min().unwrap();
        let even = gaps.len() as f64 / f64::from(longest);
        assert!(rarest as f64 > 0.6 * even, "{bytes}: {rarest} of {even}");
    }
    assert!(chosen_at(settings, 9_900, 1000).is_empty());
    let all = (1..=1000).collect::<Vec<_>>();
    assert_eq!(chosen_at(RedSettings { gentle: false, ..settings }, 30_000, 1000), all);
    assert_eq!(chosen_at(settings, 60_000, 1000), all);
    // At a tenth of the way from `maximum` to twice `maximum`, p is 0.19, and 1 - 6 p is below 0.
    let gentle = chosen_at(settings, 33_000, 10_000);
    let gaps = gentle.windows(2).map(|pair| pair[1] - pair[0]);
    assert_eq!((gaps.clone().min(), gaps.max()), (Some(1), Some(5)));
}

#[test]
fn red_average_survives_a_change_of_settings() {
    let settings =
        RedSettings { minimum: 1000, maximum: 2000, weight: 0.5, gentle: false, ..Default::default() };
    let kind = |settings| NodeKind::Fifo(QueueSettings { threshold: 1 << 30, aqm: Aqm::Red(settings) });
    let mut port = port(None);
    add(&mut port, 0, None, Share::Only, kind(settings));
    let mut causes = Vec::new();
    for number in 0..20 {
        let mut sink = |_: Frame, cause| causes.push(cause);
        port.enqueue(NodeId(0), FlowNumber(0), frame(0, number, 1000), at(0), &mut sink);
    }
    assert_eq!(causes.last(), Some(&DropCause::Forced));
    port.edit()
        .set(NodeId(0), &kind(RedSettings { weight: 0.1, rate: Rate(1_000_000), ..settings }), at(0))
        .unwrap();
    causes.clear();
    port.enqueue(NodeId(0), FlowNumber(0), frame(0, 20, 1000), at(0), &mut |_: Frame, cause| {
        causes.push(cause)
    });
    assert_eq!(causes, [DropCause::Forced]);
    // The change of unit converts the average from bytes to packets by the mean packet length: more than
    // 2,000 bytes become more than 2 packets.
    let packets = RedSettings { unit: RedUnit::Packets, minimum: 1, maximum: 2, weight: 0.001, ..settings };
    for (settings, expected) in [(packets, DropCause::Forced), (settings, DropCause::Forced)] {
        port.edit().set(NodeId(0), &kind(settings), at(0)).unwrap();
        causes.clear();
        port.enqueue(NodeId(0), FlowNumber(0), frame(0, 21, 1000), at(0), &mut |_: Frame, cause| {
            causes.push(cause)
        });
        assert_eq!(causes, [expected], "{settings:?}");
    }
    // An average of twenty packets is far below 50.
    port.edit().set(NodeId(0), &kind(RedSettings { minimum: 50, maximum: 60, ..packets }), at(0)).unwrap();
    assert!(port.enqueue(NodeId(0), FlowNumber(0), frame(0, 22, 1000), at(0), &mut never));
}

/// FQ-CoDel of RFC 8290, section 4, with two lists of flows.
struct ReferenceFqCodel {
    settings: FqCodelSettings,
    flows: Vec<(Queue, i64, ReferenceCodel)>,
    new: VecDeque<usize>,
    old: VecDeque<usize>,
    maxpacket: u32,
}

impl ReferenceFqCodel {
    fn new(settings: FqCodelSettings) -> Self {
        let CodelSettings { target, interval, ecn } = settings.codel;
        let codel = || ReferenceCodel { target, interval, ecn, ..Default::default() };
        let flows = (0..settings.flows).map(|_| (Queue::new(), 0, codel())).collect();
        Self { settings, flows, new: VecDeque::new(), old: VecDeque::new(), maxpacket: 0 }
    }

    /// Returns the bucket by the library's own hash, because the test doesn't cover the choice of buckets.
    fn bucket(&self, flow: u32) -> usize {
        let mut hash = (u64::from(flow) ^ self.settings.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^= hash >> 32;
        hash = hash.wrapping_mul(0xd6e8_feb8_6659_fd93);
        (((hash >> 32) * self.flows.len() as u64) >> 32) as usize
    }

    fn enqueue(&mut self, frame: Frame, now: u64, drops: &mut Vec<Frame>) {
        let index = self.bucket(frame.flow);
        self.maxpacket = self.maxpacket.max(frame.length);
        self.flows[index].0.push_back((now, frame));
        if !self.new.contains(&index) && !self.old.contains(&index) {
            self.new.push_back(index);
            self.flows[index].1 = self.settings.quantum.into();
        }
        let held: usize = self.flows.iter().map(|flow| flow.0.len()).sum();
        if held > self.settings.limit as usize {
            let size = |queue: &Queue| queue.iter().map(|(_, frame)| frame.length).sum::<u32>();
            let fattest = self.flows.iter_mut().max_by_key(|flow| size(&flow.0)).unwrap();
            for _ in 0..fattest.0.len().div_ceil(2).min(64) {
                drops.extend(fattest.0.pop_front().map(|(_, frame)| frame));
            }
        }
    }

    fn dequeue(&mut self, now: u64, drops: &mut Vec<Frame>) -> Option<Frame> {
        loop {
            let from_new = !self.new.is_empty();
            let index = *if from_new { self.new.front() } else { self.old.front() }?;
            let (queue, credits, codel) = &mut self.flows[index];
            let list = if from_new { &mut self.new } else { &mut self.old };
            if *credits <= 0 {
                *credits += i64::from(self.settings.quantum);
                list.pop_front();
                self.old.push_back(index);
                continue;
            }
            codel.maxpacket = self.maxpacket;
            if queue.is_empty() {
                list.pop_front();
                if from_new && !self.old.is_empty() {
                    self.old.push_back(index);
                }
                continue;
            }
            let frame = codel.deque(queue, now, drops)?;
            *credits -= i64::from(frame.length);
            return Some(frame);
        }
    }
}

/// Sends a sparse flow beside twenty bulk flows: a flow that builds no queue isn't delayed by flows that do
/// (RFC 8290, section 1).
#[test]
fn a_sparse_flow_passes_by_twenty_bulk_flows() {
    let rate = 10_000_000;
    let mut port = port(Some(rate));
    add(&mut port, 0, None, Share::Only, NodeKind::FqCodel(FqCodelSettings::default()));
    // All flows are new at first.
    let (mut now, mut number, mut worst, mut last) = (0, 0, 0, 200_000_000);
    let mut waiting: Option<u64> = None;
    let mut sink = |_: Frame, _: DropCause| {};
    while now < 5_000_000_000 {
        if waiting.is_none() && now >= last + 20_000_000_u64 {
            (last, waiting) = (now, Some(now));
            port.enqueue(NodeId(0), FlowNumber(1000), frame(1000, 0, 200), at(now), &mut sink);
        }
        for flow in 0..20 {
            number += 1;
            if port.held_packets() < 400 {
                port.enqueue(NodeId(0), FlowNumber(flow), frame(flow, number, 1500), at(now), &mut sink);
            }
        }
        while let Some(sent) = port.dequeue(at(now), &mut sink) {
            if sent.flow == 1000 {
                worst = worst.max(now - waiting.take().unwrap());
            }
        }
        now = port.next_ready().as_nanos();
    }
    // The limit allows for the packet in transmission and for flows in the same bucket: some milliseconds,
    // not the 480 ms of the whole queue.
    assert!(worst < 10_000_000, "{worst} ns");
}

#[test]
fn a_fat_flow_anywhere_makes_room_when_memory_ends() {
    // The leaf has more flows than one search for the fattest flow covers. The port has memory for 64
    // packets; a leaf gets half of it, and one flow fills that half.
    let limits = BufferLimits { packets: 64, ..BufferLimits::default() };
    for fat in 0..40 {
        let mut port = LinkScheduler::new(LinkRate::default(), LinkOverhead::None, limits).unwrap();
        let settings = FqCodelSettings { flows: 8192, ..Default::default() };
        add(&mut port, 0, None, Share::Only, NodeKind::FqCodel(settings));
        let mut dropped = 0;
        let mut count = |frame: Frame, _: DropCause| {
            assert_eq!(frame.flow, fat);
            dropped += 1;
        };
        for number in 0..32 {
            port.enqueue(NodeId(0), FlowNumber(fat), frame(fat, number, 100), at(0), &mut count);
        }
        // A packet of another flow stays, whichever part of the flows is searched first.
        for other in 1000..1020 {
            assert!(
                port.enqueue(NodeId(0), FlowNumber(other), frame(other, 0, 100), at(0), &mut count),
                "{fat} {other}"
            );
        }
        assert!(dropped > 0);
    }
}
