//! Steps by which a process that has just begun gives up files, its user and resources.
#![allow(unsafe_code)]

use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
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
/// have opened files. Its standard error must be a pipe that only the process that started it reads.
///
/// # Errors
/// The kernel refuses a step, or nobody reads the pipe: the process is then only partly confined and must end.
pub fn leave_origin(users: &[u32]) -> Result<(), ConfineError> {
    close_files().map_err(ConfineError::of("close inherited files"))?;
    chdir("/").map_err(ConfineError::of("change its directory to /"))?;
    leave_root(users).map_err(ConfineError::of("switch to an unprivileged user"))?;
    // Set the signal after the change of the user, which resets it.
    prctl::set_pdeathsig(Signal::SIGKILL)
        .map_err(ConfineError::of("set its parent-death signal (PR_SET_PDEATHSIG)"))?;
    // The parent may have ended before. In a namespace of its own, the process can't ask for its parent.
    find_reader().map_err(ConfineError::of("find the process that started it"))?;
    prctl::set_no_new_privs().map_err(ConfineError::of("set no_new_privs"))
}

/// Resources that [`limit_process`] leaves to a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessLimits {
    /// Address space in bytes.
    pub memory: u64,
    /// Processor time in seconds; `None` for any time.
    pub seconds: Option<u64>,
    /// Number of files that are open at a time, beyond standard input, output and error.
    pub files: u64,
}

/// Limits the resources of this process. The process can no longer write files, dump its memory, start
/// processes, or lock memory. Processes of the same user can't read its memory.
///
/// # Errors
/// The kernel refuses a step.
pub fn limit_process(limits: ProcessLimits) -> Result<(), ConfineError> {
    prctl::set_dumpable(false)
        .map_err(ConfineError::of("protect its memory from other processes (PR_SET_DUMPABLE)"))?;
    limit(limits).map_err(ConfineError::of("set its resource limits"))
}

/// Replaces the program of this process by the file on its standard input, without arguments and environment.
/// Returns only if the kernel refuses.
pub fn execute_standard_input() -> ConfineError {
    let name = [c"plugin".as_ptr(), std::ptr::null()];
    let none = [std::ptr::null::<libc::c_char>()];
    let flags = libc::AT_EMPTY_PATH;
    // SAFETY: all pointers lead to texts that end with a zero, or to lists of such that end with a null pointer.
    unsafe {
        libc::syscall(libc::SYS_execveat, 0, c"".as_ptr(), name.as_ptr(), none.as_ptr(), flags);
    }
    ConfineError::of("execute its program")(Errno::last())
}

fn close_files() -> Result<(), Errno> {
    // SAFETY: the process has just begun, so no object owns one of these descriptors.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
    Errno::result(closed).map(drop)
}

/// Fails if standard error is a pipe whose reader has ended.
fn find_reader() -> Result<(), Errno> {
    let error = std::io::stderr();
    let mut waited = [PollFd::new(error.as_fd(), PollFlags::empty())];
    poll(&mut waited, PollTimeout::ZERO)?;
    match waited[0].any() {
        Some(true) => Err(Errno::EPIPE),
        _ => Ok(()),
    }
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

fn limit(limits: ProcessLimits) -> Result<(), Errno> {
    let ProcessLimits { memory, seconds, files } = limits;
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
    setrlimit(Resource::RLIMIT_NOFILE, 3 + files, 3 + files)
}
