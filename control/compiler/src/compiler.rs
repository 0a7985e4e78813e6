//! Loading a plugin: from the cache, or compiled at once by the faster compiler and then, while that code runs, by the better one.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use millrace_confine::Privileges;
use millrace_plugin::wasm::{Inspected, ModuleError, Sandbox, Tier, WasmPlugin, inspect};

use crate::cache::{Cache, Key};
use crate::process::{self, ChildCommand, Limits};
use crate::{CacheError, CompileError};

/// How plugins are compiled.
#[derive(Clone, Debug)]
pub struct CompilerSettings {
    /// What is started to compile.
    pub command: ChildCommand,
    /// What it may take.
    pub limits: Limits,
    /// The directory that keeps code; `None` to keep none.
    pub cache: Option<PathBuf>,
}

impl Default for CompilerSettings {
    fn default() -> Self {
        Self { command: ChildCommand::own(), limits: Limits::default(), cache: None }
    }
}

impl CompilerSettings {
    /// Where code is kept by default: `plugins` in the directory that the environment variable `CACHE_DIRECTORY` names (the
    /// first, where it names several), as systemd sets it for services with a `CacheDirectory`; without that
    /// `/var/cache/millrace/plugins` for root, a directory of the user's cache for others. `None` for a user without a home.
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

/// Where the code of a plugin came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// It was kept.
    Cache,
    /// It was compiled just now.
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

/// A plugin that was loaded.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The plugin.
    pub plugin: WasmPlugin,
    /// Where its code came from.
    pub source: Source,
}

/// A module, and what was found in it.
struct Checked<'a> {
    wasm: &'a [u8],
    inspected: Inspected,
}

/// Compiles plugins, and keeps what was compiled. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Compiler(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    sandbox: Sandbox,
    command: ChildCommand,
    limits: Limits,
    cache: Option<Cache>,
    /// One process at a time for each tier bounds what all of them take.
    turns: [Mutex<()>; 2],
}

impl Compiler {
    /// Returns a compiler for plugins of `sandbox`, and begins the launcher where it has not begun. The log names a directory
    /// that can't be used; no code is kept then.
    pub fn new(sandbox: Sandbox, settings: CompilerSettings) -> Self {
        if let Err(error) = crate::launcher::begin_launcher() {
            tracing::warn!("plugins keep baseline code: {error}");
        }
        let opened = settings.cache.as_deref().map(Cache::open).transpose();
        let told = |error: CacheError| tracing::warn!("compiled plugins are not kept: {error}");
        let cache = opened.map_err(told).ok().flatten();
        let CompilerSettings { command, limits, .. } = settings;
        Self(Arc::new(Inner { sandbox, command, limits, cache, turns: Default::default() }))
    }

    /// Checks a module and takes code for it: from the cache, else compiled by the faster compiler, or by the other one where
    /// that one refuses. Waits for it.
    ///
    /// While the plugin has baseline code, optimised code is made in a thread beside; `upgraded` is called there when the plugin
    /// has it, or when that failed and it keeps what it has. For a plugin that begins with optimised code it isn't called.
    ///
    /// # Errors
    /// [`CompileError`]; the module is no plugin for this router, or can't be compiled within the limits.
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

    /// The plugin with code of a tier from the cache. An entry that is not what was put there is told in the log, and not used.
    fn kept(&self, module: &Checked<'_>, tier: Tier) -> Option<WasmPlugin> {
        let cache = self.0.cache.as_ref()?;
        let key = Key::new(&self.0.sandbox, module.wasm, tier).ok()?;
        let anew = |problem: String| tracing::warn!("a plugin is compiled again: {problem}");
        let code = cache.get(key).map_err(anew).ok()??;
        self.take(module, &code, tier).map_err(|error| anew(error.to_string())).ok()
    }

    /// The plugin with code that is made now.
    fn compiled(&self, module: &Checked<'_>) -> Result<WasmPlugin, CompileError> {
        if self.0.sandbox.has(Tier::Baseline) {
            match self.make(module.wasm, Tier::Baseline) {
                Ok(code) => return Ok(self.take(module, &code, Tier::Baseline)?),
                // There is code that only the other one knows, and some that neither takes: it says so.
                Err(CompileError::Module(_) | CompileError::Failed { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let code = self.make(module.wasm, Tier::Optimised)?;
        Ok(self.take(module, &code, Tier::Optimised)?)
    }

    #[allow(unsafe_code)]
    fn take(&self, module: &Checked<'_>, code: &[u8], tier: Tier) -> Result<WasmPlugin, ModuleError> {
        // SAFETY: the code comes from our own program, confined, that was given these bytes; or it bears a tag over itself and
        // them that only who knows the cache's secret can make, which is us.
        unsafe { self.0.sandbox.load_inspected(module.inspected.clone(), code, tier) }
    }

    /// Has code made, and keeps it.
    fn make(&self, wasm: &[u8], tier: Tier) -> Result<Vec<u8>, CompileError> {
        let turn = &self.0.turns[usize::from(tier == Tier::Optimised)];
        let code = {
            let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
            process::compile(&self.0.command, wasm, tier, &self.0.limits)?
        };
        if let (Some(cache), Ok(key)) = (&self.0.cache, Key::new(&self.0.sandbox, wasm, tier))
            && let Err(error) = cache.put(key, &code)
        {
            tracing::warn!("a compiled plugin is not kept: {error}");
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
                    "a plugin keeps its baseline code: the thread that compiles it is not confined: {error}"
                );
            }
            upgraded(&plugin, compiler.upgrade(&plugin, &wasm));
        };
        if let Err(error) = std::thread::Builder::new().name("plugin-compiler".to_owned()).spawn(work) {
            tracing::warn!("a plugin keeps its baseline code: no thread to compile it: {error}");
        }
    }

    #[allow(unsafe_code)]
    fn upgrade(&self, plugin: &WasmPlugin, wasm: &[u8]) -> Result<(), CompileError> {
        let code = self.make(wasm, Tier::Optimised)?;
        // SAFETY: as in `take`.
        Ok(unsafe { plugin.upgrade(&code, Tier::Optimised) }?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_manager_says_where_code_is_kept() {
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
        // What is no place of its own doesn't count.
        assert_eq!(at(true, &[("CACHE_DIRECTORY", "a")]), path("/var/cache/millrace/plugins"));
        assert_eq!(at(true, &[("CACHE_DIRECTORY", "")]), path("/var/cache/millrace/plugins"));
    }
}
