//! Operations on plugins, their versions, maps and quarantine.

use crate::ControlError;
use crate::operation::Effect;
use crate::operation::Operation;
use crate::operation::Principal;
use crate::plugins::enter_plugin;
use crate::plugins::load::log;
use crate::plugins::maps::MOST_SHOWN;
use crate::plugins::maps::hexadecimal;
use crate::plugins::maps::summary;
use crate::plugins::quarantine::Quarantine;
use crate::plugins::upgrade::no_earlier_version;
use crate::request::NewPlugin;
use crate::request::Upgrade;
use crate::router::Router;
use crate::show;
use crate::view::HeldView;
use crate::view::MapEntryView;
use crate::view::MapView;
use crate::view::PluginDetailView;
use crate::view::PluginView;
use crate::view::ReleaseView;
use crate::view::UpgradeView;
use millrace_plugin::Inheritance;
use millrace_repository::Held;
use millrace_telemetry::EventKind;
use millrace_telemetry::utc;
use schemars::JsonSchema;
use serde::Deserialize;

/// Lists the available plugins.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListPlugins;

impl Operation for ListPlugins {
    type Answer = Vec<PluginView>;
    const EFFECT: Effect = Effect::Look;

    /// # Errors
    /// None so far.
    async fn carry_out(self, router: &Router, _: &Principal) -> Result<Vec<PluginView>, ControlError> {
        Ok(show::plugins(&router.lock().model))
    }
}

/// Gets a plugin with its whole description.
#[derive(Clone, Debug)]
pub struct GetPlugin {
    /// Name of the plugin.
    pub name: String,
}

impl Operation for GetPlugin {
    type Answer = PluginDetailView;
    const EFFECT: Effect = Effect::Look;

    /// # Errors
    /// Returns an error for an unknown plugin.
    async fn carry_out(self, router: &Router, _: &Principal) -> Result<PluginDetailView, ControlError> {
        let inner = router.lock();
        let mut view = show::plugin(&inner.model, &self.name)?;
        view.previous = inner.plugins.previous.get(self.name.as_str()).map(|plugin| plugin.version());
        Ok(view)
    }
}

/// Loads a plugin file: a WebAssembly module, compiled in the background, or a shared object if the
/// configuration allows them.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct LoadPlugin(pub NewPlugin);

impl Operation for LoadPlugin {
    type Answer = PluginView;
    const EFFECT: Effect = Effect::Code;

    /// # Errors
    /// Returns an error for an unreadable file, a missing signature that the configuration requires, a file
    /// that is no plugin for this router, a version downgrade, or a name in use. Nothing has changed then.
    async fn carry_out(self, router: &Router, _: &Principal) -> Result<PluginView, ControlError> {
        let Self(new) = self;
        // This early check avoids a useless compilation; `to_change` is called again before the plugin is
        // registered.
        drop(router.to_change()?);
        let loaded = router.read_plugin(&new, None).await;
        let entered = loaded.and_then(|loaded| enter_plugin(&mut router.to_change()?.model, loaded, &new));
        router.say_loaded(&new, &entered);
        entered
    }
}

/// Unloads a plugin that has no instances.
#[derive(Clone, Debug)]
pub struct UnloadPlugin {
    /// Name of the plugin, or its file.
    pub name: String,
}

impl Operation for UnloadPlugin {
    type Answer = PluginView;
    const EFFECT: Effect = Effect::Code;

    /// # Errors
    /// Returns an error for an unknown plugin, a built-in plugin, or a plugin with instances.
    async fn carry_out(self, router: &Router, _: &Principal) -> Result<PluginView, ControlError> {
        let mut guard = router.to_change()?;
        let inner = &mut *guard;
        inner.plugins.unload(&self.name, &mut inner.model, &inner.observation.events)
    }
}

/// Upgrades a plugin to the version in a file. Its instances keep their settings, bindings and state. No packet
/// is lost.
#[derive(Clone, Debug)]
pub struct UpgradePlugin {
    /// Name of the plugin.
    pub name: String,
    /// File of the new version, and how to change to it.
    pub upgrade: Upgrade,
}

impl Operation for UpgradePlugin {
    type Answer = UpgradeView;
    const EFFECT: Effect = Effect::Code;

    /// # Errors
    /// Returns the errors of [`LoadPlugin`](super::LoadPlugin), and an error for a file of another plugin, for
    /// settings or state that the new version refuses, and for differences found in a trial. The old version
    /// continues then.
    async fn carry_out(self, router: &Router, _: &Principal) -> Result<UpgradeView, ControlError> {
        let Self { name, upgrade } = self;
        let upgraded = router.upgrade_to_file(&name, &upgrade).await;
        log(&upgrade.path, upgraded.as_ref().map(|_| (name.as_str(), "as an upgrade")));
        if let Ok(view) = &upgraded {
            router.note_version(EventKind::PluginUpgraded, view);
        }
        upgraded
    }
}

/// Restores the version of a plugin before the last upgrade. Instances keep their state if that version accepts
/// it.
#[derive(Clone, Debug)]
pub struct RollBackPlugin {
    /// Name of the plugin.
    pub name: String,
}

impl Operation for RollBackPlugin {
    type Answer = UpgradeView;
    const EFFECT: Effect = Effect::Code;

    /// # Errors
    /// Returns an error for an unknown plugin, a plugin without an earlier version, or instances that can't
    /// be replaced.
    async fn carry_out(self, router: &Router, _: &Principal) -> Result<UpgradeView, ControlError> {
        let name = self.name.as_str();
        let mut inner = router.to_change()?;
        inner.model.plugins.plugin_named(name)?;
        let Some(previous) = inner.plugins.previous.get(name).cloned() else {
            let held = inner.quarantine().of_plugin(name)?;
            return Err(ControlError::Conflict(no_earlier_version(name, &held)));
        };
        let view = inner.replace(&previous, Inheritance::Tried)?;
        inner.model.repository.rolled_back(name);
        router.note_version(EventKind::PluginRolledBack, &view);
        Ok(view)
    }
}

/// Lists the shared maps of an instance, without their entries.
#[derive(Clone, Debug)]
pub struct ListInstanceMaps {
    /// Name of the instance.
    pub instance: String,
}

impl Operation for ListInstanceMaps {
    type Answer = Vec<MapView>;
    const EFFECT: Effect = Effect::Look;

    /// # Errors
    /// Returns an error for an unknown instance.
    async fn carry_out(self, router: &Router, _: &Principal) -> Result<Vec<MapView>, ControlError> {
        let inner = router.lock();
        Ok(inner.model.plugins.maps(&self.instance)?.iter().map(summary).collect())
    }
}

/// Gets a shared map of an instance with up to 4,096 of its entries. The entries of each worker are ordered by
/// key.
#[derive(Clone, Debug)]
pub struct GetInstanceMap {
    /// Name of the instance.
    pub instance: String,
    /// Name of the map.
    pub map: String,
}

impl Operation for GetInstanceMap {
    type Answer = MapView;
    const EFFECT: Effect = Effect::Look;

    /// # Errors
    /// Returns an error for an unknown instance or map.
    async fn carry_out(self, router: &Router, _: &Principal) -> Result<MapView, ControlError> {
        let map = router.lock().model.plugins.map_named(&self.instance, &self.map)?;
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

/// Lists the quarantine entries for the next start: instances whose call ended the router, and instances of
/// shared objects that were freed in quarantine.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListQuarantine;

impl Operation for ListQuarantine {
    type Answer = Vec<HeldView>;
    const EFFECT: Effect = Effect::Look;

    /// # Errors
    /// None.
    async fn carry_out(self, router: &Router, _: &Principal) -> Result<Vec<HeldView>, ControlError> {
        let inner = router.lock();
        let is_here = |held: &Held| {
            inner.model.plugins.plugin_of(&held.instance).is_ok_and(|plugin| plugin.name() == held.plugin)
        };
        let view = |held: &Held| HeldView {
            instance: held.instance.clone(),
            plugin: held.plugin.clone(),
            since: utc(held.since),
            why: held.why.clone(),
            is_here: is_here(held),
        };
        Ok(inner.model.repository.quarantine().all().iter().map(view).collect())
    }
}

/// Releases an instance from quarantine, whatever the reason: the instance starts anew with its settings. If no
/// such instance exists, removes the entry, so that the instance can be created normally.
#[derive(Clone, Debug)]
pub struct ReleaseInstance {
    /// Name of the instance.
    pub name: String,
}

impl Operation for ReleaseInstance {
    type Answer = ReleaseView;
    const EFFECT: Effect = Effect::Forwarding;

    /// # Errors
    /// Returns an error if no instance of that name is in quarantine, if the instance can't start, or if the
    /// disk refuses. Returns [`ControlError::Forbidden`] for a role below `admin` if code without a sandbox
    /// would run again.
    async fn carry_out(self, router: &Router, caller: &Principal) -> Result<ReleaseView, ControlError> {
        let (name, role) = (self.name.as_str(), caller.least());
        let mut guard = router.to_change()?;
        let inner = &mut *guard;
        let mut quarantine = Quarantine { model: &mut inner.model, workers: &mut inner.workers };
        match quarantine.model.plugins.instance(name) {
            Ok(id) if quarantine.is_quarantined(id)? => inner.release_here(id, name, role),
            Ok(_) => {
                let well = ControlError::Conflict(format!("instance {name:?} is not in quarantine"));
                quarantine.release_absent(&mut inner.observation, name, role, well)
            }
            Err(unknown) => quarantine.release_absent(&mut inner.observation, name, role, unknown.into()),
        }
    }
}
