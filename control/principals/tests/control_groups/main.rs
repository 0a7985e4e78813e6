//! Control groups of this machine's kernel: limits hold, and everything is removed.

mod limits;
mod members;
mod removal;
mod support;
mod threads;
