//! Reference model of the flow table: a map of all records, against which tests check the table's actions.

use std::collections::HashMap;
use std::time::Duration;

use millrace_packet::FlowKey;
use millrace_units::{Instant, NextHopIndex, PathId};

use super::super::{FlowAnswer, FlowIndex, FlowTableConfig, RemovalReason, RemovedFlow};

/// Length of a tick, the resolution of coarse times.
pub const TICK: Duration = Duration::from_nanos(1 << 24);

/// Expected state of a record.
#[derive(Clone, Debug)]
pub struct ModelRecord {
    pub index: FlowIndex,
    pub answer: FlowAnswer,
    pub state: u32,
    pub packets: u64,
    pub bytes: u64,
    pub created: Instant,
    pub last_used: Instant,
    pub reserved: bool,
    pub on_probation: bool,
    /// Sequence number of the record's creation.
    pub age: u64,
    /// Reason with which `pop_removed` must return the record. `None` if the record must be live, or may be
    /// live, expired or displaced.
    pub ended: Option<RemovalReason>,
}

impl ModelRecord {
    /// Whether a new flow may displace this record.
    pub fn may_go(&self) -> bool {
        !self.reserved && (self.state == 0 || self.on_probation)
    }
}

/// All live records, and the ended records that `pop_removed` hasn't returned yet.
#[derive(Debug)]
pub struct Model {
    config: FlowTableConfig,
    pub records: HashMap<(FlowKey, u32), ModelRecord>,
    /// Ended records in the order of their ends. A new record of the same key may be live at the same time.
    pub ended: Vec<((FlowKey, u32), ModelRecord)>,
    made: u64,
}

impl Model {
    pub fn new(config: FlowTableConfig) -> Self {
        Self { config, records: HashMap::new(), ended: Vec::new(), made: 0 }
    }

    pub fn insert(&mut self, key: (FlowKey, u32), index: FlowIndex, answer: FlowAnswer, now: Instant) {
        if let Some(record) = self.records.get_mut(&key) {
            assert_eq!(record.index, index, "a record was made twice");
            record.answer = answer;
            return;
        }
        self.made += 1;
        let record = ModelRecord {
            index,
            answer,
            state: 0,
            packets: 0,
            bytes: 0,
            created: now,
            last_used: now,
            reserved: false,
            on_probation: true,
            age: self.made,
            ended: None,
        };
        assert!(self.records.values().all(|other| other.index != index), "two records at {index:?}");
        self.records.insert(key, record);
    }

    /// Returns the key of a live record.
    pub fn nth(&self, which: usize) -> Option<(FlowKey, u32)> {
        let mut keys: Vec<_> = self.records.iter().map(|(key, record)| (record.age, *key)).collect();
        keys.sort_unstable_by_key(|&(age, _)| age);
        (!keys.is_empty()).then(|| keys[which % keys.len()].1)
    }

    pub fn end(&mut self, key: (FlowKey, u32), reason: RemovalReason) {
        let mut record = self.records.remove(&key).expect("what ends was there");
        record.ended = Some(reason);
        self.ended.push((key, record));
    }

    /// Checks the end of a record that expired or was displaced.
    pub fn ended_by_itself(&mut self, removed: &RemovedFlow, now: Instant) {
        let record = &self.records[&(removed.key, removed.variant)];
        let (idle, age) = (now.since(record.last_used), now.since(record.created));
        match removed.reason {
            RemovalReason::Removed => panic!("nobody removed {removed:?}"),
            RemovalReason::Expired if record.on_probation => {
                assert!(age >= self.config.probation_idle, "{age:?}")
            }
            RemovalReason::Expired => assert!(idle >= self.config.idle, "{idle:?}"),
            RemovalReason::Recycled => self.judge_recycling(record),
        }
        self.end((removed.key, removed.variant), removed.reason);
    }

    /// Checks that the table was right to displace a record: the table must be full, and the record not
    /// protected. If any record is on probation, the displaced record must be the oldest of these.
    fn judge_recycling(&self, victim: &ModelRecord) {
        assert_eq!(self.records.len(), self.config.maximum as usize, "recycled before the maximum");
        assert!(victim.may_go(), "recycled {victim:?}");
        let oldest =
            self.records.values().filter(|record| record.on_probation).map(|record| record.age).min();
        if let Some(oldest) = oldest {
            assert_eq!(victim.age, oldest, "another was on probation for longer");
        }
    }
}

/// Returns an answer that differs for each number.
pub fn answer(number: u32) -> FlowAnswer {
    FlowAnswer {
        path: PathId(number),
        next_hop: NextHopIndex(!number),
        generation: number / 2,
        varying_mask: number / 3,
        varying_value: number / 4,
        adjacency: number / 5,
    }
}
