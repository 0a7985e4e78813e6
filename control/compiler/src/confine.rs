//! Giving away everything but computing: what a process does to itself before it reads what a stranger wrote.
//!
//! In this order: it lets go of all files but the first three, of its place in the file system, of its user (when that is root:
//! it becomes `nobody`), of the privileges of programs that it could start, and of memory, time and files beyond its limits.
//! Then a filter (seccomp) leaves it the system calls that compiling takes: memory, and reading and writing what is open
//! already, by the threads that there are. All others fail with `EPERM`, so there is no file, socket, process or thread that it
//! could open or start; memory can't be made executable, and signals go to itself only. A kernel without seccomp filters compiles
//! nothing.
#![allow(unsafe_code)]

use std::collections::BTreeMap;

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::{Gid, Uid, chdir, geteuid, setgroups, setresgid, setresuid};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

/// User and group that root becomes.
const NOBODY: u32 = 65_534;

/// System calls that may have any arguments.
const ALLOWED: &[libc::c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_madvise,
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

/// Why a process could not be confined, and so must not go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("can't {what}: {why}")]
pub struct ConfineError {
    what: &'static str,
    why: String,
}

fn failed<E: ToString>(what: &'static str) -> impl Fn(E) -> ConfineError {
    move |error| ConfineError { what, why: error.to_string() }
}

/// Confines this process for good, with all its threads.
///
/// # Errors
/// [`ConfineError`] when the kernel refuses a part of it: a process that is confined in part only must end.
pub(crate) fn confine(memory: u64, seconds: u64) -> Result<(), ConfineError> {
    close_files().map_err(failed("close its files"))?;
    chdir("/").map_err(failed("leave its directory"))?;
    become_nobody().map_err(failed("become nobody"))?;
    // A change of the user takes this back, so it comes after.
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(failed("end with its parent"))?;
    prctl::set_dumpable(false).map_err(failed("forbid others to look into its memory"))?;
    prctl::set_no_new_privs().map_err(failed("give up privileges"))?;
    limit(memory, seconds).map_err(failed("limit itself"))?;
    let filter = filter().map_err(failed("make a filter of system calls"))?;
    seccompiler::apply_filter_all_threads(&filter).map_err(failed("set a filter of system calls (seccomp)"))
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

fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
    // What the third argument of these says must not contain PROT_EXEC.
    let data_only =
        SeccompCondition::new(2, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(libc::PROT_EXEC as u64), 0)?;
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(call, vec![SeccompRule::new(vec![data_only.clone()])?]);
    }
    // How `abort` ends a process.
    let own = u64::from(std::process::id());
    let to_itself = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, own)?;
    rules.insert(libc::SYS_tgkill, vec![SeccompRule::new(vec![to_itself])?]);
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    let architecture = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, refuse, SeccompAction::Allow, architecture)?.try_into()
}
