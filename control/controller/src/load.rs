//! Plugins that are files.

use std::fs::File;
use std::io::Read;

use millrace_plugin::wasm::{LoadedPlugin, MOST_MODULE, Sandbox};

use crate::ControlError;

/// Reads, checks and compiles the plugin of a file.
pub(crate) fn load(sandbox: &Sandbox, path: &str) -> Result<LoadedPlugin, ControlError> {
    let refused = |problem: String| ControlError::Invalid(format!("plugin {path}: {problem}"));
    let mut wasm = Vec::new();
    // One byte more than there may be tells a file that is too long, whatever it says of itself.
    let most = MOST_MODULE as u64 + 1;
    let read = File::open(path).and_then(|file| file.take(most).read_to_end(&mut wasm));
    read.map_err(|error| refused(error.to_string()))?;
    let compiled = sandbox.compile(&wasm).map_err(|error| refused(error.to_string()))?;
    LoadedPlugin::new(compiled).map_err(refused)
}
