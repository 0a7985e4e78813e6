//! Compilation of a plugin's module to machine code, in a confined process, with a cache.
//!
//! A compiler is a large program that reads untrusted input. This input also determines its time and memory.
//! So the daemon starts its own program again, as a compiling process ([`child`]). That process gives up all
//! rights but computing ([`confine`]), reads the module, and writes machine code. The daemon limits the time
//! and the output of the process, and kills it beyond these limits ([`process`]). Compiled code is cached
//! with an authentication tag that reveals any change ([`Cache`]).
//!
//! The daemon runs the code that the process wrote, so it trusts the process as much as itself. The process
//! runs the same program, and is confined before it reads any input.
#![deny(unsafe_code)]

mod cache;
pub mod child;
mod compiler;
mod confine;
mod error;
mod launcher;
mod process;

pub use cache::{Cache, CacheError, Key};
pub use compiler::{Compiler, CompilerSettings, Loaded, Source};
pub use error::CompileError;
pub use launcher::begin_launcher;
pub use process::{ChildCommand, Limits};
