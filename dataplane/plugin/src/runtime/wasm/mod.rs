//! WebAssembly runtime of plugins: sandboxed modules.
//!
//! The router checks a module ([`inspect`]), compiles and links it in a [`Sandbox`], and runs it in
//! [`WasmInstance`]s. A module accesses only its own memory and the host functions that its manifest
//! requests.
//!
//! There are two compilers ([`Tier`]), each with its own engine. An instance takes the best code of its
//! plugin when it starts ([`WasmPlugin::current`]).
//!
//! Each instance is a future that owns its store and waits for work. A call with packets proceeds in these
//! steps:
//!
//! 1. The worker polls the future.
//! 2. The future copies the packets into memory that the plugin reserved at its start, and calls the plugin.
//! 3. It copies verdicts and windows back, and waits for work, which ends the poll.
//!
//! The plugin runs on its own stack. A clock thread increments the engine's epoch. When the epoch reaches the
//! end of the slice, the poll ends in the middle of the call, and the next poll continues from there. A
//! function whose calls have been short runs on the worker's stack instead, at a fraction of the cost and
//! without an allocation (`shortness`). A trap ends the future.

mod code;
mod compile;
mod entry;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod host;
mod inspect;
mod instance;
pub(in crate::runtime) mod layout;
mod life;
mod plugin;
mod sandbox;
mod shortness;
mod staging;
#[cfg(test)]
mod test_modules;
mod ticker;
mod trap;

pub use crate::fault::{Fault, FaultKind};
pub use crate::runtime::raw_packet::WrongVerdict;
pub use code::WasmPlugin;
pub use compile::{Tier, compile};
pub use inspect::{Inspected, MOST_MODULE, ModuleError, inspect};
pub use instance::{InstanceSettings, WasmInstance};
pub use plugin::LoadedPlugin;
pub use sandbox::{DEFAULT_MEMORY, Sandbox, SandboxError, SandboxSettings};
