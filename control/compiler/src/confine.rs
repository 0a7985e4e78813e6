//! Confinement of the compiling process: it gives up all rights but computing, before it reads an untrusted
//! module.
//!
//! The process takes these steps:
//!
//! - It closes all files except standard input, output and error. It leaves its working directory and its
//!   user (root becomes `nobody`).
//! - It gives up privileges that it could gain by starting a program. It limits its memory, time and files.
//! - It installs a seccomp filter. The filter allows only the system calls for compiling: memory, and reads
//!   and writes of open files, by the existing threads.
//!
//! All other calls fail with `EPERM`. So the process can't open a file or socket, start a process or thread,
//! or make memory executable. It can signal only itself. On a kernel without seccomp filters, nothing is
//! compiled.

use millrace_confine::{Calls, ConfineError, NOBODY, ProcessLimits, leave_origin, limit_process};

/// Confines this process irrevocably, with all its threads. `memory` is the limit of its address space in
/// bytes, `seconds` that of its processor time.
///
/// # Errors
/// [`ConfineError`] if the kernel refuses a step: the process is then only partly confined and must end.
pub(crate) fn confine(memory: u64, seconds: u64) -> Result<(), ConfineError> {
    leave_origin(&[NOBODY])?;
    limit_process(ProcessLimits { memory, seconds: Some(seconds), files: 0 })?;
    Calls::COMPUTING.leave_to_process()
}
