//! Loads plugin files: reads each file once, checks its signature, compiles it, and registers the plugin.

use std::fs::OpenOptions;
use std::io::{Error, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use millrace_compiler::{CompileError, Compiler};
use millrace_config::{ObjectRuntime, SharedObjects};
use millrace_plugin::native::{self, DescribedPlugin, NativePlugin, ObjectError, is_object};
use millrace_plugin::process::ProcessPlugin;
use millrace_plugin::wasm::{self, LoadedPlugin, MOST_MODULE, WasmPlugin};
use millrace_plugin::{Manifest, WithCompanion};
use millrace_plugin_abi::{Plugin, Runtime};
use millrace_plugin_process::{ProcessGroups, ProcessKeeper};
use millrace_repository::{
    Admission, MOST_SIGNATURE, Memory, Origin, Remembered, Repository, Trust, Unsigned, signature_path,
};
use millrace_telemetry::EventKind;
use serde_json::json;

use crate::events::Events;
use crate::model::Model;
use crate::view::PluginView;
use crate::{ControlError, NewPlugin};

const REFUSED: &str = "it is a shared object or an executable, which runs without a sandbox, and the configuration refuses both: \
    set `shared-objects = \"allow\"` in [plugins], or build the plugin as WebAssembly (`--runtime wasm`)";

/// Creates the repository with the configured trusted keys and the stored versions, and without loaded
/// plugins.
pub(crate) fn repository(
    config: &millrace_config::Plugins,
    memory: Memory,
) -> Result<Repository, ControlError> {
    let invalid =
        |error: millrace_repository::RepositoryError| ControlError::invalid(format!("plugins.keys: {error}"));
    let keys = config.keys.iter().map(|key| key.parse()).collect::<Result<_, _>>().map_err(invalid)?;
    let unsigned = config.unsigned.map(|unsigned| match unsigned {
        millrace_config::Unsigned::Allow => Unsigned::Allow,
        millrace_config::Unsigned::Refuse => Unsigned::Refuse,
    });
    Ok(Repository::new(Trust::new(keys, unsigned), memory))
}

/// Contents of a plugin file and of its signature file. Each file is read only once, so the loaded bytes are
/// the bytes that were checked.
struct PluginFile {
    module: Vec<u8>,
    signature: Option<Vec<u8>>,
}

/// Loaded plugin, which is a compiled module, a shared object or an executable, and the plugin's signer.
pub(crate) struct Loaded {
    pub plugin: Arc<dyn Plugin>,
    pub origin: Origin,
    /// Signer of the host companion, if there is one.
    pub companion_origin: Option<Origin>,
}

/// Admitted version of a plugin, and of its host companion if the plugin has one.
pub(crate) struct Admissions {
    own: Admission,
    companion: Option<Admission>,
}

/// Policy that decides which plugins may be loaded.
#[derive(Clone)]
pub(crate) struct Admitted {
    pub trust: Arc<Trust>,
    pub shared_objects: SharedObjects,
    /// Treatment of shared objects that are loaded.
    pub objects: Objects,
}

/// Treatment of shared objects that are loaded.
#[derive(Clone, Debug)]
pub(crate) enum Objects {
    /// They run in the runtime of their configuration. Their processes belong to these groups.
    Run(ProcessGroups),
    /// They run in this process, whatever their configuration.
    RunHere,
    /// They don't run, as in a plan. Only the manifest is read.
    Describe,
}

impl Admitted {
    /// Returns the policy of a router.
    pub fn of(model: &Model) -> Self {
        let shared_objects = model.fixed.plugins.shared_objects;
        let objects = Objects::Run(ProcessGroups::default());
        Self { trust: model.repository.trust(), shared_objects, objects }
    }
}

/// Part of a plugin. Each part has its own file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// Part that runs at the workers.
    Worker,
    /// Host companion of the plugin.
    Companion,
}

impl Part {
    /// Returns the text that precedes the reason of a refusal.
    fn prefix(self) -> &'static str {
        match self {
            Self::Worker => "",
            Self::Companion => "its host companion: ",
        }
    }
}

/// Function that decides whether a plugin may be loaded. It is called with the manifest and the signer of
/// each part, before any code of a shared object runs.
pub(crate) type Admit<'a> = &'a dyn Fn(Part, &Manifest, Origin) -> Result<(), ControlError>;

/// Loads a plugin file: checks it, then compiles it or loads it as a shared object, depending on its first
/// bytes. Parses no file without a trusted signer, and runs no code that `admit` refuses. When the optimised
/// compilation ends, calls `upgraded` with the result.
pub(crate) fn load(
    compiler: &Compiler,
    admitted: &Admitted,
    new: &NewPlugin,
    admit: Admit<'_>,
    upgraded: impl FnOnce(&WasmPlugin, Result<(), CompileError>) + Send + 'static,
) -> Result<Loaded, ControlError> {
    let compile = |module: &[u8]| {
        let loaded = compiler.load(module, upgraded).map_err(|error| error.to_string())?;
        tracing::info!("plugin {}: {} code, {}", loaded.plugin.name(), loaded.plugin.tier(), loaded.source);
        Ok(loaded.plugin)
    };
    load_by(admitted, new, admit, compile, |module| {
        // A running companion keeps its code when the optimised code is ready. Only companions created later
        // use the optimised code.
        let loaded = compiler.load(module, |_, _| ()).map_err(|error| error.to_string())?;
        Ok(loaded.plugin)
    })
}

/// Memory of a host companion's instance, in bytes.
const COMPANION_MEMORY: usize = 64 << 20;

/// Reads and checks the file of a host companion: a sandboxed module that calls only functions available at
/// the host level.
fn examine_companion(admitted: &Admitted, path: &Path) -> Result<(PluginFile, Examined), String> {
    let file = PluginFile::read(path)?;
    let examined = file.examine(admitted, |module| match is_object(module) {
        true => {
            Err("it is a shared object or an executable, but a host companion must be a WebAssembly module"
                .to_owned())
        }
        false => module_manifest(module),
    })?;
    WithCompanion::problem(&examined.manifest).map_or(Ok((file, examined)), Err)
}

fn module_manifest(module: &[u8]) -> Result<Manifest, String> {
    wasm::inspect(module).map(|inspected| inspected.manifest).map_err(|error| error.to_string())
}

/// Checks a plugin file, and the file of its host companion. Then compiles the companion with
/// `compile_companion`. Last, compiles the plugin with `compile`, or loads it if it is a shared object,
/// because loading runs the constructors of a shared object.
fn load_by(
    admitted: &Admitted,
    new: &NewPlugin,
    admit: Admit<'_>,
    compile: impl FnOnce(&[u8]) -> Result<WasmPlugin, String>,
    compile_companion: impl FnOnce(&[u8]) -> Result<WasmPlugin, String>,
) -> Result<Loaded, ControlError> {
    let (path, runtime) = (&*new.path, new.runtime);
    let refused = |problem: String| ControlError::invalid(format!("plugin {path}: {problem}"));
    let file = PluginFile::read(Path::new(path)).map_err(refused)?;
    let own_manifest = |module: &[u8]| match is_object(module) {
        true if admitted.shared_objects == SharedObjects::Refuse => Err(REFUSED.to_owned()),
        true => native::manifest(module).map_err(|error| error.to_string()),
        false => module_manifest(module),
    };
    let examined = file.examine(admitted, own_manifest).map_err(refused)?;
    admit(Part::Worker, &examined.manifest, examined.origin)?;
    let Some(name) = examined.manifest.host_companion.clone() else {
        return file.load(admitted, runtime, examined.origin, compile).map_err(refused);
    };
    let companion_refused = |problem| refused(format!("its host companion {name}: {problem}"));
    let companion = examine_companion(admitted, &Path::new(path).with_file_name(&name));
    let (companion_file, companion) = companion.map_err(companion_refused)?;
    admit(Part::Companion, &companion.manifest, companion.origin)?;
    let compiled =
        compile_companion(&companion_file.module).and_then(LoadedPlugin::new).map_err(companion_refused)?;
    let loaded = file.load(admitted, runtime, examined.origin, compile).map_err(refused)?;
    let plugin =
        Arc::new(WithCompanion::new(loaded.plugin, Arc::new(compiled.with_memory(COMPANION_MEMORY))));
    Ok(Loaded { plugin, companion_origin: Some(companion.origin), ..loaded })
}

/// Refuses a new plugin whose name is in use, and a downgrade. It needs only the manifest, so it can refuse
/// before any code of the plugin runs.
pub(crate) fn admit_new(
    model: &Model,
    part: Part,
    manifest: &Manifest,
    origin: Origin,
    new: &NewPlugin,
) -> Result<(), ControlError> {
    if part == Part::Worker {
        model.plugins.plugin_registry().check_new(&manifest.name)?;
    }
    admit_version(model, part, manifest, origin, new)
}

/// Refuses a downgrade of a plugin or its host companion. It needs only the manifest, so it can refuse before
/// any code of the plugin runs.
pub(crate) fn admit_version(
    model: &Model,
    part: Part,
    manifest: &Manifest,
    origin: Origin,
    new: &NewPlugin,
) -> Result<(), ControlError> {
    admit_part(model, part, (&manifest.name, &manifest.version), origin, new).map(drop)
}

fn admit_part(
    model: &Model,
    part: Part,
    (name, version): (&str, &str),
    origin: Origin,
    new: &NewPlugin,
) -> Result<Admission, ControlError> {
    let admitted = model.repository.admit(name, version, origin, new.allow_downgrade);
    let refused = |problem| ControlError::invalid(format!("plugin {}: {}{problem}", new.path, part.prefix()));
    admitted.map_err(refused)
}

/// Admits a loaded plugin for registration. Refuses a downgrade of the plugin or of its host companion.
pub(crate) fn admit(model: &Model, loaded: &Loaded, new: &NewPlugin) -> Result<Admissions, ControlError> {
    let admit = |plugin: &dyn Plugin, origin, part| {
        admit_part(model, part, (plugin.name(), plugin.version()), origin, new)
    };
    let companion = loaded.plugin.host_companion().zip(loaded.companion_origin);
    Ok(Admissions {
        own: admit(&*loaded.plugin, loaded.origin, Part::Worker)?,
        companion: companion
            .map(|(companion, origin)| admit(companion, origin, Part::Companion))
            .transpose()?,
    })
}

/// Stores the versions of a plugin and of its host companion on disk. Callers do this before the plugin
/// counts as loaded.
pub(crate) fn remember(model: &mut Model, admitted: &Admissions) -> Result<Vec<Remembered>, ControlError> {
    let mut all = Vec::new();
    for admission in [Some(&admitted.own), admitted.companion.as_ref()].into_iter().flatten() {
        match model.repository.remember(admission) {
            Ok(remembered) => all.push(remembered),
            Err(error) => {
                take_back(model, all);
                let what = "store the plugin's version, which is needed to refuse downgrades";
                return Err(ControlError::system(what, error));
            }
        }
    }
    Ok(all)
}

/// Removes the stored versions of a plugin whose loading failed after they were stored.
pub(crate) fn take_back(model: &mut Model, all: Vec<Remembered>) {
    for remembered in all {
        if let Err(error) = model.repository.take_back(remembered) {
            tracing::error!(
                "can't remove the version record of a plugin that was not loaded, so older versions may be refused as downgrades: {error}"
            );
        }
    }
}

/// Marks a plugin as loaded.
pub(crate) fn note_loaded(model: &mut Model, admitted: Admissions) {
    model.repository.loaded(admitted.own);
}

/// Registers a loaded plugin. Returns its name.
pub(crate) fn enter(
    model: &mut Model,
    loaded: Loaded,
    new: &NewPlugin,
) -> Result<&'static str, ControlError> {
    let admitted = admit(model, &loaded, new)?;
    let name = loaded.plugin.name();
    model.plugins.plugin_registry().check_new(name)?;
    remember(model, &admitted)?;
    model.plugins.add_plugin(loaded.plugin)?;
    tracing::info!("plugin {name} is {}", loaded.origin);
    note_loaded(model, admitted);
    let NewPlugin { path, allow_downgrade, runtime } = new.clone();
    let file = millrace_config::Plugin { file: path.into(), allow_downgrade, runtime };
    model.files.push((name, file));
    Ok(name)
}

/// Logs the result of loading a plugin: its name and version, or the refusal. Replaces control characters, so
/// that the log message has one line.
pub(crate) fn log(path: &str, loaded: Result<(&str, &str), &ControlError>) {
    let line = |text: &str| text.replace(char::is_control, "?");
    match loaded {
        Ok((name, version)) => tracing::info!("plugin {name} {version} loaded from {}", line(path)),
        Err(error) => tracing::warn!("plugin refused: {}", line(&error.to_string())),
    }
}

/// Logs the result of loading a plugin. If it was loaded, notes an event.
pub(crate) fn report_loaded(events: &Events, new: &NewPlugin, loaded: &Result<PluginView, ControlError>) {
    log(&new.path, loaded.as_ref().map(|plugin| (plugin.name, plugin.version)));
    if let Ok(PluginView { name, version, runtime, signature, .. }) = loaded {
        let text = format!("plugin {name} {version} loaded");
        let details = json!({"plugin": name, "version": version, "runtime": runtime, "signature": signature, "path": new.path});
        events.note(EventKind::PluginLoaded, name, text, details);
    }
}

/// Manifest and signer of a checked file. No code of the file has run.
struct Examined {
    manifest: Manifest,
    origin: Origin,
}

impl PluginFile {
    fn read(path: &Path) -> Result<Self, String> {
        let module = read(path, MOST_MODULE).map_err(|error| error.to_string())?;
        let beside = signature_path(path);
        let signature = match read(&beside, MOST_SIGNATURE) {
            Ok(signature) => Some(signature),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(format!("its signature {}: {error}", beside.display())),
        };
        Ok(Self { module, signature })
    }

    /// Checks the signature, reads the manifest with the function `manifest`, and compares both. Runs no code
    /// of the plugin.
    fn examine(
        &self,
        admitted: &Admitted,
        manifest: impl FnOnce(&[u8]) -> Result<Manifest, String>,
    ) -> Result<Examined, String> {
        let checked = admitted.trust.check(&self.module, self.signature.as_deref());
        let checked = checked.map_err(|problem| problem.to_string())?;
        let manifest = manifest(&self.module)?;
        let origin = checked.fits(&manifest).map_err(|problem| problem.to_string())?;
        Ok(Examined { manifest, origin })
    }

    /// Compiles a module with the function `compile`, or loads a shared object. If plugins don't run, reads
    /// only the manifest of a shared object.
    fn load(
        &self,
        admitted: &Admitted,
        runtime: ObjectRuntime,
        origin: Origin,
        compile: impl FnOnce(&[u8]) -> Result<WasmPlugin, String>,
    ) -> Result<Loaded, String> {
        let plugin = match is_object(&self.module) {
            false => Arc::new(LoadedPlugin::new(compile(&self.module)?)?),
            true => self.load_object(&admitted.objects, runtime)?,
        };
        Ok(Loaded { plugin, origin, companion_origin: None })
    }

    /// Loads a shared object or executable for its runtime, or only describes it.
    fn load_object(&self, objects: &Objects, runtime: ObjectRuntime) -> Result<Arc<dyn Plugin>, String> {
        let plugin: Result<Arc<dyn Plugin>, ObjectError> = match (objects, runtime) {
            (Objects::Describe, runtime) => {
                let runtime = match runtime {
                    ObjectRuntime::Process => Runtime::Process,
                    ObjectRuntime::InProcess => Runtime::Trusted,
                };
                DescribedPlugin::new(&self.module, runtime).map(|plugin| Arc::new(plugin) as _)
            }
            (Objects::Run(groups), ObjectRuntime::Process) => {
                let keeper = ProcessKeeper::of_router().map_err(|error| format!("the router {error}"))?;
                let keeper = keeper.in_groups(groups);
                ProcessPlugin::new(&self.module, Arc::new(keeper)).map(|plugin| Arc::new(plugin) as _)
            }
            (Objects::Run(_), ObjectRuntime::InProcess) | (Objects::RunHere, _) => {
                NativePlugin::new(&self.module).map(|plugin| Arc::new(plugin) as _)
            }
        };
        let plugin = plugin.map_err(|error| error.to_string())?;
        if !matches!(objects, Objects::Describe) {
            tracing::warn!("plugin {} is {}", plugin.name(), plugin.runtime().text());
        }
        Ok(plugin)
    }
}

/// Reads a file of at most `most` bytes.
fn read(path: &Path, most: usize) -> Result<Vec<u8>, Error> {
    // Opening a FIFO would block without `O_NONBLOCK`.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let kind = file.metadata()?;
    // Reading a device or FIFO may never end, or never return data.
    if !kind.is_file() {
        return Err(Error::other("it is not a regular file"));
    }
    let too_long = |bytes: u64| Error::other(format!("it has {bytes} bytes, and the limit is {most}"));
    if kind.len() > most as u64 {
        return Err(too_long(kind.len()));
    }
    let mut bytes = Vec::new();
    // The read takes one byte more than allowed, to detect a file that has grown in the meantime.
    file.take(most as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > most { Err(too_long(bytes.len() as u64)) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests;
