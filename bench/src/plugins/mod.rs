//! Cost and containment of plugins, in the pipeline without devices: `plugin-call`, `hot-swap` and
//! `containment`.

pub(crate) mod call;
mod containment;
mod hot_swap;
mod paced;
pub(crate) mod shared_ring;

use millrace_plugin::wasm::{LoadedPlugin, Sandbox, SandboxSettings};

pub(crate) use containment::run as containment;
pub(crate) use hot_swap::run as hot_swap;
pub(crate) use shared_ring::run_other_side;

use crate::BenchError;

fn failed(error: impl std::fmt::Display) -> BenchError {
    BenchError::measurement("plugins", error.to_string())
}

/// Creates a sandbox. With `short_calls`, an instance's calls move to the worker's own stack after the
/// default number of short calls. Without `short_calls`, they never move.
fn sandbox(short_calls: bool) -> Result<Sandbox, BenchError> {
    let usual = SandboxSettings::default();
    let short_calls = if short_calls { usual.short_calls } else { 0 };
    Sandbox::new(SandboxSettings { short_calls, ..usual }).map_err(failed)
}

/// Expands to the bytes of a module that the build script has translated from the folder `plugins`.
macro_rules! module {
    ($name:literal) => {
        include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".wasm")) as &[u8]
    };
}
pub(crate) use module;

fn plugin(sandbox: &Sandbox, module: &[u8]) -> Result<LoadedPlugin, BenchError> {
    LoadedPlugin::new(sandbox.compile(module).map_err(failed)?).map_err(failed)
}
