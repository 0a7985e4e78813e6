//! Loading and unloading of plugins.

pub(crate) mod built_in;
mod creation;
pub(crate) mod host_level;
pub(crate) mod load;
pub(crate) mod loader;
pub(crate) mod maps;
#[cfg(debug_assertions)]
pub(crate) mod panic_plugin;
pub(crate) mod quarantine;
pub(crate) mod release;
pub(crate) mod upgrade;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use millrace_plugin_abi::{Plugin, Request};
use millrace_telemetry::EventKind;
use serde_json::json;

use crate::events::Events;
use crate::flows::offload::Offload;
use crate::model::Model;
use crate::plugins::host_level::HostLevel;
use crate::plugins::load::{Loaded, enter};
use crate::plugins::loader::Loader;
use crate::plugins::release::LateReleases;
use crate::view::{InstanceView, PluginView};
use crate::workers::Workers;
use crate::workers::ask::Ask;
use crate::workers::tsc;
use crate::{ControlError, NewPlugin, show};

/// Maximum number of queued change requests of plugin instances.
const MOST_REQUESTS: usize = 256;

/// State of plugins outside the model: loader, host companions, change requests and earlier versions.
pub(crate) struct Plugins {
    /// Loader of plugin files.
    pub loader: Loader,
    /// Host companions of plugins.
    pub host_level: HostLevel,
    /// Queued change requests of plugin instances, each with the name of its instance.
    pub(crate) requests: VecDeque<(String, Request)>,
    /// Version that each upgraded plugin had before its last upgrade.
    pub(crate) previous: HashMap<&'static str, Earlier>,
    /// Releases from quarantine that some workers have not carried out yet.
    pub(crate) late_releases: LateReleases,
}

/// Version that a plugin had before.
#[derive(Clone)]
pub(crate) struct Earlier {
    pub plugin: Arc<dyn Plugin>,
    /// Its file; `None` for a built-in plugin.
    pub file: Option<millrace_config::Plugin>,
}

impl Plugins {
    /// Creates the state of a starting router, without host companions or requests.
    pub fn new(loader: Loader, host_level: HostLevel) -> Self {
        let (requests, previous) = (VecDeque::new(), HashMap::new());
        Self { loader, host_level, requests, previous, late_releases: LateReleases::default() }
    }

    /// Starts the host companions of the existing instances.
    pub fn begin_host_companions(&mut self, model: &Model) -> Result<(), ControlError> {
        for (id, name) in model.plugins.instance_registry().running() {
            if let Some(companion) = model.plugins.instance_registry().host_companion_of(name)? {
                self.host_level.put(id, Some(companion), (0, true))?;
            }
        }
        Ok(())
    }

    /// Unloads a plugin that has no instances. `plugin` is its name or the path of its file.
    pub fn unload(
        &mut self,
        plugin: &str,
        model: &mut Model,
        events: &Events,
    ) -> Result<PluginView, ControlError> {
        let of_file = model.files.iter().find(|(_, file)| file.file == std::path::Path::new(plugin));
        let name = of_file.map_or(plugin, |(name, _)| *name);
        let known = show::plugins(model).into_iter().find(|plugin| plugin.name == name);
        if model.plugins.plugin_registry().is_built_in(name)? {
            return Err(ControlError::conflict(format!(
                "plugin {name:?} is built in and can't be unloaded: only plugins loaded by `plugin load` can be unloaded"
            )));
        }
        model.plugins.remove_plugin(name)?;
        self.previous.remove(name);
        model.files.retain(|(known, _)| *known != name);
        model.repository.unloaded(name);
        let text = format!("plugin {name} unloaded");
        events.note(EventKind::PluginUnloaded, name, text, json!({"plugin": name}));
        let missing = || ControlError::System(format!("internal error: plugin {name:?} was not registered"));
        known.ok_or_else(missing)
    }

    /// Returns the instance of this name, with its counters.
    pub fn find_instance(
        &self,
        name: &str,
        model: &Model,
        offload: &Offload,
        workers: &mut Workers,
    ) -> Result<InstanceView, ControlError> {
        let (snapshot, counts) = (workers.snapshot()?, workers.filter_counts()?);
        let companions = self.host_level.report()?;
        let stays_up = |id| offload.stays_up(id, model);
        let mut instances =
            show::instances(&snapshot, &counts, model, &stays_up, &companions, tsc::frequency()).into_iter();
        let found = instances.find(|instance| instance.name == name);
        found.ok_or_else(|| ControlError::not_found(format!("no instance is named {name:?}")))
    }

    /// Queues a change request of an instance. Drops the request if 256 are queued.
    pub fn note_request(&mut self, instance: &str, request: Request) {
        if self.requests.len() < MOST_REQUESTS {
            self.requests.push_back((instance.to_owned(), request));
        }
    }
}

/// Registers a loaded plugin in the model, and returns its view.
pub(crate) fn enter_plugin(
    model: &mut Model,
    loaded: Loaded,
    new: &NewPlugin,
) -> Result<PluginView, ControlError> {
    let name = enter(model, loaded, new)?;
    let known = show::plugins(model).into_iter().find(|plugin| plugin.name == name);
    known.ok_or_else(|| ControlError::System(format!("internal error: plugin {name:?} is not registered")))
}
