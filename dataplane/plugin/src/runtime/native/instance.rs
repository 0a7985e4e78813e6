//! Worker-side instance of a shared object.

use std::fmt;

use millrace_plugin_abi::{
    Features, FlowEnd, Instance, Instant, MapHandle, MapShape, Message, Output, Packets, Plugin, PluginError,
    Position, Progress, Reply, Runtime,
};
use serde_json::{Map, Value};

use super::object::Object;
use super::plugin::NativePlugin;
use super::staging::Area;
use super::table::{Granted, during};
use crate::MOST_FLOW_STATE;
use crate::declaration::declared::{arguments, has_output, has_timers, parse_reply, settings_json};
use crate::fault::{Fault, FaultCounts, FaultKind};
use crate::runtime::exchange::{Call, Exchange, Shared};
use crate::runtime::raw_packet::{raw_flow_end, settle};

/// Instance of a shared-object plugin. Each instance has its own copy of the object.
///
/// An instance that refused to begin is dead: its packets get
/// [`Verdict::Fault`](millrace_plugin_abi::Verdict::Fault) until a restart.
pub struct NativeInstance {
    plugin: NativePlugin,
    /// Loaded copy of the object; `None` if the instance is dead.
    object: Option<Object>,
    shared: Shared,
    area: Box<Area>,
    granted: Granted,
    settings: Vec<u8>,
}

impl fmt::Debug for NativeInstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NativeInstance").field("plugin", &self.plugin).finish_non_exhaustive()
    }
}

impl NativeInstance {
    /// Creates an instance and initializes the plugin with the settings.
    ///
    /// # Errors
    /// [`Fault`] of kind [`FaultKind::Init`] if the plugin refuses to begin or can't be loaded.
    pub fn new(plugin: &NativePlugin, settings: &Map<String, Value>) -> Result<Self, Fault> {
        let settings = settings_json(plugin.manifest(), settings)?;
        let mut instance = Self {
            plugin: plugin.clone(),
            object: None,
            shared: Shared::new(plugin.manifest()),
            area: Box::new(Area::new(plugin.manifest())),
            granted: Granted::by(plugin.manifest()),
            settings,
        };
        instance.begin()?;
        Ok(instance)
    }

    /// Returns the number of faults of each kind.
    pub fn faults(&self) -> FaultCounts {
        self.shared.with(|exchange| exchange.faults.counts)
    }

    /// Begins with a new copy of the object, without any earlier state.
    fn begin(&mut self) -> Result<(), Fault> {
        self.object = None;
        self.shared.with(Exchange::restart);
        let refused = |text: String| {
            self.shared.with(|exchange| exchange.faults.counts.count(FaultKind::Init));
            Fault::new(FaultKind::Init, text)
        };
        self.object = Some(self.plugin.copy().map_err(|error| refused(error.to_string()))?);
        let settings = std::mem::take(&mut self.settings);
        let begun = self.ask(|object| Some(object.init(&settings)), String::new);
        self.settings = settings;
        self.shared.with(|exchange| exchange.maps.has_begun = true);
        begun.map(drop).map_err(|problem| {
            self.object = None;
            self.shared.with(|exchange| exchange.faults.counts.count(FaultKind::Init));
            Fault::new(FaultKind::Init, problem)
        })
    }

    /// Sends a request to the plugin and returns its reply. `missing` gives the error text for an object
    /// without the export.
    fn ask(
        &mut self,
        question: impl FnOnce(&Object) -> Option<i32>,
        missing: impl FnOnce() -> String,
    ) -> Result<Vec<u8>, String> {
        let Self { object, shared, area, granted, .. } = self;
        let Some(object) = object else {
            return Err("the instance is not running: it failed to start".to_owned());
        };
        shared.with(|exchange| exchange.answer.listen());
        let result = during(shared, area, *granted, || question(object));
        let answer = shared.with(|exchange| exchange.answer.take(result.unwrap_or_default()));
        if result.is_none() { Err(missing()) } else { answer }
    }

    fn refusal(&self, what: &str, problem: String) -> PluginError {
        PluginError::setting(self.plugin.declared().name, what, problem)
    }
}

impl Instance for NativeInstance {
    fn process(&mut self, packets: &mut Packets<'_>, now: Instant) -> Progress {
        let Self { object, shared, area, granted, .. } = self;
        shared.with(|exchange| exchange.call = Call::begin(now));
        match object {
            Some(object) => object.handle(shared, area, *granted, packets),
            None => settle(packets, 0),
        }
        shared.with(|exchange| exchange.call.active = false);
        Progress::Done
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.shared.with(|exchange| exchange.counters())
    }

    fn take_fault(&mut self) -> Option<millrace_plugin_abi::Fault> {
        self.shared.with(|exchange| exchange.faults.take())
    }

    fn restart(&mut self) -> Result<(), PluginError> {
        self.begin().map_err(|fault| self.refusal("restart", fault.to_string()))
    }

    fn control(&mut self, message: &Message) -> Reply {
        let arguments = arguments(self.plugin.declared().name, self.plugin.manifest(), message)?;
        let missing = || "the plugin takes no messages: it doesn't export millrace_control".to_owned();
        let reply = self.ask(|object| object.control(&message.name, &arguments), missing);
        let reply = reply.and_then(|reply| parse_reply(&reply));
        reply.map_err(|problem| self.refusal(&message.name, problem))
    }

    fn next_call(&self) -> Option<Instant> {
        self.object.as_ref()?;
        self.shared.with(|exchange| exchange.timers.next())
    }

    fn has_timers(&self) -> bool {
        has_timers(self.plugin.manifest())
    }

    fn periodic(&mut self, now: Instant) -> Progress {
        let Self { object, shared, area, granted, .. } = self;
        shared.with(|exchange| exchange.begin_periodic(now));
        if let Some(object) = object {
            during(shared, area, *granted, || object.periodic(now.as_nanos()));
        }
        Progress::Done
    }

    fn message(&mut self, bytes: &[u8]) -> Progress {
        let Self { object, shared, area, granted, .. } = self;
        if let Some(object) = object {
            during(shared, area, *granted, || object.message(bytes));
        }
        Progress::Done
    }

    fn take_output(&mut self) -> Option<Output> {
        self.shared.with(|exchange| exchange.outbox.take())
    }

    fn has_output(&self) -> bool {
        has_output(self.plugin.manifest())
    }

    fn flow_state(&self) -> usize {
        self.plugin.manifest().state.flow.into()
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
        if !self.object.as_ref().is_some_and(Object::saves) {
            return Ok(None);
        }
        let saved = self.ask(Object::save, String::new);
        saved.map(Some).map_err(|problem| self.refusal("save", problem))
    }

    fn restore(&mut self, state: &[u8], version: u32) -> Result<(), PluginError> {
        let own = self.plugin.manifest().state.version;
        let missing = || {
            format!(
                "can't restore state (own state version {own}): the plugin doesn't export millrace_restore"
            )
        };
        let restored = self.ask(|object| object.restore(state, version), missing);
        restored.map(drop).map_err(|problem| self.refusal("restore", problem))
    }

    /// Passes a copy of the state, aligned like every structure, to the plugin: the plugin may write to it.
    fn flow_ended(&mut self, flow: &FlowEnd, state: &[u8]) -> Progress {
        const WORDS: usize = MOST_FLOW_STATE as usize / 8;
        let Self { plugin, object, shared, area, granted, .. } = self;
        let Some(object) = object else { return Progress::Done };
        let mut words = [0_u64; WORDS];
        let kept = usize::from(plugin.manifest().state.flow);
        let used = if kept == state.len() { state.len().div_ceil(8) } else { 0 };
        let Some(words) = words.get_mut(..used) else { return Progress::Done };
        for (word, bytes) in words.iter_mut().zip(state.chunks(8)) {
            let mut whole = [0; 8];
            whole.iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte);
            *word = u64::from_ne_bytes(whole);
        }
        during(shared, area, *granted, || object.flow_ended(raw_flow_end(flow), words));
        Progress::Done
    }

    fn hears_flow_ends(&self) -> bool {
        self.object.as_ref().is_some_and(Object::hears_flow_ends)
    }
}

impl Plugin for NativePlugin {
    fn name(&self) -> &'static str {
        self.declared().name
    }

    fn runtime(&self) -> Runtime {
        Runtime::Trusted
    }

    fn version(&self) -> &'static str {
        self.declared().version
    }

    fn summary(&self) -> &'static str {
        self.declared().summary
    }

    fn positions(&self) -> &[Position] {
        &self.manifest().positions
    }

    fn messages(&self) -> &[(&'static str, &'static str)] {
        &self.declared().messages
    }

    fn settings_schema(&self) -> Option<&Map<String, Value>> {
        self.manifest().settings.as_ref()
    }

    fn state_version(&self) -> u32 {
        self.manifest().state.version
    }

    fn features(&self) -> Features {
        self.manifest().features
    }

    fn capabilities(&self) -> &[&'static str] {
        &self.manifest().capabilities
    }

    fn counters(&self) -> &[&'static str] {
        &self.declared().counters
    }

    fn maps(&self) -> &[MapShape] {
        &self.manifest().maps
    }

    fn create(&self, settings: &Map<String, Value>) -> Result<Box<dyn Instance>, PluginError> {
        let refused = |fault: Fault| PluginError::setting(self.name(), fault.kind.name(), fault.text);
        Ok(Box::new(NativeInstance::new(self, settings).map_err(refused)?))
    }
}
