//! Permanent loss of privileges, before a thread or process reads input from outside.
//!
//! - [`Calls`] are the system calls that a process or a thread may still make (seccomp). All others fail with
//!   `EPERM`.
//! - [`confine_thread`] is for threads of a privileged process that serve clients. It removes a thread's
//!   capabilities. It also refuses all system calls that reach files, programs, devices or sockets that are
//!   not already open. All threads share memory, so this limits a thread's requests to the system, not its
//!   writes to memory.
//! - [`Privileges`] are for threads of a privileged process that serve no client. Such a thread keeps few
//!   capabilities, and gains none by starting programs. It makes no system call that reaches into other
//!   processes or the kernel.
//! - [`leave_origin`] and [`limit_process`] are for processes that work for a privileged process: they give up
//!   files, user, privileges and resources. [`only_read_libraries`] and [`reach_no_files`] leave them the files that
//!   their code needs.

mod calls;
mod error;
mod libraries;
mod look;
mod privileges;
mod process;
mod refused;
mod thread;
mod worker_calls;
mod writable;

pub use calls::Calls;
pub use error::ConfineError;
pub use look::{Confinement, look};
pub use privileges::Privileges;
pub use process::{NOBODY, ProcessLimits, execute_standard_input, leave_origin, limit_process};
pub use thread::confine_thread;
pub use writable::{only_read_libraries, reach_no_files};
