//! Property test: after any sequence of changes, the table agrees with its reference model.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use millrace_memory::{Operation, Vectors, with_each};
use millrace_packet::FlowKey;
use millrace_units::{Instant, PortId};
use proptest::prelude::*;

use super::super::batch_search::BatchSearch;
use super::super::{FlowIndex, FlowTable, FlowTableConfig, Full, RemovalReason};
use super::model::{Model, TICK, answer};

/// Source of the hashes in a test.
#[derive(Clone, Copy, Debug)]
enum Hashes {
    /// The table's own hashes.
    Own,
    /// Hashes of one group of buckets with few tags, so entries are displaced.
    Few,
}

#[derive(Clone, Debug)]
enum Step {
    Insert {
        flow: u16,
        variant: u8,
    },
    /// Inserts many records at once, so the table grows.
    InsertMany {
        flow: u16,
        count: u8,
    },
    Touch {
        which: usize,
        bytes: u32,
    },
    Remove {
        which: usize,
    },
    Reserve {
        which: usize,
        on: bool,
    },
    SetState {
        which: usize,
        state: u32,
    },
    Change {
        which: usize,
        number: u32,
    },
    Wait {
        milliseconds: u16,
    },
    Maintain {
        budget: usize,
    },
    /// Calls `pop_removed` up to `count` times.
    Read {
        count: u8,
    },
    FindAll,
}

fn step() -> impl Strategy<Value = Step> {
    let which = any::<usize>;
    prop_oneof![
        8 => (0..300_u16, 0..3_u8).prop_map(|(flow, variant)| Step::Insert { flow, variant }),
        3 => (0..300_u16, 1..40_u8).prop_map(|(flow, count)| Step::InsertMany { flow, count }),
        8 => (which(), 0..2000_u32).prop_map(|(which, bytes)| Step::Touch { which, bytes }),
        3 => which().prop_map(|which| Step::Remove { which }),
        1 => (which(), any::<bool>()).prop_map(|(which, on)| Step::Reserve { which, on }),
        2 => (which(), 0..3_u32).prop_map(|(which, state)| Step::SetState { which, state }),
        1 => (which(), any::<u32>()).prop_map(|(which, number)| Step::Change { which, number }),
        2 => (0..400_u16).prop_map(|milliseconds| Step::Wait { milliseconds }),
        4 => prop_oneof![0..100_usize, Just(100_000)].prop_map(|budget| Step::Maintain { budget }),
        2 => any::<u8>().prop_map(|count| Step::Read { count }),
        1 => Just(Step::FindAll),
    ]
}

fn key(flow: u16) -> FlowKey {
    let (ports, port) = ((flow, 80), PortId(flow % 3));
    if flow.is_multiple_of(2) {
        return FlowKey::v4(Ipv4Addr::from(u32::from(flow) << 16), Ipv4Addr::LOCALHOST, 6, ports, port);
    }
    let address = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, flow);
    FlowKey::v6(Ipv6Addr::LOCALHOST, address, 17, ports, port)
}

/// Lookup of a batch, to be run with each kind of vector instructions.
#[derive(Clone, Copy)]
struct FoundBy<'a> {
    table: &'a FlowTable,
    keys: &'a [FlowKey],
    hashes: &'a [u64],
}

impl Operation for FoundBy<'_> {
    type Output = Vec<Option<FlowIndex>>;

    #[inline(always)]
    fn run<V: Vectors>(self, vectors: V) -> Self::Output {
        let mut found = vec![None; self.keys.len()];
        BatchSearch::new(self.table.set.lookup(), self.keys, self.hashes, &mut found).run(vectors);
        found
    }
}

struct Pair {
    table: FlowTable,
    model: Model,
    hashes: Hashes,
    now: Instant,
}

impl Pair {
    fn new(initial: u32, maximum: u32, hashes: Hashes, start: Instant) -> Self {
        let config = FlowTableConfig {
            initial,
            maximum,
            idle: Duration::from_millis(600),
            probation_idle: Duration::from_millis(300),
            populate: false,
            seed: 0x5eed,
        };
        Self { table: FlowTable::new(config).unwrap(), model: Model::new(config), hashes, now: start }
    }

    fn hash(&self, key: &FlowKey) -> u64 {
        let hash = self.table.hash(key);
        match self.hashes {
            Hashes::Own => hash,
            Hashes::Few => hash & 0x3f00_0000_0000_0003,
        }
    }

    fn insert(&mut self, flow: u16, variant: u32) {
        let (key, hash) = (key(flow), self.hash(&key(flow)));
        let number = u32::from(flow) * 7 + variant;
        let known = self.model.records.contains_key(&(key, variant));
        let unread = self.table.unread();
        let inserted = self.table.insert(&key, hash, variant, answer(number), self.now);
        // This insertion has displaced the record that ended last. The model must process the end of that
        // record before it gets the new record.
        if self.table.unread() > unread {
            assert!(!known, "recycled for a record that was there");
            self.read_all();
        }
        match inserted {
            Ok(index) => self.model.insert((key, variant), index, answer(number), self.now),
            Err(Full::Protected) => {
                let free = self.model.records.values().filter(|record| record.may_go());
                assert_eq!(free.count(), 0, "refused though some could go");
            }
            Err(Full::Collisions) => assert!(matches!(self.hashes, Hashes::Few), "collisions of a good hash"),
            Err(Full::Unread) => panic!("refused though ends are read"),
        }
    }

    fn touch(&mut self, which: usize, bytes: u32) {
        let Some(key) = self.model.nth(which) else { return };
        let record = self.model.records.get_mut(&key).unwrap();
        record.packets += 1;
        record.bytes += u64::from(bytes);
        record.last_used = self.now;
        record.on_probation &= record.packets < 2;
        self.table.touch(record.index, bytes, self.now);
    }

    /// Compares the ended records, in the order of their ends, with the records that the model expects or
    /// allows to end.
    fn read(&mut self, most: usize) {
        for _ in 0..most {
            let Some(removed) = self.table.pop_removed() else {
                assert!(self.model.ended.is_empty(), "an end was kept back");
                return;
            };
            let key = (removed.key, removed.variant);
            if self.model.ended.first().is_none_or(|(other, _)| *other != key) {
                assert!(self.model.ended.is_empty(), "ends out of order");
                self.model.ended_by_itself(&removed, self.now);
            }
            let (_, record) = self.model.ended.remove(0);
            assert_eq!((removed.index, removed.answer), (record.index, record.answer));
            assert_eq!((removed.packets, removed.bytes), (record.packets, record.bytes));
            assert_eq!((removed.state, removed.created), (record.state, record.created));
            assert_eq!(removed.reserved, record.reserved);
            assert_eq!(Some(removed.reason), record.ended);
            assert!(record.last_used.since(removed.last_used) < TICK);
            assert!(removed.last_used <= record.last_used);
        }
    }

    fn read_all(&mut self) {
        self.read(usize::MAX);
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Insert { flow, variant } => self.insert(flow, u32::from(variant) * 0x0100_0001),
            Step::InsertMany { flow, count } => {
                (flow..flow + u16::from(count)).for_each(|flow| self.insert(flow, 0))
            }
            Step::Touch { which, bytes } => self.touch(which, bytes),
            Step::Remove { which } => {
                if let Some(key) = self.model.nth(which) {
                    let index = self.model.records[&key].index;
                    assert!(self.table.remove(index));
                    assert!(!self.table.remove(index), "removed twice");
                    self.model.end(key, RemovalReason::Removed);
                }
            }
            Step::Reserve { which, on } => {
                self.change(which, |table, record| {
                    table.set_reserved(record.index, on);
                    record.reserved = on;
                    record.on_probation &= !on;
                });
            }
            Step::SetState { which, state } => {
                self.change(which, |table, record| {
                    table.set_state(record.index, state);
                    record.state = state;
                });
            }
            Step::Change { which, number } => {
                self.change(which, |table, record| {
                    *table.answer_mut(record.index) = answer(number);
                    record.answer = answer(number);
                });
            }
            Step::Wait { milliseconds } => self.now += Duration::from_millis(u64::from(milliseconds)),
            Step::Maintain { budget } => {
                self.read_all();
                self.table.maintain(self.now, budget);
                self.read_all();
            }
            Step::Read { count } => self.read(usize::from(count)),
            Step::FindAll => self.find_all(),
        }
        self.check();
    }

    fn change(&mut self, which: usize, change: impl FnOnce(&mut FlowTable, &mut super::model::ModelRecord)) {
        if let Some(key) = self.model.nth(which) {
            change(&mut self.table, self.model.records.get_mut(&key).unwrap());
        }
    }

    fn check(&self) {
        assert_eq!(self.table.len() as usize, self.model.records.len());
        assert_eq!(self.table.unread() as usize, self.model.ended.len());
        let on_probation = self.model.records.values().filter(|record| record.on_probation).count();
        assert_eq!(self.table.on_probation() as usize, on_probation);
        assert!(self.table.len() <= self.table.capacity() && self.table.capacity() <= self.table.maximum());
    }

    /// Checks that single and batch lookups find every record of the model, and no other.
    fn find_all(&self) {
        let keys: Vec<FlowKey> = (0..310).map(key).collect();
        let hashes: Vec<u64> = keys.iter().map(|key| self.hash(key)).collect();
        let expected =
            |key: &FlowKey, variant| self.model.records.get(&(*key, variant)).map(|record| record.index);
        let base_records: Vec<_> = keys.iter().map(|key| expected(key, 0)).collect();
        let mut found = vec![None; keys.len()];
        self.table.find_batch(&keys, &hashes, &mut found);
        assert_eq!(found, base_records);
        // Look up a batch whose last block is not full, with each kind of vector instructions.
        let batch = FoundBy { table: &self.table, keys: &keys, hashes: &hashes };
        for found in with_each(|| batch) {
            assert_eq!(found, base_records);
        }
        for (key, &hash) in keys.iter().zip(&hashes) {
            let expected = |variant| expected(key, variant);
            for variant in [0, 0x0100_0001, 0x0200_0002, 3] {
                assert_eq!(self.table.find(key, hash, variant), expected(variant));
            }
        }
        assert_eq!(self.table.iter().count(), self.model.records.len());
        for (index, record) in self.table.iter() {
            let twin = &self.model.records[&(self.table.key(index), record.variant())];
            assert_eq!((index, record.answer, record.bytes()), (twin.index, twin.answer, twin.bytes));
            assert_eq!(self.table.packets(index), twin.packets);
            assert_eq!(record.is_on_probation(), twin.on_probation);
            assert_eq!((record.is_reserved(), record.is_stateful()), (twin.reserved, twin.state != 0));
            assert_eq!((self.table.state(index), self.table.created(index)), (twin.state, twin.created));
        }
    }

    /// Advances the time by a little more than five quarters of the idle time, and checks that the table is
    /// then empty.
    fn finish(mut self) {
        self.find_all();
        self.read_all();
        for _ in 0..60 {
            self.now += TICK;
            while self.table.maintain(self.now, 100) {}
            self.read_all();
        }
        assert_eq!((self.table.len(), self.model.records.len()), (0, 0));
        assert!(self.table.counts().inserted >= self.table.counts().expired);
    }
}

fn run(mut pair: Pair, steps: Vec<Step>) {
    steps.into_iter().for_each(|step| pair.step(step));
    pair.finish();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn growing_table_equals_its_model(
        initial in 1_u32..20, steps in prop::collection::vec(step(), 1..150),
    ) {
        run(Pair::new(initial, 4096, Hashes::Own, Instant::ZERO), steps);
    }

    #[test]
    fn full_table_equals_its_model(
        initial in 1_u32..20, more in 0_u32..40, steps in prop::collection::vec(step(), 1..150),
    ) {
        run(Pair::new(initial, initial + more, Hashes::Own, Instant::from_millis(12_345)), steps);
    }

    #[test]
    fn table_equals_its_model_across_a_time_wrap(steps in prop::collection::vec(step(), 1..150)) {
        let start = Instant::from_nanos((1 << 52) - 1_000_000_000);
        run(Pair::new(8, 64, Hashes::Own, start), steps);
    }

    #[test]
    fn table_with_spilled_buckets_equals_its_model(steps in prop::collection::vec(step(), 1..150)) {
        // At most 60 records fit into a group of 64 places, so no record is displaced because of collisions:
        // the model doesn't know such displacements.
        run(Pair::new(4, 60, Hashes::Few, Instant::ZERO), steps);
    }
}
