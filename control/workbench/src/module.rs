//! A plugin's file, read once.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use millrace_plugin::wasm::{LoadedPlugin, MOST_MODULE, Sandbox, SandboxSettings, WasmPlugin};

use crate::WorkbenchError;

/// The bytes of a plugin's file.
#[derive(Clone, Debug)]
pub struct Module {
    file: PathBuf,
    bytes: Vec<u8>,
}

/// A plugin that was compiled as the router compiles it.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub plugin: WasmPlugin,
    /// How long that took.
    pub took: Duration,
}

impl Module {
    /// Reads a file.
    ///
    /// # Errors
    /// When there is none, or it is none that the router would read.
    pub fn read(file: &Path) -> Result<Self, WorkbenchError> {
        let refused = |problem: String| WorkbenchError::Refused { file: file.to_owned(), problem };
        let kind = std::fs::metadata(file).map_err(|error| refused(error.to_string()))?;
        if !kind.is_file() {
            return Err(refused("it is no regular file".to_owned()));
        }
        let mut bytes = Vec::new();
        let opened = File::open(file).map_err(|error| refused(error.to_string()))?;
        let read = opened.take(MOST_MODULE as u64 + 1).read_to_end(&mut bytes);
        read.map_err(|error| refused(error.to_string()))?;
        if bytes.len() > MOST_MODULE {
            return Err(refused(format!(
                "it has more than {MOST_MODULE} bytes, which is most that are taken"
            )));
        }
        Ok(Self { file: file.to_owned(), bytes })
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Checks and compiles it.
    pub(crate) fn compile(&self) -> Result<Compiled, WorkbenchError> {
        let sandbox = Sandbox::new(SandboxSettings::default())?;
        let begin = Instant::now();
        let plugin = sandbox.compile(&self.bytes).map_err(|error| self.refused(error.to_string()))?;
        Ok(Compiled { plugin, took: begin.elapsed() })
    }

    /// What the router would make instances of.
    pub(crate) fn load(&self, compiled: &Compiled) -> Result<LoadedPlugin, WorkbenchError> {
        LoadedPlugin::new(compiled.plugin.clone()).map_err(|problem| self.refused(problem))
    }

    fn refused(&self, problem: String) -> WorkbenchError {
        WorkbenchError::Refused { file: self.file.clone(), problem }
    }
}
