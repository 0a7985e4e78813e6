//! The WebAssembly home of plugins: modules that are contained.
//!
//! A module is checked ([`inspect`]), compiled and linked in a [`Sandbox`], and run by [`WasmInstance`]s. It reaches its own
//! memory and the functions of the router that its manifest names, and nothing else.
//!
//! There are two compilers ([`Tier`]). Their code doesn't mix, so each has an engine of its own; an instance that
//! begins takes the best code that its plugin has by then ([`WasmPlugin::current`]).
//!
//! How a call goes. Each instance is a future that owns its store, and waits for something to do. With a call of packets it is
//! polled: they are copied into memory that the plugin gave for that when it began, the plugin is called, verdicts and windows
//! are copied back, and it waits, which ends the poll. The plugin is called on a stack of its own, so that one whose slice is over
//! ends the poll in the middle, by the engine's epochs, which a thread counts up; the next poll goes on from there. A function
//! that has shown that its calls are short is called on the worker's stack, at a fraction of the cost (`shortness`), and
//! without an allocation. A trap ends the future.

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

pub use crate::fault::{Fault, FaultCounts, FaultKind};
pub use crate::raw_packet::WrongVerdict;
pub use code::WasmPlugin;
pub use compile::{Tier, compile};
pub use inspect::{Inspected, MOST_MODULE, ModuleError, inspect};
pub use instance::{InstanceCounts, InstanceSettings, WasmInstance};
pub use plugin::LoadedPlugin;
pub use sandbox::{DEFAULT_MEMORY, Sandbox, SandboxError, SandboxSettings};
