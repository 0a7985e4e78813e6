//! From the bytes of a plugin's module to code that instances run.
//!
//! A compiler is a large program that reads what a stranger wrote, and how long it takes and how much memory is up to that
//! stranger. So the daemon starts itself anew with another task ([`child`]): that process gives away all it could do but
//! compute ([`confine`]), reads the module, and writes machine code. The daemon waits for it so long, takes so many bytes of it,
//! and ends it otherwise ([`process`]). What was compiled is kept under a tag that shows any change ([`Cache`]).
//!
//! The daemon runs what the child wrote, so it trusts the child as far as it trusts itself: it is the same program, and was
//! confined before it read a byte.
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
