//! The instances of a worker, and how they are.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use millrace_plugin_abi::{Fault, Instance, Output, Verdict};
use millrace_units::{InstanceId, Instant};

use crate::driver_form::LoadedForm;
use crate::fault::FaultKind;
use crate::health::{Health, Record};
use crate::limits::Limits;
use crate::pulse::Pulse;
use crate::recheck::Malformed;
use crate::shadow::Shadow;
use crate::slab::{Key, Slab};

/// Failures that wait to be told; more are counted, and not told one by one.
const MOST_FAILURES: usize = 64;

/// Messages that an instance exchanged with the other half of its plugin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MessageCounts {
    /// Those that it heard.
    pub heard: u64,
    /// Those for it that were lost: it was pausing, or too many waited.
    pub lost: u64,
    /// Those that it sent.
    pub sent: u64,
    /// Of these, those that were lost on the way, as too many waited.
    pub unsent: u64,
}

/// That an instance failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Which.
    pub instance: InstanceId,
    /// What it did wrong.
    pub fault: Fault,
    /// How it is since.
    pub health: Health,
}

/// Something that an instance gave beside verdicts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Given {
    /// Which.
    pub instance: InstanceId,
    /// What.
    pub output: Output,
}

/// What instances did and gave that nobody was told of yet.
#[derive(Default)]
pub(crate) struct News {
    failures: Vec<Failure>,
    given: VecDeque<Given>,
    /// Instances that failed, and begin anew after a pause.
    pub paused: Vec<InstanceId>,
}

impl News {
    fn tell(&mut self, failure: Failure) {
        if self.failures.len() < MOST_FAILURES {
            self.failures.push(failure);
        }
    }

    /// Takes a failure out; the last comes first.
    #[inline]
    pub fn pop(&mut self) -> Option<Failure> {
        self.failures.pop()
    }

    /// Takes something out that was given; the first comes first.
    #[inline]
    pub fn pop_given(&mut self) -> Option<Given> {
        self.given.pop_front()
    }
}

/// An instance, and how it is.
pub(crate) struct Hosted {
    pub id: InstanceId,
    pub instance: Box<dyn Instance>,
    pub limits: Limits,
    pub record: Record,
    /// Faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// What happened last.
    pub last_fault: String,
    /// Slices after which it was stopped in the middle.
    pub suspensions: u64,
    /// Packets that it dropped, by its own reasons.
    pub drops: Box<[u64; REASONS]>,
    /// To be added to the counters of the instance: what those counted in whose place it is, less what was cleared.
    pub counted: BTreeMap<&'static str, u64>,
    /// Messages between the halves of its plugin.
    pub messages: MessageCounts,
    /// Whether it ever gives something beside verdicts.
    pub has_output: bool,
    /// Whether it ever looks at packets.
    looks: bool,
    /// Whether it ever changes packets.
    pub writes: bool,
    /// The one that is tried out beside it.
    pub shadow: Option<Box<Shadow>>,
    /// Where the worker says whose code it runs.
    pub pulse: Arc<Pulse>,
    /// Its form for the driver.
    pub form: Option<LoadedForm>,
}

/// The reasons that there may be.
pub(crate) const REASONS: usize = Verdict::MOST_REASON as usize + 1;

impl Hosted {
    /// Runs code of the instance, and says so meanwhile: what may not return is called in this way.
    #[inline]
    pub fn call<R>(&mut self, what: impl FnOnce(&mut dyn Instance) -> R) -> R {
        self.pulse.begin(self.id);
        let result = what(&mut *self.instance);
        self.pulse.end();
        result
    }

    /// Whether it can be called; one whose pause is over is restarted.
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

    /// It left a malformed packet.
    #[cold]
    pub fn fail_for(&mut self, malformed: Malformed, now: Instant, news: &mut News) {
        let text = format!("it left a malformed packet: {malformed}");
        self.fail(Fault { kind: FaultKind::MalformedPacket.name(), text }, now, news);
    }

    /// What it did wrong in a call that no packet was in is noted, and doesn't count towards quarantine; it begins anew at
    /// once, so that packets go on.
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

    /// Whether it failed, and begins anew after a pause.
    pub fn is_pausing(&self) -> bool {
        self.pause_ends().is_some()
    }

    /// When its pause is over, if it is in one.
    pub fn pause_ends(&self) -> Option<Instant> {
        match self.record.health {
            Health::Pausing(until) => Some(until),
            Health::Well | Health::Quarantined => None,
        }
    }

    /// Puts it into quarantine for something that happened before it was here.
    pub fn quarantine(&mut self, why: String) {
        self.record.quarantine();
        self.last_fault = why;
    }

    /// When it wants to be called next, and can be: not before its pause is over, and never in quarantine.
    pub fn next_call(&self) -> Option<Instant> {
        let next = self.instance.next_call()?;
        match self.record.health {
            Health::Well => Some(next),
            Health::Pausing(until) => Some(next.max(until)),
            Health::Quarantined => None,
        }
    }

    /// Puts another instance in the place of this one, which is as if it had never failed. Returns the one that is out of
    /// use. What both gave meanwhile is taken.
    pub fn replace(&mut self, instance: Box<dyn Instance>, news: &mut News) -> Box<dyn Instance> {
        self.take_outputs(news);
        let before = self.counters();
        let mut instance = instance;
        if let Some(form) = &self.form {
            instance.attach_driver(form.memory.clone());
        }
        let old = std::mem::replace(&mut self.instance, instance);
        // One that was here before brings what it counted then.
        let own = self.instance.counters().into_iter();
        let counted = |name| before.get(name).copied().unwrap_or_default();
        self.counted = own.map(|(name, count)| (name, counted(name).wrapping_sub(count))).collect();
        (self.has_output, self.record) = (self.instance.has_output(), Record::default());
        self.looks = self.instance.looks_at_packets();
        self.writes = self.instance.writes_packets();
        self.take_outputs(news);
        old
    }

    /// Whether it, or one that is tried out beside it, may look at packets.
    pub fn looks_at_packets(&self) -> bool {
        self.looks || self.shadow.is_some()
    }

    /// What it counted, by name.
    pub fn counters(&self) -> BTreeMap<&'static str, u64> {
        let counted = |name| self.counted.get(name).copied().unwrap_or_default();
        let own = self.instance.counters().into_iter();
        own.map(|(name, count)| (name, count.wrapping_add(counted(name)))).collect()
    }

    /// Counts from zero.
    pub fn clear_counts(&mut self) {
        self.drops.fill(0);
        let own = self.instance.counters().into_iter();
        self.counted = own.map(|(name, count)| (name, count.wrapping_neg())).collect();
    }

    /// Takes what it gave beside verdicts.
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

    /// Takes what it did wrong in a call that is done; whether that was anything.
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

/// The instances of a worker, by their ids.
#[derive(Default)]
pub(crate) struct Instances {
    slab: Slab<Hosted>,
    pulse: Arc<Pulse>,
    limits: Limits,
}

impl Instances {
    /// Has these limits hold from now on.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
        self.slab.iter_mut().for_each(|hosted| hosted.limits = limits);
    }

    /// Adds an instance, and returns the one that had its id.
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

    /// Where the worker says whose code it runs.
    pub fn pulse(&self) -> Arc<Pulse> {
        self.pulse.clone()
    }

    /// The key by which paths refer to an instance: it dies with the instance, even when the id is given anew.
    pub fn key(&self, id: InstanceId) -> Option<Key> {
        self.slab.key(id.0.into())
    }

    pub fn iter(&self) -> impl Iterator<Item = &Hosted> {
        self.slab.iter().map(|(_, hosted)| hosted)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Hosted> {
        self.slab.iter_mut()
    }

    /// Gives an instance another key.
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
