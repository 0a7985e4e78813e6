//! Worker-side instance of a WebAssembly plugin.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use millrace_plugin_abi::binary::export;
use millrace_plugin_abi::{
    FlowEnd, Instance, Instant, MapHandle, Message, Output, Packets, PluginError, Progress, Reply,
};
use serde_json::{Map, Value};

use super::code::WasmPlugin;
use super::life;
use super::sandbox::DEFAULT_MEMORY;
use super::ticker::Calls;
use crate::declaration::declared::{
    arguments, check, due, has_output, has_timers, parse_reply, writes_packets,
};
use crate::fault::{Fault, FaultCounts, FaultKind};
use crate::runtime::exchange::{Call, Exchange, Job, Shared};
use crate::runtime::raw_packet::{WrongVerdict, raw_flow_end, settle};

/// Maximum number of slices of a control message or of the plugin's initialization.
const MOST_SLICES: usize = 100;

/// Settings of a new instance.
#[derive(Clone, Debug)]
pub struct InstanceSettings {
    /// Settings of the plugin; empty for its defaults.
    pub settings: Map<String, Value>,
    /// Maximum bytes of memory.
    pub most_memory: usize,
}

impl Default for InstanceSettings {
    fn default() -> Self {
        Self { settings: Map::new(), most_memory: DEFAULT_MEMORY }
    }
}

/// Counters of an instance, over all its restarts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InstanceCounts {
    /// Number of faults by kind.
    pub faults: FaultCounts,
    /// Number of refused requests for more memory than the limit.
    pub memory_refused: u64,
    /// Number of log lines beyond ten per second.
    pub lines_suppressed: u64,
    /// Number of flow ends that the busy instance missed.
    pub flow_ends_lost: u64,
    /// Number of slices after which the instance was suspended.
    pub suspensions: u64,
}

/// Instance of a WebAssembly plugin.
///
/// An instance that trapped is dead: its packets get [`Verdict::Fault`](millrace_plugin_abi::Verdict::Fault)
/// until [`restart`](Self::restart).
pub struct WasmInstance {
    plugin: WasmPlugin,
    /// Calls of the instance, as the plugin clock sees them.
    calls: Arc<Calls>,
    /// Future that runs the plugin; `None` for a dead instance. Dropped before `shared`, as it holds the
    /// other handle of `shared`.
    life: Option<Pin<Box<dyn Future<Output = Fault> + Send>>>,
    shared: Shared,
    settings: Vec<u8>,
    most_memory: usize,
    fault: Option<Fault>,
    /// Whether the fault was reported, or no fault exists.
    told: bool,
    suspensions: u64,
    last_periodic: Option<Instant>,
    /// Name of the control message in progress.
    asked: Option<String>,
}

impl fmt::Debug for WasmInstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WasmInstance")
            .field("plugin", &self.plugin)
            .field("fault", &self.fault)
            .finish_non_exhaustive()
    }
}

impl WasmInstance {
    /// Creates an instance and initializes the plugin with its settings.
    ///
    /// # Errors
    /// [`Fault`] if the plugin refuses to begin ([`FaultKind::Init`]), traps, or takes more than 100 slices.
    pub fn new(plugin: &WasmPlugin, settings: InstanceSettings) -> Result<Self, Fault> {
        let InstanceSettings { settings, most_memory } = settings;
        check(plugin.manifest(), &settings)?;
        let settings = serde_json::to_vec(&settings).map_err(|error| {
            Fault::new(FaultKind::Init, format!("its settings are not valid JSON: {error}"))
        })?;
        let mut instance = Self {
            plugin: plugin.clone(),
            calls: plugin.sandbox().ticker().caller(),
            life: None,
            shared: Shared::new(plugin.manifest()),
            settings,
            most_memory,
            fault: None,
            told: true,
            suspensions: 0,
            last_periodic: None,
            asked: None,
        };
        instance.restart()?;
        Ok(instance)
    }

    /// Ends the plugin if it lives, and starts it again with the same settings. The counters stay.
    ///
    /// # Errors
    /// As for [`new`](Self::new); the instance is dead in this case.
    pub fn restart(&mut self) -> Result<(), Fault> {
        self.life = None;
        (self.fault, self.told) = (None, true);
        (self.last_periodic, self.asked) = (None, None);
        self.shared.with(|exchange| exchange.restart());
        let (plugin, settings) = (self.plugin.clone(), self.settings.clone());
        self.life = Some(Box::pin(life::run(plugin, self.shared.for_store(), settings, self.most_memory)));
        if !self.finish() {
            self.overrun("its initialization");
        }
        self.fault.clone().map_or(Ok(()), Err)
    }

    /// Returns the code of the instance.
    pub fn plugin(&self) -> &WasmPlugin {
        &self.plugin
    }

    /// Returns the fault that ended the instance; `None` for a live instance.
    pub fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    /// Returns the latest wrong verdict; `None` if all were valid.
    pub fn wrong_verdict(&self) -> Option<WrongVerdict> {
        self.shared.with(|exchange| exchange.wrong)
    }

    /// Returns the counters.
    pub fn counts(&self) -> InstanceCounts {
        self.shared.with(|exchange| InstanceCounts {
            faults: exchange.faults,
            memory_refused: exchange.memory_refused,
            lines_suppressed: exchange.lines_suppressed(),
            flow_ends_lost: exchange.ends_lost,
            suspensions: self.suspensions,
        })
    }

    /// Whether a call with packets is suspended and waits for `resume`.
    pub fn is_suspended(&self) -> bool {
        self.shared.with(|exchange| exchange.call.active)
    }

    /// Returns the time of the next call of `millrace_periodic`; `None` without such a call.
    fn due(&self) -> Option<Instant> {
        self.life.as_ref()?;
        let timer = self.shared.with(|exchange| exchange.timer);
        due(self.plugin.manifest(), timer, self.last_periodic)
    }

    fn exports(&self, name: &str) -> bool {
        self.plugin.linked().module().get_export(name).is_some()
    }

    fn why_dead(&self) -> String {
        match &self.fault {
            Some(fault) => format!("the instance failed, and restarts after a pause: {fault}"),
            None => "the plugin gave no answer".to_owned(),
        }
    }

    /// Converts a control message into a job of the plugin.
    fn control_job(&self, message: &Message) -> Result<Job, PluginError> {
        let arguments = arguments(self.plugin.name(), self.plugin.manifest(), message)?;
        Ok(Job::Control { name: message.name.clone(), arguments })
    }

    fn refusal(&self, what: &str, problem: String) -> PluginError {
        PluginError::setting(self.plugin.name(), what, problem)
    }

    /// Continues a call with packets. A dead plugin decides no packet.
    #[inline]
    fn go_on_with(&mut self, packets: &mut Packets<'_>) -> Progress {
        if self.life.is_none() {
            self.shared.with(|exchange| exchange.call = Call::default());
            settle(packets, 0);
        }
        self.go_on(Some(packets))
    }

    /// Runs the plugin for about one slice: new work, and the call in progress. `packets` are the packets of
    /// that call. Returns [`Progress::Done`] if the plugin has no work left or is dead.
    #[inline]
    fn go_on(&mut self, mut packets: Option<&mut Packets<'_>>) -> Progress {
        let Self { life: Some(life), shared, plugin, calls, suspensions, .. } = self else {
            return Progress::Done;
        };
        let running = plugin.sandbox().ticker().start(calls);
        let poll = || life.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let (polled, idle) = shared.give_time(packets.as_deref_mut(), running.since(), poll);
        drop(running);
        match polled {
            Poll::Pending if idle => Progress::Done,
            Poll::Pending => {
                *suspensions = suspensions.saturating_add(1);
                Progress::Suspended
            }
            Poll::Ready(fault) => {
                let settled = shared.with(|exchange| exchange.call.settled);
                self.die(fault);
                packets.into_iter().for_each(|packets| settle(packets, settled));
                Progress::Done
            }
        }
    }

    #[cold]
    fn die(&mut self, fault: Fault) {
        self.life = None;
        self.shared.with(|exchange| {
            exchange.faults.count(fault.kind);
            exchange.restart();
        });
        (self.fault, self.told) = (Some(fault), false);
    }

    #[cold]
    fn overrun(&mut self, what: &str) {
        if self.life.is_some() {
            self.die(Fault::new(FaultKind::Overrun, format!("{what} took too long and was aborted")));
        }
    }

    /// Runs the plugin until it has no work left or is dead; returns `false` if 100 slices were not enough.
    fn finish(&mut self) -> bool {
        (0..MOST_SLICES).any(|_| self.go_on(None) == Progress::Done)
    }

    /// Runs a job of the plugin to its end.
    fn work(&mut self, job: Job) -> Result<Vec<u8>, String> {
        if self.life.is_none() {
            return Err(self.why_dead());
        }
        // The plugin first finishes calls in progress, such as flow ends.
        if self.is_suspended() || self.asked.is_some() {
            return Err("the instance is in the middle of a call; try again".to_owned());
        }
        self.shared.with(|exchange| (exchange.job, exchange.outcome) = (Some(job), None));
        if !self.finish() {
            self.overrun("it");
        }
        let outcome = self.shared.with(|exchange| exchange.outcome.take());
        outcome.unwrap_or_else(|| Err(self.why_dead()))
    }
}

impl Instance for WasmInstance {
    fn process(&mut self, packets: &mut Packets<'_>, now: Instant) -> Progress {
        let before = self.shared.with(|exchange| std::mem::replace(&mut exchange.call, Call::begin(now)));
        if before.active {
            self.overrun("a call that was not resumed");
        }
        self.go_on_with(packets)
    }

    fn writes_packets(&self) -> bool {
        writes_packets(self.plugin.manifest())
    }

    fn resume(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        self.go_on_with(packets)
    }

    fn abort(&mut self) {
        self.overrun("a call");
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.shared.with(|exchange| exchange.counters())
    }

    fn take_fault(&mut self) -> Option<millrace_plugin_abi::Fault> {
        let lived = self.shared.with(Exchange::take_fault);
        if lived.is_some() {
            return lived;
        }
        if std::mem::replace(&mut self.told, true) {
            return None;
        }
        let fault = self.fault.as_ref()?;
        Some(millrace_plugin_abi::Fault { kind: fault.kind.name(), text: fault.text.clone() })
    }

    fn restart(&mut self) -> Result<(), PluginError> {
        Self::restart(self).map_err(|fault| self.refusal("restart", fault.to_string()))
    }

    fn control(&mut self, message: &Message) -> Reply {
        let reply = self.control_job(message)?;
        let reply = self.work(reply).and_then(|reply| parse_reply(&reply));
        reply.map_err(|problem| self.refusal(&message.name, problem))
    }

    fn begin_control(&mut self, message: &Message) -> Option<Reply> {
        let job = match self.control_job(message) {
            Ok(job) if self.life.is_some() => job,
            Ok(_) => return Some(Err(self.refusal(&message.name, self.why_dead()))),
            Err(refused) => return Some(Err(refused)),
        };
        self.asked = Some(message.name.clone());
        self.shared.with(|exchange| (exchange.job, exchange.outcome) = (Some(job), None));
        match self.go_on(None) {
            Progress::Suspended => None,
            Progress::Done => self.take_reply(),
        }
    }

    fn take_reply(&mut self) -> Option<Reply> {
        let asked = self.asked.take()?;
        let outcome = self.shared.with(|exchange| exchange.outcome.take());
        let outcome = outcome.unwrap_or_else(|| Err(self.why_dead()));
        let reply = outcome.and_then(|reply| parse_reply(&reply));
        Some(reply.map_err(|problem| self.refusal(&asked, problem)))
    }

    fn next_call(&self) -> Option<Instant> {
        self.due()
    }

    fn has_timers(&self) -> bool {
        has_timers(self.plugin.manifest())
    }

    fn periodic(&mut self, now: Instant) -> Progress {
        let regular = self.plugin.manifest().period.is_some();
        self.last_periodic = regular.then_some(now);
        self.shared.with(|exchange| {
            exchange.timer = exchange.timer.filter(|timer| *timer > now);
            exchange.periodic = Some(now);
            exchange.call.now = now;
        });
        self.go_on(None)
    }

    fn message(&mut self, bytes: &[u8]) -> Progress {
        if self.life.is_none() {
            return Progress::Done;
        }
        let job = Job::Message(bytes.to_vec());
        self.shared.with(|exchange| (exchange.job, exchange.outcome) = (Some(job), None));
        self.go_on(None)
    }

    fn take_output(&mut self) -> Option<Output> {
        self.shared.with(Exchange::take_output)
    }

    fn has_output(&self) -> bool {
        has_output(self.plugin.manifest())
    }

    fn flow_state(&self) -> usize {
        self.plugin.manifest().flow_state.into()
    }

    fn service_state(&self) -> Vec<u8> {
        self.shared.with(|exchange| exchange.service.to_vec())
    }

    fn adopt_service_state(&mut self, state: &[u8]) {
        self.shared.with(|exchange| exchange.service.adopt(state));
    }

    fn attach_maps(&mut self, maps: Vec<MapHandle>) {
        self.shared.with(|exchange| exchange.maps.attach(maps));
    }

    fn save(&mut self) -> Result<Option<Vec<u8>>, PluginError> {
        if !self.exports(export::SAVE) {
            return Ok(None);
        }
        self.work(Job::Save).map(Some).map_err(|problem| self.refusal("save", problem))
    }

    fn restore(&mut self, state: &[u8], version: u32) -> Result<(), PluginError> {
        let restored = self.work(Job::Restore { state: state.to_vec(), version });
        restored.map(drop).map_err(|problem| self.refusal("restore", problem))
    }

    fn flow_ended(&mut self, flow: &FlowEnd, state: &[u8]) -> Progress {
        if self.life.is_none() {
            return Progress::Done;
        }
        self.shared.with(|exchange| exchange.push_end(raw_flow_end(flow), state));
        // A busy plugin receives the end of the flow after its current call.
        if self.shared.with(|exchange| exchange.idle) { self.go_on(None) } else { Progress::Done }
    }

    fn hears_flow_ends(&self) -> bool {
        self.exports(export::FLOW_ENDED)
    }
}

#[cfg(test)]
mod tests;
