//! Plugins that are files.

use std::fs::File;
use std::io::Read;

use millrace_plugin::wasm::{LoadedPlugin, MOST_MODULE, Sandbox};

use crate::ControlError;

/// Reads, checks and compiles the plugin of a file.
pub(crate) fn load(sandbox: &Sandbox, path: &str) -> Result<LoadedPlugin, ControlError> {
    let refused = |problem: String| ControlError::Invalid(format!("plugin {path}: {problem}"));
    let failed = |error: std::io::Error| refused(error.to_string());
    let kind = std::fs::metadata(path).map_err(failed)?;
    // Others may never end, or never begin.
    if !kind.is_file() {
        return Err(refused("it is no regular file".to_owned()));
    }
    if kind.len() > MOST_MODULE as u64 {
        return Err(refused(format!("it has {} bytes: at most {MOST_MODULE} are taken", kind.len())));
    }
    let mut wasm = Vec::new();
    // One byte more than there may be tells a file that has grown since.
    let most = MOST_MODULE as u64 + 1;
    File::open(path).and_then(|file| file.take(most).read_to_end(&mut wasm)).map_err(failed)?;
    let compiled = sandbox.compile(&wasm).map_err(|error| refused(error.to_string()))?;
    LoadedPlugin::new(compiled).map_err(refused)
}
