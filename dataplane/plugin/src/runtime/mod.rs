//! Runtimes of plugin files: wasm (WebAssembly in a sandbox) and native (shared objects).

pub(crate) mod exchange;
mod file;
pub mod native;
pub(crate) mod quarantined;
pub(crate) mod raw_packet;
pub(crate) mod service_state;
pub mod wasm;
