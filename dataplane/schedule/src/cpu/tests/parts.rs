//! Parts of principals in the memory and the queues that all of them share, beside a slow reference.

use std::collections::{BTreeMap, VecDeque};

use millrace_units::{Cycles, Instant, PrincipalId};
use proptest::prelude::*;

use crate::FlowNumber;
use crate::cpu::{CpuDrop, CpuQueueLimits, CpuQueues, CpuStage};

const LIMITS: CpuQueueLimits = CpuQueueLimits { packets: 120, bytes: 12_000, flows: 24 };
/// Principal that never waits with more than a part.
const MODEST: u32 = 2;

/// Packet: flow, stage and bytes.
type Item = (u32, u32, u32);

/// Waiting packets by principal, flow and stage.
#[derive(Default)]
struct Twin(BTreeMap<(u32, u32, u32), VecDeque<u32>>);

impl Twin {
    /// Returns packets and bytes in the queues for which `counts` holds.
    fn load(&self, counts: impl Fn(&(u32, u32, u32)) -> bool) -> (usize, u32) {
        let queues = self.0.iter().filter(|(key, _)| counts(key)).map(|(_, packets)| packets);
        queues.fold((0, 0), |(count, bytes), queue| (count + queue.len(), bytes + queue.iter().sum::<u32>()))
    }

    /// Whether the memory takes a packet, by the definition: as much as is free is at least what the principal and
    /// the queue have together.
    fn has_room(&self, (owner, flow, stage): (u32, u32, u32), bytes: u32) -> bool {
        let all = self.load(|_| true);
        let own = self.load(|key| key.0 == owner);
        let queue = self.load(|key| *key == (owner, flow, stage));
        let free = (LIMITS.packets as usize - all.0, LIMITS.bytes - all.1);
        own.0 + queue.0 < free.0 && own.1 + queue.1 <= free.1 && bytes <= free.1
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Two principals push as much as they can, over many flows and stages. Nobody loses a packet for another
    /// reason than that its part is used up, and a principal with few packets loses none. A queue that has room takes
    /// each packet.
    #[test]
    fn floods_leave_each_principal_its_part(
        steps in prop::collection::vec((0_u32..3, 0_u32..12, 0_u32..4, 1_u32..1000, 0_u8..8), 1..500),
    ) {
        let mut queues: CpuQueues<Item> = CpuQueues::new(LIMITS, Cycles(1000), 7);
        (0..3).for_each(|principal| queues.set(PrincipalId(principal), u32::MAX));
        let (mut twin, mut dropped) = (Twin::default(), [0_u64; 3]);
        for (owner, flow, stage, bytes, step) in steps {
            let id = PrincipalId(owner);
            // Flows of several principals have several numbers.
            let number = FlowNumber(flow * 3 + owner);
            if step < 7 {
                let (flow, bytes) = if owner == MODEST { (flow % 2, bytes % 150) } else { (flow, bytes) };
                let number = if owner == MODEST { FlowNumber(flow * 3 + owner) } else { number };
                let (packets, held) = twin.load(|key| key.0 == owner);
                if owner == MODEST && (packets >= 10 || held + bytes > 1000) {
                    continue;
                }
                let at = CpuStage { order: stage, weight: 1 };
                let pushed = queues.push(id, (number, at), ((flow, stage, bytes), bytes), Instant::ZERO);
                let is_own = queues.account(id, number).is_some();
                match pushed {
                    Ok(()) => {
                        prop_assert!(!is_own || twin.has_room((owner, flow, stage), bytes));
                        twin.0.entry((owner, flow, stage)).or_default().push_back(bytes);
                    }
                    Err((_, why)) => {
                        dropped[owner as usize] += 1;
                        prop_assert_eq!(why, CpuDrop::Part);
                        // A flow that has no queue at this stage may get none.
                        let waits = twin.load(|key| *key == (owner, flow, stage)).0 > 0;
                        prop_assert!(!(is_own && waits && twin.has_room((owner, flow, stage), bytes)));
                        prop_assert!(owner != MODEST, "a packet of a principal with few packets was refused");
                    }
                }
            } else {
                let mut most = 3;
                let mut taken = Vec::new();
                queues.take(id, |_| { most -= 1; most >= 0 }, |item| taken.push(item));
                queues.charge(id, Cycles(500));
                for (flow, stage, bytes) in taken {
                    let queue = twin.0.get_mut(&(owner, flow, stage));
                    prop_assert_eq!(queue.and_then(VecDeque::pop_front), Some(bytes));
                }
            }
            for owner in 0..3 {
                let (packets, bytes) = twin.load(|key| key.0 == owner);
                let expected = (packets as u32, u64::from(bytes), dropped[owner as usize]);
                prop_assert_eq!(queues.load(PrincipalId(owner)), expected);
            }
        }
        // Conservation: whatever was accepted comes out, and then all of the memory is free again.
        for owner in 0..3 {
            queues.remove(PrincipalId(owner), |stage, _, (flow, _, bytes)| {
                let queue = twin.0.get_mut(&(owner, flow, stage));
                assert_eq!(queue.and_then(VecDeque::pop_front), Some(bytes));
            });
        }
        prop_assert!(queues.is_empty() && twin.0.values().all(VecDeque::is_empty));
    }
}

/// Each flow waits at several stages, so it needs further queues.
#[test]
fn queues_of_later_stages_are_divided_among_principals() {
    let mut queues: CpuQueues<Item> = CpuQueues::new(LIMITS, Cycles(1000), 7);
    let flood = |queues: &mut CpuQueues<Item>, owner: u32, flows: u32, stages: u32| {
        queues.set(PrincipalId(owner), u32::MAX);
        let mut held = 0;
        for flow in 0..flows {
            let number = FlowNumber(flow + 100 * owner);
            for order in 0..stages {
                let at = CpuStage { order, weight: 1 };
                let pushed =
                    queues.push(PrincipalId(owner), (number, at), ((flow, order, 1), 1), Instant::ZERO);
                held += u32::from(pushed.is_ok() && order > 0);
            }
        }
        held
    };
    // Half of all, then half of the rest.
    assert_eq!(flood(&mut queues, 1, 24, 4), 12);
    assert!(queues.account(PrincipalId(1), FlowNumber(100 + 11)).is_some());
    assert!(queues.account(PrincipalId(1), FlowNumber(100 + 12)).is_none());
    assert_eq!(flood(&mut queues, 2, 6, 2), 6);
    assert!(queues.account(PrincipalId(2), FlowNumber(200 + 5)).is_some());
    queues.remove(PrincipalId(1), |_, _, _| {});
    assert_eq!(flood(&mut queues, 3, 6, 2), 6);
    [2, 3].into_iter().for_each(|owner| queues.remove(PrincipalId(owner), |_, _, _| {}));
    assert!(queues.is_empty());
}
