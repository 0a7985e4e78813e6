//! Permanent loss of privileges before input from outside is read.
//!
//! [`Calls`] are the system calls that a process or a thread may still make (seccomp); all others fail with
//! `EPERM`. [`confine_thread`] is for threads of a privileged process. It removes a thread's capabilities,
//! and all calls that reach files, programs, devices or sockets that are not already open. All threads share
//! memory, so this limits a thread's requests to the system, not its writes to memory. [`Privileges`] are for
//! threads of such a process that serve no client. They keep few capabilities, gain none by starting
//! programs, and make no system call that reaches into other processes or the kernel.

mod calls;
mod error;
mod look;
mod privileges;
mod refused;
mod thread;
mod worker_calls;
mod writable;

pub use calls::Calls;
pub use error::ConfineError;
pub use look::{Confinement, look};
pub use privileges::Privileges;
pub use thread::confine_thread;
