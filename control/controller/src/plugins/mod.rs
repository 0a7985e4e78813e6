//! Loading and unloading of plugins.

pub(crate) mod built_in;
pub(crate) mod driver_forms;
pub(crate) mod host_level;
pub(crate) mod instances;
pub(crate) mod load;
pub(crate) mod loader;
pub(crate) mod maps;
#[cfg(debug_assertions)]
pub(crate) mod panic_plugin;
pub(crate) mod quarantine;
pub(crate) mod requests;
pub(crate) mod upgrade;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use millrace_plugin::Manifest;
use millrace_plugin_abi::{Plugin, Request};
use millrace_telemetry::EventKind;
use serde_json::json;

use crate::flows::offload::Offload;
use crate::model::Model;
use crate::observe::events::Events;
use crate::plugins::host_level::HostLevel;
use crate::plugins::load::{Admitted, Half, Loaded, admit_new, admit_version};
use crate::plugins::loader::Loader;
use crate::router::Router;
use crate::view::{InstanceView, PluginDetailView, PluginView};
use crate::workers::Workers;
use crate::{ControlError, NewPlugin, show};

/// Maximum number of waiting plugin requests.
const MOST_REQUESTS: usize = 256;

/// Plugins of the router beside its model.
pub(crate) struct Plugins {
    /// Loader of plugins that are files.
    loader: Loader,
    /// Host companions of plugins.
    pub host_level: HostLevel,
    /// Changes that plugin instances request, with the names of the instances.
    requests: VecDeque<(String, Request)>,
    /// Plugin versions before their last upgrade.
    previous: HashMap<&'static str, Arc<dyn Plugin>>,
}

impl Plugins {
    /// Creates the state of plugins without instances.
    pub fn new(loader: Loader, host_level: HostLevel) -> Self {
        Self { loader, host_level, requests: VecDeque::new(), previous: HashMap::new() }
    }

    /// Starts the host companions of the existing instances.
    pub fn begin_host_companions(&mut self, model: &Model) -> Result<(), ControlError> {
        for (id, name) in model.plugins.running() {
            if let Some(slow) = model.plugins.host_companion_of(name)? {
                self.host_level.put(id, Some(slow), (0, true))?;
            }
        }
        Ok(())
    }

    /// Unloads a plugin without instances, named by its name or by its file.
    pub fn unload(
        &mut self,
        plugin: &str,
        model: &mut Model,
        events: &Events,
    ) -> Result<PluginView, ControlError> {
        let of_file = model.files.iter().find(|(_, file)| file.file == std::path::Path::new(plugin));
        let name = of_file.map_or(plugin, |(name, _)| *name);
        let known = show::plugins(model).into_iter().find(|plugin| plugin.name == name);
        if model.plugins.is_built_in(name)? {
            return Err(ControlError::Conflict(format!(
                "plugin {name:?} is part of the router and can't be unloaded: that can only be what `plugin load` has loaded"
            )));
        }
        model.plugins.remove_plugin(name)?;
        self.previous.remove(name);
        model.files.retain(|(known, _)| *known != name);
        model.repository.unloaded(name);
        let text = format!("plugin {name} is unloaded");
        events.note(EventKind::PluginUnloaded, name, text, json!({"plugin": name}));
        known.ok_or_else(|| ControlError::System("the plugin was not there".into()))
    }

    /// Returns the instance of this name, with its counters.
    ///
    /// # Errors
    /// Returns an error if the instance is unknown, or if the data plane does not answer.
    pub fn find_instance(
        &self,
        name: &str,
        model: &Model,
        offload: &Offload,
        workers: &mut Workers,
    ) -> Result<InstanceView, ControlError> {
        let (snapshot, counts) = (workers.snapshot()?, workers.filter_counts()?);
        let slow = self.host_level.report()?;
        let instances = show::instances(&snapshot, &counts, (model, offload), &slow);
        instances
            .into_iter()
            .find(|instance| instance.name == name)
            .ok_or_else(|| ControlError::NotFound(format!("no instance is named {name:?}")))
    }

    /// Returns a loader for planning a change of the running router.
    pub fn planning_loader(&self, admitted: Admitted) -> Loader {
        self.loader.planning_change(admitted)
    }

    /// Whether changes that instances request wait.
    pub fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    /// Queues a change that an instance requests, unless too many wait.
    pub fn note_request(&mut self, instance: &str, request: Request) {
        if self.requests.len() < MOST_REQUESTS {
            self.requests.push_back((instance.to_owned(), request));
        }
    }
}

impl Router {
    /// Returns the plugins that instances can be created of.
    ///
    /// # Errors
    /// None so far.
    pub fn plugins(&self) -> Result<Vec<PluginView>, ControlError> {
        Ok(show::plugins(&self.lock().model))
    }

    /// Returns a plugin with its whole description.
    ///
    /// # Errors
    /// No such plugin.
    pub fn plugin(&self, name: &str) -> Result<PluginDetailView, ControlError> {
        let inner = self.lock();
        let mut view = show::plugin(&inner.model, name)?;
        view.previous = inner.plugins.previous.get(name).map(|plugin| plugin.version());
        Ok(view)
    }

    /// Loads the plugin of a file: a WebAssembly module, checked and compiled in the background, or a shared
    /// object where the configuration allows shared objects.
    ///
    /// # Errors
    /// An unreadable file, a missing signature that the configuration requires, a file that is no plugin for
    /// this router, a version downgrade, a name in use; nothing has changed then.
    pub async fn load_plugin(&self, new: &NewPlugin) -> Result<PluginView, ControlError> {
        // An early refusal saves the compilation; `to_change` is asked again before the plugin is entered.
        drop(self.to_change()?);
        let loaded = self.read_plugin(new, None).await;
        let entered = loaded.and_then(|loaded| enter_plugin(&mut self.to_change()?.model, loaded, new));
        self.say_loaded(new, &entered);
        entered
    }

    /// Logs the outcome of loading a plugin, and notes an event for a loaded plugin.
    pub(crate) fn say_loaded(&self, new: &NewPlugin, loaded: &Result<PluginView, ControlError>) {
        crate::plugins::load::log(&new.path, loaded.as_ref().map(|plugin| (plugin.name, plugin.version)));
        if let Ok(PluginView { name, version, home, signature, .. }) = loaded {
            let text = format!("plugin {name} {version} is loaded");
            let details = json!({"plugin": name, "version": version, "home": home, "signature": signature, "path": new.path});
            self.events().note(EventKind::PluginLoaded, name, text, details);
        }
    }

    /// Loads the plugin of a file: a new plugin, or another version of the plugin `version_of`. Name, signer
    /// and version are checked before any code of the plugin runs.
    pub(crate) async fn read_plugin(
        &self,
        new: &NewPlugin,
        version_of: Option<&str>,
    ) -> Result<Loaded, ControlError> {
        let (router, new, name) = (self.clone(), new.clone(), version_of.map(str::to_owned));
        let (loader, admitted) = {
            let inner = self.lock();
            (inner.plugins.loader.clone(), inner.model.admitted())
        };
        let admit = move |half, manifest: &Manifest, origin, new: &NewPlugin| match &name {
            None => admit_new(&router.lock().model, half, manifest, origin, new),
            Some(name) if half == Half::Own && *name != manifest.name => {
                let found = &manifest.name;
                let problem = format!("plugin {}: it is plugin {found:?}, and not {name:?}", new.path);
                Err(ControlError::Invalid(problem))
            }
            Some(_) => admit_version(&router.lock().model, half, manifest, origin, new),
        };
        let work = move || {
            loader.load(&admitted, &new.path, &|half, manifest, origin| admit(half, manifest, origin, &new))
        };
        let loaded = tokio::task::spawn_blocking(work).await;
        loaded.map_err(|error| ControlError::system("load the plugin", error))?
    }

    /// Unloads a plugin without instances, named by its name or by its file.
    ///
    /// # Errors
    /// No such plugin, a built-in plugin, a plugin with instances.
    pub fn unload_plugin(&self, plugin: &str) -> Result<PluginView, ControlError> {
        let mut guard = self.to_change()?;
        let inner = &mut *guard;
        inner.plugins.unload(plugin, &mut inner.model, &inner.observation.events)
    }
}

/// Adds a loaded plugin to the known plugins.
pub(crate) fn enter_plugin(
    model: &mut Model,
    loaded: Loaded,
    new: &NewPlugin,
) -> Result<PluginView, ControlError> {
    let name = crate::plugins::load::enter(model, loaded, new)?;
    let known = show::plugins(model).into_iter().find(|plugin| plugin.name == name);
    known.ok_or_else(|| ControlError::System("the plugin is not there".into()))
}
