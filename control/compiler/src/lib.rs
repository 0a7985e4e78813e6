//! Compilation of a plugin's module to machine code, in a confined process, with a cache.
//!
//! A compiler is a large program that reads untrusted input, and the input determines its time and memory. So
//! the daemon starts itself again with another task ([`child`]). That process gives up all rights but
//! computing ([`confine`]), reads the module, and writes machine code. The daemon bounds the time and the
//! output of the process, and kills it beyond these limits ([`process`]). Compiled code is cached under a tag
//! that reveals any change ([`Cache`]).
//!
//! The daemon runs the code that the child wrote, so it trusts the child as much as itself. The child is the
//! same program, and is confined before it reads any input.
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
