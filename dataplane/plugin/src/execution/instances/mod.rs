//! Instances of a worker: their slots, limits, timers, and uncollected failures and outputs.

mod awaited;
mod contexts;
mod cost_histogram;
mod counts;
mod hosted;
mod news;
mod pace;
mod shadow;

use std::fmt;
use std::sync::Arc;

use millrace_packet::{FlowKey, Pool};
use millrace_plugin_abi::{Fault, Instance, StateScope};
use millrace_units::{InstanceId, Instant, PortId, PrincipalId};

use crate::declaration::limits::Limits;
use crate::execution::pulse::Pulse;
use crate::fault::FaultKind;
use crate::offload_steps::LoadedVariant;
use crate::slab::{Key, Slab};

pub(crate) use awaited::{Awaited, Exceeded};
pub(crate) use contexts::{ContextKey, Contexts, context_of};
pub use cost_histogram::CostHistogram;
pub use counts::{InstanceReport, MessageCounts};
pub(crate) use hosted::Hosted;
use news::ContextId;
pub(crate) use news::News;
pub use news::{Failure, Given};
pub(crate) use pace::MOST_IN_CALL;
use shadow::Shadow;
pub use shadow::{Reported, ShadowReport};

/// Instances of a worker by id.
#[derive(Default)]
pub struct Instances {
    slab: Slab<Contexts>,
    pulse: Arc<Pulse>,
    limits: Limits,
    news: News,
    /// Contexts of instances with timers.
    timed: Vec<ContextKey>,
    /// Contexts with shadows.
    shadowed: Vec<ContextId>,
}

impl fmt::Debug for Instances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids = self.slab.iter().map(|(_, contexts)| contexts.id());
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
    /// Whether the state of the instance belongs to connections.
    pub tracks: bool,
}

impl Instances {
    /// Sets the limits of all present and future instances.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
        self.slab.iter_mut().flat_map(Contexts::iter_mut).for_each(|hosted| hosted.limits = limits);
    }

    /// Returns the pulse, in which the worker publishes its current instance call.
    pub fn pulse(&self) -> Arc<Pulse> {
        self.pulse.clone()
    }

    /// Returns the report of each instance, with the instance's id.
    pub fn reports(&self) -> impl Iterator<Item = (InstanceId, InstanceReport)> + '_ {
        self.slab.iter().map(|(_, contexts)| (contexts.id(), contexts.report()))
    }

    /// Resets the drop counts and counters of all instances.
    pub fn clear_counts(&mut self) {
        self.slab.iter_mut().flat_map(Contexts::iter_mut).for_each(Hosted::clear_counts);
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
        if let Some((hosted, _)) = self.named(ContextId { instance: id, number: 0 }) {
            count(&mut hosted.counts.messages);
        }
    }

    /// Records the fault that a context of an instance created a packet with the unknown ingress port `port`.
    #[cold]
    pub fn fail_for_port(&mut self, (instance, number): (InstanceId, u8), port: PortId, now: Instant) {
        if let Some((hosted, news)) = self.named(ContextId { instance, number }) {
            let text = format!("the instance made a packet with the unknown ingress port {port}");
            hosted.fail(Fault { kind: FaultKind::UnknownPort.name(), text }, now, news);
        }
    }

    /// Sets or removes the eBPF variant of an instance. The instance shares memory with the variant, and
    /// keeps that memory even after the variant's removal.
    pub fn set_ebpf_variant(&mut self, id: InstanceId, variant: Option<LoadedVariant>) {
        if let Some(contexts) = self.all_of(id) {
            contexts.set_variant(variant);
        }
    }

    /// Starts `instance` as a shadow of a context of the instance `id`: it gets copies of the context's next
    /// `packets` packets, and the router compares the verdicts. Replaces an earlier shadow.
    pub fn shadow(
        &mut self,
        (id, number): (InstanceId, u8),
        instance: Box<dyn Instance>,
        packets: u64,
        pool: Pool,
        reported: Reported,
    ) {
        let context = ContextId { instance: id, number };
        let Some((hosted, _)) = self.named(context) else { return reported(None) };
        hosted.shadow = Some(Box::new(Shadow::new(instance, packets, pool, reported)));
        if !self.shadowed.contains(&context) {
            self.shadowed.push(context);
        }
    }

    /// Ends the shadows of an instance. A shadow's report covers the packets that were compared until now.
    pub fn end_shadows(&mut self, id: InstanceId) {
        let contexts = self.all_of(id).into_iter().flat_map(Contexts::iter_mut);
        contexts.for_each(|hosted| hosted.shadow = None);
        self.shadowed.retain(|known| known.instance != id);
    }

    /// Adds an instance with one context. Returns the copies of the previous instance with this id, if there
    /// was one.
    pub(crate) fn add(
        &mut self,
        id: InstanceId,
        instance: Box<dyn Instance>,
    ) -> Option<Vec<Box<dyn Instance>>> {
        let context = ContextId { instance: id, number: 0 };
        let hosted = Hosted::new(context, instance, self.limits, self.pulse.clone());
        let contexts = Contexts::new(self.slab.next_key(id.0.into()), hosted);
        let old = self.slab.put(id.0.into(), contexts).map(Contexts::into_instances);
        self.note_timers(self.key(id));
        old
    }

    /// Adds a context to an instance: `instance` is another copy of it. Returns the copy if there is no such
    /// instance.
    pub(crate) fn add_context(
        &mut self,
        id: InstanceId,
        instance: Box<dyn Instance>,
    ) -> Option<Vec<Box<dyn Instance>>> {
        let Some(contexts) = self.all_of(id) else { return Some(vec![instance]) };
        contexts.add(instance);
        self.note_timers(self.key(id));
        None
    }

    /// Removes an instance. Returns its copies, one of each context.
    pub(crate) fn remove(&mut self, id: InstanceId) -> Option<Vec<Box<dyn Instance>>> {
        self.slab.take(id.0.into()).map(Contexts::into_instances)
    }

    /// Puts an instance into quarantine, for the reason `why`.
    pub(crate) fn quarantine(&mut self, id: InstanceId, why: &str) {
        let contexts = self.all_of(id).into_iter().flat_map(Contexts::iter_mut);
        contexts.for_each(|hosted| hosted.quarantine(why.to_owned()));
    }

    /// Returns the key under which paths refer to an instance. The key becomes invalid when the instance is
    /// removed, even if a new instance gets the same id.
    pub(crate) fn key(&self, id: InstanceId) -> Option<Key> {
        self.slab.key(id.0.into())
    }

    /// Returns the key with which an instance was added; `None` if there is no such instance.
    pub(crate) fn origin(&self, key: Key) -> Option<Key> {
        self.get(key).map(Contexts::origin)
    }

    /// Returns the key of the instance that was added with the key `origin`; `None` if it was removed.
    pub(crate) fn added_with(&self, origin: Key) -> Option<Key> {
        let (key, contexts) = self.slab.at(origin.slot)?;
        (contexts.origin() == origin).then_some(key)
    }

    /// Returns the properties of an instance that its bindings store.
    pub(crate) fn bound(&self, id: InstanceId) -> Option<BoundInstance> {
        let key = self.key(id)?;
        self.get(key).map(|contexts| BoundInstance::of(key, contexts))
    }

    /// Prepares an instance's slot after a successor has replaced the instance: registers timers and, unless
    /// `keeps_key`, gives the slot a new key. Returns the successor's properties for its bindings.
    pub(crate) fn introduce(&mut self, old: Key, keeps_key: bool) -> Option<BoundInstance> {
        let key = if keeps_key { old } else { self.slab.renew(old).unwrap_or(old) };
        self.note_timers(Some(key));
        Some(BoundInstance::of(key, self.slab.get(key)?))
    }

    /// Registers the timers of an instance's contexts.
    fn note_timers(&mut self, key: Option<Key>) {
        let Some(instance) = key else { return };
        let Some(contexts) = self.slab.get(instance) else { return };
        for number in (0..contexts.count()).filter(|_| contexts.first().instance.has_timers()) {
            let context = ContextKey { instance, number };
            if !self.timed.contains(&context) {
                self.timed.push(context);
            }
        }
    }

    /// Returns the contexts of an instance.
    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&Contexts> {
        self.slab.get(key)
    }

    /// Returns the contexts of an instance, and the list to which their calls add failures and outputs.
    pub(crate) fn contexts_mut(&mut self, key: Key) -> Option<(&mut Contexts, &mut News)> {
        let contexts = self.slab.get_mut(key)?;
        self.news.payer = contexts.payer();
        Some((contexts, &mut self.news))
    }

    /// Forgets the calls of a removed principal.
    pub(crate) fn forget_payer(&mut self, payer: PrincipalId) {
        self.slab.iter_mut().for_each(|contexts| contexts.forget_payer(payer));
    }

    /// Returns the number of contexts of an instance; 0 if there is no such instance.
    #[inline]
    pub(crate) fn contexts(&self, key: Key) -> u8 {
        self.slab.get(key).map_or(0, Contexts::count)
    }

    /// Returns the context of an instance to which a flow belongs.
    pub(crate) fn context_of(&self, instance: Key, flow: &FlowKey) -> ContextKey {
        ContextKey { instance, number: context_of(flow, self.contexts(instance)) }
    }

    /// Returns the context of the instance in a slot that is to be notified of the end of a flow; `None` if there is no
    /// instance, or if it doesn't subscribe to ends.
    pub(crate) fn hearing(&self, slot: u32, flow: &FlowKey) -> Option<ContextKey> {
        let (instance, contexts) = self.slab.at(slot)?;
        contexts.first().instance.hears_flow_ends().then(|| self.context_of(instance, flow))
    }

    /// Returns a context; `None` if there is no such context.
    #[inline]
    pub(crate) fn context(&self, ContextKey { instance, number }: ContextKey) -> Option<&Hosted> {
        self.get(instance)?.iter().nth(number.into())
    }

    /// Returns a context, and the list to which its calls add failures and outputs.
    #[inline]
    pub(crate) fn get_mut(&mut self, key: ContextKey) -> Option<(&mut Hosted, &mut News)> {
        let contexts = self.slab.get_mut(key.instance)?;
        self.news.payer = contexts.payer();
        Some((contexts.get_mut(key.number)?, &mut self.news))
    }

    /// Returns a context by its id, and the list to which its calls add failures and outputs.
    fn named(&mut self, ContextId { instance, number }: ContextId) -> Option<(&mut Hosted, &mut News)> {
        self.get_mut(ContextKey { instance: self.key(instance)?, number })
    }

    /// Returns the contexts of the instance with this id.
    fn all_of(&mut self, id: InstanceId) -> Option<&mut Contexts> {
        self.slab.get_mut(self.key(id)?)
    }

    /// Restarts the contexts whose pause is over.
    pub(crate) fn restart_paused(&mut self, now: Instant) {
        for id in std::mem::take(&mut self.news.paused) {
            let Some((hosted, news)) = self.named(id) else { continue };
            // If the restart itself failed, the instance is already in the list again.
            if !hosted.is_well(now, news) && hosted.is_pausing() {
                news.pause(id);
            }
        }
    }

    /// Calls `each` for every context with timers. Drops contexts of removed instances from the list.
    pub(crate) fn each_timed(&mut self, mut each: impl FnMut(ContextKey, &mut Hosted, &mut News)) {
        let Self { slab, timed, news, .. } = self;
        timed.retain(|key| {
            let Some(contexts) = slab.get_mut(key.instance) else { return false };
            news.payer = contexts.payer();
            let Some(hosted) = contexts.get_mut(key.number) else { return false };
            each(*key, hosted, news);
            true
        });
    }

    /// Calls `each` for every context with a shadow.
    pub(crate) fn each_shadowed(&mut self, mut each: impl FnMut(&mut Hosted)) {
        let mut shadowed = std::mem::take(&mut self.shadowed);
        shadowed.retain(|context| {
            self.named(*context).is_some_and(|(hosted, _)| {
                each(hosted);
                hosted.shadow.is_some()
            })
        });
        self.shadowed = shadowed;
    }

    /// Whether another process runs the call of a shadow.
    #[inline]
    pub(crate) fn awaits(&self) -> bool {
        self.shadowed.iter().any(|ContextId { instance, number }| {
            let key = self.key(*instance).map(|instance| ContextKey { instance, number: *number });
            let hosted = key.and_then(|key| self.context(key));
            hosted.and_then(|hosted| hosted.shadow.as_ref()?.awaited()).is_some()
        })
    }

    /// Returns the time of the next timer or end of a pause; `None` without either.
    pub(crate) fn next_event(&self) -> Option<Instant> {
        let at = |key: ContextKey| self.get(key.instance)?.iter().nth(key.number.into());
        let timers = self.timed.iter().filter_map(|key| at(*key)?.next_call());
        let paused = self.news.paused.iter().filter_map(|ContextId { instance, number }| {
            at(ContextKey { instance: self.key(*instance)?, number: *number })?.pause_ends()
        });
        timers.chain(paused).min()
    }

    /// Whether no instance has timers or a pause, and no process runs the call of a shadow.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.timed.is_empty() && self.news.paused.is_empty() && !self.awaits()
    }
}

impl BoundInstance {
    fn of(key: Key, contexts: &Contexts) -> Self {
        let instance = &contexts.first().instance;
        let tracks = instance.state_scope() == StateScope::Connection;
        // The instance is notified of the ends of connections, and not of the ends of their flows.
        let hears = instance.hears_flow_ends() && !tracks;
        let state = if tracks { 0 } else { instance.flow_state().min(u16::MAX.into()) as u16 };
        Self { key, hears, state, tracks }
    }
}
