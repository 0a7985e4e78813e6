//! What loads plugins that are files, before there is a router and while there is one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use millrace_compiler::{CompileError, Compiler, CompilerSettings};
use millrace_config::Config;
use millrace_confine::Privileges;
use millrace_plugin::wasm::{Sandbox, SandboxSettings, WasmPlugin};

use crate::ControlError;
use crate::load::{Admit, Admitted, Loaded};
use crate::router::{Router, Shared};

/// Loads plugins as a configuration says. Clones share what they have made.
#[derive(Clone, Debug)]
pub(crate) struct Loader {
    state: Arc<Mutex<State>>,
    purpose: Purpose,
}

/// What plugins are loaded for.
#[derive(Clone, Debug)]
enum Purpose {
    /// To run.
    Run,
    /// To plan what a configuration says by itself.
    Plan,
    /// To plan what a router that runs would become: what runs says which plugins are admitted.
    PlanChange(Admitted),
}

#[derive(Debug)]
struct State {
    /// How plugins that are files are compiled.
    compiling: CompilerSettings,
    /// How contained plugins run.
    sandbox: SandboxSettings,
    /// What compiles them; made when the first is loaded.
    compiler: Option<Compiler>,
    /// Better code that came before there was a router.
    early: Vec<Better>,
    /// The router that takes it.
    router: Option<Weak<Shared>>,
}

/// A plugin whose better code is there, or will not be.
#[derive(Debug)]
struct Better {
    plugin: WasmPlugin,
    result: Result<(), CompileError>,
}

impl Loader {
    /// One that has loaded nothing yet.
    pub fn new(config: &Config) -> Self {
        let plugins = &config.plugins;
        let cache = match &plugins.cache {
            Some(none) if none.as_os_str() == "none" => None,
            Some(directory) => Some(directory.clone()),
            None => CompilerSettings::default_cache(),
        };
        let state = State {
            compiling: CompilerSettings { cache, ..CompilerSettings::default() },
            sandbox: SandboxSettings {
                tick: plugins.slice.duration(),
                short_calls: plugins.short_calls,
                memory: plugins.memory.bytes_u32() as usize,
                ..SandboxSettings::default()
            },
            compiler: None,
            early: Vec::new(),
            router: None,
        };
        Self { state: Arc::new(Mutex::new(state)), purpose: Purpose::Run }
    }

    /// The same for a plan, which runs no shared object: `check`, and `run --dry-run`.
    pub fn planning(&self) -> Self {
        Self { purpose: Purpose::Plan, ..self.clone() }
    }

    /// The same for a plan of what a router becomes that admits these plugins, whatever the planned configuration says.
    pub fn planning_change(&self, admitted: Admitted) -> Self {
        Self { purpose: Purpose::PlanChange(admitted), ..self.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What compiles plugins.
    fn compiler(&self) -> Result<Compiler, ControlError> {
        let mut state = self.lock();
        if let Some(compiler) = &state.compiler {
            return Ok(compiler.clone());
        }
        let settings = state.sandbox;
        // It has a thread of its own, which does nothing but count.
        let made = Privileges::Files.apart(|| Sandbox::new(settings));
        let failed = |error: String| ControlError::system("make the sandbox of plugins", error);
        let sandbox = made.map_err(|error| failed(error.to_string()))?;
        let sandbox = sandbox.map_err(|error| failed(error.to_string()))?;
        let compiler = Compiler::new(sandbox, state.compiling.clone());
        Ok(state.compiler.insert(compiler).clone())
    }

    /// Loads the plugin of a file: checked against its signature, then by `admit`, and only then compiled or, to run, loaded as a
    /// shared object. This takes its time.
    ///
    /// # Errors
    /// A file that can't be read, that is not admitted, or that is no plugin for this router.
    pub fn load(&self, own: &Admitted, path: &str, admit: Admit<'_>) -> Result<Loaded, ControlError> {
        let admitted = match &self.purpose {
            Purpose::Run => own.clone(),
            Purpose::Plan => Admitted { runs: false, ..own.clone() },
            Purpose::PlanChange(running) => Admitted { runs: false, ..running.clone() },
        };
        let (compiler, state) = (self.compiler()?, Arc::downgrade(&self.state));
        let upgraded = move |plugin: &WasmPlugin, result| {
            if let Some(state) = state.upgrade() {
                Self { state, purpose: Purpose::Run }.tell(Better { plugin: plugin.clone(), result });
            }
        };
        crate::load::load(&compiler, &admitted, path, admit, upgraded)
    }

    /// Gives better code to the router, now or when there is one.
    fn tell(&self, better: Better) {
        let mut state = self.lock();
        let Some(router) = &state.router else { return state.early.push(better) };
        let router = router.upgrade();
        drop(state);
        if let Some(router) = router {
            Router(router).code_upgraded(&better.plugin, better.result);
        }
    }

    /// Has a router take the better code that came so far, and that is to come.
    pub fn serve(&self, router: &Router) {
        let mut state = self.lock();
        state.router = Some(Arc::downgrade(&router.0));
        let early = std::mem::take(&mut state.early);
        drop(state);
        early.into_iter().for_each(|better| router.code_upgraded(&better.plugin, better.result));
    }
}
