//! SDK for plugins in Rust. One source compiles to a WebAssembly module, a shared object, an executable, and a
//! native test.
//!
//! ```
//! use millrace_sdk::{Packets, Plugin, Refusal, millrace_plugin};
//!
//! struct Counter {
//!     packets: u64,
//! }
//!
//! impl Plugin for Counter {
//!     fn init(_settings: &[u8]) -> Result<Self, Refusal> {
//!         Ok(Self { packets: 0 })
//!     }
//!
//!     fn packets(&mut self, packets: &mut Packets<'_>, _now: u64) {
//!         self.packets += packets.len() as u64;
//!     }
//! }
//!
//! millrace_plugin! {
//!     Counter,
//!     name: "counter",
//!     summary: "Counts packets.",
//!     positions: ["early", "copy"],
//! }
//! # fn main() {}
//! ```
//!
//! The plugin's crate is a `cdylib`, and begins with `#![cfg_attr(target_family = "wasm", no_std)]`, so that
//! the module stays small. `docs/plugins.md` is a step-by-step guide; `docs/plugin-abi.md` describes the
//! binary interface below.
//!
//! A panic never unwinds into the router. In a control function it becomes a refusal; in a call with packets
//! it is a fault of the plugin.
#![no_std]

extern crate alloc;
#[cfg(not(target_family = "wasm"))]
extern crate std;

mod backlog;
pub mod exceptions;
#[cfg(target_os = "linux")]
pub mod executable;
#[doc(hidden)]
pub mod features;
#[doc(hidden)]
pub mod glue;
pub mod host;
pub mod json;
#[doc(hidden)]
pub mod manifest;
mod map;
mod packet;
mod packets;
mod plain;
mod plugin;
#[cfg(all(target_family = "wasm", feature = "runtime"))]
mod runtime;
#[cfg(not(target_family = "wasm"))]
pub mod testing;

pub use backlog::{Backlog, PayerBacklog, QueueBacklog};
pub use host::Level;
pub use map::{MapError, SharedMap};
pub use millrace_plugin_abi::{Features, binary};
pub use packet::{ConnectionStatus, Packet, Verdict};
pub use packets::Packets;
pub use plain::Plain;
pub use plugin::{Declared, FlowEnd, Plugin, Refusal};

#[doc(hidden)]
pub use alloc::format as __format;
