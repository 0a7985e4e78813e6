//! Loader of plugin files, used before the router starts and while it runs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_compiler::{CompileError, Compiler, CompilerSettings};
use millrace_config::{Config, Router};
use millrace_confine::Privileges;
use millrace_plugin::wasm::{Sandbox, SandboxSettings, WasmPlugin};
use millrace_plugin_process::ProcessGroups;

use crate::plugins::load::{Admit, Admitted, Loaded, Objects};
use crate::workers::placement::place_clock;
use crate::{ControlError, NewPlugin};

/// Loader of plugin files. Clones share the compiler and the other state.
#[derive(Clone)]
pub(crate) struct Loader {
    state: Arc<Mutex<State>>,
    purpose: Purpose,
    /// Control groups of the processes in which shared objects run; `None` if they run in this process.
    groups: Option<ProcessGroups>,
}

/// Plugin whose optimised compilation has ended, with the result.
type Better = (WasmPlugin, Result<(), CompileError>);

/// Receiver of the results of optimised compilation.
type Receiver = Arc<dyn Fn(Better) + Send + Sync>;

/// Purpose for which plugins are loaded.
#[derive(Clone)]
enum Purpose {
    /// Running the plugins.
    Run,
    /// Checking a configuration without a running router.
    Plan,
    /// Checking a change of a running router. The policy of the running configuration decides which plugins
    /// are admitted.
    PlanChange(Admitted),
}

struct State {
    compiling: CompilerSettings,
    sandbox: SandboxSettings,
    /// Settings of the workers' threads.
    router: Router,
    /// Compiler, created when the first plugin is loaded.
    compiler: Option<Compiler>,
    /// Results of optimised compilation that arrived before there was a receiver.
    early: Vec<Better>,
    /// Receiver of the results; `None` until the router exists.
    receiver: Option<Receiver>,
}

impl State {
    fn place_clock(&self) {
        let Some(compiler) = &self.compiler else { return };
        if let Err(error) = place_clock(&self.router, compiler.sandbox().clock_thread()) {
            tracing::info!("slices of plugins may end late while processors are busy: {error}");
        }
    }
}

impl Loader {
    /// Creates a loader with the settings of a configuration.
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
            router: config.router.clone(),
            compiler: None,
            early: Vec::new(),
            receiver: None,
        };
        Self { state: Arc::new(Mutex::new(state)), purpose: Purpose::Run, groups: None }
    }

    /// Returns a loader for a running router, which runs shared objects in processes unless a plugin's
    /// configuration says otherwise. Without it, as in a replay, all shared objects run in this process.
    pub fn with_processes(self) -> Self {
        Self { groups: Some(ProcessGroups::default()), ..self }
    }

    /// Returns the control groups of the processes in which shared objects run; `None` without processes.
    pub fn process_groups(&self) -> Option<&ProcessGroups> {
        self.groups.as_ref()
    }

    /// Returns a loader that runs no code of shared objects, for `check` and `run --dry-run`.
    pub fn planning(&self) -> Self {
        Self { purpose: Purpose::Plan, ..self.clone() }
    }

    /// Returns a loader that checks a change of a running router. It follows the policy `admitted`,
    /// regardless of the new configuration.
    pub fn planning_change(&self, admitted: Admitted) -> Self {
        Self { purpose: Purpose::PlanChange(admitted), ..self.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the compiler, and creates it if necessary.
    fn compiler(&self) -> Result<Compiler, ControlError> {
        let mut state = self.lock();
        if let Some(compiler) = &state.compiler {
            return Ok(compiler.clone());
        }
        let settings = state.sandbox;
        // The sandbox has a thread that only counts time. This thread drops all privileges except those for
        // files.
        let made = Privileges::Files.apart(|| Sandbox::new(settings));
        let what = "create the sandbox for plugins";
        let sandbox = made.map_err(|error| ControlError::system(what, error))?;
        let sandbox = sandbox.map_err(|error| ControlError::system(what, error))?;
        let compiler = Compiler::new(sandbox, state.compiling.clone());
        let compiler = state.compiler.insert(compiler).clone();
        state.place_clock();
        Ok(compiler)
    }

    /// Lets the clock of plugins run at the workers' processors, after the workers have taken them.
    pub fn place_clock(&self) {
        self.lock().place_clock();
    }

    /// Loads a plugin file: checks the signature, calls `admit`, and only then compiles the module or loads
    /// the shared object. This may take long.
    pub fn load(&self, own: &Admitted, new: &NewPlugin, admit: Admit<'_>) -> Result<Loaded, ControlError> {
        let run = || self.groups.clone().map_or(Objects::RunHere, Objects::Run);
        let admitted = match &self.purpose {
            Purpose::Run => Admitted { objects: run(), ..own.clone() },
            Purpose::Plan => Admitted { objects: Objects::Describe, ..own.clone() },
            Purpose::PlanChange(running) => Admitted { objects: Objects::Describe, ..running.clone() },
        };
        let (compiler, state) = (self.compiler()?, Arc::downgrade(&self.state));
        let upgraded = move |plugin: &WasmPlugin, result| {
            if let Some(state) = state.upgrade() {
                Self { state, purpose: Purpose::Run, groups: None }.tell((plugin.clone(), result));
            }
        };
        crate::plugins::load::load(&compiler, &admitted, new, admit, upgraded)
    }

    /// Passes a result of optimised compilation to the receiver. Without a receiver, keeps the result until a
    /// receiver is registered.
    fn tell(&self, better: Better) {
        let mut state = self.lock();
        let Some(receive) = state.receiver.clone() else { return state.early.push(better) };
        drop(state);
        receive(better);
    }

    /// Registers the receiver of the results of optimised compilation. Passes it the results that arrived
    /// earlier.
    pub fn serve(&self, receive: impl Fn(Better) + Send + Sync + 'static) {
        let receive: Receiver = Arc::new(receive);
        let mut state = self.lock();
        state.receiver = Some(receive.clone());
        let early = std::mem::take(&mut state.early);
        drop(state);
        early.into_iter().for_each(|better| receive(better));
    }
}
