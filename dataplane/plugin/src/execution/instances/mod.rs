//! Instances of a worker: their slots, limits, timers, and uncollected failures and outputs.

mod counts;
mod hosted;
mod news;

use std::fmt;
use std::sync::Arc;

use millrace_packet::Pool;
use millrace_plugin_abi::{Fault, Instance};
use millrace_units::{InstanceId, Instant, PortId};

use crate::declaration::limits::Limits;
use crate::execution::pulse::Pulse;
use crate::execution::shadow::{Reported, Shadow};
use crate::fault::FaultKind;
use crate::offload_steps::LoadedVariant;
use crate::slab::{Key, Slab};

pub use counts::{InstanceReport, MessageCounts};
pub(crate) use hosted::Hosted;
pub(crate) use news::News;
pub use news::{Failure, Given};

/// Instances of a worker by id.
#[derive(Default)]
pub struct Instances {
    slab: Slab<Hosted>,
    pulse: Arc<Pulse>,
    limits: Limits,
    news: News,
    /// Instances with timers.
    timed: Vec<Key>,
}

impl fmt::Debug for Instances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids = self.slab.iter().map(|(_, hosted)| hosted.id);
        f.debug_set().entries(ids).finish()
    }
}

/// Properties of an instance that its bindings store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BoundInstance {
    pub key: Key,
    /// Whether the instance subscribes to ends of flows.
    pub hears: bool,
    /// Bytes of state that the instance keeps for each flow.
    pub state: u16,
}

impl Instances {
    /// Sets the limits of all present and future instances.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
        self.slab.iter_mut().for_each(|hosted| hosted.limits = limits);
    }

    /// Returns the pulse, in which the worker publishes its current instance call.
    pub fn pulse(&self) -> Arc<Pulse> {
        self.pulse.clone()
    }

    /// Returns the report of each instance, with the instance's id.
    pub fn reports(&self) -> impl Iterator<Item = (InstanceId, InstanceReport)> + '_ {
        self.slab.iter().map(|(_, hosted)| (hosted.id, hosted.report()))
    }

    /// Resets the drop counts and counters of all instances.
    pub fn clear_counts(&mut self) {
        self.slab.iter_mut().for_each(Hosted::clear_counts);
    }

    /// Removes and returns the latest failure of an instance.
    pub fn take_failure(&mut self) -> Option<Failure> {
        self.news.pop()
    }

    /// Removes and returns the earliest output of an instance.
    #[inline]
    pub fn take_given(&mut self) -> Option<Given> {
        self.news.pop_given()
    }

    /// Updates the message counters of an instance.
    pub fn count_messages(&mut self, id: InstanceId, count: impl FnOnce(&mut MessageCounts)) {
        if let Some((hosted, _)) = self.named(id) {
            count(&mut hosted.counts.messages);
        }
    }

    /// Records the fault that an instance created a packet with the unknown ingress port `port`.
    #[cold]
    pub fn fail_for_port(&mut self, id: InstanceId, port: PortId, now: Instant) {
        if let Some((hosted, news)) = self.named(id) {
            let text = format!("the instance made a packet with the unknown ingress port {port}");
            hosted.fail(Fault { kind: FaultKind::UnknownPort.name(), text }, now, news);
        }
    }

    /// Sets or removes the eBPF variant of an instance. The instance shares memory with the variant, and
    /// keeps that memory even after the variant's removal.
    pub fn set_ebpf_variant(&mut self, id: InstanceId, variant: Option<LoadedVariant>) {
        if let Some((hosted, _)) = self.named(id) {
            hosted.set_variant(variant);
        }
    }

    /// Starts `instance` as a shadow of the instance `id`: it gets copies of the next `packets` packets, and
    /// the router compares the verdicts. Replaces an earlier shadow.
    pub fn shadow(
        &mut self,
        id: InstanceId,
        instance: Box<dyn Instance>,
        packets: u64,
        pool: Pool,
        reported: Reported,
    ) {
        match self.named(id) {
            Some((hosted, _)) => {
                hosted.shadow = Some(Box::new(Shadow::new(instance, packets, pool, reported)));
            }
            None => reported(None),
        }
    }

    /// Ends the shadow of an instance. The shadow's report covers the packets that were compared until now.
    pub fn end_shadow(&mut self, id: InstanceId) {
        if let Some((hosted, _)) = self.named(id) {
            hosted.shadow = None;
        }
    }

    /// Adds an instance. Returns the previous instance with this id, if there was one.
    pub(crate) fn add(&mut self, id: InstanceId, instance: Box<dyn Instance>) -> Option<Box<dyn Instance>> {
        let has_timers = instance.has_timers();
        let hosted = Hosted::new(id, instance, self.limits, self.pulse.clone());
        let old = self.slab.put(id.0.into(), hosted).map(|hosted| hosted.instance);
        self.timed.extend(self.key(id).filter(|_| has_timers));
        old
    }

    /// Removes an instance.
    pub(crate) fn remove(&mut self, id: InstanceId) -> Option<Box<dyn Instance>> {
        self.slab.take(id.0.into()).map(|hosted| hosted.instance)
    }

    /// Puts an instance into quarantine, for the reason `why`.
    pub(crate) fn quarantine(&mut self, id: InstanceId, why: String) {
        if let Some((hosted, _)) = self.named(id) {
            hosted.quarantine(why);
        }
    }

    /// Returns the key under which paths refer to an instance. The key becomes invalid when the instance is
    /// removed, even if a new instance gets the same id.
    pub(crate) fn key(&self, id: InstanceId) -> Option<Key> {
        self.slab.key(id.0.into())
    }

    /// Returns the properties of an instance that its bindings store.
    pub(crate) fn bound(&self, id: InstanceId) -> Option<BoundInstance> {
        let key = self.key(id)?;
        self.get(key).map(|hosted| BoundInstance::of(key, &*hosted.instance))
    }

    /// Prepares an instance's slot after a successor has replaced the instance: registers timers and, unless
    /// `keeps_key`, gives the slot a new key. Returns the successor's properties for its bindings.
    pub(crate) fn introduce(&mut self, old: Key, keeps_key: bool) -> Option<BoundInstance> {
        let key = if keeps_key { old } else { self.slab.renew(old).unwrap_or(old) };
        let hosted = self.slab.get(key)?;
        if hosted.instance.has_timers() && !self.timed.contains(&key) {
            self.timed.push(key);
        }
        Some(BoundInstance::of(key, &*hosted.instance))
    }

    pub(crate) fn get(&self, key: Key) -> Option<&Hosted> {
        self.slab.get(key)
    }

    /// Returns the instance with this key, and the list to which the instance's calls add failures and
    /// outputs.
    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<(&mut Hosted, &mut News)> {
        Some((self.slab.get_mut(key)?, &mut self.news))
    }

    /// Returns the instance with this id, and the list to which the instance's calls add failures and
    /// outputs.
    fn named(&mut self, id: InstanceId) -> Option<(&mut Hosted, &mut News)> {
        self.get_mut(self.key(id)?)
    }

    /// Restarts the instances whose pause is over.
    pub(crate) fn restart_paused(&mut self, now: Instant) {
        for id in std::mem::take(&mut self.news.paused) {
            let Some((hosted, news)) = self.named(id) else { continue };
            // If the restart itself failed, the instance is already in the list again.
            if !hosted.is_well(now, news) && hosted.is_pausing() {
                news.pause(id);
            }
        }
    }

    /// Calls `each` for every instance with timers. Drops removed instances from the list.
    pub(crate) fn each_timed(&mut self, mut each: impl FnMut(Key, &mut Hosted, &mut News)) {
        let Self { slab, timed, news, .. } = self;
        timed.retain(|key| {
            let Some(hosted) = slab.get_mut(*key) else { return false };
            each(*key, hosted, news);
            true
        });
    }

    /// Returns the time of the next timer or end of a pause; `None` without either.
    pub(crate) fn next_event(&self) -> Option<Instant> {
        let timers = self.timed.iter().filter_map(|key| self.get(*key)?.next_call());
        let paused = self.news.paused.iter().filter_map(|id| self.get(self.key(*id)?)?.pause_ends());
        timers.chain(paused).min()
    }

    /// Whether no instance has timers or a pause.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.timed.is_empty() && self.news.paused.is_empty()
    }
}

impl BoundInstance {
    fn of(key: Key, instance: &dyn Instance) -> Self {
        let state = instance.flow_state().min(u16::MAX.into()) as u16;
        Self { key, hears: instance.hears_flow_ends(), state }
    }
}
