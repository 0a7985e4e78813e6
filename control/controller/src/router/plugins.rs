//! Loads plugin files into a running router, and puts their optimised code into use.

use std::path::Path;
use std::sync::Arc;

use millrace_compiler::CompileError;
use millrace_plugin::wasm::WasmPlugin;
use millrace_plugin::{Inheritance, Manifest};

use super::Router;
use crate::ControlError;
use crate::plugins::load::{Admitted, Loaded, Part, admit_new, admit_version};
use crate::plugins::loader::Loader;
use crate::plugins::upgrade::{Late, succeed_all};
use crate::request::NewPlugin;
use crate::workers::commands::connections_at_worker;

impl Router {
    /// Loads the file of a new plugin, or of another version of plugin `version_of`. Checks name, signer and
    /// version before any code of the plugin runs.
    pub(crate) async fn read_plugin(
        &self,
        new: &NewPlugin,
        version_of: Option<&str>,
    ) -> Result<Loaded, ControlError> {
        let loader = self.lock().plugins.loader.clone();
        self.read_by(loader, new, version_of).await
    }

    /// Checks the file of a version of plugin `name` like [`read_plugin`](Self::read_plugin). No code of a shared object
    /// runs: only its manifest is read.
    pub(crate) async fn describe_plugin(&self, new: &NewPlugin, name: &str) -> Result<Loaded, ControlError> {
        let loader = self.lock().plugins.loader.planning();
        self.read_by(loader, new, Some(name)).await
    }

    async fn read_by(
        &self,
        loader: Loader,
        new: &NewPlugin,
        version_of: Option<&str>,
    ) -> Result<Loaded, ControlError> {
        if !Path::new(&new.path).is_absolute() {
            let problem = format!(
                "file: {:?} is relative, and the router has a working directory of its own: give the absolute path",
                new.path
            );
            return Err(ControlError::invalid(problem));
        }
        let (router, new, name) = (self.clone(), new.clone(), version_of.map(str::to_owned));
        let admitted = Admitted::of(&self.lock().model);
        let admit = move |part, manifest: &Manifest, origin, new: &NewPlugin| match &name {
            None => admit_new(&router.lock().model, part, manifest, origin, new),
            Some(name) if part == Part::Worker && *name != manifest.name => Err(ControlError::invalid(
                format!("plugin {}: the file contains plugin {:?}, not {name:?}", new.path, manifest.name),
            )),
            Some(_) => admit_version(&router.lock().model, part, manifest, origin, new),
        };
        let work = move || {
            loader.load(&admitted, &new, &|part, manifest, origin| admit(part, manifest, origin, &new))
        };
        let loaded = tokio::task::spawn_blocking(work).await;
        loaded.map_err(|error| ControlError::system("load the plugin", error))?
    }

    /// Registers this router as the receiver of the loader's optimised code.
    pub(crate) fn receive_code(&self, loader: &Loader) {
        let router = Arc::downgrade(&self.0);
        loader.serve(move |(plugin, result)| {
            if let Some(router) = router.upgrade() {
                Self(router).code_upgraded(&plugin, result);
            }
        });
    }

    /// Handles the end of a plugin's optimised compilation. Instances that can hand over their state switch
    /// to the optimised code at once. Other instances use the optimised code only when they are created
    /// again.
    fn code_upgraded(&self, code: &WasmPlugin, result: Result<(), CompileError>) {
        let (name, tier) = (code.name(), code.current().tier());
        match result {
            Ok(()) => tracing::info!("plugin {name}: {tier} code is ready"),
            Err(error) => return tracing::warn!("plugin {name} keeps its {tier} code: {error}"),
        }
        let mut inner = self.lock();
        // The plugin may have been unloaded or replaced in the meantime.
        let Ok(plugin) = inner.model.plugins.plugin_named(name) else { return };
        let workers = inner.workers.len();
        let Ok(successors) = inner.model.plugins.successors(&*plugin, workers) else { return };
        let version = plugin.state_version();
        let connections = connections_at_worker(&inner.model.fixed.connections, workers);
        for one in successors {
            let (id, maps) = (one.id, one.maps.clone());
            let treatment = (Inheritance::Indispensable, Late::CallOff);
            let versions = (version, version);
            match succeed_all(&mut inner.workers, vec![one], treatment, versions, connections) {
                Ok(_) => inner.model.plugins.instance_registry_mut().note_maps(id, maps),
                Err(problem) => tracing::info!(
                    "plugin {name}: {problem}; the instance uses the {tier} code once it is created again"
                ),
            }
        }
    }
}
