//! Runtimes of plugin files: wasm (WebAssembly in a sandbox), native (shared objects in the router), and
//! process (shared objects in processes of their own).

pub(crate) mod exchange;
mod file;
pub mod native;
pub mod process;
pub(crate) mod quarantined;
pub(crate) mod raw_packet;
pub(crate) mod service_state;
pub mod wasm;
