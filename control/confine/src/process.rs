//! Steps by which a process that has just begun gives up files, its user and resources.
#![allow(unsafe_code)]

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::{Gid, Uid, chdir, geteuid, setgroups, setresgid, setresuid};

use crate::ConfineError;

/// User and group id without rights, on each system.
pub const NOBODY: u32 = 65_534;

/// Closes all files of this process except standard input, output and error, and leaves its directory, its
/// user and its privileges. Root becomes the first of `users` that exists in the namespace of users; another
/// user stays. The kernel kills the process at the end of the thread that started it. The process must not
/// have opened files.
///
/// # Errors
/// The kernel refuses a step: the process is then only partly confined and must end.
pub fn leave_origin(users: &[u32]) -> Result<(), ConfineError> {
    close_files().map_err(ConfineError::of("close inherited files"))?;
    chdir("/").map_err(ConfineError::of("change its directory to /"))?;
    leave_root(users).map_err(ConfineError::of("switch to an unprivileged user"))?;
    // Set the signal after the change of the user, which resets it.
    prctl::set_pdeathsig(Signal::SIGKILL)
        .map_err(ConfineError::of("set its parent-death signal (PR_SET_PDEATHSIG)"))?;
    prctl::set_no_new_privs().map_err(ConfineError::of("set no_new_privs"))
}

/// Limits this process to `memory` bytes of address space, and to `seconds` of processor time if given. The
/// process can no longer write or open files, dump its memory, start processes, or lock memory. Processes of
/// the same user can't read its memory.
///
/// # Errors
/// The kernel refuses a step.
pub fn limit_process(memory: u64, seconds: Option<u64>) -> Result<(), ConfineError> {
    prctl::set_dumpable(false)
        .map_err(ConfineError::of("protect its memory from other processes (PR_SET_DUMPABLE)"))?;
    limit(memory, seconds).map_err(ConfineError::of("set its resource limits"))
}

fn close_files() -> Result<(), Errno> {
    // SAFETY: the process has just begun, so no object owns one of these descriptors.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
    Errno::result(closed).map(drop)
}

/// Replaces root by an unprivileged user. The kernel then removes all capabilities.
fn leave_root(users: &[u32]) -> Result<(), Errno> {
    if !geteuid().is_root() {
        return Ok(());
    }
    setgroups(&[])?;
    let mut became = Err(Errno::EINVAL);
    for id in users {
        became = become_user(*id);
        // The namespace of users lacks this id.
        if became != Err(Errno::EINVAL) {
            break;
        }
    }
    became
}

fn become_user(id: u32) -> Result<(), Errno> {
    let (user, group) = (Uid::from_raw(id), Gid::from_raw(id));
    setresgid(group, group, group)?;
    setresuid(user, user, user)
}

fn limit(memory: u64, seconds: Option<u64>) -> Result<(), Errno> {
    setrlimit(Resource::RLIMIT_AS, memory, memory)?;
    if let Some(seconds) = seconds {
        // The soft limit sends SIGXCPU, the hard limit kills.
        setrlimit(Resource::RLIMIT_CPU, seconds, seconds + 1)?;
    }
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
