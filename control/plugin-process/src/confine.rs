//! Confinement of a plugin process.
//!
//! The router starts the process in a PID namespace of its own. First, the process takes these steps:
//!
//! - It enters namespaces of its own: network, System V memory, mounts, host name. Its network has no device.
//! - It closes all files except standard input, output and error. It leaves its working directory and its
//!   user: root becomes an unprivileged user of its own.
//! - It gives up capabilities, and privileges that it could gain by starting a program.
//!
//! The other steps depend on the form of the plugin:
//!
//! - **Shared object**: the process limits its memory and files before it loads the object, whose constructors run.
//!   Loading needs files: the process can read the system's shared libraries, and no other file. A seccomp filter
//!   allows only the system calls for computing and for reading files. After the object is loaded, and before the
//!   process calls a function of the plugin, it installs a second filter. From then on it can only compute: it can't
//!   open a file or socket, start a process or thread, or make memory executable. The keeper ends a process that isn't
//!   ready in time.
//!
//!   A constructor shares the memory of the process, so it could serve the worker itself, and never let the process
//!   install the second filter. No check of the router could tell: the constructor can do all that the process can. It
//!   gains the libraries, which hold no secrets, and executable memory, which does nothing beyond the system calls.
//! - **Executable without shared libraries**: the process limits its memory and files, and can't open any file.
//!   A seccomp filter allows only the system calls for computing, for executing the file, and for the start of
//!   its C library. Then it executes the file. So all code of the plugin can only compute.
//! - **Executable with shared libraries**: its loader reads files, and makes memory executable. The process can read
//!   the system's shared libraries, one at a time, and no other file. The same limits hold as above. All this holds as
//!   long as the process runs.

use millrace_confine::{
    Calls, ConfineError, NOBODY, ProcessLimits, execute_standard_input, leave_origin, limit_process,
    only_read_libraries, reach_no_files,
};
use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::geteuid;

/// First user and group id of plugin processes, and their number. System tools assign no ids in this range.
const USERS: (u32, u32) = (0x7e00_0000, 0x10_0000);
/// Resources of a process.
const LIMITS: ProcessLimits = ProcessLimits { memory: 1 << 30, seconds: None, files: 0 };
/// Number of files that are open at a time while an object is loaded: the object, a library, and the loader's list of
/// libraries.
const LOADED_FILES: u64 = 4;

/// Confines this process irrevocably as far as loading a shared object allows. `number` determines its user.
///
/// # Errors
/// [`ConfineError`] if the kernel refuses a step: the process must then end.
pub(crate) fn begin_loading(number: u32) -> Result<(), ConfineError> {
    leave_router(number)?;
    only_read_libraries()?;
    limit_process(ProcessLimits { files: LOADED_FILES, ..LIMITS })?;
    Calls::LOADING.leave_to_process()
}

/// Confines all threads of this process, which has loaded a shared object, to computing.
///
/// # Errors
/// As for [`begin_loading`].
pub(crate) fn finish_loading() -> Result<(), ConfineError> {
    Calls::COMPUTING.leave_to_process()
}

/// Confines this process irrevocably, and replaces its program by the executable on its standard input.
/// `has_libraries` tells whether the executable needs shared libraries. Returns only if the kernel refuses a
/// step: the process must then end.
pub(crate) fn execute(number: u32, has_libraries: bool) -> ConfineError {
    let confine = || {
        leave_router(number)?;
        let (files, calls) = match has_libraries {
            false => (0, Calls::STARTING),
            true => (1, Calls::STARTING_DYNAMIC),
        };
        if has_libraries { only_read_libraries() } else { reach_no_files() }?;
        limit_process(ProcessLimits { files, ..LIMITS })?;
        calls.leave_to_process()
    };
    match confine() {
        Ok(()) => execute_standard_input(),
        Err(error) => error,
    }
}

/// Leaves the namespaces, files, user and privileges of the router.
fn leave_router(number: u32) -> Result<(), ConfineError> {
    leave_namespaces().map_err(ConfineError::of("enter a network of its own"))?;
    let (first, count) = USERS;
    leave_origin(&[first + number % count, NOBODY])
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
