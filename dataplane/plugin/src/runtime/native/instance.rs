//! Worker-side instance of a shared object.

use std::fmt;

use millrace_plugin_abi::{FlowEnd, Instance, Instant, Message, Packets, PluginError, Progress, Reply};
use serde_json::{Map, Value};

use super::object::Object;
use super::plugin::NativePlugin;
use super::staging::Area;
use super::table::{Granted, during};
use crate::declaration::declared::{arguments, parse_reply, settings_json};
use crate::fault::{Fault, FaultKind};
use crate::runtime::exchange::{Call, Exchange, Shared};
use crate::runtime::file::{impl_plugin, methods_without_plugin_code};
use crate::runtime::raw_packet::{raw_flow_end, settle};
use crate::{MOST_FLOW_STATE, Manifest};

/// Instance of a shared-object plugin. Each instance has its own copy of the object.
///
/// An instance whose start failed is dead: its packets get
/// [`Verdict::Fault`](millrace_plugin_abi::Verdict::Fault) until a restart succeeds.
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
    /// Creates an instance and initializes the plugin with its settings.
    ///
    /// # Errors
    /// [`Fault`] of kind [`FaultKind::Init`] if the plugin refuses the settings or can't be loaded.
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

    /// Starts the plugin from a new copy of the object, without any earlier state.
    fn begin(&mut self) -> Result<(), Fault> {
        self.object = None;
        self.shared.with(Exchange::restart);
        let copy = self.plugin.copy().map_err(|error| Fault::new(FaultKind::Init, error.to_string()))?;
        self.object = Some(copy);
        let settings = std::mem::take(&mut self.settings);
        let begun = self.ask(|object| Some(object.init(&settings)), String::new);
        self.settings = settings;
        self.shared.with(|exchange| exchange.maps.has_begun = true);
        begun.map(drop).map_err(|problem| {
            self.object = None;
            Fault::new(FaultKind::Init, problem)
        })
    }

    /// Sends a request to the plugin and returns its reply. If the object lacks the export for the request,
    /// the error text is that of `missing`.
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

    fn manifest(&self) -> &Manifest {
        self.plugin.manifest()
    }

    fn shared(&self) -> &Shared {
        &self.shared
    }

    fn refusal(&self, what: &str, problem: String) -> PluginError {
        PluginError::setting(self.plugin.declared().name, what, problem)
    }
}

impl NativePlugin {
    fn instance(&self, settings: &Map<String, Value>) -> Result<Box<dyn Instance>, Fault> {
        Ok(Box::new(NativeInstance::new(self, settings)?))
    }
}

impl_plugin!(NativePlugin, |_| Runtime::Trusted);

impl Instance for NativeInstance {
    methods_without_plugin_code!();

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

    fn save(&mut self) -> Result<Option<Vec<u8>>, PluginError> {
        if !self.object.as_ref().is_some_and(|object| object.saves()) {
            return Ok(None);
        }
        let saved = self.ask(|object| object.save(), String::new);
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

    /// Passes a copy of the flow's state to the plugin, aligned to 8 bytes. The plugin may overwrite the
    /// copy.
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
        self.object.as_ref().is_some_and(|object| object.hears_flow_ends())
    }
}
