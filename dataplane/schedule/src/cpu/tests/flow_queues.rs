//! Packets that wait for the processor, beside a slow reference.

use std::collections::{BTreeMap, VecDeque};

use millrace_units::{Cycles, Instant, PrincipalId};
use proptest::prelude::*;

use crate::FlowNumber;
use crate::cpu::{CpuDrop, CpuFlowAccount, CpuQueueLimits, CpuQueues, CpuStage};

const LIMITS: CpuQueueLimits = CpuQueueLimits { packets: 100, bytes: 100_000, flows: 4 };

fn queues<T>() -> CpuQueues<T> {
    CpuQueues::new(LIMITS, Cycles(1000), 7)
}

/// Takes the next packet of a principal.
fn take_one<T>(queues: &mut CpuQueues<T>, principal: PrincipalId) -> Option<T> {
    let (mut taken, mut asked) = (None, 0);
    let first = |_: &_| {
        asked += 1;
        asked == 1
    };
    queues.take(principal, first, |item| taken = Some(item));
    taken
}

#[test]
fn flows_of_a_principal_share_its_time_by_cycles() {
    let mut queues = queues();
    let principal = PrincipalId(2);
    queues.set(principal, 100_000);
    for number in 0..20 {
        for flow in [1, 2] {
            queues
                .push(principal, (FlowNumber(flow), CpuStage::ONLY), ((flow, number, 0), 100), Instant::ZERO)
                .unwrap();
        }
    }
    let mut used = BTreeMap::new();
    for _ in 0..20 {
        let (flow, ..) = take_one(&mut queues, principal).unwrap();
        // A packet of flow 1 costs three times as much as one of flow 2.
        let cost = if flow == 1 { 600 } else { 200 };
        queues.charge(principal, Cycles(cost));
        *used.entry(flow).or_insert(0) += cost;
    }
    assert!(used[&1_u32].abs_diff(used[&2]) <= 1200, "{used:?}");
}

proptest! {
    #[test]
    fn queues_with_debts_take_turns_as_if_round_by_round(
        costs in proptest::collection::vec(1..400_000_u64, 1..60),
    ) {
        let (mut queues, principal, quantum) = (queues(), PrincipalId(2), 1000);
        queues.set(principal, 100_000);
        for number in 0..39 {
            let flow = number % 3;
            let place = (FlowNumber(flow), CpuStage::ONLY);
            queues.push(principal, place, ((flow, number, 0), 100), Instant::ZERO).unwrap();
        }
        let mut twin: VecDeque<(u32, i64)> = (0..3).map(|flow| (flow, quantum)).collect();
        let mut left = [13; 3];
        for cost in costs {
            let (flow, ..) = take_one(&mut queues, principal).unwrap();
            prop_assert_eq!(flow, twin[0].0);
            left[flow as usize] -= 1;
            if left[flow as usize] == 0 {
                return Ok(());
            }
            queues.charge(principal, Cycles(cost));
            twin[0].1 -= cost as i64;
            while twin[0].1 <= 0 {
                twin[0].1 += quantum;
                twin.rotate_left(1);
            }
        }
    }
}

#[test]
fn threshold_memory_and_unknown_principal_are_told_apart() {
    let mut queues = queues();
    let (first, second) = (PrincipalId(0), PrincipalId(1));
    let push = |queues: &mut CpuQueues<_>, principal, length| {
        queues
            .push(principal, (FlowNumber(1), CpuStage::ONLY), ((0, 0, 0), length), Instant::ZERO)
            .err()
            .map(|(_, why)| why)
    };
    assert_eq!(push(&mut queues, first, 100), Some(CpuDrop::Principal));
    queues.set(first, 250);
    queues.set(second, 1_000_000);
    assert_eq!(push(&mut queues, first, 200), None);
    assert_eq!(push(&mut queues, first, 100), Some(CpuDrop::Threshold));
    assert_eq!(push(&mut queues, second, 60_000), None);
    assert_eq!(push(&mut queues, second, 60_000), Some(CpuDrop::Part));
    assert_eq!((queues.load(first), queues.load(second)), ((1, 200, 1), (1, 60_000, 1)));
    let mut drained = 0;
    queues.remove(first, |_, _, _| drained += 1);
    assert_eq!((drained, queues.len(), push(&mut queues, first, 1)), (1, 1, Some(CpuDrop::Principal)));
}

/// Packet: principal, flow and stage, and number.
type Item = (u32, (u32, u32), u32);
/// Numbers of waiting packets by principal, flow and stage.
type Twin = BTreeMap<(u32, (u32, u32)), VecDeque<u32>>;

/// Cycles and drops of each flow with a queue of its own, by principal and flow.
#[derive(Default)]
struct Accounts(BTreeMap<(u32, u32), CpuFlowAccount>);

impl Accounts {
    /// Compares the accounts of a principal's flows with the expected ones, and forgets those that ended.
    fn check(&mut self, queues: &CpuQueues<Item>, principal: u32, twin: &Twin) {
        let arrival = |item: &Item| Instant::from_nanos(item.2.into());
        let first = queues.first(PrincipalId(principal)).map(arrival);
        assert_eq!(queues.first_arrival(PrincipalId(principal)), first);
        for flow in 0..7 {
            let Some(account) = queues.account(PrincipalId(principal), FlowNumber(flow)) else {
                self.0.remove(&(principal, flow));
                continue;
            };
            let waiting = (0..3).filter_map(|order| twin.get(&(principal, (flow, order))));
            let waiting = waiting.map(VecDeque::len).sum::<usize>();
            let counted = self.0.get(&(principal, flow)).copied().unwrap_or_default();
            let expected = CpuFlowAccount { packets: waiting as u32, bytes: 64 * waiting as u64, ..counted };
            assert_eq!(account, expected);
        }
    }
}

/// Takes every third packet of all principals but one out of the queues.
fn extract_from_others(queues: &mut CpuQueues<Item>, twin: &mut Twin, principal: u32) {
    let is_wanted = |(owner, _, number): &Item| *owner != principal && number % 3 == 0;
    let mut taken = Twin::new();
    let check = |PrincipalId(owner): PrincipalId, item: &Item| {
        assert_eq!(owner, item.0);
        is_wanted(item)
    };
    queues.extract(check, |order, arrival, (owner, flow, number)| {
        assert_eq!((order, arrival), (flow.1, Instant::from_nanos(number.into())));
        taken.entry((owner, flow)).or_default().push_back(number);
    });
    for ((owner, flow), packets) in twin {
        let (gone, kept): (VecDeque<u32>, _) =
            packets.iter().partition(|number| is_wanted(&(*owner, *flow, **number)));
        assert_eq!(taken.remove(&(*owner, *flow)).unwrap_or_default(), gone);
        *packets = kept;
    }
    assert!(taken.is_empty());
}

proptest! {
    /// Each flow keeps its order at each stage and no packet is lost, with more flows and stages than queues,
    /// with colliding numbers, and with queues that are set aside.
    #[test]
    fn flows_keep_their_order_and_no_packet_is_lost(
        steps in prop::collection::vec((0_u32..3, (0_u32..7, 0_u32..3), 0_u8..7, 1_u64..3000), 1..400),
    ) {
        let mut queues = queues();
        (0..3).for_each(|principal| queues.set(PrincipalId(principal), 5000));
        let mut twin = Twin::new();
        let mut accounts = Accounts::default();
        for (number, (principal, (flow, order), step, cycles)) in (0..).zip(steps) {
            let id = PrincipalId(principal);
            if step < 3 {
                let item = ((principal, (flow, order), number), 64);
                let stage = CpuStage { order, weight: 1 + (number % 5) as u16 };
                let now = Instant::from_nanos(number.into());
                if queues.push(id, (FlowNumber(flow), stage), item, now).is_ok() {
                    twin.entry((principal, (flow, order))).or_default().push_back(number);
                } else if queues.account(id, FlowNumber(flow)).is_some() {
                    accounts.0.entry((principal, flow)).or_default().dropped += 1;
                }
            } else if step == 4 {
                if queues.first(id).is_some() {
                    queues.set_aside(id);
                }
            } else if step == 5 {
                // Some queues go on, some were not looked at.
                let (mut woken, most) = (Vec::new(), (order + 1) * (flow + 1));
                queues.look_aside(most, |(_, _, number)| number % 2 == 0, |id| woken.push(id));
                prop_assert!(woken.len() <= most as usize);
                prop_assert!(woken.iter().all(|id| queues.is_ready(*id)));
            } else if step == 6 {
                extract_from_others(&mut queues, &mut twin, principal);
            } else {
                let (mut most, mut taken) = (5, Vec::new());
                let (first, is_ready) = (queues.first(id).copied(), queues.is_ready(id));
                queues.take(id, |_| { most -= 1; most >= 0 }, |item| taken.push(item));
                queues.charge(id, Cycles(cycles));
                if let Some((_, (flow, _), _)) = first {
                    accounts.0.entry((principal, flow)).or_default().used += Cycles(cycles);
                }
                let waits = twin.iter().any(|((owner, _), packets)| *owner == principal && !packets.is_empty());
                prop_assert!(taken.is_empty() != is_ready && (waits || !is_ready));
                prop_assert_eq!(taken.first().copied(), first);
                for (owner, flow, number) in taken {
                    prop_assert_eq!(owner, principal);
                    prop_assert_eq!(twin.get_mut(&(owner, flow)).and_then(VecDeque::pop_front), Some(number));
                }
            }
            (0..3).for_each(|owner| accounts.check(&queues, owner, &twin));
            prop_assert_eq!(queues.len(), twin.values().map(VecDeque::len).sum::<usize>());
            prop_assert_eq!(queues.iter().count(), queues.len());
            let backlog = twin.iter().any(|((owner, _), packets)| *owner == principal && !packets.is_empty());
            prop_assert_eq!(queues.is_backlogged(id), backlog);
        }
        for principal in 0..3 {
            queues.remove(PrincipalId(principal), |order, _, (owner, flow, number)| {
                assert_eq!(order, flow.1);
                assert_eq!(twin.get_mut(&(owner, flow)).and_then(VecDeque::pop_front), Some(number));
            });
        }
        prop_assert!(queues.is_empty() && twin.values().all(VecDeque::is_empty));
    }
}

/// The clock of the second packet is that of a slice, which ends after the next iteration has begun.
#[test]
fn extracted_packets_keep_their_order_if_the_clock_goes_back() {
    let (mut queues, id) = (queues(), PrincipalId(0));
    queues.set(id, 100_000);
    for (number, nanos) in [(0, 10), (1, 30), (2, 20), (3, 40)] {
        let item: Item = (0, (1, 0), number);
        let now = Instant::from_nanos(nanos);
        queues.push(id, (FlowNumber(1), CpuStage::ONLY), (item, 64), now).unwrap();
    }
    let mut taken = Vec::new();
    queues.extract(|_, _| true, |_, arrival, (_, _, number)| taken.push((arrival, number)));
    taken.sort_by_key(|(arrival, _)| *arrival);
    assert_eq!(taken.iter().map(|(_, number)| *number).collect::<Vec<_>>(), [0, 1, 2, 3]);
}

/// A flow whose packets arrive one by one, each of ten quanta, gets no more cycles than a backlogged flow.
#[test]
fn debt_of_a_flow_survives_its_empty_queue() {
    let mut queues = queues();
    let principal = PrincipalId(0);
    queues.set(principal, 100_000);
    let mut used = [0_u64; 2];
    let mut waits = [0_u32; 2];
    for _ in 0..2000 {
        for flow in [0_u32, 1] {
            if waits[flow as usize] == 0 {
                let count = if flow == 0 { 1 } else { 20 };
                waits[flow as usize] = count;
                for _ in 0..count {
                    queues
                        .push(
                            principal,
                            (FlowNumber(flow), CpuStage::ONLY),
                            ((flow, 0, 0), 100),
                            Instant::ZERO,
                        )
                        .unwrap();
                }
            }
        }
        let (mut taken, mut asked) = (None, 0);
        queues.take(
            principal,
            |_| {
                asked += 1;
                asked == 1
            },
            |(flow, ..)| taken = Some(flow as usize),
        );
        let flow = taken.unwrap();
        let cost = if flow == 0 { 10_000 } else { 500 };
        waits[flow] -= 1;
        used[flow] += cost;
        queues.charge(principal, Cycles(cost));
    }
    assert!(used[0].abs_diff(used[1]) <= 20_000, "{used:?}");
}

#[test]
fn endless_slice_ends_the_turn_in_bounded_time() {
    let mut queues = queues();
    let principal = PrincipalId(0);
    queues.set(principal, 100_000);
    for flow in [1, 1, 2, 2] {
        queues
            .push(principal, (FlowNumber(flow), CpuStage::ONLY), ((flow, 0, 0), 100), Instant::ZERO)
            .unwrap();
    }
    for _ in 0..2 {
        queues.charge(principal, Cycles(u64::MAX));
    }
    let mut taken = 0;
    queues.take(principal, |_| true, |_| taken += 1);
    assert_eq!(taken, 2);
}

#[test]
fn queue_that_is_set_aside_takes_no_turns_until_it_can_go_on() {
    let mut queues = queues();
    let principal = PrincipalId(0);
    queues.set(principal, 100_000);
    for flow in [1, 2, 3] {
        queues
            .push(principal, (FlowNumber(flow), CpuStage::ONLY), ((flow, 0, 0), 100), Instant::ZERO)
            .unwrap();
    }
    let mut aside = Vec::new();
    while let Some((flow, ..)) = queues.first(principal) {
        aside.push(*flow);
        queues.set_aside(principal);
    }
    assert_eq!(
        (aside, queues.is_ready(principal), queues.is_backlogged(principal)),
        (vec![1, 2, 3], false, true)
    );
    // The next packet of a flow waits behind the first one.
    queues.push(principal, (FlowNumber(2), CpuStage::ONLY), ((2, 1, 0), 100), Instant::ZERO).unwrap();
    assert!(!queues.is_ready(principal));
    // Each look begins with the queue that was not looked at for longest.
    let looked = std::cell::RefCell::new(Vec::new());
    for _ in 0..2 {
        queues.look_aside(
            2,
            |(flow, ..)| {
                looked.borrow_mut().push(*flow);
                *flow == 2
            },
            |id| assert_eq!(id, principal),
        );
    }
    assert_eq!(*looked.borrow(), [1, 2, 3, 1]);
    let mut taken = Vec::new();
    queues.take(principal, |_| true, |(flow, number, _)| taken.push((flow, number)));
    queues.charge(principal, Cycles(1));
    assert_eq!((taken, queues.is_ready(principal), queues.len()), (vec![(2, 0), (2, 1)], false, 2));
    queues.remove(principal, |_, _, (flow, ..)| assert!(flow != 2));
    assert!(queues.is_empty());
}

#[test]
fn looks_reach_each_principal_however_many_queues_another_one_has() {
    let mut queues = queues();
    for (principal, flows) in [(0, 0..5), (1, 10..11), (2, 20..21)] {
        let id = PrincipalId(principal);
        queues.set(id, 100_000);
        for flow in flows {
            let item = ((principal, (flow, 0), 0), 100);
            queues.push(id, (FlowNumber(flow), CpuStage::ONLY), item, Instant::ZERO).unwrap();
            queues.set_aside(id);
        }
    }
    // A principal that goes on and is set aside again is the last one to be looked at.
    let mut turns = Vec::new();
    for _ in 0..7 {
        let woken = std::cell::Cell::new(None);
        queues.look_aside(18, |_| woken.get().is_none(), |id| woken.set(Some(id)));
        let Some(id) = woken.get() else { panic!("{turns:?}") };
        turns.push((id.0, queues.first(id).unwrap().1.0));
        queues.set_aside(id);
    }
    assert_eq!(turns, [(0, 0), (1, 10), (2, 20), (0, 1), (1, 10), (2, 20), (0, 2)]);
    // A principal that loses a packet gets its turns back.
    queues.extract(|_, (_, (flow, _), _)| *flow == 1, |_, _, _| {});
    assert_eq!([0, 1, 2].map(|principal| queues.is_ready(PrincipalId(principal))), [true, false, false]);
}
