//! The plugins that the router knows: loaded, and forgotten.

use millrace_plugin::Manifest;
use millrace_telemetry::EventKind;
use serde_json::json;

use crate::load::{Half, Loaded, admit_new, admit_version};
use crate::router::{Inner, Router};
use crate::view::{PluginDetailView, PluginView};
use crate::{ControlError, NewPlugin, show};

impl Router {
    /// The plugins that instances can be made of.
    ///
    /// # Errors
    /// None so far.
    pub fn plugins(&self) -> Result<Vec<PluginView>, ControlError> {
        Ok(show::plugins(&self.lock().model))
    }

    /// A plugin, and all that it says of itself.
    ///
    /// # Errors
    /// No such plugin.
    pub fn plugin(&self, name: &str) -> Result<PluginDetailView, ControlError> {
        let inner = self.lock();
        let mut view = show::plugin(&inner.model, name)?;
        view.previous = inner.previous_plugins.get(name).map(|plugin| plugin.version());
        Ok(view)
    }

    /// Makes the plugin of a file known: a WebAssembly module, checked and compiled beside everything else, or a shared object,
    /// where the configuration allows that.
    ///
    /// # Errors
    /// A file that can't be read, isn't signed as the configuration wants it or is no plugin for this router, a version that
    /// goes back, a name that is taken; nothing has changed then.
    pub async fn load_plugin(&self, new: &NewPlugin) -> Result<PluginView, ControlError> {
        // Nothing is compiled in vain; whether it may still be entered is asked when it is there.
        drop(self.to_change()?);
        let loaded = self.read_plugin(new, None).await;
        let entered = loaded.and_then(|loaded| self.to_change()?.enter_plugin(loaded, new));
        self.say_loaded(new, &entered);
        entered
    }

    /// Says what became of loading a plugin.
    pub(crate) fn say_loaded(&self, new: &NewPlugin, loaded: &Result<PluginView, ControlError>) {
        crate::load::log(&new.path, loaded.as_ref().map(|plugin| (plugin.name, plugin.version)));
        if let Ok(PluginView { name, version, home, signature, .. }) = loaded {
            let text = format!("plugin {name} {version} is loaded");
            let details = json!({"plugin": name, "version": version, "home": home, "signature": signature, "path": new.path});
            self.events().note(EventKind::PluginLoaded, name, text, details);
        }
    }

    /// Loads the plugin of a file: a new one, or another version of the plugin of a name. Name, signer and version are checked before
    /// code of it runs.
    pub(crate) async fn read_plugin(
        &self,
        new: &NewPlugin,
        version_of: Option<&str>,
    ) -> Result<Loaded, ControlError> {
        let (router, new, name) = (self.clone(), new.clone(), version_of.map(str::to_owned));
        let (loader, admitted) = {
            let inner = self.lock();
            (inner.loader.clone(), inner.model.admitted())
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

    /// Forgets a plugin of which there are no instances; it is told by its name, or by the file that it was loaded from.
    ///
    /// # Errors
    /// No such plugin, one that is built in, instances of it.
    pub fn unload_plugin(&self, plugin: &str) -> Result<PluginView, ControlError> {
        self.to_change()?.unload_plugin(plugin)
    }
}

impl Inner {
    /// Makes a plugin known that was read.
    pub fn enter_plugin(&mut self, loaded: Loaded, new: &NewPlugin) -> Result<PluginView, ControlError> {
        let name = crate::load::enter(&mut self.model, loaded, new)?;
        let known = show::plugins(&self.model).into_iter().find(|plugin| plugin.name == name);
        known.ok_or_else(|| ControlError::System("the plugin is not there".into()))
    }

    pub fn unload_plugin(&mut self, plugin: &str) -> Result<PluginView, ControlError> {
        let of_file = self.model.files.iter().find(|(_, file)| file.file == std::path::Path::new(plugin));
        let name = of_file.map_or(plugin, |(name, _)| *name);
        let known = show::plugins(&self.model).into_iter().find(|plugin| plugin.name == name);
        if self.model.plugins.is_built_in(name)? {
            return Err(ControlError::Conflict(format!(
                "plugin {name:?} is part of the router and can't be unloaded: that can only be what `plugin load` has loaded"
            )));
        }
        self.model.plugins.remove_plugin(name)?;
        self.previous_plugins.remove(name);
        self.model.files.retain(|(known, _)| *known != name);
        self.model.repository.unloaded(name);
        let text = format!("plugin {name} is unloaded");
        self.events.note(EventKind::PluginUnloaded, name, text, json!({"plugin": name}));
        known.ok_or_else(|| ControlError::System("the plugin was not there".into()))
    }
}
