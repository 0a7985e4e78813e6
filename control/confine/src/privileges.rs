//! Reduced privileges of threads in a process that has network privileges.

use caps::{CapSet, Capability, CapsHashSet};
use nix::sys::prctl;

use crate::ConfineError;
use crate::refused::Refused;
use crate::writable::Writable;

/// Capabilities for access to files, for changes of the user, and for signals to the router's own processes.
/// None of them reaches a device, a route or an eBPF program.
const FILES: [Capability; 8] = [
    Capability::CAP_CHOWN,
    Capability::CAP_DAC_OVERRIDE,
    Capability::CAP_DAC_READ_SEARCH,
    Capability::CAP_FOWNER,
    Capability::CAP_FSETID,
    Capability::CAP_KILL,
    Capability::CAP_SETGID,
    Capability::CAP_SETUID,
];

/// Capability for packet memory that is shared with the kernel: locked memory.
const MEMORY: [Capability; 1] = [Capability::CAP_IPC_LOCK];

/// Capability to create namespaces. [`Refused`] keeps it from all other uses that reach beyond the process.
const NAMESPACES: [Capability; 1] = [Capability::CAP_SYS_ADMIN];

/// Step that errors of [`Privileges::apart`] name.
const APART: &str = "start a thread with reduced privileges";

/// Set of privileges that a thread keeps, by its task. The thread loses all other privileges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Privileges {
    /// Files outside the kernel's file systems, and the router's own processes. The thread starts no
    /// programs.
    Files,
    /// The privileges of `Files`, and the start of programs.
    Programs,
    /// The privileges of `Programs`, and new namespaces for the programs, which leave them with `unshare`.
    Namespaces,
    /// Packet memory that is shared with the kernel, eBPF maps and programs, and open files and sockets. The
    /// thread opens no file for writing, and changes no name, owner or permission of a file. It creates no
    /// socket, and reaches no other process by a signal, a message or a connection.
    Memory,
}

impl Privileges {
    /// Permanently removes all capabilities outside this set from the calling thread, and from the threads
    /// that it starts. Starting a program does not bring them back (`no_new_privs`, bounding set). System
    /// calls beyond the thread's task fail with `EPERM`.
    ///
    /// # Errors
    /// The kernel refuses. The thread then has its former privileges, or fewer.
    pub fn leave_to_thread(self) -> Result<(), ConfineError> {
        let failed = ConfineError::of("drop capabilities");
        let allowed = self.allowed();
        // A process without CAP_SETPCAP can't change its bounding set; `no_new_privs` applies nevertheless.
        for other in caps::runtime::thread_all_supported().difference(&allowed) {
            let _ = caps::drop(None, CapSet::Bounding, *other);
        }
        for set in [CapSet::Ambient, CapSet::Inheritable, CapSet::Effective, CapSet::Permitted] {
            let had = caps::read(None, set).map_err(&failed)?;
            let left: CapsHashSet = had.intersection(&allowed).copied().collect();
            if left != had {
                caps::set(None, set, &left).map_err(&failed)?;
            }
        }
        prctl::set_no_new_privs().map_err(ConfineError::of("set no_new_privs"))?;
        let writable = if self == Self::Memory { Writable::Nothing } else { Writable::Files };
        writable.leave_to_thread()?;
        let refused = Refused {
            may_start_programs: matches!(self, Self::Programs | Self::Namespaces),
            may_create_namespaces: self == Self::Namespaces,
            is_worker: self == Self::Memory,
        };
        refused.refuse_to_thread()
    }

    fn allowed(self) -> CapsHashSet {
        match self {
            Self::Files | Self::Programs => FILES.into_iter().collect(),
            Self::Namespaces => FILES.into_iter().chain(NAMESPACES).collect(),
            Self::Memory => MEMORY.into_iter().collect(),
        }
    }

    /// Runs `work` on a new thread that has only these privileges. Threads that `work` starts have no further
    /// privileges.
    ///
    /// # Errors
    /// The thread can't be started or confined, or `work` panics.
    pub fn apart<T: Send>(self, work: impl FnOnce() -> T + Send) -> Result<T, ConfineError> {
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("apart".to_owned());
            let thread = thread.spawn_scoped(scope, || self.leave_to_thread().map(|()| work()));
            let done = thread.map_err(ConfineError::of(APART))?.join();
            done.map_err(|_| ConfineError::of(APART)("the thread panicked"))?
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permitted() -> CapsHashSet {
        caps::read(None, CapSet::Permitted).unwrap()
    }

    #[test]
    fn thread_and_its_children_keep_remaining_privileges_and_other_threads_keep_theirs() {
        let before = permitted();
        for left in [Privileges::Files, Privileges::Programs, Privileges::Memory] {
            let allowed = left.allowed();
            let (own, started) = left.apart(|| (permitted(), std::thread::spawn(permitted).join())).unwrap();
            // Without root, `before` and so all expected sets are empty.
            let expected: CapsHashSet = before.intersection(&allowed).copied().collect();
            assert_eq!((&own, &started.unwrap()), (&expected, &expected), "{left:?}");
        }
        assert_eq!(permitted(), before);
    }

    /// Makes a system call with `first` as its first argument and zeros as the others. Returns the error
    /// number.
    #[allow(unsafe_code)]
    fn call(number: libc::c_long, first: usize) -> i32 {
        // SAFETY: with null pointers and a size of zero each of these calls fails before it reads or changes
        // memory.
        match unsafe { libc::syscall(number, first, 0, 0, 0, 0, 0) } {
            -1 => nix::errno::Errno::last_raw(),
            _ => 0,
        }
    }

    #[test]
    fn a_thread_starts_no_program_and_reaches_no_other_process_file_system_or_kernel() {
        let run = || std::process::Command::new("/bin/true").status().map(|status| status.success());
        let has_bounds = caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP).unwrap();
        for left in [Privileges::Files, Privileges::Memory, Privileges::Programs] {
            left.apart(|| {
                assert_eq!(run().is_ok(), left == Privileges::Programs, "{left:?}: a program");
                for (name, number) in [
                    // The first argument 0 means PTRACE_TRACEME, which the kernel would grant.
                    ("ptrace", libc::SYS_ptrace),
                    ("mount", libc::SYS_mount),
                    ("process_vm_writev", libc::SYS_process_vm_writev),
                    ("kexec_load", libc::SYS_kexec_load),
                    ("finit_module", libc::SYS_finit_module),
                    ("unshare", libc::SYS_unshare),
                    ("setns", libc::SYS_setns),
                    ("bpf", libc::SYS_bpf),
                ] {
                    assert_eq!(call(number, 0), libc::EPERM, "{left:?}: {name}");
                }
                for namespace in [libc::CLONE_NEWUSER, libc::CLONE_NEWNS, libc::CLONE_NEWNET] {
                    assert_eq!(
                        call(libc::SYS_clone, namespace as usize),
                        libc::EPERM,
                        "{left:?}: {namespace}"
                    );
                }
                // Without the filter, the kernel refuses these arguments of `clone3` with another error.
                assert_eq!(call(libc::SYS_clone3, 0), libc::ENOSYS, "{left:?}: clone3");
                // The call reads an element of a map that is not open. A worker's call reaches the kernel,
                // which refuses it with an error other than EPERM. For other threads, the filter refuses it
                // with EPERM.
                let element = call(libc::SYS_bpf, 1);
                assert_eq!(element != libc::EPERM, left == Privileges::Memory, "{left:?}: {element}");
                assert_eq!(call(libc::SYS_bpf, 5), libc::EPERM, "{left:?}: a program for the kernel");
                let own = nix::unistd::gettid().as_raw();
                let seen = crate::look(own).unwrap();
                assert!(seen.no_new_privileges && seen.is_filtered, "{left:?}: {seen:?}");
                if has_bounds {
                    let bounds = caps::read(None, CapSet::Bounding).unwrap();
                    assert!(bounds.is_subset(&left.allowed()), "{left:?}: {bounds:?}");
                }
            })
            .unwrap();
        }
        assert!(run().unwrap(), "other threads start programs as before");
    }

    #[test]
    fn a_thread_writes_no_setting_of_the_kernel_and_a_worker_no_file() {
        let mut open = std::fs::OpenOptions::new();
        open.write(true);
        let own = std::env::temp_dir().join(format!("millrace-writable-{}", std::process::id()));
        std::fs::write(&own, "").unwrap();
        let pattern = "/proc/sys/kernel/core_pattern";
        // Root may write this file without any capability, so only Landlock refuses it.
        let may = open.open(pattern).is_ok();
        assert_eq!(may, nix::unistd::geteuid().is_root(), "{pattern}");
        for left in [Privileges::Files, Privileges::Memory, Privileges::Programs] {
            left.apart(|| {
                for path in [pattern, "/proc/self/comm", "/dev/zero"] {
                    assert!(open.open(path).is_err(), "{left:?}: {path}");
                    assert!(std::fs::read(pattern).is_ok(), "{left:?}: files are read");
                }
                assert_eq!(open.open(&own).is_ok(), left != Privileges::Memory, "{left:?}: a file");
                assert_eq!(open.open("/dev/null").is_ok(), left != Privileges::Memory, "{left:?}: nothing");
            })
            .unwrap();
        }
        std::fs::remove_file(own).unwrap();
    }

    #[test]
    fn a_worker_keeps_the_capability_for_packet_memory_alone() {
        assert_eq!(Privileges::Memory.allowed(), CapsHashSet::from([Capability::CAP_IPC_LOCK]));
    }

    #[test]
    fn a_worker_changes_no_file_and_reaches_no_process_by_signal_or_connection() {
        use std::os::unix::fs::PermissionsExt as _;

        use nix::sys::signal::kill;
        use nix::unistd::{chown, getpid, getppid};

        let own = std::env::temp_dir().join(format!("millrace-worker-{}", std::process::id()));
        std::fs::write(&own, "kept").unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let denied = Some(libc::EPERM);
        for left in [Privileges::Files, Privileges::Memory] {
            left.apart(|| {
                let refused = left == Privileges::Memory;
                let mode = std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o640));
                assert_eq!(
                    mode.is_err_and(|error| error.raw_os_error() == denied),
                    refused,
                    "{left:?}: chmod"
                );
                let owner = chown(&own, Some(nix::unistd::geteuid()), None);
                assert_eq!(owner == Err(nix::errno::Errno::EPERM), refused, "{left:?}: chown");
                let connected = std::net::TcpStream::connect(address);
                assert_eq!(connected.is_err_and(|error| error.raw_os_error() == denied), refused, "{left:?}");
                // Signal 0 is never delivered: the kernel only checks whether the caller may signal the
                // process.
                assert_eq!(kill(getppid(), None) == Err(nix::errno::Errno::EPERM), refused, "{left:?}: kill");
                assert_eq!(kill(getpid(), None), Ok(()), "{left:?}: itself");
                let parent = getppid().as_raw() as usize;
                let by_descriptor = call(libc::SYS_pidfd_send_signal, usize::MAX);
                assert_eq!(call(libc::SYS_tgkill, parent) == libc::EPERM, refused, "{left:?}: tgkill");
                assert_eq!(by_descriptor == libc::EPERM, refused, "{left:?}: pidfd_send_signal");
                for (name, number) in [
                    ("fchmod", libc::SYS_fchmod),
                    ("fchown", libc::SYS_fchown),
                    ("fsetxattr", libc::SYS_fsetxattr),
                    ("setxattr", libc::SYS_setxattr),
                    ("removexattr", libc::SYS_removexattr),
                    ("fchmodat2", 452),
                    ("setxattrat", 463),
                    ("unlinkat", libc::SYS_unlinkat),
                    ("truncate", libc::SYS_truncate),
                ] {
                    assert_eq!(call(number, usize::MAX) == libc::EPERM, refused, "{left:?}: {name}");
                }
                // The seccomp filter refuses this, even on a kernel without Landlock.
                let opened = std::fs::OpenOptions::new().append(true).open(&own);
                let code = opened.err().and_then(|error| error.raw_os_error());
                assert_eq!(code, refused.then_some(libc::EPERM), "{left:?}: open to write");
                assert_eq!(std::fs::read_to_string(&own).unwrap(), "kept", "{left:?}: files are read");
            })
            .unwrap();
        }
        std::fs::remove_file(own).unwrap();
    }

    #[test]
    fn panic_in_a_separate_thread_is_an_error() {
        let error = Privileges::Files.apart(|| panic!("as it should")).unwrap_err();
        assert_eq!(error.to_string(), "can't start a thread with reduced privileges: the thread panicked");
    }
}
