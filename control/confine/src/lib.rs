//! Giving away for good what is not needed, before what strangers wrote is read.
//!
//! [`Calls`] are the system calls that are left to a process or a thread (seccomp); all others fail with `EPERM`. [`confine_thread`] is
//! for threads of a process that has privileges: it takes the capabilities away from one of them, and all calls by which it could
//! get at files, programs, devices or sockets beyond those that it was given. Memory is shared by all threads, so this stops what a
//! thread asks the system for, and not what it writes. [`Privileges`] are what is left to threads of such a process that speak with no stranger:
//! fewer capabilities, no new ones by starting programs, and no system call that reaches into other processes or the kernel.

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
