//! Confinement of a plugin process. It has two steps, because loading a shared object needs files.
//!
//! The router starts the process in a PID namespace of its own. Before it loads the object, the process takes
//! these steps:
//!
//! - It enters namespaces of its own: network, System V memory, mounts, host name. Its network has no device.
//! - It closes all files except standard input, output and error. It leaves its working directory and its
//!   user: root becomes an unprivileged user of its own.
//! - It gives up capabilities, and privileges that it could gain by starting a program. It can't write files,
//!   or read in `/dev`, `/proc` and `/sys`.
//! - It installs a seccomp filter that allows only the system calls for computing and for reading files.
//!
//! After the object is loaded, and before the plugin gets any input, the process limits its memory and files,
//! and installs a second filter. From then on it can only compute: it can't open a file or socket, start a
//! process or thread, or make memory executable.

use millrace_confine::{Calls, ConfineError, NOBODY, leave_origin, limit_process, only_read_files};
use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::geteuid;

/// First user and group id of plugin processes, and their number. System tools assign no ids in this range.
const USERS: (u32, u32) = (0x7e00_0000, 0x10_0000);
/// Address space of a process, in bytes.
const MEMORY: u64 = 1 << 30;

/// Confines this process irrevocably as far as loading a shared object allows. `number` determines its user.
///
/// # Errors
/// [`ConfineError`] if the kernel refuses a step: the process must then end.
pub(crate) fn begin(number: u32) -> Result<(), ConfineError> {
    leave_namespaces().map_err(ConfineError::of("enter a network of its own"))?;
    let (first, count) = USERS;
    leave_origin(&[first + number % count, NOBODY])?;
    only_read_files()?;
    Calls::LOADING.leave_to_process()
}

/// Confines this process to computing.
///
/// # Errors
/// As for [`begin`].
pub(crate) fn finish() -> Result<(), ConfineError> {
    limit_process(MEMORY, None)?;
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
