use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::runtime::exchange::InstanceMemory;

const A: PrincipalId = PrincipalId(0);
const B: PrincipalId = PrincipalId(3);

#[test]
fn state_and_waiting_packets_share_a_limit() {
    let mut memory = PrincipalMemory::default();
    assert!(memory.admits(A, 1 << 40) && memory.charge([(Some(A), 1 << 40)].into_iter()));
    memory.set_limit(A, Some(1000));
    assert!(memory.charge([(Some(A), 600)].into_iter()));
    assert!(memory.admits(A, 400) && !memory.admits(A, 401));
    memory.set_queued(A, 390);
    assert!(!memory.charge([(Some(A), 11)].into_iter()) && memory.charge([(Some(A), 10)].into_iter()));
    assert!(!memory.admits(A, 1));
    memory.release([(Some(A), 600)].into_iter());
    assert!(memory.admits(A, 600));
    let expected = MemoryUse {
        limit: Some(1000),
        state: 10,
        queued: 390,
        dropped: 2,
        refused: 1,
        ..MemoryUse::default()
    };
    assert_eq!(memory.account(A), expected);
    memory.forget(A);
    assert_eq!(memory.account(A), MemoryUse { state: 10, ..MemoryUse::default() });
    memory.release([(Some(A), 600)].into_iter());
    assert_eq!(memory.account(A), MemoryUse::default());
}

#[test]
fn principal_without_room_takes_no_state_from_another_one() {
    let mut memory = PrincipalMemory::default();
    memory.set_limit(A, Some(10));
    memory.set_limit(B, Some(100));
    assert!(memory.charge([(Some(A), 16), (Some(B), 40)].into_iter()));
    assert!(!memory.charge([(Some(A), 16), (Some(B), 61)].into_iter()));
    assert!(memory.charge([(Some(A), 16), (None, 61)].into_iter()));
    assert_eq!((memory.account(A).state, memory.account(B).state), (32, 40));
    assert_eq!((memory.account(A).refused, memory.account(B).refused), (1, 1));
    assert!(memory.admits(B, 60) && !memory.admits(A, 0));
}

/// Change of the memory of principals, by their numbers.
#[derive(Clone, Debug)]
enum Event {
    Limit(u32, Option<u64>),
    Queue(u32, u64),
    Dequeue(u32, u64),
    Suspend(u32, u64),
    Resume(u32),
    State(Vec<(Option<u32>, u64)>),
    EndState,
    Grow(usize, u64),
    Restart(usize),
    Pay(usize, Option<u32>),
}

const PRINCIPALS: u32 = 3;
const INSTANCES: usize = 3;

fn event() -> impl Strategy<Value = Event> {
    let (one, bytes, instance) = (0..PRINCIPALS, 0..400_u64, 0..INSTANCES);
    let parts = prop::collection::vec((prop::option::of(one.clone()), 0..200_u64), 1..4);
    prop_oneof![
        (one.clone(), prop::option::of(0..2000_u64)).prop_map(|(id, limit)| Event::Limit(id, limit)),
        (one.clone(), bytes.clone()).prop_map(|(id, bytes)| Event::Queue(id, bytes)),
        (one.clone(), bytes.clone()).prop_map(|(id, bytes)| Event::Dequeue(id, bytes)),
        (one.clone(), bytes.clone()).prop_map(|(id, bytes)| Event::Suspend(id, bytes)),
        one.clone().prop_map(Event::Resume),
        parts.prop_map(Event::State),
        Just(Event::EndState),
        (instance.clone(), bytes).prop_map(|(instance, bytes)| Event::Grow(instance, bytes)),
        instance.clone().prop_map(Event::Restart),
        (instance, prop::option::of(one)).prop_map(|(instance, payer)| Event::Pay(instance, payer)),
    ]
}

/// The slow twin: lists of everything that a principal has, which it adds up for each question.
#[derive(Default)]
struct Twin {
    limits: BTreeMap<u32, u64>,
    queued: BTreeMap<u32, u64>,
    suspended: Vec<(u32, u64)>,
    states: Vec<Vec<(Option<u32>, u64)>>,
    instances: [(Option<u32>, Vec<u64>); INSTANCES],
    dropped: BTreeMap<u32, u64>,
    refused: BTreeMap<u32, u64>,
}

impl Twin {
    fn use_of(&self, id: u32) -> MemoryUse {
        let of = |list: &[(u32, u64)]| {
            list.iter().filter(|(owner, _)| *owner == id).map(|(_, bytes)| *bytes).sum()
        };
        let state = self.states.iter().flatten().filter(|(owner, _)| *owner == Some(id));
        let plugin = self.instances.iter().filter(|(payer, _)| *payer == Some(id));
        MemoryUse {
            limit: self.limits.get(&id).copied(),
            state: state.map(|(_, bytes)| bytes).sum(),
            queued: self.queued.get(&id).copied().unwrap_or(0),
            suspended: of(&self.suspended),
            suspended_packets: self.suspended.iter().filter(|(owner, _)| *owner == id).count() as u64,
            plugin: plugin.flat_map(|(_, pieces)| pieces).sum(),
            dropped: self.dropped.get(&id).copied().unwrap_or(0),
            refused: self.refused.get(&id).copied().unwrap_or(0),
        }
    }

    fn has_room(&self, id: u32, bytes: u64) -> bool {
        let now = self.use_of(id);
        let sum = now.state + now.queued + now.suspended + now.plugin + bytes;
        now.limit.is_none_or(|limit| sum <= limit)
    }
}

/// Accounts beside their twin.
#[derive(Default)]
struct Both {
    memory: PrincipalMemory,
    twin: Twin,
    instances: [InstanceMemory; INSTANCES],
}

impl Both {
    fn take(&mut self, event: Event) -> Result<(), TestCaseError> {
        match event {
            Event::Limit(id, limit) => {
                self.memory.set_limit(PrincipalId(id), limit);
                self.twin.limits.remove(&id);
                self.twin.limits.extend(limit.map(|limit| (id, limit)));
            }
            Event::Queue(id, bytes) => self.queue(id, bytes)?,
            Event::Dequeue(id, bytes) => {
                let left = self.twin.use_of(id).queued.saturating_sub(bytes);
                self.twin.queued.insert(id, left);
                self.memory.set_queued(PrincipalId(id), left);
            }
            Event::Suspend(id, bytes) => {
                self.twin.suspended.push((id, bytes));
                self.memory.suspend(Some(PrincipalId(id)), (1, bytes));
            }
            Event::Resume(id) => {
                let place = self.twin.suspended.iter().position(|(owner, _)| *owner == id);
                if let Some((_, bytes)) = place.map(|place| self.twin.suspended.remove(place)) {
                    self.memory.resume(Some(PrincipalId(id)), (1, bytes));
                }
            }
            Event::State(parts) => self.begin_state(parts)?,
            Event::EndState => {
                let parts = self.twin.states.pop().unwrap_or_default();
                self.memory.release(parts.into_iter().map(|(id, bytes)| (id.map(PrincipalId), bytes)));
            }
            Event::Grow(number, bytes) => self.grow(number, bytes)?,
            Event::Restart(number) => {
                self.twin.instances[number].1.clear();
                self.instances[number].release();
            }
            Event::Pay(number, payer) => {
                self.twin.instances[number].0 = payer;
                let account = payer.and_then(|payer| self.memory.open(PrincipalId(payer)).cloned());
                self.instances[number].set_account(account);
            }
        }
        Ok(())
    }

    fn queue(&mut self, id: u32, bytes: u64) -> Result<(), TestCaseError> {
        let is_admitted = self.memory.admits(PrincipalId(id), bytes);
        prop_assert_eq!(is_admitted, self.twin.has_room(id, bytes));
        let change = if is_admitted { &mut self.twin.queued } else { &mut self.twin.dropped };
        *change.entry(id).or_default() += if is_admitted { bytes } else { 1 };
        self.memory.set_queued(PrincipalId(id), self.twin.use_of(id).queued);
        Ok(())
    }

    fn begin_state(&mut self, parts: Vec<(Option<u32>, u64)>) -> Result<(), TestCaseError> {
        let has_room = |(id, bytes): &(Option<u32>, u64)| id.is_none_or(|id| self.twin.has_room(id, *bytes));
        let is_admitted = parts.iter().any(has_room);
        let ids = parts.iter().map(|(id, bytes)| (id.map(PrincipalId), *bytes));
        prop_assert_eq!(self.memory.charge(ids), is_admitted);
        if is_admitted {
            self.twin.states.push(parts);
        } else {
            let refused = &mut self.twin.refused;
            parts.iter().filter_map(|(id, _)| *id).for_each(|id| *refused.entry(id).or_default() += 1);
        }
        Ok(())
    }

    fn grow(&mut self, number: usize, bytes: u64) -> Result<(), TestCaseError> {
        let (payer, pieces) = &self.twin.instances[number];
        // The first piece is the memory with which an instance begins.
        let (payer, is_first) = (*payer, pieces.is_empty());
        let has_room = is_first || payer.is_none_or(|payer| self.twin.has_room(payer, bytes));
        prop_assert_eq!(self.instances[number].grow(bytes, is_first), has_room);
        match (has_room, payer) {
            (true, _) => self.twin.instances[number].1.push(bytes),
            (false, Some(payer)) => *self.twin.refused.entry(payer).or_default() += 1,
            (false, None) => {}
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn accounts_are_the_sums_of_what_principals_have(events in prop::collection::vec(event(), 1..120)) {
        let mut both = Both::default();
        (0..PRINCIPALS).for_each(|id| both.memory.set_limit(PrincipalId(id), None));
        for event in events {
            both.take(event)?;
            for id in 0..PRINCIPALS {
                prop_assert_eq!(both.memory.account(PrincipalId(id)), both.twin.use_of(id));
            }
        }
        both.instances = Default::default();
        prop_assert!((0..PRINCIPALS).all(|id| both.memory.account(PrincipalId(id)).plugin == 0));
    }
}
