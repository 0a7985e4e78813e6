//! System calls that a confined process or thread may still make.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, sock_filter,
};

use crate::ConfineError;

/// System calls for computing, allowed with any arguments: memory, time, waits for other threads, reads and
/// writes of open files.
const COMPUTING: &[libc::c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getcpu,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_read,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_yield,
    libc::SYS_sigaltstack,
    libc::SYS_write,
];

/// Advice about memory that a process may give the kernel. Other advice takes pages away from whoever shares them: a
/// process would make its worker sleep in page faults.
const ADVICE: &[libc::c_int] = &[
    libc::MADV_NORMAL,
    libc::MADV_RANDOM,
    libc::MADV_SEQUENTIAL,
    libc::MADV_WILLNEED,
    libc::MADV_DONTNEED,
    libc::MADV_FREE,
    libc::MADV_HUGEPAGE,
    libc::MADV_NOHUGEPAGE,
];

/// Further system calls for serving clients on open sockets: accepting connections, and waiting for clients.
const SERVING: &[libc::c_long] = &[
    libc::SYS_accept4,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_restart_syscall,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_writev,
];

/// Further system calls for reading files, as loading of shared objects needs it.
const READING: &[libc::c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_access,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    libc::SYS_faccessat,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_getcwd,
    libc::SYS_lseek,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_pread64,
    libc::SYS_readlinkat,
    libc::SYS_statx,
];

/// Further system calls for loading shared objects: the installation of the filter that follows. [`LOADING_ARGUMENTS`]
/// limits them.
const LOADING: &[libc::c_long] = &[libc::SYS_prctl, libc::SYS_seccomp];

/// Allowed arguments of the calls in [`LOADING`]: the call, the number of the argument, and its value. A constructor
/// could otherwise let the process outlive the router, for example.
const LOADING_ARGUMENTS: [(libc::c_long, u8, u64); 3] = [
    (libc::SYS_prctl, 0, libc::PR_SET_NO_NEW_PRIVS as u64),
    (libc::SYS_seccomp, 0, libc::SECCOMP_SET_MODE_FILTER as u64),
    (libc::SYS_seccomp, 1, libc::SECCOMP_FILTER_FLAG_TSYNC),
];

/// Further system calls for executing a file, and for the start of its C library.
const STARTING: &[libc::c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_arch_prctl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_execveat,
    libc::SYS_lseek,
    libc::SYS_ppoll,
    libc::SYS_rseq,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
];

/// Builds the seccomp filter of `calls`, and installs it with `apply`.
pub(crate) fn install(
    filter: Result<BpfProgram, BackendError>,
    apply: fn(&[sock_filter]) -> Result<(), seccompiler::Error>,
) -> Result<(), ConfineError> {
    let filter = filter.map_err(ConfineError::of("build the seccomp filter"))?;
    apply(&filter).map_err(ConfineError::of("install the seccomp filter"))
}

/// Set of allowed system calls; all others fail with `EPERM`. Even allowed calls can't send signals to another
/// process, or make memory executable, except for loading of shared objects and libraries.
#[derive(Clone, Copy, Debug)]
pub struct Calls {
    allowed: [&'static [libc::c_long]; 3],
    /// Whether the calls may make memory executable.
    executable: bool,
}

impl Calls {
    /// System calls for computing.
    pub const COMPUTING: Self = Self { allowed: [COMPUTING, &[], &[]], executable: false };
    /// System calls for serving clients on open sockets.
    pub const SERVING: Self = Self { allowed: [COMPUTING, SERVING, &[]], executable: false };
    /// System calls for computing, and for loading shared objects.
    pub const LOADING: Self = Self { allowed: [COMPUTING, READING, LOADING], executable: true };
    /// System calls for executing a file without shared libraries, and for computing then.
    pub const STARTING: Self = Self { allowed: [COMPUTING, STARTING, &[]], executable: false };
    /// System calls for executing a file with shared libraries, and for computing then.
    pub const STARTING_DYNAMIC: Self = Self { allowed: [COMPUTING, READING, STARTING], executable: true };

    /// Restricts the calling thread, and the threads that it starts, to these calls.
    ///
    /// # Errors
    /// The kernel has no seccomp filters, or refuses this one.
    pub fn leave_to_thread(self) -> Result<(), ConfineError> {
        install(self.filter(), seccompiler::apply_filter)
    }

    /// Restricts all threads of the process to these calls.
    ///
    /// # Errors
    /// The errors of [`leave_to_thread`](Self::leave_to_thread).
    pub fn leave_to_process(self) -> Result<(), ConfineError> {
        install(self.filter(), seccompiler::apply_filter_all_threads)
    }

    fn filter(self) -> Result<BpfProgram, BackendError> {
        let allowed = self.allowed.iter().copied().flatten();
        let mut rules: BTreeMap<i64, Vec<SeccompRule>> = allowed.map(|call| (*call, Vec::new())).collect();
        // Refuse `mmap` and `mprotect` with PROT_EXEC in the third argument.
        let none = SeccompCmpOp::MaskedEq(libc::PROT_EXEC as u64);
        let data_only = SeccompCondition::new(2, SeccompCmpArgLen::Dword, none, 0)?;
        for call in [libc::SYS_mmap, libc::SYS_mprotect] {
            let limited = vec![SeccompRule::new(vec![data_only.clone()])?];
            rules.insert(call, if self.executable { Vec::new() } else { limited });
        }
        let advice = |advice: &libc::c_int| {
            let is_it = SeccompCondition::new(2, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, *advice as u64)?;
            SeccompRule::new(vec![is_it])
        };
        rules.insert(libc::SYS_madvise, ADVICE.iter().map(advice).collect::<Result<_, _>>()?);
        // Allow signals to this process itself, because `abort` sends one.
        let own = u64::from(std::process::id());
        let to_itself = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, own)?;
        rules.insert(libc::SYS_tgkill, vec![SeccompRule::new(vec![to_itself])?]);
        for call in LOADING {
            let Some(rules) = rules.get_mut(call) else { continue };
            let arguments = LOADING_ARGUMENTS.iter().filter(|(limited, ..)| limited == call);
            let is_it = |(_, argument, value): &(_, u8, u64)| {
                SeccompCondition::new(*argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, *value)
            };
            rules.push(SeccompRule::new(arguments.map(is_it).collect::<Result<_, _>>()?)?);
        }
        if let Some(send) = rules.get_mut(&libc::SYS_sendto) {
            // Allow only sends without an address: with one, a send could open a connection (`MSG_FASTOPEN`),
            // or send a datagram to anyone.
            let no_address = SeccompCondition::new(4, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0)?;
            send.push(SeccompRule::new(vec![no_address])?);
        }
        let refuse = SeccompAction::Errno(libc::EPERM as u32);
        let architecture = std::env::consts::ARCH.try_into()?;
        SeccompFilter::new(rules, refuse, SeccompAction::Allow, architecture)?.try_into()
    }
}
