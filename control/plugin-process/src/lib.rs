//! Keeper of the processes in which shared objects and executables run.
//!
//! The daemon starts its own program again for each instance of a shared object or executable, as a plugin
//! process ([`child`]). That process gives up its rights ([`confine`]), loads the object or executes the file,
//! and serves a worker through shared memory. One thread of the daemon, the keeper, starts, watches and ends all these processes
//! ([`ProcessKeeper`]), and puts them into control groups ([`ProcessGroups`]). A process ends with the router.
#![deny(unsafe_code)]

pub mod child;
mod confine;
mod groups;
mod keeper;
mod process;

pub use groups::{ProcessGroup, ProcessGroups};
pub use keeper::ProcessKeeper;
pub use process::ChildCommand;
