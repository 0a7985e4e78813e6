//! Programs of a measurement. Each runs in a namespace, and may be bound to a processor. It ends with the
//! measurement.

use std::ffi::{CStr, OsStr};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::sched::{CloneFlags, CpuSet, sched_setaffinity, setns};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, SysconfVar, sysconf};

use crate::BenchError;
use crate::interrupt::wait_until;

/// Time limit for a program to end by itself.
const GRACE: Duration = Duration::from_secs(5);

/// Processor number.
pub(crate) type Processor = usize;

/// Returns a command that runs in a namespace, given by its open file. With `processor`, the command runs
/// only on that processor, with the highest priority there.
pub(crate) fn command(
    namespace: File,
    program: &str,
    processor: Option<Processor>,
) -> Result<Command, BenchError> {
    let processors = processor.map(processor_set).transpose()?;
    let mut command = Command::new(program);
    let prepare = move || -> io::Result<()> {
        // A session of its own also keeps Ctrl-C from the program. Otherwise Ctrl-C would end it before the
        // cleanup.
        take_precedence_as_session();
        setns(&namespace, CloneFlags::CLONE_NEWNET)?;
        // The kernel kills the program when the benchmark dies.
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
        if let Some(processors) = &processors {
            sched_setaffinity(Pid::from_raw(0), processors)?;
            take_precedence(Pid::from_raw(0))?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec, `prepare` makes only system calls. It allocates no memory and takes no
    // lock.
    unsafe { command.pre_exec(prepare) };
    Ok(command)
}

/// Real-time priority of preferred threads, from 1 to 99.
const PRIORITY: i32 = 50;

/// Gives a thread real-time priority, or the normal priority.
pub(crate) fn prefer(thread: i32, is_preferred: bool) -> Result<(), BenchError> {
    let (policy, priority) = if is_preferred { (libc::SCHED_FIFO, PRIORITY) } else { (libc::SCHED_OTHER, 0) };
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the kernel reads `parameters` only during the call.
    match unsafe { libc::sched_setscheduler(thread, policy, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(BenchError::system("give a thread a priority")(std::io::Error::last_os_error())),
    }
}

/// Binds a thread (0: the calling thread) to a processor, with the highest priority there.
pub(crate) fn dedicate(thread: Pid, processor: Processor) -> Result<(), BenchError> {
    let name = format!("bind a thread to processor {processor}");
    sched_setaffinity(thread, &processor_set(processor)?).map_err(BenchError::system(name))?;
    take_precedence(thread).map_err(BenchError::system("raise a thread's priority"))
}

/// Runs a piece of work on a processor, with the highest priority there.
pub(crate) fn on_processor<T: Send>(
    processor: Processor,
    work: impl FnOnce() -> T + Send,
) -> Result<T, BenchError> {
    on_thread(|| {
        // Binding to a processor needs root. Without it, the figures are noisier.
        let _ = dedicate(Pid::from_raw(0), processor);
        work()
    })
}

/// Runs a piece of work on a processor, with the priority of the calling thread. The kernel divides the weight of a
/// session among the processors by the weights of the busy threads there. So a busy thread of the highest priority
/// takes it away from threads of normal priority on other processors.
pub(crate) fn beside<T: Send>(
    processor: Processor,
    work: impl FnOnce() -> T + Send,
) -> Result<T, BenchError> {
    on_thread(|| {
        let _ = processor_set(processor).map(|set| sched_setaffinity(Pid::from_raw(0), &set));
        work()
    })
}

/// Runs a piece of work on a thread of its own.
fn on_thread<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, BenchError> {
    std::thread::scope(|scope| {
        let ended = scope.spawn(work).join();
        ended.map_err(|_| BenchError::measurement("a measurement", "its thread panicked"))
    })
}

/// File with the priority of this session's autogroup. The scheduler compares autogroups first, then the
/// priorities within them.
const GROUP: &CStr = c"/proc/self/autogroup";

/// Raises the priority of the calling process's session. Makes only system calls, so a newly forked child may
/// call it.
fn take_precedence_as_session() {
    // Ignore errors: the call fails only for the leader of a process group, which a newly forked child is
    // not.
    let _ = nix::unistd::setsid();
    // A kernel without autogroups has no such file. There, the thread's priority suffices.
    if let Ok(file) = nix::fcntl::open(GROUP, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty()) {
        let _ = nix::unistd::write(&file, b"-20");
    }
}

/// Guard that raises the priority of the benchmark's own session. Dropping it restores the previous priority.
#[derive(Debug)]
pub(crate) struct SessionFirst {
    before: Option<String>,
}

impl SessionFirst {
    pub fn begin() -> Self {
        let path = OsStr::from_bytes(GROUP.to_bytes());
        let text = fs::read_to_string(path).ok();
        let before = text.and_then(|text| Some(text.trim().rsplit_once(' ')?.1.to_owned()));
        // Without permission or autogroups, the figures are only noisier.
        let _ = fs::write(path, "-20");
        Self { before }
    }
}

impl Drop for SessionFirst {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = fs::write(OsStr::from_bytes(GROUP.to_bytes()), before);
        }
    }
}

/// Raises the priority of a thread above all threads of normal priority, so that other work disturbs it less.
fn take_precedence(thread: Pid) -> io::Result<()> {
    // SAFETY: the call only sets a priority, and accesses no memory of this process.
    let answer = unsafe { libc::setpriority(libc::PRIO_PROCESS, thread.as_raw().cast_unsigned(), -20) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn processor_set(processor: Processor) -> Result<CpuSet, BenchError> {
    let mut set = CpuSet::new();
    set.set(processor).map_err(BenchError::system(format!("name processor {processor}")))?;
    Ok(set)
}

/// Running program with its output. Dropping it kills the program.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    name: String,
    output: File,
}

impl Running {
    /// Starts `command` and keeps its output.
    pub fn start(command: &mut Command) -> Result<Self, BenchError> {
        let name = describe(command);
        let output = memfd_create(c"output", MFdFlags::MFD_CLOEXEC)
            .map_err(BenchError::system("make a file in memory"))?;
        let output = File::from(output);
        let duplicate = || output.try_clone().map_err(BenchError::system("duplicate a descriptor"));
        // Keep a pipe as standard input open while the program runs: some programs end at the end of their
        // input.
        command.stdin(Stdio::piped()).stdout(duplicate()?).stderr(duplicate()?);
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn().map_err(|source| BenchError::Program { program, source })?;
        Ok(Self { child, name, output })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns all output so far.
    pub fn output(&self) -> String {
        let length = self.output.metadata().map_or(0, |metadata| metadata.len());
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        let read = self.output.read_at(&mut bytes, 0).unwrap_or(0);
        String::from_utf8_lossy(&bytes[..read]).into_owned()
    }

    /// Returns the exit status, if the program has ended.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, BenchError> {
        self.child.try_wait().map_err(BenchError::system(format!("wait for {}", self.name)))
    }

    /// Returns the error of a failed program, with the last lines of its output.
    pub fn failure(&self, what: &str) -> BenchError {
        let output = self.output();
        let lines: Vec<&str> = output.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let last = lines[lines.len().saturating_sub(4)..].join(" | ");
        BenchError::Command { command: self.name.clone(), said: format!("{what}: {last}") }
    }

    /// Waits until the program has ended, for at most `patience`. Returns its output, or an error if it
    /// failed.
    pub fn finish(mut self, patience: Duration) -> Result<String, BenchError> {
        match self.wait(patience)? {
            Some(status) if status.success() => Ok(self.output()),
            Some(status) => Err(self.failure(&status.to_string())),
            None => Err(self.failure(&format!("still running after {patience:?}"))),
        }
    }

    /// Asks the program to end and waits for its end. Returns whether it ended successfully.
    pub fn stop(mut self, signal: Signal) -> Result<bool, BenchError> {
        self.signal(signal)?;
        Ok(self.wait(GRACE)?.is_some_and(|status| status.success()))
    }

    /// Waits until the program has ended, for at most `patience`.
    fn wait(&mut self, patience: Duration) -> Result<Option<ExitStatus>, BenchError> {
        let mut status = None;
        wait_until(patience, || {
            status = self.ended()?;
            Ok(status.is_some())
        })?;
        Ok(status)
    }

    /// Waits until `ready` returns true. Returns an error if the program ends first, or after `patience`.
    pub fn wait_ready(
        &mut self,
        patience: Duration,
        mut ready: impl FnMut() -> Result<bool, BenchError>,
    ) -> Result<(), BenchError> {
        let is_ready = wait_until(patience, || match (ready()?, self.ended()?) {
            (false, Some(status)) => Err(self.failure(&status.to_string())),
            (is_ready, _) => Ok(is_ready),
        })?;
        if is_ready { Ok(()) } else { Err(self.failure(&format!("not ready after {patience:?}"))) }
    }

    /// Sends a signal to the program.
    pub fn signal(&self, signal: Signal) -> Result<(), BenchError> {
        let pid = Pid::from_raw(self.child.id().cast_signed());
        kill(pid, signal).map_err(BenchError::system(format!("send {signal} to {}", self.name)))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Ignore errors: both calls fail only if the process was already waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Runs a program outside the benchmark's namespaces until it has ended successfully, and returns its output.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<String, BenchError> {
    Running::start(Command::new(program).args(arguments))?.finish(GRACE * 4)
}

/// Parses the user and the kernel time of a process or thread from the text of its file `stat`, fields 14 and
/// 15.
pub(crate) fn processor_times(stat: &str) -> Option<[Duration; 2]> {
    // Skip the process name, which is in parentheses and may contain any character.
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace().skip(11);
    let ticks = [fields.next()?.parse::<u64>().ok()?, fields.next()?.parse::<u64>().ok()?];
    let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100);
    Some(ticks.map(|ticks| Duration::from_secs_f64(ticks as f64 / per_second as f64)))
}

/// Whether the search path has a program of this name.
pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_kept_and_failure_reported() {
        let _alone = crate::interrupt::FLAG_IN_USE.lock().unwrap();
        assert_eq!(run("echo", &["a", "b"]).unwrap(), "a b\n");
        let error = run("sh", &["-c", "echo broken >&2; exit 3"]).unwrap_err();
        assert_eq!(error.to_string(), "`sh -c echo broken >&2; exit 3` failed: exit status: 3: broken");
        let error = run("no-such-program", &[]).unwrap_err();
        assert!(error.to_string().starts_with("cannot run no-such-program: "), "{error}");
    }

    #[test]
    fn program_ends_with_its_guard() {
        let running = Running::start(Command::new("sleep").arg("60")).unwrap();
        let process = format!("/proc/{}", running.pid());
        assert!(std::path::Path::new(&process).exists());
        drop(running);
        assert!(!std::path::Path::new(&process).exists());
    }

    #[test]
    fn processor_times_are_found_behind_any_name() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 100 0 0 0 30 12 0 0 20 0 1 0 100 0 0";
        let [user, kernel] = processor_times(stat).unwrap();
        assert_eq!(user.as_micros() * 12, kernel.as_micros() * 30);
        assert!(user > kernel && processor_times("7 (a) S 1").is_none());
    }
}
