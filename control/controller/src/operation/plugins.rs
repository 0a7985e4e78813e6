//! Operations on plugins, their versions, maps and quarantine.

use millrace_config::Role;
use millrace_repository::Held;
use millrace_telemetry::utc;
use millrace_units::InstanceId;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::operation::kinds::{Acting, Action, Change, Changing, Query, Reading};
use crate::operation::{Effect, Operation};
use crate::plugins::enter_plugin;
use crate::plugins::load::report_loaded;
use crate::plugins::maps::{MOST_SHOWN, summary};
use crate::plugins::quarantine::{Quarantine, role_to_release};
use crate::request::NewPlugin;
use crate::router::Inner;
use crate::show::hexadecimal;
use crate::view::{HeldView, MapEntryView, MapView, PluginDetailView, PluginView, ReleaseView};
use crate::workers::commands::connections_at_worker;
use crate::{ControlError, show};

/// Lists the available plugins.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListPlugins;

impl Operation for ListPlugins {
    type Answer = Vec<PluginView>;
    type Kind = Query;

    async fn carry_out(self, router: &Reading) -> Result<Vec<PluginView>, ControlError> {
        Ok(show::plugins(&router.lock().model))
    }
}

/// Reads the complete description of a plugin.
#[derive(Clone, Debug)]
pub struct GetPlugin {
    /// Name of the plugin.
    pub name: String,
}

impl Operation for GetPlugin {
    type Answer = PluginDetailView;
    type Kind = Query;

    /// # Errors
    /// Returns an error for an unknown plugin.
    async fn carry_out(self, router: &Reading) -> Result<PluginDetailView, ControlError> {
        let inner = router.lock();
        let mut view = show::plugin(&inner.model, &self.name)?;
        view.previous =
            inner.plugins.previous.get(self.name.as_str()).map(|earlier| earlier.plugin.version());
        Ok(view)
    }
}

/// Loads a plugin file: a WebAssembly module, compiled in the background, or a shared object if the
/// configuration allows them.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct LoadPlugin(pub NewPlugin);

impl Operation for LoadPlugin {
    type Answer = PluginView;
    type Kind = Change;
    const EFFECT: Effect = Effect::Code;

    /// # Errors
    /// Returns an error for an unreadable file, for a missing signature that is required, or for a file that
    /// is no plugin for this router. Also refuses a version downgrade and a name in use. Nothing has changed
    /// then.
    async fn carry_out(self, router: &Changing) -> Result<PluginView, ControlError> {
        let Self(new) = self;
        // This early check avoids a useless compilation. `to_change` is called again before the plugin is
        // registered.
        drop(router.to_change()?);
        let loaded = router.read_plugin(&new).await;
        let entered = loaded.and_then(|loaded| enter_plugin(&mut router.to_change()?.model, loaded, &new));
        report_loaded(router.events(), &new, &entered);
        entered
    }
}

/// Unloads a plugin that has no instances.
#[derive(Clone, Debug)]
pub struct UnloadPlugin {
    /// Name of the plugin, or path of its file.
    pub name: String,
}

impl Operation for UnloadPlugin {
    type Answer = PluginView;
    type Kind = Change;
    const EFFECT: Effect = Effect::Code;
    const TAKES_MEMORY: bool = false;

    /// # Errors
    /// Returns an error for an unknown plugin, a built-in plugin, or a plugin with instances.
    async fn carry_out(self, router: &Changing) -> Result<PluginView, ControlError> {
        let mut guard = router.to_change()?;
        let inner = &mut *guard;
        inner.plugins.unload(&self.name, &mut inner.model, &inner.observation.events)
    }
}

/// Lists the shared maps of an instance, without their entries.
#[derive(Clone, Debug, Deserialize)]
pub struct ListInstanceMaps {
    /// Name of the instance.
    #[serde(rename = "name")]
    pub instance: String,
}

impl Operation for ListInstanceMaps {
    type Answer = Vec<MapView>;
    type Kind = Query;

    /// # Errors
    /// Returns an error for an unknown instance.
    async fn carry_out(self, router: &Reading) -> Result<Vec<MapView>, ControlError> {
        let inner = router.lock();
        Ok(inner.model.plugins.instance_registry().maps(&self.instance)?.iter().map(summary).collect())
    }
}

/// Reads a shared map of an instance, with up to 4,096 of its entries. The entries of each worker are ordered
/// by key.
#[derive(Clone, Debug, Deserialize)]
pub struct GetInstanceMap {
    /// Name of the instance.
    #[serde(rename = "name")]
    pub instance: String,
    /// Name of the map.
    pub map: String,
}

impl Operation for GetInstanceMap {
    type Answer = MapView;
    type Kind = Query;

    /// # Errors
    /// Returns an error for an unknown instance or map.
    async fn carry_out(self, router: &Reading) -> Result<MapView, ControlError> {
        let map = router.lock().model.plugins.instance_registry().map_named(&self.instance, &self.map)?;
        let mut view = summary(&map);
        for worker in 0..map.counts().len() {
            let mut entries = map.entries(worker, MOST_SHOWN + 1 - view.content.len());
            entries.sort();
            view.content.extend(entries.into_iter().map(|(key, value)| MapEntryView {
                worker,
                key: hexadecimal(&key),
                value: hexadecimal(&value),
            }));
        }
        view.more = view.content.len() > MOST_SHOWN;
        view.content.truncate(MOST_SHOWN);
        Ok(view)
    }
}

/// Lists the instances that the next start keeps in quarantine. An instance is listed if its call ended the
/// router, or if it belongs to a shared object and was freed in quarantine.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListQuarantine;

impl Operation for ListQuarantine {
    type Answer = Vec<HeldView>;
    type Kind = Query;

    async fn carry_out(self, router: &Reading) -> Result<Vec<HeldView>, ControlError> {
        let inner = router.lock();
        let exists = |held: &Held| {
            inner.model.plugins.plugin_of(&held.instance).is_ok_and(|plugin| plugin.name() == held.plugin)
        };
        let view = |held: &Held| HeldView {
            instance: held.instance.clone(),
            plugin: held.plugin.clone(),
            since: utc(held.since),
            why: held.why.clone(),
            exists: exists(held),
        };
        Ok(inner.model.repository.quarantine().all().iter().map(view).collect())
    }
}

/// Releases an instance from quarantine, whatever the reason of the quarantine. The instance restarts with
/// its settings. If the router has no instance of this name, removes only the quarantine entry, so that the
/// instance can be created normally.
#[derive(Clone, Debug, Deserialize)]
pub struct ReleaseInstance {
    /// Name of the instance.
    pub name: String,
}

impl Operation for ReleaseInstance {
    type Answer = ReleaseView;
    type Kind = Action;
    const EFFECT: Effect = Effect::Forwarding;
    const NO_INVERSE: &'static str = "the code of the instance has run again";

    /// # Errors
    /// Returns an error if no instance of that name is in quarantine, if the instance can't start, or if the
    /// file of quarantine entries can't be written. For a role below `admin`, returns
    /// [`ControlError::Forbidden`] if the release would let code without a sandbox run again. Returns
    /// [`ControlError::Silent`] if a worker doesn't answer in time; the worker releases the instance when it resumes.
    async fn carry_out(self, acting: &Acting) -> Result<ReleaseView, ControlError> {
        let (name, role) = (self.name.as_str(), acting.caller().least());
        let mut guard = acting.router().to_change()?;
        let inner = &mut *guard;
        inner.plugins.late_releases.follow(&inner.model, &inner.observation);
        let otherwise = match inner.model.plugins.instance(name) {
            Ok(id) if needs_release(inner, id, name)? => return inner.release_here(id, name, role),
            Ok(_) => ControlError::conflict(format!("instance {name:?} is not in quarantine")),
            Err(unknown) => unknown.into(),
        };
        let Inner { model, workers, observation, .. } = inner;
        Quarantine { model, workers }.release_absent(observation, name, role, otherwise)
    }
}

impl Inner {
    /// Replaces an instance in quarantine by a new one with the same settings. A worker that doesn't answer does so when
    /// it resumes.
    fn release_here(&mut self, id: InstanceId, name: &str, role: Role) -> Result<ReleaseView, ControlError> {
        let plugin = self.model.plugins.plugin_of(name)?;
        if role < role_to_release(Some(plugin.runtime())) {
            return Err(ControlError::Forbidden(
                Role::Admin,
                format!(
                    "instance {name:?} belongs to a shared object, which runs without a sandbox: releasing it needs the role admin"
                ),
            ));
        }
        let workers = self.workers.len();
        let version = plugin.state_version();
        let successors = self.model.plugins.instance_registry().afresh(name, workers)?;
        let companion = self.model.plugins.instance_registry().host_companion_of(name)?;
        let maps = successors.maps.clone();
        let held = self.model.repository.quarantine().find(name, plugin.name()).cloned();
        // The entry is removed first, because a crash of the new instance adds another entry.
        self.quarantine().forget(name, plugin.name())?;
        let connections = connections_at_worker(&self.model.fixed.connections, workers);
        let begun = self.plugins.late_releases.begin(&mut self.workers, successors, version, connections);
        if let Err(error) = begun {
            self.quarantine().hold_again(held)?;
            return Err(error);
        }
        self.model.plugins.instance_registry_mut().note_maps(id, maps);
        self.model.plugins.instance_registry_mut().note_release(id);
        self.plugins.host_level.put(id, companion, (version, false))?;
        self.observation.forget_quarantine(id);
        self.plugins.late_releases.check(id, name)?;
        self.observation.note_release(true, name);
        tracing::info!(instance = name, "the instance is released from quarantine");
        Ok(ReleaseView { instance: name.to_owned(), exists: true })
    }
}

/// Whether an instance is in quarantine. If a worker doesn't answer, the last report of the workers counts.
///
/// # Errors
/// A worker that doesn't answer has yet to release the instance, or may have the instance in quarantine.
fn needs_release(inner: &mut Inner, id: InstanceId, name: &str) -> Result<bool, ControlError> {
    let is_reported = inner.observation.is_quarantined(id);
    if !is_reported && !inner.model.plugins.is_held(id) {
        inner.plugins.late_releases.check(id, name)?;
    }
    match inner.quarantine().is_quarantined(id) {
        Err(ControlError::Silent(_)) if is_reported => Ok(true),
        Err(ControlError::Silent(text)) => Err(ControlError::Silent(format!(
            "instance {name:?}: {text}, so it is unknown whether the instance is in quarantine; nothing was changed"
        ))),
        other => other,
    }
}
