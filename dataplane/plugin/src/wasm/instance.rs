//! An instance of a WebAssembly plugin, as the worker sees it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use millrace_plugin_abi::{FlowEnd, Instance, Instant, Message, Packets, PluginError, Progress, Reply};
use serde_json::{Map, Value};

use super::exchange::{Job, Shared};
use super::fault::{Fault, FaultCounts, FaultKind, OnFault};
use super::life;
use super::sandbox::WasmPlugin;
use super::services::{NoServices, Services};
use super::staging::{Call, WrongVerdict, raw_flow_end, settle};

/// Bytes of memory of an instance, unless it is said otherwise.
pub const DEFAULT_MEMORY: usize = 4 << 20;
/// Slices that a message, or a beginning, may take.
const MOST_SLICES: usize = 100;

/// What an instance begins with.
pub struct InstanceSettings {
    /// The plugin's settings; empty for its defaults.
    pub settings: Map<String, Value>,
    /// What becomes of packets that it can't handle.
    pub on_fault: OnFault,
    /// Bytes of memory, at most.
    pub most_memory: usize,
    /// What the router does for it.
    pub services: Box<dyn Services>,
}

impl Default for InstanceSettings {
    fn default() -> Self {
        Self {
            settings: Map::new(),
            on_fault: OnFault::default(),
            most_memory: DEFAULT_MEMORY,
            services: Box::new(NoServices),
        }
    }
}

impl fmt::Debug for InstanceSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InstanceSettings")
            .field("settings", &self.settings)
            .field("on_fault", &self.on_fault)
            .field("most_memory", &self.most_memory)
            .finish_non_exhaustive()
    }
}

/// What an instance counts of itself. Those of all its lives are added up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InstanceCounts {
    /// Faults by kind.
    pub faults: FaultCounts,
    /// How often it wanted more memory than it may have.
    pub memory_refused: u64,
    /// Lines of the log beyond ten a second.
    pub lines_suppressed: u64,
    /// Ends of flows that it was not told of, being too busy.
    pub flow_ends_lost: u64,
    /// Slices after which it was stopped in the middle.
    pub suspensions: u64,
}

/// An instance of a WebAssembly plugin.
///
/// One that trapped is dead: its packets get what [`InstanceSettings::on_fault`] says, until
/// [`restart`](Self::restart).
pub struct WasmInstance {
    plugin: WasmPlugin,
    /// The plugin's life; `None` when it is over. Dropped before `shared`, of which it has the other handle.
    life: Option<Pin<Box<dyn Future<Output = Fault> + Send>>>,
    shared: Shared,
    settings: Vec<u8>,
    most_memory: usize,
    on_fault: OnFault,
    fault: Option<Fault>,
    /// Whether the fault was told, or there is none.
    told: bool,
    suspensions: u64,
    last_periodic: Option<Instant>,
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
    /// A new instance, which has begun with its settings.
    ///
    /// # Errors
    /// [`Fault`] when it refuses to begin ([`FaultKind::Init`]), traps, or takes more than 100 slices.
    pub fn new(plugin: &WasmPlugin, settings: InstanceSettings) -> Result<Self, Fault> {
        let InstanceSettings { settings, on_fault, most_memory, services } = settings;
        check(plugin, &settings)?;
        let settings = serde_json::to_vec(&settings)
            .map_err(|error| Fault::new(FaultKind::Init, format!("its settings are no JSON: {error}")))?;
        let mut instance = Self {
            plugin: plugin.clone(),
            life: None,
            shared: Shared::new(on_fault, services),
            settings,
            most_memory,
            on_fault,
            fault: None,
            told: true,
            suspensions: 0,
            last_periodic: None,
        };
        instance.restart()?;
        Ok(instance)
    }

    /// Ends the plugin, if it lives, and begins it anew from the same code and settings. What it counted stays.
    ///
    /// # Errors
    /// As of [`new`](Self::new); the instance is dead then.
    pub fn restart(&mut self) -> Result<(), Fault> {
        self.life = None;
        (self.fault, self.told) = (None, true);
        self.last_periodic = None;
        self.shared.with(|exchange| exchange.restart());
        let (plugin, settings) = (self.plugin.clone(), self.settings.clone());
        self.life = Some(Box::pin(life::run(plugin, self.shared.for_store(), settings, self.most_memory)));
        if !self.finish() {
            self.overrun("its beginning");
        }
        self.fault.clone().map_or(Ok(()), Err)
    }

    /// The code that it runs.
    pub fn plugin(&self) -> &WasmPlugin {
        &self.plugin
    }

    /// What ended it; `None` while it lives.
    pub fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    /// The latest verdict of it that made no sense.
    pub fn wrong_verdict(&self) -> Option<WrongVerdict> {
        self.shared.with(|exchange| exchange.wrong)
    }

    /// What it counted.
    pub fn counts(&self) -> InstanceCounts {
        self.shared.with(|exchange| InstanceCounts {
            faults: exchange.faults,
            memory_refused: exchange.memory_refused,
            lines_suppressed: exchange.lines_suppressed(),
            flow_ends_lost: exchange.ends_lost,
            suspensions: self.suspensions,
        })
    }

    /// Whether a call with packets was stopped in the middle and has to be resumed.
    pub fn is_suspended(&self) -> bool {
        self.shared.with(|exchange| exchange.call.active)
    }

    /// When [`periodic`](Self::periodic) is to be called next; `None` when it isn't.
    pub fn due(&self) -> Option<Instant> {
        let timer = self.shared.with(|exchange| exchange.timer);
        let period = self.plugin.manifest().period;
        let regular = period.map(|period| self.last_periodic.map_or(Instant::ZERO, |last| last + period));
        match (timer, regular) {
            (Some(timer), Some(regular)) => Some(timer.min(regular)),
            (one, other) => one.or(other),
        }
    }

    /// Calls `millrace_periodic`: now, or when the call that goes on is done.
    pub fn periodic(&mut self, now: Instant) {
        let regular = self.plugin.manifest().period.is_some();
        self.last_periodic = regular.then_some(now);
        let waits = self.shared.with(|exchange| {
            exchange.timer = exchange.timer.filter(|timer| *timer > now);
            exchange.periodic = Some(now);
            if !exchange.call.active {
                exchange.call.now = now;
            }
            exchange.call.active
        });
        if !waits {
            self.poll();
        }
    }

    /// Has it hand over its state, to be restored in its place by another one.
    ///
    /// # Errors
    /// [`PluginError`] when it saves none, fails, or is in the middle of a call.
    pub fn save(&mut self) -> Result<Vec<u8>, PluginError> {
        self.work(Job::Save).map_err(|problem| self.refusal("save", problem))
    }

    /// Has it take over state that was saved under a `version` of its manifest's `state-version`.
    ///
    /// # Errors
    /// [`PluginError`] when it takes none over, fails, or is in the middle of a call.
    pub fn restore(&mut self, state: Vec<u8>, version: u32) -> Result<(), PluginError> {
        let restored = self.work(Job::Restore { state, version });
        restored.map(drop).map_err(|problem| self.refusal("restore", problem))
    }

    fn refusal(&self, what: &str, problem: String) -> PluginError {
        PluginError::setting(self.plugin.name(), what, problem)
    }

    /// Runs the plugin until its slice is over or it has nothing to do. `false` when it is dead.
    #[inline]
    fn poll(&mut self) -> bool {
        let Some(life) = &mut self.life else { return false };
        self.shared.with(|exchange| exchange.idle = false);
        let ticker = self.plugin.sandbox().ticker();
        let polled = ticker.during(|| life.as_mut().poll(&mut Context::from_waker(Waker::noop())));
        match polled {
            Poll::Pending => true,
            Poll::Ready(fault) => {
                self.die(fault);
                false
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

    fn is_idle(&self) -> bool {
        self.shared.with(|exchange| exchange.idle)
    }

    /// Runs the plugin until it has nothing to do or is dead; `false` when 100 slices were not enough.
    fn finish(&mut self) -> bool {
        (0..MOST_SLICES).any(|_| !self.poll() || self.is_idle())
    }

    /// Has the plugin do a job to its end.
    fn work(&mut self, job: Job) -> Result<Vec<u8>, String> {
        if let Some(fault) = &self.fault {
            return Err(format!("it is dead: {fault}"));
        }
        if self.is_suspended() {
            return Err("it is in the middle of a call with packets; ask again".to_owned());
        }
        self.shared.with(|exchange| (exchange.job, exchange.outcome) = (Some(job), None));
        if !self.finish() {
            self.overrun("it");
        }
        let outcome = self.shared.with(|exchange| exchange.outcome.take());
        match (outcome, &self.fault) {
            (Some(outcome), _) => outcome,
            (None, Some(fault)) => Err(format!("it is dead: {fault}")),
            (None, None) => Err("it gave no answer".to_owned()),
        }
    }

    /// Goes on with a call.
    #[inline]
    fn go_on(&mut self, packets: &mut Packets<'_>) -> Progress {
        let Self { life, shared, plugin, .. } = self;
        let Some(life) = life else { return Progress::Done };
        // What it said last no longer counts: it may be stopped before it asks what is next.
        shared.with(|exchange| exchange.idle = false);
        let ticker = plugin.sandbox().ticker();
        let mut context = Context::from_waker(Waker::noop());
        let polled = shared.lend(packets, || ticker.during(|| life.as_mut().poll(&mut context)));
        match polled {
            Poll::Pending if self.is_idle() => Progress::Done,
            Poll::Pending => {
                self.suspensions = self.suspensions.saturating_add(1);
                Progress::Suspended
            }
            Poll::Ready(fault) => {
                let settled = self.shared.with(|exchange| exchange.call.settled);
                self.die(fault);
                settle(packets, settled, self.on_fault);
                Progress::Done
            }
        }
    }
}

/// Refuses settings that the plugin can't take, and what this router doesn't keep for it.
fn check(plugin: &WasmPlugin, settings: &Map<String, Value>) -> Result<(), Fault> {
    let manifest = plugin.manifest();
    let problem = match settings.keys().next() {
        Some(key) if manifest.settings.is_none() => format!("there is no setting {key:?}: it takes none"),
        _ if manifest.flow_state > 0 => {
            "it wants state for each flow, which the router doesn't keep".to_owned()
        }
        _ => return Ok(()),
    };
    Err(Fault::new(FaultKind::Init, problem))
}

impl Instance for WasmInstance {
    fn process(&mut self, packets: &mut Packets<'_>, now: Instant) -> Progress {
        if self.is_suspended() {
            self.overrun("a call that was not resumed");
        }
        if self.life.is_none() {
            settle(packets, 0, self.on_fault);
            return Progress::Done;
        }
        self.shared.with(|exchange| exchange.call = Call::begin(now));
        self.go_on(packets)
    }

    fn resume(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        if self.is_suspended() { self.go_on(packets) } else { Progress::Done }
    }

    fn abort(&mut self) {
        self.overrun("a call with packets");
    }

    fn take_fault(&mut self) -> Option<millrace_plugin_abi::Fault> {
        let wrong = self.shared.with(|exchange| exchange.untold.take());
        if let Some(wrong) = wrong {
            let (kind, text) = (FaultKind::WrongVerdict.name(), wrong.to_string());
            return Some(millrace_plugin_abi::Fault { kind, text });
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
        let known = &self.plugin.manifest().messages;
        if !known.contains_key(&message.name) {
            let known: Vec<_> = known.keys().map(String::as_str).collect();
            let (plugin, message) = (self.plugin.name(), message.name.clone());
            return Err(PluginError::UnknownMessage { plugin, message, known: known.join(", ") });
        }
        let name = message.name.clone();
        let reply = serde_json::to_vec(&message.arguments)
            .map_err(|error| format!("its arguments are no JSON: {error}"))
            .and_then(|arguments| self.work(Job::Control { name, arguments }))
            .and_then(|reply| match reply.as_slice() {
                [] => Ok(Value::Null),
                json => {
                    serde_json::from_slice(json).map_err(|error| format!("its reply is no JSON: {error}"))
                }
            });
        reply.map_err(|problem| self.refusal(&message.name, problem))
    }

    fn flow_ended(&mut self, flow: &FlowEnd) {
        if self.life.is_none() {
            return;
        }
        let waits = self.shared.with(|exchange| {
            exchange.push_end(raw_flow_end(flow));
            exchange.call.active
        });
        if !waits {
            self.poll();
        }
    }

    fn hears_flow_ends(&self) -> bool {
        let export = millrace_plugin_abi::binary::export::FLOW_ENDED;
        self.plugin.linked().module().get_export(export).is_some()
    }
}

#[cfg(test)]
mod tests;
