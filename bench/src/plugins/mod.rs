//! Cost and containment of plugins, in the pipeline alone: `plugin-call`, `hot-swap` and `containment`.

pub(crate) mod call;
mod containment;
mod hot_swap;
mod paced;
mod shared_ring;

use millrace_plugin::wasm::{LoadedPlugin, Sandbox, SandboxSettings};

pub(crate) use containment::run as containment;
pub(crate) use hot_swap::run as hot_swap;
pub(crate) use shared_ring::run_other_side;

use crate::BenchError;

fn failed(error: impl std::fmt::Display) -> BenchError {
    BenchError::measurement("plugins", error.to_string())
}

/// Creates a sandbox. With `short_calls`, calls move to the worker's stack after the default number of short
/// calls; without it, never.
fn sandbox(short_calls: bool) -> Result<Sandbox, BenchError> {
    let usual = SandboxSettings::default();
    let short_calls = if short_calls { usual.short_calls } else { 0 };
    Sandbox::new(SandboxSettings { short_calls, ..usual }).map_err(failed)
}

/// Creates a plugin from manifest keys (`"window": 4,`), import declarations, and a body that exports
/// `millrace_packets`.
fn plugin(sandbox: &Sandbox, keys: &str, imports: &str, body: &str) -> Result<LoadedPlugin, BenchError> {
    let manifest = format!(
        r#"{{{keys} "abi": 1, "name": "bench", "version": "1.0.0", "summary": "For benches.", "positions": ["late"]}}"#
    );
    let text = format!(
        r#"(module (@custom "millrace.manifest" "{}")
        {imports}
        (memory (export "memory") 4)
        (global $free (mut i32) (i32.const 1024))
        (func (export "millrace_abi") (result i32) i32.const 1)
        (func (export "millrace_reserve") (param $bytes i32) (result i32)
          global.get $free
          (global.set $free
            (i32.and (i32.add (i32.add (global.get $free) (local.get $bytes)) (i32.const 7)) (i32.const -8))))
        (func (export "millrace_release") (param i32 i32))
        (func (export "millrace_init") (param i32 i32) (result i32) i32.const 0)
        {body})"#,
        manifest.replace('"', "\\\"")
    );
    let module = wat::parse_str(&text).map_err(failed)?;
    LoadedPlugin::new(sandbox.compile(&module).map_err(failed)?).map_err(failed)
}
