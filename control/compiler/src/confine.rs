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
#![allow(unsafe_code)]

use millrace_confine::{Calls, ConfineError};
use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::{Gid, Uid, chdir, geteuid, setgroups, setresgid, setresuid};

/// User and group id that replaces root.
const NOBODY: u32 = 65_534;

/// Confines this process irrevocably, with all its threads.
///
/// # Errors
/// [`ConfineError`] if the kernel refuses a step: the process is then only partly confined and must end.
pub(crate) fn confine(memory: u64, seconds: u64) -> Result<(), ConfineError> {
    close_files().map_err(ConfineError::of("close inherited files"))?;
    chdir("/").map_err(ConfineError::of("change its directory to /"))?;
    become_nobody().map_err(ConfineError::of("switch to the user nobody"))?;
    // Set the signal after the change of the user, which resets it.
    prctl::set_pdeathsig(Signal::SIGKILL)
        .map_err(ConfineError::of("set its parent-death signal (PR_SET_PDEATHSIG)"))?;
    prctl::set_dumpable(false)
        .map_err(ConfineError::of("protect its memory from other processes (PR_SET_DUMPABLE)"))?;
    prctl::set_no_new_privs().map_err(ConfineError::of("set no_new_privs"))?;
    limit(memory, seconds).map_err(ConfineError::of("set its resource limits"))?;
    Calls::COMPUTING.leave_to_process()
}

/// Closes all files except standard input, output and error.
fn close_files() -> Result<(), Errno> {
    // SAFETY: the process has just begun, so no object owns one of these descriptors.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
    Errno::result(closed).map(drop)
}

fn become_nobody() -> Result<(), Errno> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    setgroups(&[])?;
    setresgid(group, group, group)?;
    setresuid(user, user, user)
}

fn limit(memory: u64, seconds: u64) -> Result<(), Errno> {
    setrlimit(Resource::RLIMIT_AS, memory, memory)?;
    // The soft limit sends SIGXCPU, the hard limit kills.
    setrlimit(Resource::RLIMIT_CPU, seconds, seconds + 1)?;
    for none in [
        Resource::RLIMIT_FSIZE,
        Resource::RLIMIT_CORE,
        Resource::RLIMIT_NPROC,
        Resource::RLIMIT_MEMLOCK,
        Resource::RLIMIT_MSGQUEUE,
    ] {
        setrlimit(none, 0, 0)?;
    }
    setrlimit(Resource::RLIMIT_NOFILE, 3, 3)
}
