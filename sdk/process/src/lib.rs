//! Process's side of the memory that the process of a plugin shares with a worker of the router.
//!
//! [`Channel::open`] maps the memory. [`serve`] then waits for requests of the worker, and carries them out by
//! calling the plugin's functions, the [`Exports`]. During a call, the plugin calls host functions through the
//! table [`HOST`], which the plugin must get first ([`Exports::attach`]).
//!
//! The router uses this crate for the processes of shared objects, and the SDK for executables. Like the SDK,
//! the crate needs nothing but the Rust standard library. [`millrace_plugin_abi::process`] describes the memory.

mod channel;
mod exports;
mod host;
mod serve;
mod system;
mod table;

pub use channel::Channel;
pub use exports::Exports;
pub use host::{Host, MapFunctions, PacketFunctions};
pub use serve::serve;
pub use table::HOST;
