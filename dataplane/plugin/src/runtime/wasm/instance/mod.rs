//! Worker-side instance of a WebAssembly plugin.

mod process;

use std::fmt;
use std::sync::Arc;

use millrace_plugin_abi::binary::export;
use millrace_plugin_abi::{
    DeclaredCycles, FlowEnd, Instance, Instant, MemoryAccount, Message, Packets, PluginError, Progress, Reply,
};
use serde_json::{Map, Value};

use super::code::WasmPlugin;
use super::sandbox::DEFAULT_MEMORY;
use crate::Manifest;
use crate::declaration::declared::{arguments, parse_reply, settings_json, writes_packets};
use crate::fault::Fault;
use crate::runtime::exchange::{Call, Exchange, Job, Shared};
use crate::runtime::file::methods_without_plugin_code;
use crate::runtime::raw_packet::raw_flow_end;

use process::Process;

/// Settings of a new instance, and its memory limit.
#[derive(Clone, Debug)]
pub struct InstanceSettings {
    /// Settings of the plugin; empty for its defaults.
    pub settings: Map<String, Value>,
    /// Maximum bytes of memory and tables.
    pub most_memory: usize,
}

impl Default for InstanceSettings {
    fn default() -> Self {
        Self { settings: Map::new(), most_memory: DEFAULT_MEMORY }
    }
}

/// Instance of a WebAssembly plugin.
///
/// After a trap or an overrun, an instance is dead: its packets get
/// [`Verdict::Fault`](millrace_plugin_abi::Verdict::Fault) until [`restart`](Self::restart).
pub struct WasmInstance {
    process: Process,
    /// Name of the control message in progress.
    asked: Option<String>,
}

impl fmt::Debug for WasmInstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WasmInstance")
            .field("plugin", self.plugin())
            .field("fault", &self.fault())
            .finish_non_exhaustive()
    }
}

impl WasmInstance {
    /// Creates an instance and initializes the plugin with its settings.
    ///
    /// # Errors
    /// [`Fault`] if the plugin refuses the settings ([`FaultKind::Init`](super::FaultKind::Init)), traps, or
    /// takes more than 100 slices.
    pub fn new(plugin: &WasmPlugin, settings: InstanceSettings) -> Result<Self, Fault> {
        let InstanceSettings { settings, most_memory } = settings;
        let settings = settings_json(plugin.manifest(), &settings)?;
        let mut instance = Self { process: Process::new(plugin.clone(), settings, most_memory), asked: None };
        instance.restart()?;
        Ok(instance)
    }

    /// Ends the plugin if it runs, and starts it again with the same settings. The counters stay.
    ///
    /// # Errors
    /// Those of [`new`](Self::new). The instance is dead after an error.
    pub fn restart(&mut self) -> Result<(), Fault> {
        self.asked = None;
        self.process.restart()
    }

    /// Returns the code of the instance.
    pub fn plugin(&self) -> &WasmPlugin {
        &self.process.plugin
    }

    /// Returns the fault that ended the instance; `None` for a live instance.
    pub fn fault(&self) -> Option<&Fault> {
        self.process.fault()
    }

    /// Whether a call with packets is suspended and waits for `resume`.
    pub fn is_suspended(&self) -> bool {
        self.process.is_suspended()
    }

    fn exports(&self, name: &str) -> bool {
        self.plugin().linked().module().get_export(name).is_some()
    }

    /// Converts a control message into a job of the plugin.
    fn control_job(&self, message: &Message) -> Result<Job, PluginError> {
        let arguments = arguments(self.plugin().name(), self.plugin().manifest(), message)?;
        Ok(Job::Control { name: message.name.clone(), arguments })
    }

    fn manifest(&self) -> &Manifest {
        self.plugin().manifest()
    }

    fn shared(&self) -> &Shared {
        &self.process.shared
    }

    fn refusal(&self, what: &str, problem: String) -> PluginError {
        PluginError::setting(self.plugin().name(), what, problem)
    }

    /// Runs a job of the plugin to its end, and returns the reply.
    fn work(&mut self, job: Job) -> Result<Vec<u8>, String> {
        // Refuse a new job while a control message is in progress.
        if self.asked.is_some() && self.process.is_alive() {
            return Err("the instance is in the middle of a call; try again".to_owned());
        }
        self.process.work(job)
    }
}

impl Instance for WasmInstance {
    methods_without_plugin_code!();

    fn process(&mut self, packets: &mut Packets<'_>, now: Instant) -> Progress {
        let begun = |exchange: &mut Exchange| std::mem::replace(&mut exchange.call, Call::begin(now));
        if self.process.shared.with(begun).active {
            self.process.overrun("a call that was not resumed");
        }
        self.process.go_on_with(packets)
    }

    fn memory(&self) -> u64 {
        self.shared().with(|exchange| exchange.memory.bytes())
    }

    fn set_memory_account(&mut self, account: Option<Arc<MemoryAccount>>) {
        self.shared().with(|exchange| exchange.memory.set_account(account));
    }

    fn writes_packets(&self) -> bool {
        writes_packets(self.plugin().manifest())
    }

    fn resume(&mut self, packets: &mut Packets<'_>, _now: Instant) -> Progress {
        self.process.go_on_with(packets)
    }

    fn abort(&mut self) {
        self.process.overrun("a call");
    }

    fn take_fault(&mut self) -> Option<millrace_plugin_abi::Fault> {
        self.process.take_fault()
    }

    fn worst_case(&self) -> Option<DeclaredCycles> {
        self.manifest().calls.cost.as_ref()?.worst_case_on("worker")
    }

    fn misjudged(&self) -> u64 {
        self.process.misjudged
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
            Ok(job) if self.process.is_alive() => job,
            Ok(_) => return Some(Err(self.refusal(&message.name, self.process.why_dead()))),
            Err(refused) => return Some(Err(refused)),
        };
        self.asked = Some(message.name.clone());
        match self.process.begin(job) {
            Progress::Suspended | Progress::Awaited => None,
            Progress::Done => self.take_reply(),
        }
    }

    fn take_reply(&mut self) -> Option<Reply> {
        let asked = self.asked.take()?;
        let reply = self.process.take_outcome().and_then(|reply| parse_reply(&reply));
        Some(reply.map_err(|problem| self.refusal(&asked, problem)))
    }

    fn next_call(&self) -> Option<Instant> {
        let next = || self.process.shared.with(|exchange| exchange.timers.next());
        self.process.is_alive().then(next).flatten()
    }

    fn periodic(&mut self, now: Instant) -> Progress {
        self.process.shared.with(|exchange| exchange.begin_periodic(now));
        self.process.go_on(None)
    }

    fn message(&mut self, bytes: &[u8]) -> Progress {
        match self.process.is_alive() {
            true => self.process.begin(Job::Message(bytes.to_vec())),
            false => Progress::Done,
        }
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
        if !self.process.is_alive() {
            return Progress::Done;
        }
        let is_idle = self.process.shared.with(|exchange| {
            exchange.ends.push(raw_flow_end(flow), state);
            exchange.idle
        });
        // During a call, the end waits in the queue.
        if is_idle { self.process.go_on(None) } else { Progress::Done }
    }

    fn hears_flow_ends(&self) -> bool {
        self.exports(export::FLOW_ENDED)
    }
}

#[cfg(test)]
mod tests;
