//! FIFO, priority and deficit round robin compared with plain lists, and the fairness bound of DRR.

use std::collections::{HashMap, VecDeque};

use crate::support::*;

/// DRR of Shreedhar and Varghese (figure 2): an active list and deficits, without optimisations.
#[derive(Default)]
struct NaiveDrr {
    queues: HashMap<u32, VecDeque<Frame>>,
    quanta: HashMap<u32, u64>,
    deficits: HashMap<u32, u64>,
    active: VecDeque<u32>,
    /// Whether the first entry of the active list has received its quantum for this visit.
    granted: bool,
}

impl NaiveDrr {
    fn enqueue(&mut self, frame: Frame) {
        let queue = self.queues.entry(frame.flow).or_default();
        if queue.is_empty() {
            self.active.push_back(frame.flow);
            self.deficits.insert(frame.flow, 0);
        }
        queue.push_back(frame);
    }

    fn dequeue(&mut self) -> Option<Frame> {
        loop {
            let flow = *self.active.front()?;
            let deficit = self.deficits.get_mut(&flow).unwrap();
            if !std::mem::replace(&mut self.granted, true) {
                *deficit += self.quanta[&flow];
            }
            let queue = self.queues.get_mut(&flow).unwrap();
            if u64::from(queue[0].length) <= *deficit {
                let frame = queue.pop_front()?;
                *deficit -= u64::from(frame.length);
                if queue.is_empty() {
                    *deficit = 0;
                    self.active.pop_front();
                    self.granted = false;
                }
                return Some(frame);
            }
            self.active.rotate_left(1);
            self.granted = false;
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<(u32, u32, bool)>> {
    prop::collection::vec((0_u32..12, 40_u32..2000, prop::bool::weighted(0.45)), 1..600)
}

proptest! {
    #[test]
    fn a_fifo_is_a_list_with_a_threshold(steps in steps(), threshold in 0_u32..20_000) {
        let mut port = port(None);
        let kind = NodeKind::Fifo(QueueSettings { threshold, aqm: Aqm::TailDrop });
        add(&mut port, 0, None, Share::Only, kind);
        let (mut twin, mut dropped, mut refused) = (VecDeque::<Frame>::new(), 0, 0);
        for (number, (flow, length, take)) in steps.into_iter().enumerate() {
            if take {
                prop_assert_eq!(port.dequeue(at(0), &mut never), twin.pop_front());
                continue;
            }
            let frame = frame(flow, number as u32, length);
            if twin.iter().map(|frame| frame.length).sum::<u32>() > threshold {
                refused += 1;
            } else {
                twin.push_back(frame.clone());
            }
            port.enqueue(NodeId(0), FlowNumber(flow), frame, at(0), &mut |_: Frame, cause| {
                assert_eq!(cause, DropCause::Threshold);
                dropped += 1;
            });
        }
        prop_assert_eq!(dropped, refused);
        prop_assert_eq!(port.held_packets() as usize, twin.len());
        prop_assert_eq!(port.report().view(NodeId(0)).unwrap().drops.get(DropCause::Threshold), refused);
    }

    #[test]
    fn priority_is_lists_in_order(steps in steps()) {
        let mut port = port(None);
        add(&mut port, 100, None, Share::Only, NodeKind::Priority);
        for level in 0..12 {
            add(&mut port, level, 100, Share::Level(level * 5000), fifo());
        }
        let mut twin: [VecDeque<Frame>; 12] = Default::default();
        for (number, (level, length, take)) in steps.into_iter().enumerate() {
            if take {
                let expected = twin.iter_mut().find_map(VecDeque::pop_front);
                prop_assert_eq!(port.dequeue(at(0), &mut never), expected);
            } else {
                let frame = frame(level, number as u32, length);
                put(&mut port, level, frame.clone(), 0);
                twin[level as usize].push_back(frame);
            }
        }
    }

    #[test]
    fn deficit_round_robin_over_children_and_flows_equals_the_paper(
        steps in steps(), quanta in prop::collection::vec(1_u32..4000, 12),
    ) {
        let (mut children, mut flows, mut twin) = (port(None), port(None), NaiveDrr::default());
        add(&mut children, 100, None, Share::Only, NodeKind::DeficitRoundRobin);
        add(&mut flows, 0, None, Share::Only, NodeKind::FlowQueues(Default::default()));
        for (flow, quantum) in quanta.into_iter().enumerate() {
            let flow = flow as u32;
            add(&mut children, flow, 100, Share::Quantum(quantum), fifo());
            flows.edit().flows(NodeId(0)).unwrap().set(FlowNumber(flow), Some(quantum), None).unwrap();
            twin.quanta.insert(flow, quantum.into());
        }
        for (number, (flow, length, take)) in steps.into_iter().enumerate() {
            if take {
                let expected = twin.dequeue();
                prop_assert_eq!(&children.dequeue(at(0), &mut never), &expected);
                prop_assert_eq!(&flows.dequeue(at(0), &mut never), &expected);
            } else {
                let frame = frame(flow, number as u32, length);
                put(&mut children, flow, frame.clone(), 0);
                put(&mut flows, 0, frame.clone(), 0);
                twin.enqueue(frame);
            }
        }
        while let Some(expected) = twin.dequeue() {
            let expected = Some(expected);
            prop_assert_eq!(&children.dequeue(at(0), &mut never), &expected);
            prop_assert_eq!(&flows.dequeue(at(0), &mut never), &expected);
        }
        prop_assert_eq!(children.held_packets() + flows.held_packets(), 0);
    }

    /// Checks lemma 2 and theorem 3 of the DRR paper: while two flows stay backlogged, each has m turns with
    /// m * Q_i - Max <= sent <= m * Q_i + Max. Their turns differ by at most one.
    #[test]
    fn backlogged_flows_get_their_quanta_to_within_a_packet(
        quanta in prop::collection::vec(1500_u32..9000, 2..6), lengths in prop::collection::vec(40_u32..1500, 40),
        count in 50_usize..400,
    ) {
        let mut port = port(None);
        add(&mut port, 100, None, Share::Only, NodeKind::DeficitRoundRobin);
        for (flow, quantum) in quanta.iter().enumerate() {
            add(&mut port, flow as u32, 100, Share::Quantum(*quantum), fifo());
            for number in 0..2000 {
                let length = lengths[(number + 7 * flow) % lengths.len()];
                put(&mut port, flow as u32, frame(flow as u32, number as u32, length), 0);
            }
        }
        let mut sent = vec![0_f64; quanta.len()];
        for _ in 0..count {
            let frame = port.dequeue(at(0), &mut never).unwrap();
            sent[frame.flow as usize] += f64::from(frame.length);
            for (i, one) in quanta.iter().enumerate() {
                for (j, other) in quanta.iter().enumerate() {
                    let apart = sent[i] / f64::from(*one) - sent[j] / f64::from(*other);
                    let bound = 1.0 + 1500.0 / f64::from(*one) + 1500.0 / f64::from(*other);
                    prop_assert!(apart <= bound, "{i} {j}: {apart} > {bound}");
                }
            }
        }
    }
}

fn busy_flows(port: &mut Port, flows: u32, packets: u32) -> Vec<u64> {
    for flow in 0..flows {
        for number in 0..8 {
            put(port, 0, frame(flow, number, 1000), 0);
        }
    }
    let mut sent = vec![0; flows as usize];
    for number in 0..packets {
        let gone = port.dequeue(at(0), &mut never).unwrap();
        sent[gone.flow as usize] += u64::from(gone.length);
        put(port, 0, frame(gone.flow, 8 + number, 1000), 0);
    }
    sent
}

/// Adds and removes reservations: best-effort weights stay fixed, and each reserved flow gets its rate
/// (*Router Plugins*, section 6.1).
#[test]
fn reserved_flows_get_their_rate_however_many_others_there_are() {
    for others in [1, 5, 50] {
        let mut port = port(None);
        let settings =
            FlowQueuesSettings { capacity: Some(Rate(100_000_000)), quantum: 1500, ..Default::default() };
        add(&mut port, 0, None, Share::Only, NodeKind::FlowQueues(settings));
        let reserve = |port: &mut Port, flow, rate| {
            port.edit().flows(NodeId(0)).unwrap().reserve(FlowNumber(flow), Rate(rate))
        };
        reserve(&mut port, 0, 30_000_000).unwrap();
        reserve(&mut port, 1, 10_000_000).unwrap();
        let sent = busy_flows(&mut port, 2 + others, 60_000);
        let total: u64 = sent.iter().sum();
        let share = |flow: usize| sent[flow] as f64 / total as f64;
        assert!((share(0) - 0.3).abs() < 0.01 && (share(1) - 0.1).abs() < 0.01, "{others}: {sent:?}");
        for flow in 2..2 + others as usize {
            assert!((share(flow) - 0.6 / f64::from(others)).abs() < 0.01, "{others}: {sent:?}");
        }
        let (view, rate) = port.report().flow(NodeId(0), FlowNumber(0)).unwrap().unwrap();
        assert_eq!((view.quantum, rate), (others * 1500 / 2, Some(Rate(30_000_000))));
        assert!(port.edit().flows(NodeId(0)).unwrap().forget(FlowNumber(0)));
        let (view, _) = port.report().flow(NodeId(0), FlowNumber(1)).unwrap().unwrap();
        assert_eq!(view.quantum, (others + 1) * 1500 / 9);
        let error = reserve(&mut port, 2, 90_000_000).unwrap_err().to_string();
        assert!(error.contains("10.00 Mb/s reserved by others + 90.00 Mb/s = 100.00 Mb/s"), "{error}");
    }
}

#[test]
fn flows_beyond_the_queues_share_one_and_keep_their_order() {
    let mut port = port(None);
    let settings = FlowQueuesSettings { queues: 4, ..Default::default() };
    add(&mut port, 0, None, Share::Only, NodeKind::FlowQueues(settings));
    let mut last = HashMap::new();
    let (mut number, mut sent) = (0, 0);
    for round in 0..2000_u64 {
        let now = round * 10_000_000;
        for step in 0..5 {
            number += 1;
            put(&mut port, 0, frame((round as u32 / 50 * 3 + step) % 11, number, 500), now);
        }
        for _ in 0..if round % 40 < 30 { 5 } else { 8 } {
            let Some(gone) = port.dequeue(at(now), &mut never) else { break };
            sent += 1;
            let before = last.insert(gone.flow, gone.number);
            assert!(before < Some(gone.number), "flow {} went backwards", gone.flow);
        }
    }
    assert_eq!(sent + port.held_packets(), 10_000);
    assert!(port.report().view(NodeId(0)).unwrap().queues <= 5);
}

#[test]
fn an_empty_queue_is_given_to_another_flow_and_one_with_packets_is_not() {
    let mut port = port(None);
    let settings = FlowQueuesSettings { queues: 2, ..Default::default() };
    add(&mut port, 0, None, Share::Only, NodeKind::FlowQueues(settings));
    let has_queue = |port: &Port, flow| port.report().flow(NodeId(0), FlowNumber(flow)).unwrap().is_some();
    let mut sent = Vec::new();
    put(&mut port, 0, frame(1, 1, 100), 0);
    put(&mut port, 0, frame(2, 2, 100), 0);
    put(&mut port, 0, frame(3, 3, 100), 0);
    assert!(!has_queue(&port, 3), "flows 1 and 2 have packets that wait");
    sent.extend(port.dequeue(at(0), &mut never));
    assert_eq!(sent[0].flow, 1);
    put(&mut port, 0, frame(3, 4, 100), 0);
    assert!(!has_queue(&port, 3), "what it has in the shared queue goes first");
    sent.extend(std::iter::from_fn(|| port.dequeue(at(0), &mut never)));
    put(&mut port, 0, frame(2, 5, 100), 0);
    put(&mut port, 0, frame(4, 6, 100), 0);
    assert!(has_queue(&port, 4) && has_queue(&port, 2) && !has_queue(&port, 1));
    let third = sent.iter().filter(|frame| frame.flow == 3).map(|frame| frame.number);
    assert_eq!(third.collect::<Vec<_>>(), [3, 4]);
}

#[test]
fn many_flows_of_which_few_wait_at_a_time_never_share() {
    let mut port = port(None);
    let settings = FlowQueuesSettings { queues: 8, ..Default::default() };
    add(&mut port, 0, None, Share::Only, NodeKind::FlowQueues(settings));
    for round in 0..1000 {
        let flows: Vec<u32> = (0..8).map(|flow| round * 8 + flow).collect();
        for number in 0..2 {
            flows.iter().for_each(|flow| put(&mut port, 0, frame(*flow, number, 1500), 0));
        }
        assert!(flows.iter().all(|flow| port.report().flow(NodeId(0), FlowNumber(*flow)).unwrap().is_some()));
        // Each flow sends one packet in turn: no flow waits behind two packets of another flow.
        let first = std::iter::from_fn(|| port.dequeue(at(0), &mut never)).take(8);
        let mut first: Vec<u32> = first.map(|frame| frame.flow).collect();
        first.sort_unstable();
        assert_eq!(first, flows);
        while port.dequeue(at(0), &mut never).is_some() {}
    }
}

#[test]
fn flow_in_a_shared_queue_for_long_displaces_no_other_flow() {
    let mut port = port(None);
    let settings = FlowQueuesSettings { queues: 2, ..Default::default() };
    add(&mut port, 0, None, Share::Only, NodeKind::FlowQueues(settings));
    let has_queue = |port: &Port, flow| port.report().flow(NodeId(0), FlowNumber(flow)).unwrap().is_some();
    let (mut number, mut sent) = (0, Vec::new());
    let mut send = |port: &mut Port, flow: u32| {
        number += 1;
        put(port, 0, frame(flow, number, 1500), 0);
    };
    // Flows 1 and 2 own the queues and then stop. Flow 3 arrives meanwhile and keeps sending; flow 4 sends
    // once.
    for flow in [1, 2, 3, 4, 3, 3, 3] {
        send(&mut port, flow);
    }
    for _ in 0..40 {
        sent.extend(port.dequeue(at(0), &mut never));
        send(&mut port, 3);
    }
    assert!(!has_queue(&port, 3) && port.held_packets() > 0);
    // The report shows waiting packets at a flow's own queue, or at the shared queue, which comes last.
    let told = port.report().flows(NodeId(0), 0, 9).unwrap();
    assert!(told.len() == 3 && told[2].0.is_none() && told[0].0.is_some());
    assert_eq!(told.iter().map(|(_, queue)| queue.held_packets).sum::<u32>(), port.held_packets());
    assert_eq!(port.report().flows(NodeId(0), 2, 9).unwrap(), told[2..]);
    for flow in [5, 4] {
        send(&mut port, flow);
        assert!(has_queue(&port, flow), "{flow} has nothing in the shared queue any more");
    }
    sent.extend(std::iter::from_fn(|| port.dequeue(at(0), &mut never)));
    for flow in 1..6 {
        let numbers = sent.iter().filter(|frame| frame.flow == flow).map(|frame| frame.number);
        assert!(numbers.is_sorted(), "flow {flow}");
    }
}

/// Reserves small rates: a reservation gets its rate even if its part of the round is below a byte, or a
/// little above one byte.
#[test]
fn small_reservations_are_met_like_large_ones() {
    let capacity = 100_000_000;
    for rate in [20_000, 130_000, 1_000_000] {
        let mut port = port(None);
        let settings = FlowQueuesSettings { capacity: Some(Rate(capacity)), ..Default::default() };
        add(&mut port, 0, None, Share::Only, NodeKind::FlowQueues(settings));
        port.edit().flows(NodeId(0)).unwrap().reserve(FlowNumber(0), Rate(rate)).unwrap();
        let packets = (100 * capacity / rate) as u32;
        let sent = busy_flows(&mut port, 2, packets);
        let share = sent[0] as f64 / sent.iter().sum::<u64>() as f64;
        let due = rate as f64 / capacity as f64;
        assert!((share / due - 1.0).abs() < 0.02, "{rate}: {share} instead of {due}");
    }
}
