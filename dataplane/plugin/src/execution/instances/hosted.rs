//! Context of an instance at a worker, with its health: calls, faults, restarts and upgrades.

use std::sync::Arc;

use millrace_packet::{FlowKey, Packet};
use millrace_plugin_abi::{DeclaredCycles, Fault, Instance, MemoryAccount, Output, Verdict};
use millrace_units::{Instant, PrincipalId};

use super::counts::{Counts, InstanceReport};
use super::news::{ContextId, Failure, Given, News};
use super::pace::Paces;
use super::shadow::Shadow;
use crate::CallLimits;
use crate::declaration::limits::Limits;
use crate::execution::health::{Health, Record};
use crate::execution::pulse::Pulse;
use crate::execution::recheck::Malformed;
use crate::fault::FaultKind;
use crate::offload_steps::LoadedVariant;

/// Copy of an instance in one of its contexts at a worker, with its health and counters.
pub(crate) struct Hosted {
    pub id: ContextId,
    pub instance: Box<dyn Instance>,
    pub limits: Limits,
    pub record: Record,
    pub counts: Counts,
    /// Whether the instance may produce output besides verdicts.
    has_output: bool,
    /// Whether the instance may read packets.
    looks: bool,
    /// Whether the instance may change packets.
    pub writes: bool,
    /// Whether the instance needs linear packets.
    pub needs_linear: bool,
    /// Most cycles of a call, as the plugin declares them.
    worst_case: Option<DeclaredCycles>,
    /// Number of packets that a call may have, by its payer.
    pub paces: Paces,
    /// Shadow instance, whose verdicts are compared with this instance's verdicts.
    pub shadow: Option<Box<Shadow>>,
    /// Pulse of the worker: publishes its current instance call.
    pub pulse: Arc<Pulse>,
    /// Loaded eBPF variant of the instance.
    pub variant: Option<LoadedVariant>,
    /// Account of the principal that pays for the memory of the instance.
    memory: Option<Arc<MemoryAccount>>,
}

impl Hosted {
    /// Wraps a new instance, with no faults and all counts at zero.
    pub fn new(id: ContextId, instance: Box<dyn Instance>, limits: Limits, pulse: Arc<Pulse>) -> Self {
        Self {
            has_output: instance.has_output(),
            looks: instance.looks_at_packets(),
            writes: instance.writes_packets(),
            needs_linear: instance.needs_linear_packets(),
            worst_case: instance.worst_case(),
            paces: Paces::new(instance.is_awaited()),
            id,
            instance,
            limits,
            record: Record::default(),
            counts: Counts::default(),
            shadow: None,
            pulse,
            variant: None,
            memory: None,
        }
    }

    /// Calls the instance, and publishes the call in the pulse. Every call that could hang must pass here.
    #[inline]
    pub fn call<R>(&mut self, what: impl FnOnce(&mut dyn Instance) -> R) -> R {
        self.pulse.begin(self.id.instance);
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
        self.counts.fault(&fault);
        if self.is_pausing() {
            news.pause(self.id);
        }
        news.tell(Failure { instance: self.id.instance, fault, health: self.record.health });
    }

    /// Records the fault of leaving a malformed packet.
    #[cold]
    pub fn fail_for(&mut self, malformed: Malformed, now: Instant, news: &mut News) {
        let text = format!("the instance left a malformed packet: {malformed}");
        self.fail(Fault { kind: FaultKind::MalformedPacket.name(), text }, now, news);
    }

    /// Handles a fault in a call without packets: restarts the instance at once, without a pause, so that
    /// packets continue to reach it. Records the fault, but doesn't count it towards quarantine.
    pub fn recover(&mut self, now: Instant, news: &mut News) {
        self.take_outputs(news);
        let Some(fault) = self.instance.take_fault() else { return };
        if let Err(error) = self.call(|instance| instance.restart()) {
            self.fail(Fault { kind: "restart", text: error.to_string() }, now, news);
        }
        self.counts.fault(&fault);
        news.tell(Failure { instance: self.id.instance, fault, health: self.record.health });
    }

    /// Returns the maximum number of packets of a call for which a principal pays. An instance that isn't running
    /// handles all at once.
    #[inline]
    pub fn most_in_call(&self, payer: Option<PrincipalId>) -> usize {
        if self.is_running() { self.paces.most(payer) } else { usize::MAX }
    }

    /// Returns the number of slices that a call with these packets and bytes may take.
    pub fn most_slices(&self, call_limits: &CallLimits, (packets, bytes): (u64, u64)) -> u32 {
        let Limits { slice, frequency, .. } = self.limits;
        let limits = call_limits.with_worst_case(self.worst_case, (packets, bytes), frequency);
        self.record.patience(limits.slices(packets as usize, slice))
    }

    /// Whether the instance neither pauses nor is in quarantine.
    #[inline]
    pub fn is_running(&self) -> bool {
        self.record.health == Health::Well
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

    /// Puts the instance into quarantine, for the reason `why`.
    pub fn quarantine(&mut self, why: String) {
        self.record.quarantine();
        self.counts.quarantine(why);
    }

    /// Returns the time of the instance's next timer call. The call never takes place before the end of a
    /// pause. `None` if the instance has no timer or is in quarantine.
    pub fn next_call(&self) -> Option<Instant> {
        let next = self.instance.next_call()?;
        match self.record.health {
            Health::Well => Some(next),
            Health::Pausing(until) => Some(next.max(until)),
            Health::Quarantined => None,
        }
    }

    /// Replaces the instance by its successor, and returns the old instance. The successor starts without
    /// recorded faults. Collects the outputs of both instances.
    pub fn replace(&mut self, instance: Box<dyn Instance>, news: &mut News) -> Box<dyn Instance> {
        self.take_outputs(news);
        let before = self.counts.counters(&*self.instance);
        let mut instance = instance;
        if let Some(variant) = &self.variant {
            instance.attach_ebpf_variant(variant.memory.clone());
        }
        self.instance.set_memory_account(None);
        instance.set_memory_account(self.memory.clone());
        let old = std::mem::replace(&mut self.instance, instance);
        self.counts.misjudged += old.misjudged();
        self.counts.process += old.process_work();
        self.counts.succeed(&before, &*self.instance);
        (self.has_output, self.record) = (self.instance.has_output(), Record::default());
        self.looks = self.instance.looks_at_packets();
        self.writes = self.instance.writes_packets();
        self.needs_linear = self.instance.needs_linear_packets();
        self.worst_case = self.instance.worst_case();
        self.paces.succeed(self.instance.is_awaited());
        self.take_outputs(news);
        old
    }

    /// Sets or removes the eBPF variant. The instance shares memory with the variant, and keeps that memory
    /// even after the variant's removal.
    pub fn set_variant(&mut self, variant: Option<LoadedVariant>) {
        let known = self.variant.take().map(|variant| variant.memory.id());
        if let Some(variant) = variant.as_ref().filter(|variant| known != Some(variant.memory.id())) {
            self.instance.attach_ebpf_variant(variant.memory.clone());
        }
        self.variant = variant;
    }

    /// Lets the memory of the instance count in the account of the principal that pays for it, or in none.
    pub fn set_memory_account(&mut self, account: Option<Arc<MemoryAccount>>) {
        self.instance.set_memory_account(account.clone());
        self.memory = account;
    }

    /// Returns the account of the principal that pays for the memory of the instance.
    pub fn memory_account(&self) -> Option<Arc<MemoryAccount>> {
        self.memory.clone()
    }

    /// Returns the instance, whose memory counts in no account from now on.
    pub fn into_instance(mut self) -> Box<dyn Instance> {
        self.instance.set_memory_account(None);
        self.instance
    }

    /// Copies the packets of a call for the shadow, before the instance processes them. `payer`: principal that pays
    /// for the call.
    #[inline]
    pub fn show_shadow(
        &mut self,
        packets: (&[Packet], &[FlowKey]),
        members: &[u16],
        payer: Option<PrincipalId>,
    ) {
        if let Some(shadow) = &mut self.shadow {
            shadow.watch(packets, members, payer);
        }
    }

    /// Runs the shadow on its copies after the instance has decided about the packets of a call. Drops a shadow that
    /// has no packets left to compare.
    #[inline]
    pub fn run_shadow(&mut self, packets: &[Packet], members: &[u16], verdicts: &[Verdict], now: Instant) {
        let slice = self.limits.slice;
        self.call_shadow(|shadow| shadow.compare(packets, members, verdicts, (now, slice)));
    }

    /// Looks for the answer of the process that runs the shadow's call.
    pub fn look_at_shadow(&mut self, now: Instant) {
        self.call_shadow(|shadow| shadow.look(now));
    }

    /// Calls the shadow, if there is one, and publishes the call in the pulse. Drops a shadow that has ended.
    #[inline]
    fn call_shadow(&mut self, goes_on: impl FnOnce(&mut Shadow) -> bool) {
        if let Some(shadow) = self.shadow.as_deref_mut() {
            self.pulse.begin(self.id.instance);
            let goes_on = goes_on(shadow);
            self.pulse.end();
            if !goes_on {
                self.shadow = None;
            }
        }
    }

    /// Ends the comparison of a call that the instance has not completed.
    pub fn forget_shadow_call(&mut self) {
        if let Some(shadow) = self.shadow.as_mut().filter(|shadow| shadow.awaited().is_none()) {
            shadow.forget_call();
        }
    }

    /// Whether the instance or its shadow may read packets.
    pub fn looks_at_packets(&self) -> bool {
        self.looks || self.shadow.is_some()
    }

    /// Returns the instance's report.
    pub fn report(&self) -> InstanceReport {
        self.counts.report(&*self.instance, self.record.health)
    }

    /// Resets drop counts and counters to zero.
    pub fn clear_counts(&mut self) {
        self.counts.clear(&*self.instance);
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
            self.counts.messages.sent += u64::from(matches!(output, Output::Message(_)));
            let (ContextId { instance, number: context }, payer) = (self.id, news.payer);
            news.give(Given { instance, context, payer, output });
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
