//! Plugin file, read once for inspection, trials and measurement.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use millrace_plugin::Manifest;
use millrace_plugin::native::{DescribedPlugin, NativePlugin, is_object};
use millrace_plugin::process::{Keeper, ProcessPlugin};
use millrace_plugin::wasm::{LoadedPlugin, MOST_MODULE, Sandbox, SandboxSettings, WasmPlugin};
use millrace_plugin_abi::{Plugin, Runtime};

use crate::WorkbenchError;

/// Maximum compile time. It is longer than the router's, because the optimising compiler is slower than the
/// router's baseline compiler.
const MOST_COMPILING: Duration = Duration::from_secs(30);

/// Runtime of shared objects and executables. A WebAssembly module always runs in the sandbox.
#[derive(Clone, Copy, Debug)]
pub enum ObjectRuntime {
    /// Each instance runs in a confined process, which the keeper starts that this function returns.
    Process(fn() -> Result<Arc<dyn Keeper>, String>),
    /// The instances run in this process, with all its rights.
    InProcess,
}

/// Plugin file, with its bytes in memory.
#[derive(Clone, Debug)]
pub struct Module {
    file: PathBuf,
    bytes: Vec<u8>,
}

/// Plugin that was compiled or loaded as in the router.
#[derive(Debug)]
pub(crate) struct Compiled {
    code: Code,
    /// Time that compiling or loading took.
    pub took: Duration,
}

/// Code of a plugin, by its runtime.
#[derive(Debug)]
enum Code {
    Wasm(WasmPlugin),
    Native(NativePlugin),
    Process(ProcessPlugin),
    /// Shared object or executable that is only described: none of its code runs.
    Described(Box<DescribedPlugin>),
}

impl Compiled {
    /// Returns the manifest of the plugin.
    pub fn manifest(&self) -> &Manifest {
        match &self.code {
            Code::Wasm(plugin) => plugin.manifest(),
            Code::Native(plugin) => plugin.manifest(),
            Code::Process(plugin) => plugin.manifest(),
            Code::Described(plugin) => plugin.manifest(),
        }
    }

    /// Returns the runtime of the plugin's instances. Of a described plugin, the default runtime in the router.
    pub fn runtime(&self) -> Runtime {
        match &self.code {
            Code::Wasm(_) => Runtime::Contained,
            Code::Native(_) => Runtime::Trusted,
            Code::Process(plugin) => plugin.runtime(),
            Code::Described(plugin) => plugin.runtime(),
        }
    }

    /// Returns the size in bytes of the machine code compiled from a module; `None` for a shared object,
    /// which needs no compiling.
    pub fn code(&self) -> Option<usize> {
        match &self.code {
            Code::Wasm(plugin) => plugin.artifact().ok().map(|artifact| artifact.len()),
            Code::Native(_) | Code::Process(_) | Code::Described(_) => None,
        }
    }
}

impl Module {
    /// Reads a plugin file.
    pub fn read(file: &Path) -> Result<Self, WorkbenchError> {
        let mut module = Self { file: file.to_owned(), bytes: Vec::new() };
        let failed = |error: io::Error| module.refused(error.to_string());
        if !std::fs::metadata(file).map_err(failed)?.is_file() {
            return Err(module.refused("it is not a regular file".to_owned()));
        }
        let opened = File::open(file).map_err(failed)?;
        let mut bytes = Vec::new();
        opened.take(MOST_MODULE as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() > MOST_MODULE {
            return Err(module.refused(format!("the file exceeds the limit of {MOST_MODULE} bytes")));
        }
        module.bytes = bytes;
        Ok(module)
    }

    /// Whether the file is a shared object or executable, and not a module.
    pub fn is_object(&self) -> bool {
        is_object(&self.bytes)
    }

    /// Returns the bytes of the file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Checks and compiles a module. Of a shared object or executable, only reads the description; none of its
    /// code runs.
    pub(crate) fn examine(&self) -> Result<Compiled, WorkbenchError> {
        if !is_object(&self.bytes) {
            return self.compile_module();
        }
        let described = DescribedPlugin::new(&self.bytes, Runtime::Process);
        let described = described.map_err(|error| self.refused(error.to_string()))?;
        Ok(Compiled { code: Code::Described(Box::new(described)), took: Duration::ZERO })
    }

    /// Checks and compiles a module. Loads a shared object, or prepares it or an executable for processes.
    pub(crate) fn compile(&self, runtime: ObjectRuntime) -> Result<Compiled, WorkbenchError> {
        if !is_object(&self.bytes) {
            return self.compile_module();
        }
        let keeper = match runtime {
            ObjectRuntime::Process(keeper) => Some(keeper().map_err(|problem| self.refused(problem))?),
            ObjectRuntime::InProcess => None,
        };
        let begin = Instant::now();
        let code = match keeper {
            Some(keeper) => ProcessPlugin::new(&self.bytes, keeper).map(Code::Process),
            None => NativePlugin::new(&self.bytes).map(Code::Native),
        };
        let code = code.map_err(|error| self.refused(error.to_string()))?;
        Ok(Compiled { code, took: begin.elapsed() })
    }

    fn compile_module(&self) -> Result<Compiled, WorkbenchError> {
        let sandbox = Sandbox::new(SandboxSettings::default())?;
        let begin = Instant::now();
        let (sender, compiled) = channel();
        let bytes = self.bytes.clone();
        // The compiler can't be interrupted. If the time limit passes, it continues in this thread until the
        // process ends.
        std::thread::spawn(move || sender.send(sandbox.compile(&bytes)));
        let plugin = match compiled.recv_timeout(MOST_COMPILING) {
            Ok(plugin) => plugin.map_err(|error| self.refused(error.to_string()))?,
            Err(RecvTimeoutError::Timeout) => {
                let most = MOST_COMPILING.as_secs();
                return Err(self.refused(format!("compilation aborted after {most} s")));
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(self.refused("the compiler panicked".to_owned()));
            }
        };
        Ok(Compiled { code: Code::Wasm(plugin), took: begin.elapsed() })
    }

    /// Loads the plugin for the creation of instances, as the router does.
    pub(crate) fn load(&self, compiled: &Compiled) -> Result<Box<dyn Plugin>, WorkbenchError> {
        match &compiled.code {
            Code::Wasm(plugin) => {
                let loaded = LoadedPlugin::new(plugin.clone()).map_err(|problem| self.refused(problem))?;
                Ok(Box::new(loaded))
            }
            Code::Native(plugin) => Ok(Box::new(plugin.clone())),
            Code::Process(plugin) => Ok(Box::new(plugin.clone())),
            Code::Described(_) => Err(self
                .refused("internal error: the shared object was inspected only, so it can't run".to_owned())),
        }
    }

    /// Returns the same file with other bytes.
    pub(crate) fn changed(&self, bytes: Vec<u8>) -> Self {
        Self { file: self.file.clone(), bytes }
    }

    pub(crate) fn refused(&self, problem: String) -> WorkbenchError {
        WorkbenchError::Refused { file: self.file.clone(), problem }
    }
}
