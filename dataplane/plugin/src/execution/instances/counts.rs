//! Counters and report of an instance at a worker.

use std::collections::BTreeMap;

use millrace_plugin_abi::{Fault, Instance, ProcessWork, Verdict};

use millrace_units::Cycles;

use super::cost_histogram::CostHistogram;
use crate::execution::health::Health;

/// Number of messages between an instance and its host companion.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MessageCounts {
    /// Messages that the instance received.
    pub heard: u64,
    /// Messages to the instance that were lost: the instance paused, or too many messages waited.
    pub lost: u64,
    /// Messages that the instance sent to its host companion.
    pub sent: u64,
    /// Messages that the instance sent, and that were lost because too many messages waited.
    pub unsent: u64,
}

impl MessageCounts {
    fn add(&mut self, other: Self) {
        self.heard += other.heard;
        self.lost += other.lost;
        self.sent += other.sent;
        self.unsent += other.unsent;
    }
}

/// Number of possible drop reasons of a plugin.
const REASONS: usize = Verdict::MOST_REASON as usize + 1;

/// Counters of an instance at a worker. They continue after an upgrade.
pub(crate) struct Counts {
    /// Number of faults by kind.
    faults: BTreeMap<&'static str, u64>,
    /// Text of the latest fault.
    last_fault: String,
    /// Number of slices whose end suspended a call.
    pub suspensions: u64,
    /// Number of misjudged calls of replaced instances.
    pub misjudged: u64,
    /// Processor time of the packets that principals paid for, in cycles.
    pub cycles: u64,
    /// Cycles per packet of the completed calls that principals paid for, without the worker's work around them. A
    /// suspended call counts once, with the cycles of all its parts.
    pub costs: CostHistogram,
    /// Work of the processes of replaced instances.
    pub process: ProcessWork,
    /// Number of packets that the instance dropped, indexed by the plugin's own drop reason.
    drops: Box<[u64; REASONS]>,
    /// For each counter, the difference between the value that users see and the instance's own value. It
    /// contains the counts of replaced instances, less the counts at the last reset.
    offsets: BTreeMap<&'static str, u64>,
    /// Messages between the instance and its host companion.
    pub messages: MessageCounts,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            faults: BTreeMap::new(),
            last_fault: String::new(),
            suspensions: 0,
            misjudged: 0,
            cycles: 0,
            costs: CostHistogram::default(),
            process: ProcessWork::default(),
            drops: Box::new([0; REASONS]),
            offsets: BTreeMap::new(),
            messages: MessageCounts::default(),
        }
    }
}

impl Counts {
    /// Counts a fault.
    pub fn fault(&mut self, fault: &Fault) {
        *self.faults.entry(fault.kind).or_default() += 1;
        self.last_fault.clone_from(&fault.text);
    }

    /// Records the reason for a quarantine that didn't begin with a fault of this instance.
    pub fn quarantine(&mut self, why: String) {
        self.last_fault = why;
    }

    /// Counts a call with packets, if it is complete and all its `cycles` were measured.
    #[inline]
    pub fn call(&mut self, is_complete: bool, cycles: Option<u64>, packets: usize) {
        if let Some(cycles) = cycles.filter(|_| is_complete) {
            self.costs.record(cycles, packets as u64);
        }
    }

    /// Counts dropped packets.
    #[inline]
    pub fn dropped(&mut self, reason: u8, packets: u64) {
        if let Some(count) = self.drops.get_mut(usize::from(reason)) {
            *count += packets;
        }
    }

    /// Returns the counters by name, as users see them: the instance's own values plus the offsets.
    pub fn counters(&self, instance: &dyn Instance) -> BTreeMap<&'static str, u64> {
        let offset = |name| self.offsets.get(name).copied().unwrap_or_default();
        let own = instance.counters().into_iter();
        own.map(|(name, count)| (name, count.wrapping_add(offset(name)))).collect()
    }

    /// Sets the offsets so that the counters of a successor continue from `before`, the counters of the
    /// replaced instance. Counts that the successor already has, for instance from an earlier run, are not
    /// added.
    pub fn succeed(&mut self, before: &BTreeMap<&'static str, u64>, successor: &dyn Instance) {
        let counted = |name| before.get(name).copied().unwrap_or_default();
        let own = successor.counters().into_iter();
        self.offsets = own.map(|(name, count)| (name, counted(name).wrapping_sub(count))).collect();
    }

    /// Adds the counts of a context that ends.
    pub fn absorb(&mut self, ended: InstanceReport) {
        for (kind, count) in ended.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        if self.last_fault.is_empty() {
            self.last_fault = ended.last_fault;
        }
        self.suspensions += ended.suspensions;
        self.misjudged += ended.misjudged;
        self.cycles += ended.used.0;
        self.costs.add(&ended.costs);
        self.process += ended.process;
        self.messages.add(ended.messages);
        ended.drops.into_iter().for_each(|(reason, packets)| self.dropped(reason, packets));
        for (name, count) in ended.counters {
            let offset = self.offsets.entry(name).or_default();
            *offset = offset.wrapping_add(count);
        }
    }

    /// Resets the drop counts and the counters that users see to zero.
    pub fn clear(&mut self, instance: &dyn Instance) {
        self.drops.fill(0);
        let own = instance.counters().into_iter();
        self.offsets = own.map(|(name, count)| (name, count.wrapping_neg())).collect();
    }

    /// Returns the report of the instance.
    pub fn report(&self, instance: &dyn Instance, health: Health) -> InstanceReport {
        let drops = (0..).zip(self.drops.iter().copied()).filter(|(_, count)| *count > 0);
        let mut process = self.process;
        process += instance.process_work();
        InstanceReport {
            health,
            faults: self.faults.clone(),
            last_fault: self.last_fault.clone(),
            suspensions: self.suspensions,
            misjudged: self.misjudged + instance.misjudged(),
            used: Cycles(self.cycles),
            costs: self.costs.clone(),
            process,
            memory: instance.memory(),
            drops: drops.collect(),
            counters: self.counters(instance),
            messages: self.messages,
        }
    }
}

/// Counters and health of an instance, at one worker or in total.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InstanceReport {
    /// Health of the instance.
    pub health: Health,
    /// Number of faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Text of the latest fault; empty without a fault.
    pub last_fault: String,
    /// Number of slices whose end suspended a call.
    pub suspensions: u64,
    /// Number of calls that the router cut because it had misjudged them as short.
    pub misjudged: u64,
    /// Processor time of the packets that principals paid for.
    pub used: Cycles,
    /// Cycles per packet of the completed calls with these packets.
    pub costs: CostHistogram,
    /// Work of the processes of the instance.
    pub process: ProcessWork,
    /// Bytes of memory of a sandboxed instance.
    pub memory: u64,
    /// Number of packets that the instance dropped, by the plugin's own drop reason.
    pub drops: BTreeMap<u8, u64>,
    /// Counters that the plugin declares, by name.
    pub counters: BTreeMap<&'static str, u64>,
    /// Messages between the instance and its host companion.
    pub messages: MessageCounts,
}

impl InstanceReport {
    /// Adds the report of the same instance at another worker, or of another context.
    pub fn add(&mut self, other: Self) {
        self.health = self.health.max(other.health);
        for (kind, count) in other.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        if self.last_fault.is_empty() {
            self.last_fault = other.last_fault;
        }
        self.suspensions += other.suspensions;
        self.misjudged += other.misjudged;
        self.used += other.used;
        self.costs.add(&other.costs);
        self.process += other.process;
        self.memory += other.memory;
        self.messages.add(other.messages);
        for (reason, count) in other.drops {
            *self.drops.entry(reason).or_default() += count;
        }
        for (name, count) in other.counters {
            let sum = self.counters.entry(name).or_default();
            *sum = sum.wrapping_add(count);
        }
    }
}
