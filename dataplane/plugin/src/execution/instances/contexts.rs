//! Contexts of an instance at a worker: copies of the instance, each with memory and a call of its own.
//!
//! A flow belongs to a context, so its packets keep their order. A suspended call blocks only the flows of its
//! context. Each context pauses alone after a fault. But the faults of all contexts together lead to
//! quarantine, and overruns of one context shorten the calls of all.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;
use millrace_packet::FlowKey;
use millrace_plugin_abi::{Instance, MemoryAccount};
use millrace_units::{InstanceId, Instant, PrincipalId};

use super::counts::InstanceReport;
use super::hosted::Hosted;
use super::news::{ContextId, News};
use crate::execution::health::{FaultHistory, Health};
use crate::offload_steps::LoadedVariant;
use crate::slab::Key;

/// Key of a context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ContextKey {
    /// Instance of the context.
    pub instance: Key,
    /// Number of the context within its instance, from 0.
    pub number: u8,
}

impl ContextKey {
    /// Returns the key of an instance's first context, which always exists.
    pub fn first(instance: Key) -> Self {
        Self { instance, number: 0 }
    }
}

/// Returns the number of the context to which a flow belongs, of `contexts` contexts. Both directions of a connection
/// belong to the same context.
///
/// The hash needs no secret seed: a sender that shares a context with another flow delays it by no more than
/// it would without contexts.
pub(crate) fn context_of(flow: &FlowKey, contexts: u8) -> u8 {
    if contexts <= 1 {
        return 0;
    }
    let source = (flow.source_bytes(), flow.source_port);
    let destination = (flow.destination_bytes(), flow.destination_port);
    let ends = (source.min(destination), source.max(destination), flow.protocol);
    (FixedState::default().hash_one(ends) % u64::from(contexts)) as u8
}

/// All contexts of an instance: one or more.
pub(crate) struct Contexts {
    /// Key with which the instance was added. An upgrade may give it another key, but this one stays.
    origin: Key,
    first: Hosted,
    further: Vec<Hosted>,
    /// Number of the context that was called last. It has the fault history of the instance.
    latest: u8,
    /// Principals that pay for bindings of the instance, each with the number of its bindings. `None`: nobody pays.
    payers: Vec<(Option<PrincipalId>, u32)>,
}

impl Contexts {
    /// Creates the only context of a new instance.
    pub fn new(origin: Key, first: Hosted) -> Self {
        Self { origin, first, further: Vec::new(), latest: 0, payers: Vec::new() }
    }

    /// Adds a context with a copy of the instance.
    pub fn add(&mut self, instance: Box<dyn Instance>) {
        let id = ContextId { number: self.count(), ..self.first.id };
        let mut hosted = Hosted::new(id, instance, self.first.limits, self.first.pulse.clone());
        // Counts that the copy already has, for instance from an earlier run, are not added.
        hosted.clear_counts();
        hosted.set_variant(self.first.variant.clone());
        hosted.set_memory_account(self.first.memory_account());
        hosted.paces = self.first.paces.renewed(hosted.paces.is_awaited());
        self.further.push(hosted);
    }

    /// Returns the number of contexts.
    #[inline]
    pub fn count(&self) -> u8 {
        1 + self.further.len() as u8
    }

    /// Returns the first context, which stands for the properties that all contexts have in common.
    #[inline]
    pub fn first(&self) -> &Hosted {
        &self.first
    }

    /// Returns a context for a call or a change. It gets the fault history of the instance.
    #[inline]
    pub fn get_mut(&mut self, number: u8) -> Option<&mut Hosted> {
        if self.further.is_empty() {
            return Some(&mut self.first).filter(|_| number == 0);
        }
        self.select(number)
    }

    fn select(&mut self, number: u8) -> Option<&mut Hosted> {
        if number >= self.count() {
            return None;
        }
        let latest = std::mem::replace(&mut self.latest, number);
        let record = self.iter().nth(latest.into()).map(|hosted| hosted.record);
        let selected = self.iter_mut().nth(number.into())?;
        if let Some(record) = record.filter(|_| latest != number) {
            selected.record.follow(&record);
        }
        Some(selected)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Hosted> {
        std::iter::once(&self.first).chain(&self.further)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Hosted> {
        std::iter::once(&mut self.first).chain(&mut self.further)
    }

    /// Returns the worst health of a context at a time.
    pub fn health(&self, now: Instant) -> Health {
        self.iter().map(|hosted| hosted.record.health.at(now)).max().unwrap_or_default()
    }

    /// Whether the worker may need flow keys: an instance or shadow reads packets, or a flow's context is
    /// needed.
    pub fn looks_at_packets(&self) -> bool {
        !self.further.is_empty() || self.first.looks_at_packets()
    }

    /// Returns the report of the instance: the sum over its contexts, with their worst health.
    pub fn report(&self) -> InstanceReport {
        let mut report = self.first.report();
        self.further.iter().for_each(|hosted| report.add(hosted.report()));
        report
    }

    /// Sets or removes the eBPF variant of the instance. All contexts share its memory.
    pub fn set_variant(&mut self, variant: Option<LoadedVariant>) {
        self.iter_mut().for_each(|hosted| hosted.set_variant(variant.clone()));
    }

    /// Returns the instance's copies, in the order of the contexts.
    pub fn into_instances(self) -> Vec<Box<dyn Instance>> {
        std::iter::once(self.first).chain(self.further).map(Hosted::into_instance).collect()
    }

    /// Replaces the copies of the instance by those of a successor, one for each context. The successor may
    /// have more or fewer contexts than the instance. The counts of a context that ends are added to those of
    /// the first one. Returns the old copies. Collects the outputs of all copies.
    pub fn replace(&mut self, successors: Vec<Box<dyn Instance>>, news: &mut News) -> Vec<Box<dyn Instance>> {
        let count = successors.len().max(1);
        let mut successors = successors.into_iter();
        let mut old = Vec::with_capacity(count.max(self.count().into()));
        for hosted in self.iter_mut() {
            let Some(successor) = successors.next() else { break };
            old.push(hosted.replace(successor, news));
        }
        for mut ended in self.further.drain(self.further.len().min(count - 1)..) {
            ended.take_outputs(news);
            self.first.counts.absorb(ended.report());
            old.push(ended.into_instance());
        }
        successors.for_each(|successor| self.add(successor));
        self.latest = 0;
        old
    }

    /// Gives the contexts the faults that they had before an upgrade which failed: an instance in quarantine stays
    /// there, and one that pauses restarts at its time.
    pub fn restore(&mut self, FaultHistory(records): FaultHistory, news: &mut News) {
        for (hosted, record) in self.iter_mut().zip(records) {
            hosted.record = record;
            if hosted.is_pausing() {
                news.pause(hosted.id);
            }
        }
    }

    /// Notes that a binding of the instance has begun (`is_new`) or ended. Returns the principal that pays for all
    /// its bindings, if there is one.
    pub fn note_binding(&mut self, payer: Option<PrincipalId>, is_new: bool) -> Option<PrincipalId> {
        let place = self.payers.iter().position(|(known, _)| *known == payer);
        match (place.and_then(|place| self.payers.get_mut(place)), is_new) {
            (Some((_, bindings)), true) => *bindings += 1,
            (Some((_, bindings)), false) => *bindings = bindings.saturating_sub(1),
            (None, true) => self.payers.push((payer, 1)),
            (None, false) => {}
        }
        self.payers.retain(|(_, bindings)| *bindings > 0);
        let pays = self.payers.iter().any(|(known, _)| *known == payer);
        self.iter_mut()
            .for_each(|hosted| if pays { hosted.paces.add(payer) } else { hosted.paces.forget(payer) });
        self.payer()
    }

    /// Returns the principal that pays for all bindings of the instance, if there is one.
    #[inline]
    pub fn payer(&self) -> Option<PrincipalId> {
        match self.payers.as_slice() {
            [(payer, _)] => *payer,
            _ => None,
        }
    }

    /// Forgets the calls of a removed principal.
    pub fn forget_payer(&mut self, payer: PrincipalId) {
        for hosted in self.iter_mut() {
            hosted.paces.forget(Some(payer));
            if let Some(shadow) = &mut hosted.shadow {
                shadow.forget_payer(payer);
            }
        }
    }

    /// Lets the memory of all contexts count in the account of a principal, or in none.
    pub fn set_memory_account(&mut self, account: Option<&Arc<MemoryAccount>>) {
        self.iter_mut().for_each(|hosted| hosted.set_memory_account(account.cloned()));
    }

    /// Returns the key with which the instance was added.
    pub fn origin(&self) -> Key {
        self.origin
    }

    /// Returns the id of the instance.
    pub fn id(&self) -> InstanceId {
        self.first.id.instance
    }
}
