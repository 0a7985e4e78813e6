//! System calls that are refused to threads that read and write files, or forward packets.
//!
//! A refused call fails with `EPERM`, and the thread continues. Killing the thread instead would stop
//! forwarding, while a failed call does no harm.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, sock_filter,
};

use crate::calls::install;
use crate::{ConfineError, worker_calls};

/// System calls that start a program.
const PROGRAMS: &[libc::c_long] = &[libc::SYS_execve, libc::SYS_execveat];

/// System calls that reach other processes, file systems, namespaces, or the kernel and its programs.
const SYSTEM: &[libc::c_long] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_adjtimex,
    libc::SYS_chroot,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_process_madvise,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
];

/// Flags of `clone` that create a namespace.
const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWUTS,
];

/// First number of the system calls of the x32 ABI, which the list above does not name.
#[cfg(target_arch = "x86_64")]
const X32: u32 = 0x4000_0000;

/// Refusal of system calls to a thread. The fields describe the thread's task: it may make some of the calls,
/// or is refused further ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// Whether the thread may start programs.
    pub may_start_programs: bool,
    /// Whether the programs may create namespaces.
    pub may_create_namespaces: bool,
    /// Whether the thread is a worker. A worker may use open eBPF maps and programs, and is refused the calls
    /// of [`worker_calls`].
    pub is_worker: bool,
}

impl Refused {
    /// Refuses the calls to the calling thread, and to the threads that it starts.
    ///
    /// # Errors
    /// The kernel has no seccomp filters, or refuses one of the filters.
    pub fn refuse_to_thread(self) -> Result<(), ConfineError> {
        let mut filters = [self.filter(), unreadable(self.is_worker)].into_iter();
        filters.try_for_each(|filter| install(filter, seccompiler::apply_filter))
    }

    fn filter(self) -> Result<BpfProgram, BackendError> {
        let programs = if self.may_start_programs { &[] } else { PROGRAMS };
        let refused = SYSTEM.iter().chain(programs);
        let mut rules: BTreeMap<i64, Vec<SeccompRule>> = refused.map(|call| (*call, Vec::new())).collect();
        if self.may_create_namespaces {
            rules.remove(&libc::SYS_unshare);
        }
        rules.insert(libc::SYS_bpf, Vec::new());
        let mut clones = NAMESPACES.map(new_namespace).into_iter().collect::<Result<Vec<_>, _>>()?;
        if self.is_worker {
            rules.extend(worker_calls::refused()?);
            clones.push(worker_calls::new_process()?);
        }
        rules.insert(libc::SYS_clone, clones);
        Ok(without_x32(refusing(rules, libc::EPERM)?))
    }
}

/// Returns a filter that refuses calls with an error, and allows all others.
fn refusing(rules: BTreeMap<i64, Vec<SeccompRule>>, error: libc::c_int) -> Result<BpfProgram, BackendError> {
    let refuse = SeccompAction::Errno(error as u32);
    let architecture = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, SeccompAction::Allow, refuse, architecture)?.try_into()
}

/// Returns the filter of calls whose arguments seccomp can't read, since they are in memory: `clone3`, and
/// `openat2` of workers. They fail with ENOSYS, so the C library uses `clone` and `openat` instead. A worker
/// can't set another filter.
fn unreadable(is_worker: bool) -> Result<BpfProgram, BackendError> {
    let mut rules = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    if is_worker {
        rules.insert(libc::SYS_openat2, Vec::new());
        rules.insert(libc::SYS_seccomp, Vec::new());
    }
    refusing(rules, libc::ENOSYS)
}

/// Returns the rule for a `clone` whose first argument requests a namespace.
fn new_namespace(namespace: libc::c_int) -> Result<SeccompRule, BackendError> {
    let flag = namespace as u64;
    let set = SeccompCmpOp::MaskedEq(flag);
    SeccompRule::new(vec![SeccompCondition::new(0, SeccompCmpArgLen::Qword, set, flag)?])
}

/// Prepends the refusal of x32 calls to a filter. Calls from the first x32 number on fail with `EPERM`; all
/// others continue with the filter.
#[cfg(target_arch = "x86_64")]
fn without_x32(filter: BpfProgram) -> BpfProgram {
    let step = |code: u32, jt, jf, k| sock_filter { code: code as u16, jt, jf, k };
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    let mut all = vec![
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, X32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, refuse),
    ];
    all.extend(filter);
    all
}

#[cfg(not(target_arch = "x86_64"))]
fn without_x32(filter: BpfProgram) -> BpfProgram {
    filter
}
