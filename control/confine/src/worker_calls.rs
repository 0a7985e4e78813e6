//! System calls that are refused to workers only: changes of files, other processes, and sockets beyond those
//! of the worker's ports.
//!
//! A worker uses memory, clocks, waits, and these calls:
//!
//! - `read` and `write` on TAP devices and wake-ups;
//! - `bind` and `setsockopt` on AF_XDP sockets that control has created for it;
//! - `recvfrom`, `sendto` without an address and `sendmmsg` on sockets of ports;
//! - `bpf` on open maps and programs.
//!
//! `sendmmsg` may still name an address: it is in memory, which seccomp filters can't read.

use seccompiler::{BackendError, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

/// Calls that change names, owners, permissions and attributes of files. A worker has no files, and a kernel
/// without Landlock lets root write to the files of root.
const FILES: &[libc::c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_creat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_link,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mkdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mknod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rmdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_symlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_fremovexattr,
    libc::SYS_fsetxattr,
    libc::SYS_linkat,
    libc::SYS_lremovexattr,
    libc::SYS_lsetxattr,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    REMOVEXATTRAT,
    libc::SYS_removexattr,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    SETXATTRAT,
    libc::SYS_setxattr,
    libc::SYS_symlinkat,
    libc::SYS_truncate,
    libc::SYS_unlinkat,
];

/// This number and the two below are newer than the libc crate's list. They are the same on all
/// architectures.
const FCHMODAT2: libc::c_long = 452;
const SETXATTRAT: libc::c_long = 463;
const REMOVEXATTRAT: libc::c_long = 466;

/// Calls that reach other processes: signals, priorities, memory, locks, sockets, connections, and messages
/// of System V and POSIX. Packets leave by the sockets of ports, which are bound to devices.
const OTHERS: &[libc::c_long] = &[
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_flock,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    libc::SYS_ioprio_set,
    libc::SYS_listen,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_mq_getsetattr,
    libc::SYS_mq_notify,
    libc::SYS_mq_open,
    libc::SYS_mq_timedreceive,
    libc::SYS_mq_timedsend,
    libc::SYS_mq_unlink,
    libc::SYS_msgctl,
    libc::SYS_msgget,
    libc::SYS_msgrcv,
    libc::SYS_msgsnd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_process_mrelease,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_semctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_sendmsg,
    libc::SYS_setpgid,
    libc::SYS_setpriority,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_shmdt,
    libc::SYS_shmget,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_timer_create,
    libc::SYS_tkill,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
];

/// System calls that send a signal, with the process in the first argument. The own process stays allowed,
/// since `abort` sends itself a signal.
const SIGNALS: [libc::c_long; 3] = [libc::SYS_kill, libc::SYS_tgkill, libc::SYS_rt_tgsigqueueinfo];

/// System calls that change settings of the thread or process in the first argument. 0 is the caller, and
/// stays allowed.
const SETTINGS: [libc::c_long; 5] = [
    libc::SYS_prlimit64,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
];

/// Flags of `open` that create, truncate or write a file. `O_WRONLY` and `O_RDWR` are separate bits.
const WRITES: [libc::c_int; 4] = [libc::O_WRONLY, libc::O_RDWR, libc::O_CREAT, libc::O_TRUNC];

/// Allowed `fcntl` commands of a worker: copies, flags and seals of descriptors. Signals to owners, locks and
/// leases are refused.
const DESCRIPTORS: &[libc::c_int] = &[
    libc::F_DUPFD,
    libc::F_DUPFD_CLOEXEC,
    libc::F_GETFD,
    libc::F_SETFD,
    libc::F_GETFL,
    libc::F_SETFL,
    libc::F_ADD_SEALS,
    libc::F_GET_SEALS,
];

/// Allowed `ioctl` requests of a worker: descriptor flags, readable bytes, terminal queries, and
/// `PAGEMAP_SCAN`. The latter finds the written pages of memory, so that tables of sandboxed plugins can be
/// cleared. Signals to owners and terminal input are refused.
const REQUESTS: &[libc::Ioctl] = &[
    libc::FIONBIO,
    libc::FIOCLEX,
    libc::FIONCLEX,
    libc::FIONREAD,
    libc::TCGETS,
    libc::TIOCGWINSZ,
    PAGEMAP_SCAN,
];

/// `PAGEMAP_SCAN` of `linux/fs.h`, a request on `/proc/self/pagemap`.
const PAGEMAP_SCAN: libc::Ioctl = 0xc060_6610_u32 as libc::Ioctl;

/// Allowed `prctl` operations of a worker: its name and timers, names of memory, and the operations for
/// setting a filter.
const OPERATIONS: &[libc::c_int] = &[
    libc::PR_SET_NAME,
    libc::PR_GET_NAME,
    libc::PR_SET_TIMERSLACK,
    libc::PR_GET_TIMERSLACK,
    libc::PR_SET_NO_NEW_PRIVS,
    libc::PR_GET_NO_NEW_PRIVS,
    libc::PR_GET_SECCOMP,
    libc::PR_CAPBSET_READ,
    libc::PR_SET_VMA,
];

/// Allowed `bpf` commands of a worker: elements of open maps (1 to 4, 21, 24 to 27), and test runs of open
/// programs (10), by which packets reach the kernel.
const MAP_ELEMENTS: &[u64] = &[1, 2, 3, 4, 10, 21, 24, 25, 26, 27];

/// Length of an AF_XDP socket's address in bytes. `bind` is refused with any other length. So an AF_PACKET
/// socket, whose address has 20 bytes, can't be bound to another device.
const XDP_ADDRESS: u64 = size_of::<libc::sockaddr_xdp>() as u64;
const _: () = assert!(XDP_ADDRESS < size_of::<libc::sockaddr_ll>() as u64);

/// Returns the rule that matches a `clone` of a process. A process that outlives the router would hold its
/// ports.
pub(crate) fn new_process() -> Result<SeccompRule, BackendError> {
    let thread = libc::CLONE_THREAD as u64;
    rule([SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(thread), 0)?])
}

/// Returns the refused calls. A call without rules is refused with any arguments.
pub(crate) fn refused() -> Result<Vec<(i64, Vec<SeccompRule>)>, BackendError> {
    let mut rules: Vec<_> = FILES.iter().chain(OTHERS).map(|call| (*call, Vec::new())).collect();
    for call in SIGNALS {
        rules.push((call, vec![rule([other_than(0, std::process::id())?])?]));
    }
    for call in SETTINGS {
        rules.push((call, vec![rule([other_than(0, 0_u8)?])?]));
    }
    #[cfg(target_arch = "x86_64")]
    rules.push((libc::SYS_open, writing(1)?));
    rules.push((libc::SYS_openat, writing(2)?));
    rules.push((libc::SYS_bpf, vec![none_of(0, MAP_ELEMENTS.iter().copied())?]));
    let descriptors = none_of(1, DESCRIPTORS.iter().map(|command| *command as u64))?;
    rules.push((libc::SYS_fcntl, vec![descriptors, asking_for_signals()?]));
    rules.push((libc::SYS_ioctl, vec![none_of(1, REQUESTS.iter().copied())?]));
    rules.push((libc::SYS_prctl, vec![none_of(0, OPERATIONS.iter().map(|operation| *operation as u64))?]));
    rules.push((libc::SYS_bind, vec![rule([other_than(2, XDP_ADDRESS)?])?]));
    rules.push((libc::SYS_setsockopt, vec![rule([other_than(1, libc::SOL_XDP as u64)?])?]));
    rules.push((libc::SYS_sendto, vec![rule([addressed(4)?])?]));
    Ok(rules)
}

fn rule<const N: usize>(conditions: [SeccompCondition; N]) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(conditions.into())
}

/// Returns the condition that this 32-bit argument differs from `value`.
fn other_than(argument: u8, value: impl Into<u64>) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, value.into())
}

/// Returns the rule for a call in which this 32-bit argument is none of `values`.
fn none_of(argument: u8, values: impl Iterator<Item = u64>) -> Result<SeccompRule, BackendError> {
    let conditions = values.map(|value| other_than(argument, value & u64::from(u32::MAX)));
    SeccompRule::new(conditions.collect::<Result<_, _>>()?)
}

/// Returns the condition that this argument is a non-null pointer, such as an address.
fn addressed(argument: u8) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)
}

/// Returns the condition that this argument has all bits of a flag.
fn flagged(argument: u8, flag: libc::c_int) -> Result<SeccompCondition, BackendError> {
    let set = SeccompCmpOp::MaskedEq(flag as u64);
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, set, flag as u64)
}

/// Returns the rules for a call that opens a file for writing, by the flags in this argument.
fn writing(argument: u8) -> Result<Vec<SeccompRule>, BackendError> {
    WRITES.into_iter().map(|flag| rule([flagged(argument, flag)?])).collect()
}

/// Returns the rule that matches `F_SETFL` with `O_ASYNC`: with this flag, a terminal sends signals to its
/// foreground processes.
fn asking_for_signals() -> Result<SeccompRule, BackendError> {
    let flags = SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, libc::F_SETFL as u64)?;
    rule([flags, flagged(2, libc::O_ASYNC)?])
}

#[cfg(test)]
mod tests;
