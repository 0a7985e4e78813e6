//! Control groups of this machine's kernel: limits hold, and everything is removed.

mod limits;
mod removal;
mod support;
mod threads;
