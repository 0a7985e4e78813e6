//! Loading of plugins. Code comes from the cache if possible. Otherwise the plugin first runs code of the
//! baseline compiler, while the optimising compiler works.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use millrace_confine::Privileges;
use millrace_plugin::wasm::{Inspected, ModuleError, Sandbox, Tier, WasmPlugin, inspect};

use crate::cache::{Cache, Key};
use crate::process::{self, ChildCommand, Limits};
use crate::{CacheError, CompileError};

/// Settings of the compiler.
#[derive(Clone, Debug)]
pub struct CompilerSettings {
    /// Command that starts the compiling process.
    pub command: ChildCommand,
    /// Limits of the compiling process.
    pub limits: Limits,
    /// Cache directory; `None` for no cache.
    pub cache: Option<PathBuf>,
}

impl Default for CompilerSettings {
    fn default() -> Self {
        Self { command: ChildCommand::own(), limits: Limits::default(), cache: None }
    }
}

impl CompilerSettings {
    /// Returns the default cache directory: the directory `plugins` in the first directory of the environment
    /// variable `CACHE_DIRECTORY`. Systemd sets this variable for services with a `CacheDirectory`. Without
    /// it, root has `/var/cache/millrace/plugins`, and other users have a directory in their own cache.
    /// `None` for a user without a home directory.
    pub fn default_cache() -> Option<PathBuf> {
        default_cache(nix::unistd::geteuid().is_root(), |name| std::env::var_os(name))
    }
}

fn default_cache(is_root: bool, variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name| {
        let directories = variable(name)?;
        std::env::split_paths(&directories).next().filter(|path| path.is_absolute())
    };
    if let Some(given) = absolute("CACHE_DIRECTORY") {
        return Some(given.join("plugins"));
    }
    if is_root {
        return Some("/var/cache/millrace/plugins".into());
    }
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(cache.join("millrace/plugins"))
}

/// Source of a plugin's code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// The cache.
    Cache,
    /// A compiler run.
    Compiled,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cache => "from the cache",
            Self::Compiled => "just compiled",
        })
    }
}

/// Plugin that was loaded, and the source of its code.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Loaded plugin.
    pub plugin: WasmPlugin,
    /// Source of the plugin's code.
    pub source: Source,
}

/// Module that was checked, with the result of its inspection.
struct Checked<'a> {
    wasm: &'a [u8],
    inspected: Inspected,
}

/// Compiler of plugins with a cache. Clones share one compiler.
#[derive(Clone, Debug)]
pub struct Compiler(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    sandbox: Sandbox,
    command: ChildCommand,
    limits: Limits,
    cache: Option<Cache>,
    /// One lock per tier, so at most one compiling process per tier runs.
    turns: [Mutex<()>; 2],
}

impl Compiler {
    /// Creates a compiler for plugins of `sandbox`, and starts the launcher if needed. If the cache directory
    /// can't be used, the compiler logs this and caches no code.
    pub fn new(sandbox: Sandbox, settings: CompilerSettings) -> Self {
        if let Err(error) = crate::launcher::begin_launcher() {
            tracing::warn!("plugins keep baseline code, because the launcher thread is missing: {error}");
        }
        let opened = settings.cache.as_deref().map(Cache::open).transpose();
        let told = |error: CacheError| tracing::warn!("compiled plugins are not cached: {error}");
        let cache = opened.map_err(told).ok().flatten();
        let CompilerSettings { command, limits, .. } = settings;
        Self(Arc::new(Inner { sandbox, command, limits, cache, turns: Default::default() }))
    }

    /// Returns the sandbox of the plugins.
    pub fn sandbox(&self) -> &Sandbox {
        &self.0.sandbox
    }

    /// Checks a module, and returns it with code from the cache or else from the baseline compiler. If the
    /// baseline compiler refuses the module, the optimising compiler compiles it. Blocks until the code is
    /// ready.
    ///
    /// If the plugin has baseline code, another thread optimises it. This thread calls `upgraded` when the
    /// plugin has optimised code, or when optimising failed and the baseline code stays. `upgraded` is not
    /// called if the plugin starts with optimised code.
    ///
    /// # Errors
    /// [`CompileError`]: the module is no plugin for this router, or can't be compiled within the limits.
    pub fn load(
        &self,
        wasm: &[u8],
        upgraded: impl FnOnce(&WasmPlugin, Result<(), CompileError>) + Send + 'static,
    ) -> Result<Loaded, CompileError> {
        let module = Checked { wasm, inspected: inspect(wasm)? };
        let kept = [Tier::Optimised, Tier::Baseline].into_iter().find_map(|tier| self.kept(&module, tier));
        let loaded = match kept {
            Some(plugin) => Loaded { plugin, source: Source::Cache },
            None => Loaded { plugin: self.compiled(&module)?, source: Source::Compiled },
        };
        if loaded.plugin.tier() == Tier::Baseline {
            self.upgrade_beside(&loaded.plugin, wasm.to_vec(), upgraded);
        }
        Ok(loaded)
    }

    /// Returns the plugin with code of a tier from the cache. An invalid entry is logged and not used.
    fn kept(&self, module: &Checked<'_>, tier: Tier) -> Option<WasmPlugin> {
        let cache = self.0.cache.as_ref()?;
        let key = Key::new(&self.0.sandbox, module.wasm, tier).ok()?;
        let anew = |problem: String| {
            tracing::warn!("invalid entry in the plugin cache, so the plugin is compiled again: {problem}")
        };
        let code = cache.get(key).map_err(anew).ok()??;
        self.take(module, &code, tier).map_err(|error| anew(error.to_string())).ok()
    }

    /// Compiles the module, and returns the plugin with its code.
    fn compiled(&self, module: &Checked<'_>) -> Result<WasmPlugin, CompileError> {
        if self.0.sandbox.has(Tier::Baseline) {
            match self.make(module.wasm, Tier::Baseline) {
                Ok(code) => return Ok(self.take(module, &code, Tier::Baseline)?),
                // Only the optimising compiler accepts some code, so let it try. If it refuses the code too,
                // its error is returned.
                Err(CompileError::Module(_) | CompileError::Failed { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let code = self.make(module.wasm, Tier::Optimised)?;
        Ok(self.take(module, &code, Tier::Optimised)?)
    }

    #[allow(unsafe_code)]
    fn take(&self, module: &Checked<'_>, code: &[u8], tier: Tier) -> Result<WasmPlugin, ModuleError> {
        // SAFETY: the code comes from this program's own confined process, which got these module bytes. Or
        // it comes from the cache, with a valid tag over module and code. Such a tag requires the cache's
        // secret, which only this router knows.
        unsafe { self.0.sandbox.load_inspected(module.inspected.clone(), code, tier) }
    }

    /// Compiles a module and stores the code in the cache.
    fn make(&self, wasm: &[u8], tier: Tier) -> Result<Vec<u8>, CompileError> {
        let turn = &self.0.turns[usize::from(tier == Tier::Optimised)];
        let code = {
            let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
            process::compile(&self.0.command, wasm, tier, &self.0.limits)?
        };
        if let (Some(cache), Ok(key)) = (&self.0.cache, Key::new(&self.0.sandbox, wasm, tier))
            && let Err(error) = cache.put(key, &code)
        {
            tracing::warn!("can't write a compiled plugin to the cache: {error}");
        }
        Ok(code)
    }

    fn upgrade_beside(
        &self,
        plugin: &WasmPlugin,
        wasm: Vec<u8>,
        upgraded: impl FnOnce(&WasmPlugin, Result<(), CompileError>) + Send + 'static,
    ) {
        let (compiler, plugin) = (self.clone(), plugin.clone());
        let work = move || {
            if let Err(error) = Privileges::Files.leave_to_thread() {
                return tracing::error!(
                    "a plugin keeps its baseline code, because the compiling thread can't be confined: \
                     {error}"
                );
            }
            upgraded(&plugin, compiler.upgrade(&plugin, &wasm));
        };
        if let Err(error) = std::thread::Builder::new().name("plugin-compiler".to_owned()).spawn(work) {
            tracing::warn!(
                "a plugin keeps its baseline code, because the compiling thread can't start: {error}"
            );
        }
    }

    #[allow(unsafe_code)]
    fn upgrade(&self, plugin: &WasmPlugin, wasm: &[u8]) -> Result<(), CompileError> {
        let code = self.make(wasm, Tier::Optimised)?;
        // SAFETY: the code comes from this program's own confined process, or from the cache with a valid
        // tag; see `take`.
        Ok(unsafe { plugin.upgrade(&code, Tier::Optimised) }?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_manager_selects_the_code_directory() {
        let at = |is_root, variables: &[(&str, &str)]| {
            let value = |name: &str| variables.iter().find(|(known, _)| *known == name);
            default_cache(is_root, |name| value(name).map(|(_, value)| value.into()))
        };
        let path = |path: &str| Some(PathBuf::from(path));
        let home = ("HOME", "/home/a");
        assert_eq!(at(true, &[home]), path("/var/cache/millrace/plugins"));
        assert_eq!(at(false, &[home]), path("/home/a/.cache/millrace/plugins"));
        assert_eq!(at(false, &[home, ("XDG_CACHE_HOME", "/c")]), path("/c/millrace/plugins"));
        assert_eq!(at(false, &[]), None);
        for is_root in [true, false] {
            assert_eq!(at(is_root, &[home, ("CACHE_DIRECTORY", "/run/a")]), path("/run/a/plugins"));
            assert_eq!(at(is_root, &[home, ("CACHE_DIRECTORY", "/run/a:/run/b")]), path("/run/a/plugins"));
        }
        // A relative or empty path is ignored.
        assert_eq!(at(true, &[("CACHE_DIRECTORY", "a")]), path("/var/cache/millrace/plugins"));
        assert_eq!(at(true, &[("CACHE_DIRECTORY", "")]), path("/var/cache/millrace/plugins"));
    }
}
