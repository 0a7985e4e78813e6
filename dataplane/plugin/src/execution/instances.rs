//! Instances of a worker and their health.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use millrace_plugin_abi::{Fault, Instance, Output, Verdict};
use millrace_units::{InstanceId, Instant};

use crate::declaration::limits::Limits;
use crate::driver_form::LoadedForm;
use crate::execution::health::{Health, Record};
use crate::execution::pulse::Pulse;
use crate::execution::recheck::Malformed;
use crate::execution::shadow::Shadow;
use crate::fault::FaultKind;
use crate::slab::{Key, Slab};

/// Maximum number of failures that wait for a report; further failures are only counted.
const MOST_FAILURES: usize = 64;

/// Number of messages between an instance and the other half of its plugin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MessageCounts {
    /// Messages that the instance received.
    pub heard: u64,
    /// Messages to the instance that were lost: the instance was pausing, or too many messages waited.
    pub lost: u64,
    /// Messages that the instance sent.
    pub sent: u64,
    /// Messages that the instance sent and the router lost, as too many waited.
    pub unsent: u64,
}

/// Failure of an instance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The failed instance.
    pub instance: InstanceId,
    /// The fault.
    pub fault: Fault,
    /// Health of the instance after the fault.
    pub health: Health,
}

/// Output of an instance besides verdicts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Given {
    /// The instance.
    pub instance: InstanceId,
    /// The output.
    pub output: Output,
}

/// Failures and outputs of instances that nobody has collected yet.
#[derive(Default)]
pub(crate) struct News {
    failures: Vec<Failure>,
    given: VecDeque<Given>,
    /// Instances that failed and restart after a pause.
    pub paused: Vec<InstanceId>,
}

impl News {
    fn tell(&mut self, failure: Failure) {
        if self.failures.len() < MOST_FAILURES {
            self.failures.push(failure);
        }
    }

    /// Removes and returns the latest failure.
    #[inline]
    pub fn pop(&mut self) -> Option<Failure> {
        self.failures.pop()
    }

    /// Removes and returns the earliest output.
    #[inline]
    pub fn pop_given(&mut self) -> Option<Given> {
        self.given.pop_front()
    }
}

/// Instance of a worker with its health and counters.
pub(crate) struct Hosted {
    pub id: InstanceId,
    pub instance: Box<dyn Instance>,
    pub limits: Limits,
    pub record: Record,
    /// Number of faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Text of the latest fault.
    pub last_fault: String,
    /// Number of slices after which the instance was suspended.
    pub suspensions: u64,
    /// Number of packets that the instance dropped, by its own drop reasons.
    pub drops: Box<[u64; REASONS]>,
    /// Offsets of the instance's counters: the counts of its predecessors minus the cleared counts.
    pub counted: BTreeMap<&'static str, u64>,
    /// Messages between the halves of the instance's plugin.
    pub messages: MessageCounts,
    /// Whether the instance ever produces output besides verdicts.
    pub has_output: bool,
    /// Whether the instance ever reads packets.
    looks: bool,
    /// Whether the instance ever changes packets.
    pub writes: bool,
    /// Shadow instance that is compared with this one.
    pub shadow: Option<Box<Shadow>>,
    /// Words in which the worker publishes the instance that it runs.
    pub pulse: Arc<Pulse>,
    /// Loaded eBPF variant of the instance.
    pub form: Option<LoadedForm>,
}

/// Number of possible drop reasons of a plugin.
pub(crate) const REASONS: usize = Verdict::MOST_REASON as usize + 1;

impl Hosted {
    /// Runs code of the instance and publishes the call in the pulse. Use this for every call that could
    /// hang.
    #[inline]
    pub fn call<R>(&mut self, what: impl FnOnce(&mut dyn Instance) -> R) -> R {
        self.pulse.begin(self.id);
        let result = what(&mut *self.instance);
        self.pulse.end();
        result
    }

    /// Whether the instance can be called. Restarts an instance whose pause is over.
    #[inline]
    pub fn is_well(&mut self, now: Instant, news: &mut News) -> bool {
        self.record.health == Health::Well || self.is_well_again(now, news)
    }

    #[cold]
    fn is_well_again(&mut self, now: Instant, news: &mut News) -> bool {
        if !self.record.is_due(now) {
            return false;
        }
        match self.call(|instance| instance.restart()) {
            Ok(()) => true,
            Err(error) => {
                self.fail(Fault { kind: "restart", text: error.to_string() }, now, news);
                false
            }
        }
    }

    #[cold]
    pub fn fail(&mut self, fault: Fault, now: Instant, news: &mut News) {
        self.record.fail(fault.kind, &self.limits, now);
        *self.faults.entry(fault.kind).or_default() += 1;
        self.last_fault.clone_from(&fault.text);
        if self.is_pausing() && !news.paused.contains(&self.id) {
            news.paused.push(self.id);
        }
        news.tell(Failure { instance: self.id, fault, health: self.record.health });
    }

    /// Records the fault that the instance left a malformed packet.
    #[cold]
    pub fn fail_for(&mut self, malformed: Malformed, now: Instant, news: &mut News) {
        let text = format!("the instance left a malformed packet: {malformed}");
        self.fail(Fault { kind: FaultKind::MalformedPacket.name(), text }, now, news);
    }

    /// Recovers from a fault in a call without packets: records the fault, but doesn't count it towards
    /// quarantine. Restarts the instance at once, so that packets continue.
    pub fn recover(&mut self, now: Instant, news: &mut News) {
        self.take_outputs(news);
        let Some(fault) = self.instance.take_fault() else { return };
        if let Err(error) = self.call(|instance| instance.restart()) {
            self.fail(Fault { kind: "restart", text: error.to_string() }, now, news);
        }
        *self.faults.entry(fault.kind).or_default() += 1;
        self.last_fault.clone_from(&fault.text);
        news.tell(Failure { instance: self.id, fault, health: self.record.health });
    }

    /// Whether the instance failed and restarts after a pause.
    pub fn is_pausing(&self) -> bool {
        self.pause_ends().is_some()
    }

    /// Returns the end of the instance's pause if it is pausing.
    pub fn pause_ends(&self) -> Option<Instant> {
        match self.record.health {
            Health::Pausing(until) => Some(until),
            Health::Well | Health::Quarantined => None,
        }
    }

    /// Puts the instance into quarantine for an earlier event.
    pub fn quarantine(&mut self, why: String) {
        self.record.quarantine();
        self.last_fault = why;
    }

    /// Returns the time of the instance's next call without packets: not before the end of its pause, and
    /// never in quarantine.
    pub fn next_call(&self) -> Option<Instant> {
        let next = self.instance.next_call()?;
        match self.record.health {
            Health::Well => Some(next),
            Health::Pausing(until) => Some(next.max(until)),
            Health::Quarantined => None,
        }
    }

    /// Replaces the instance by its successor, whose health starts anew, and returns the old instance.
    /// Collects the outputs of both.
    pub fn replace(&mut self, instance: Box<dyn Instance>, news: &mut News) -> Box<dyn Instance> {
        self.take_outputs(news);
        let before = self.counters();
        let mut instance = instance;
        if let Some(form) = &self.form {
            instance.attach_driver(form.memory.clone());
        }
        let old = std::mem::replace(&mut self.instance, instance);
        // A successor that ran before, such as a returning predecessor, brings its own counts.
        let own = self.instance.counters().into_iter();
        let counted = |name| before.get(name).copied().unwrap_or_default();
        self.counted = own.map(|(name, count)| (name, counted(name).wrapping_sub(count))).collect();
        (self.has_output, self.record) = (self.instance.has_output(), Record::default());
        self.looks = self.instance.looks_at_packets();
        self.writes = self.instance.writes_packets();
        self.take_outputs(news);
        old
    }

    /// Whether the instance or its shadow instance may read packets.
    pub fn looks_at_packets(&self) -> bool {
        self.looks || self.shadow.is_some()
    }

    /// Returns the instance's counters by name.
    pub fn counters(&self) -> BTreeMap<&'static str, u64> {
        let counted = |name| self.counted.get(name).copied().unwrap_or_default();
        let own = self.instance.counters().into_iter();
        own.map(|(name, count)| (name, count.wrapping_add(counted(name)))).collect()
    }

    /// Resets the counters to zero.
    pub fn clear_counts(&mut self) {
        self.drops.fill(0);
        let own = self.instance.counters().into_iter();
        self.counted = own.map(|(name, count)| (name, count.wrapping_neg())).collect();
    }

    /// Collects the instance's outputs besides verdicts.
    #[inline]
    pub fn take_outputs(&mut self, news: &mut News) {
        if self.has_output {
            self.take_all_outputs(news);
        }
    }

    fn take_all_outputs(&mut self, news: &mut News) {
        while let Some(output) = self.instance.take_output() {
            self.messages.sent += u64::from(matches!(output, Output::Message(_)));
            news.given.push_back(Given { instance: self.id, output });
        }
    }

    /// Records the fault of a finished call. Returns whether the call failed.
    #[inline]
    pub fn has_failed(&mut self, now: Instant, news: &mut News) -> bool {
        self.take_outputs(news);
        let fault = self.instance.take_fault();
        let failed = fault.is_some();
        if let Some(fault) = fault {
            self.fail(fault, now, news);
        }
        failed
    }
}

/// Instances of a worker by id.
#[derive(Default)]
pub(crate) struct Instances {
    slab: Slab<Hosted>,
    pulse: Arc<Pulse>,
    limits: Limits,
}

impl Instances {
    /// Sets the limits of all present and future instances.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
        self.slab.iter_mut().for_each(|hosted| hosted.limits = limits);
    }

    /// Adds an instance. Returns the previous instance with this id, if there was one.
    pub fn add(&mut self, id: InstanceId, instance: Box<dyn Instance>) -> Option<Box<dyn Instance>> {
        let hosted = Hosted {
            has_output: instance.has_output(),
            looks: instance.looks_at_packets(),
            writes: instance.writes_packets(),
            id,
            instance,
            limits: self.limits,
            record: Record::default(),
            faults: BTreeMap::new(),
            last_fault: String::new(),
            suspensions: 0,
            drops: Box::new([0; REASONS]),
            counted: BTreeMap::new(),
            messages: MessageCounts::default(),
            shadow: None,
            pulse: self.pulse.clone(),
            form: None,
        };
        self.slab.put(id.0.into(), hosted).map(|hosted| hosted.instance)
    }

    pub fn remove(&mut self, id: InstanceId) -> Option<Box<dyn Instance>> {
        self.slab.take(id.0.into()).map(|hosted| hosted.instance)
    }

    /// Returns the words in which the worker publishes the instance that it runs.
    pub fn pulse(&self) -> Arc<Pulse> {
        self.pulse.clone()
    }

    /// Returns the key by which paths refer to the instance. The key becomes invalid with the instance, even
    /// if the id is reused.
    pub fn key(&self, id: InstanceId) -> Option<Key> {
        self.slab.key(id.0.into())
    }

    pub fn iter(&self) -> impl Iterator<Item = &Hosted> {
        self.slab.iter().map(|(_, hosted)| hosted)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Hosted> {
        self.slab.iter_mut()
    }

    /// Gives an instance a new key.
    pub fn renew(&mut self, key: Key) -> Option<Key> {
        self.slab.renew(key)
    }

    pub fn get(&self, key: Key) -> Option<&Hosted> {
        self.slab.get(key)
    }

    #[inline]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut Hosted> {
        self.slab.get_mut(key)
    }
}
