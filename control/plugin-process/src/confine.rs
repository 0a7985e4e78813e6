//! Confinement of a plugin process. It has two steps, because loading a shared object needs files.
//!
//! Before it loads the object, the process takes these steps:
//!
//! - It enters namespaces of its own: network, System V memory, mounts, host name. Its network has no device.
//! - It closes all files except standard input, output and error. It leaves its working directory and its
//!   user: root becomes an unprivileged user of its own.
//! - It gives up capabilities, and privileges that it could gain by starting a program. It can't write files.
//! - It installs a seccomp filter that allows only the system calls for computing and for reading files.
//!
//! After the object is loaded, and before the plugin gets any input, the process limits its memory and files,
//! and installs a second filter. From then on it can only compute: it can't open a file or socket, start a
//! process or thread, or make memory executable.
#![allow(unsafe_code)]

use millrace_confine::{Calls, ConfineError, write_no_files};
use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::{Gid, Uid, chdir, geteuid, setgroups, setresgid, setresuid};

/// First user and group id of plugin processes, and their number. System tools assign no ids in this range.
const USERS: (u32, u32) = (0x7e00_0000, 0x10_0000);
/// User and group id where the namespace of users lacks those above.
const NOBODY: u32 = 65_534;
/// Address space of a process, in bytes.
const MEMORY: u64 = 1 << 30;

/// Confines this process irrevocably as far as loading a shared object allows. `number` determines its user.
///
/// # Errors
/// [`ConfineError`] if the kernel refuses a step: the process must then end.
pub(crate) fn begin(number: u32) -> Result<(), ConfineError> {
    leave_namespaces().map_err(ConfineError::of("enter a network of its own"))?;
    close_files().map_err(ConfineError::of("close inherited files"))?;
    chdir("/").map_err(ConfineError::of("change its directory to /"))?;
    leave_user(number).map_err(ConfineError::of("switch to its own user"))?;
    // Set the signal after the change of the user, which resets it.
    prctl::set_pdeathsig(Signal::SIGKILL)
        .map_err(ConfineError::of("set its parent-death signal (PR_SET_PDEATHSIG)"))?;
    prctl::set_no_new_privs().map_err(ConfineError::of("set no_new_privs"))?;
    write_no_files()?;
    Calls::LOADING.leave_to_process()
}

/// Confines this process to computing.
///
/// # Errors
/// As for [`begin`].
pub(crate) fn finish() -> Result<(), ConfineError> {
    prctl::set_dumpable(false)
        .map_err(ConfineError::of("protect its memory from other processes (PR_SET_DUMPABLE)"))?;
    limit().map_err(ConfineError::of("set its resource limits"))?;
    Calls::COMPUTING.leave_to_process()
}

/// Enters namespaces of its own. Without the capability for that, the process first enters a namespace of
/// users. If the kernel refuses this, too, only the seccomp filter keeps it from the network.
fn leave_namespaces() -> Result<(), Errno> {
    let own = CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWNS;
    match unshare(own) {
        Err(Errno::EPERM) if !geteuid().is_root() => {
            let _ = unshare(own | CloneFlags::CLONE_NEWUSER);
            Ok(())
        }
        other => other,
    }
}

/// Closes all files except standard input, output and error.
fn close_files() -> Result<(), Errno> {
    // SAFETY: the process has just begun, so no object owns one of these descriptors.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
    Errno::result(closed).map(drop)
}

/// Replaces root by an unprivileged user. The kernel then removes all capabilities.
fn leave_user(number: u32) -> Result<(), Errno> {
    if !geteuid().is_root() {
        return Ok(());
    }
    setgroups(&[])?;
    let (first, count) = USERS;
    match become_user(first + number % count) {
        // The namespace of users lacks this id.
        Err(Errno::EINVAL) => become_user(NOBODY),
        other => other,
    }
}

fn become_user(id: u32) -> Result<(), Errno> {
    let (user, group) = (Uid::from_raw(id), Gid::from_raw(id));
    setresgid(group, group, group)?;
    setresuid(user, user, user)
}

fn limit() -> Result<(), Errno> {
    setrlimit(Resource::RLIMIT_AS, MEMORY, MEMORY)?;
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
