//! Plugins that are files: read once, checked against their signature, compiled, and made known.

use std::fs::OpenOptions;
use std::io::{Error, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use millrace_compiler::{CompileError, Compiler};
use millrace_config::SharedObjects;
use millrace_plugin::native::{self, DescribedPlugin, NativePlugin, is_object};
use millrace_plugin::wasm::{self, LoadedPlugin, MOST_MODULE, WasmPlugin};
use millrace_plugin::{Halves, Manifest};
use millrace_plugin_abi::Plugin;
use millrace_repository::{
    Admission, MOST_SIGNATURE, Memory, Origin, Remembered, Repository, Trust, Unsigned, signature_path,
};

use crate::model::Model;
use crate::{ControlError, NewPlugin};

/// Why shared objects are not loaded.
const REFUSED: &str = "it is a shared object, which is trusted with the whole router, and the configuration doesn't allow them: \
    say `shared-objects = \"allow\"` under [plugins], or build it with `--home wasm`";

/// What the configuration trusts, and what is remembered, before anything was loaded.
pub(crate) fn repository(
    config: &millrace_config::Plugins,
    memory: Memory,
) -> Result<Repository, ControlError> {
    let invalid =
        |error: millrace_repository::RepositoryError| ControlError::Invalid(format!("plugins.keys: {error}"));
    let keys = config.keys.iter().map(|key| key.parse()).collect::<Result<_, _>>().map_err(invalid)?;
    let unsigned = config.unsigned.map(|unsigned| match unsigned {
        millrace_config::Unsigned::Allow => Unsigned::Allow,
        millrace_config::Unsigned::Refuse => Unsigned::Refuse,
    });
    Ok(Repository::new(Trust::new(keys, unsigned), memory))
}

/// The bytes of a plugin's file and of its signature's, which are looked at from here on, not the files.
struct PluginFile {
    module: Vec<u8>,
    signature: Option<Vec<u8>>,
}

/// A plugin that was compiled or linked, and who signed it.
pub(crate) struct Loaded {
    pub plugin: Arc<dyn Plugin>,
    pub origin: Origin,
    /// Who signed its host companion, where it has one.
    pub slow_origin: Option<Origin>,
}

/// A plugin that may be made known, and its host companion if it has one: neither version goes back.
pub(crate) struct Admissions {
    own: Admission,
    slow: Option<Admission>,
}

/// What has been remembered of both.
pub(crate) struct AllRemembered([Option<Remembered>; 2]);

/// What is loaded, by the configuration.
#[derive(Clone, Debug)]
pub(crate) struct Admitted {
    /// By whom a plugin has to be signed.
    pub trust: Arc<Trust>,
    /// Whether it may be a shared object.
    pub shared_objects: SharedObjects,
    /// Whether the plugins run. In a plan a shared object is only described.
    pub runs: bool,
}

/// Part of a plugin, in a file of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Half {
    /// The plugin.
    Own,
    /// Its host companion.
    Slow,
}

impl Half {
    /// Begins the reason for which it is refused.
    fn prefix(self) -> &'static str {
        match self {
            Self::Own => "",
            Self::Slow => "its host companion: ",
        }
    }
}

/// Decides by the manifest and signer of a half whether the plugin is loaded. It is asked for both halves before code of a shared object
/// runs.
pub(crate) type Admit<'a> = &'a dyn Fn(Half, &Manifest, Origin) -> Result<(), ControlError>;

/// Reads, checks and compiles the plugin of a file, or loads it as a shared object, as its first bytes say. Of what is not
/// trusted nothing is parsed, and of what `admit` refuses nothing runs. `upgraded` is called when better code has been made for it, or could not be.
pub(crate) fn load(
    compiler: &Compiler,
    admitted: &Admitted,
    path: &str,
    admit: Admit<'_>,
    upgraded: impl FnOnce(&WasmPlugin, Result<(), CompileError>) + Send + 'static,
) -> Result<Loaded, ControlError> {
    let compile = |module: &[u8]| {
        let loaded = compiler.load(module, upgraded).map_err(|error| error.to_string())?;
        tracing::info!("plugin {}: {} code, {}", loaded.plugin.name(), loaded.plugin.tier(), loaded.source);
        Ok(loaded.plugin)
    };
    load_by(admitted, path, admit, compile, |module| {
        // Instances that begin later have the better code.
        let loaded = compiler.load(module, |_, _| ()).map_err(|error| error.to_string())?;
        Ok(loaded.plugin)
    })
}

/// Bytes of memory of an instance on the host level.
const SLOW_MEMORY: usize = 64 << 20;

/// Reads and checks the host companion of a plugin, which is contained and calls only what makes sense there.
fn examine_slow(admitted: &Admitted, path: &Path) -> Result<(PluginFile, Examined), String> {
    let file = PluginFile::read(path)?;
    let checked = admitted.trust.check(&file.module, file.signature.as_deref());
    let checked = checked.map_err(|problem| problem.to_string())?;
    if is_object(&file.module) {
        return Err("it is a shared object: a host companion is a WebAssembly module".to_owned());
    }
    let manifest = wasm::inspect(&file.module).map_err(|error| error.to_string())?.manifest;
    let origin = checked.fits(&manifest).map_err(|problem| problem.to_string())?;
    match Halves::problem(&manifest) {
        Some(problem) => Err(problem),
        None => Ok((file, Examined { manifest, origin })),
    }
}

/// Reads and checks the plugin of a file and the host companion that it names; then has modules compiled, the plugin's by `compile` and the
/// host companion's by `compile_slow`, and loads a shared object last: all else that can be refused is refused before its constructors run.
fn load_by(
    admitted: &Admitted,
    path: &str,
    admit: Admit<'_>,
    compile: impl FnOnce(&[u8]) -> Result<WasmPlugin, String>,
    compile_slow: impl FnOnce(&[u8]) -> Result<WasmPlugin, String>,
) -> Result<Loaded, ControlError> {
    let refused = |problem: String| ControlError::Invalid(format!("plugin {path}: {problem}"));
    let file = PluginFile::read(Path::new(path)).map_err(refused)?;
    let examined = file.examine(admitted).map_err(refused)?;
    admit(Half::Own, &examined.manifest, examined.origin)?;
    let Some(name) = examined.manifest.host_companion.clone() else {
        return file.load(admitted, examined.origin, compile).map_err(refused);
    };
    let slow_refused = |problem| refused(format!("its host companion {name}: {problem}"));
    let slow = examine_slow(admitted, &Path::new(path).with_file_name(&name));
    let (slow_file, slow) = slow.map_err(slow_refused)?;
    admit(Half::Slow, &slow.manifest, slow.origin)?;
    let compiled = compile_slow(&slow_file.module).and_then(LoadedPlugin::new).map_err(slow_refused)?;
    let loaded = file.load(admitted, examined.origin, compile).map_err(refused)?;
    let plugin = Arc::new(Halves::new(loaded.plugin, Arc::new(compiled.with_memory(SLOW_MEMORY))));
    Ok(Loaded { plugin, slow_origin: Some(slow.origin), ..loaded })
}

/// Refuses a plugin by its manifest, before any of it runs: a name that is taken, or a version that goes back.
pub(crate) fn admit_new(
    model: &Model,
    half: Half,
    manifest: &Manifest,
    origin: Origin,
    new: &NewPlugin,
) -> Result<(), ControlError> {
    if half == Half::Own {
        model.plugins.check_new(&manifest.name)?;
    }
    admit_version(model, half, manifest, origin, new)
}

/// Refuses a plugin by the manifest of a half whose version goes back, before any of it runs.
pub(crate) fn admit_version(
    model: &Model,
    half: Half,
    manifest: &Manifest,
    origin: Origin,
    new: &NewPlugin,
) -> Result<(), ControlError> {
    let admitted = model.repository.admit(&manifest.name, &manifest.version, origin, new.allow_downgrade);
    let refused = |problem| ControlError::Invalid(format!("plugin {}: {}{problem}", new.path, half.prefix()));
    admitted.map(drop).map_err(refused)
}

/// Whether a plugin that was loaded may be made known: its version must not go back, nor that of its host companion.
pub(crate) fn admit(model: &Model, loaded: &Loaded, new: &NewPlugin) -> Result<Admissions, ControlError> {
    let admit = |plugin: &dyn Plugin, origin, half: Half| {
        let admitted = model.repository.admit(plugin.name(), plugin.version(), origin, new.allow_downgrade);
        let refused =
            |problem| ControlError::Invalid(format!("plugin {}: {}{problem}", new.path, half.prefix()));
        admitted.map_err(refused)
    };
    let slow = loaded.plugin.host_companion().zip(loaded.slow_origin);
    Ok(Admissions {
        own: admit(&*loaded.plugin, loaded.origin, Half::Own)?,
        slow: slow.map(|(slow, origin)| admit(slow, origin, Half::Slow)).transpose()?,
    })
}

/// Has the disk remember the versions of a plugin and of its host companion, before it counts as loaded.
pub(crate) fn remember(model: &mut Model, admitted: &Admissions) -> Result<AllRemembered, ControlError> {
    let mut all = AllRemembered([None, None]);
    for (admission, place) in [Some(&admitted.own), admitted.slow.as_ref()].into_iter().zip(0..) {
        let Some(admission) = admission else { continue };
        match model.repository.remember(admission) {
            Ok(remembered) => all.0[place] = Some(remembered),
            Err(error) => {
                take_back(model, all);
                return Err(ControlError::system(
                    "remember the plugin's version, so that no older one takes its place later",
                    error,
                ));
            }
        }
    }
    Ok(all)
}

/// Forgets what was remembered of a plugin that could not be loaded.
pub(crate) fn take_back(model: &mut Model, remembered: AllRemembered) {
    for remembered in remembered.0.into_iter().flatten() {
        if let Err(error) = model.repository.take_back(remembered) {
            tracing::error!("a version that was not loaded counts as loaded: {error}");
        }
    }
}

/// Notes that a plugin is loaded.
pub(crate) fn note_loaded(model: &mut Model, admitted: Admissions) {
    model.repository.loaded(admitted.own);
}

/// Makes a plugin known that was loaded. Returns its name.
pub(crate) fn enter(
    model: &mut Model,
    loaded: Loaded,
    new: &NewPlugin,
) -> Result<&'static str, ControlError> {
    let admitted = admit(model, &loaded, new)?;
    let name = loaded.plugin.name();
    model.plugins.check_new(name)?;
    remember(model, &admitted)?;
    model.plugins.add_plugin(loaded.plugin)?;
    tracing::info!("plugin {name} is {}", loaded.origin);
    note_loaded(model, admitted);
    let file =
        millrace_config::Plugin { file: new.path.clone().into(), allow_downgrade: new.allow_downgrade };
    model.files.push((name, file));
    Ok(name)
}

/// Writes what became of a load into the log, on one line whatever the file is called: name and version, or why it was
/// refused.
pub(crate) fn log(path: &str, loaded: Result<(&str, &str), &ControlError>) {
    let line = |text: &str| text.replace(char::is_control, "?");
    match loaded {
        Ok((name, version)) => tracing::info!("plugin {name} {version} loaded from {}", line(path)),
        Err(error) => tracing::warn!("plugin refused: {}", line(&error.to_string())),
    }
}

/// What is known of a plugin before any of it runs.
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

    /// Checks signature, policy and claims against the bytes. No code of the plugin runs.
    fn examine(&self, admitted: &Admitted) -> Result<Examined, String> {
        let checked = admitted.trust.check(&self.module, self.signature.as_deref());
        let checked = checked.map_err(|problem| problem.to_string())?;
        let manifest = match is_object(&self.module) {
            true if admitted.shared_objects == SharedObjects::Refuse => return Err(REFUSED.to_owned()),
            true => native::manifest(&self.module).map_err(|error| error.to_string())?,
            false => wasm::inspect(&self.module).map_err(|error| error.to_string())?.manifest,
        };
        let origin = checked.fits(&manifest).map_err(|problem| problem.to_string())?;
        Ok(Examined { manifest, origin })
    }

    /// Has the module compiled by `compile`, or the shared object loaded; in a plan the object is only described.
    fn load(
        &self,
        admitted: &Admitted,
        origin: Origin,
        compile: impl FnOnce(&[u8]) -> Result<WasmPlugin, String>,
    ) -> Result<Loaded, String> {
        let plugin: Arc<dyn Plugin> = match (is_object(&self.module), admitted.runs) {
            (false, _) => Arc::new(LoadedPlugin::new(compile(&self.module)?)?),
            (true, false) => Arc::new(DescribedPlugin::new(&self.module).map_err(|error| error.to_string())?),
            (true, true) => {
                let plugin = NativePlugin::new(&self.module).map_err(|error| error.to_string())?;
                tracing::warn!("plugin {} is {}", plugin.name(), plugin.home().text());
                Arc::new(plugin)
            }
        };
        Ok(Loaded { plugin, origin, slow_origin: None })
    }
}

/// Reads a file of at most so many bytes.
fn read(path: &Path, most: usize) -> Result<Vec<u8>, Error> {
    // Opening what is no regular file may wait for somebody at its other end, unless it is told not to.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let kind = file.metadata()?;
    // Others may never end, or never begin.
    if !kind.is_file() {
        return Err(Error::other("it is no regular file"));
    }
    let too_long = |bytes: u64| Error::other(format!("it has {bytes} bytes: at most {most} are taken"));
    if kind.len() > most as u64 {
        return Err(too_long(kind.len()));
    }
    let mut bytes = Vec::new();
    // One byte more than there may be tells a file that has grown since.
    file.take(most as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > most { Err(too_long(bytes.len() as u64)) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests;
