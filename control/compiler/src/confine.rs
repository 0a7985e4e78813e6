//! Giving away everything but computing: what a process does to itself before it reads what a stranger wrote.
//!
//! In this order: it lets go of all files but the first three, of its place in the file system, of its user (when that is root:
//! it becomes `nobody`), of the privileges of programs that it could start, and of memory, time and files beyond its limits.
//! Then a filter (seccomp) leaves it the system calls that compiling takes: memory, and reading and writing what is open
//! already, by the threads that there are. All others fail with `EPERM`, so there is no file, socket, process or thread that it
//! could open or start; memory can't be made executable, and signals go to itself only. A kernel without seccomp filters compiles
//! nothing.
#![allow(unsafe_code)]

use millrace_confine::{Calls, ConfineError};
use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::{Gid, Uid, chdir, geteuid, setgroups, setresgid, setresuid};

/// User and group that root becomes.
const NOBODY: u32 = 65_534;

/// Confines this process for good, with all its threads.
///
/// # Errors
/// [`ConfineError`] when the kernel refuses a part of it: a process that is confined in part only must end.
pub(crate) fn confine(memory: u64, seconds: u64) -> Result<(), ConfineError> {
    close_files().map_err(ConfineError::of("close its files"))?;
    chdir("/").map_err(ConfineError::of("leave its directory"))?;
    become_nobody().map_err(ConfineError::of("become nobody"))?;
    // A change of the user takes this back, so it comes after.
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(ConfineError::of("end with its parent"))?;
    prctl::set_dumpable(false).map_err(ConfineError::of("forbid others to look into its memory"))?;
    prctl::set_no_new_privs().map_err(ConfineError::of("give up privileges"))?;
    limit(memory, seconds).map_err(ConfineError::of("limit itself"))?;
    Calls::COMPUTING.leave_to_process()
}

/// Closes all files but the first three.
fn close_files() -> Result<(), Errno> {
    // SAFETY: no object of this process owns a descriptor yet: it has just begun.
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
    // The first limit is told by a signal of its own, the second one kills.
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
