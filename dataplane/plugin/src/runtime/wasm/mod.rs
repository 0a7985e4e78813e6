//! WebAssembly runtime of plugins: sandboxed modules.
//!
//! The router checks a module ([`inspect`]), compiles and links it in a [`Sandbox`], and runs it in
//! [`WasmInstance`]s. A module accesses only its own memory and the host functions that its manifest
//! requests.
//!
//! There are two compilers ([`Tier`]). Their code doesn't mix, so each has its own engine. An instance takes
//! the best code of its plugin when it starts ([`WasmPlugin::current`]).
//!
//! Each instance is a future that owns its store and waits for work. A call with packets proceeds in these
//! steps. The worker polls the future, which copies the packets into memory that the plugin reserved at its
//! start. The future calls the plugin, copies verdicts and windows back, and waits for work, which ends the
//! poll.
//!
//! The plugin runs on its own stack. If its slice is over, the engine's epochs end the poll in the middle of
//! the call, and the next poll continues from there. A thread increments the epochs. A function whose calls
//! have been short runs on the worker's stack at a fraction of the cost (`shortness`), without an allocation.
//! A trap ends the future.

mod code;
mod compile;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod host;
mod inspect;
mod instance;
mod layout;
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
