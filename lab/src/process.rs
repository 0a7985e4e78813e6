//! Processes of a lab: starts a daemon in its namespace, waits until it is ready, and stops it. A process is
//! identified by id and start time, so that no later process with the same id is stopped by mistake.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, pipe2};
use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::namespace::within;

/// Interval between two checks of a state that sends no notification.
pub(crate) const LOOK: Duration = Duration::from_millis(20);
/// Time limit for other processes in a namespace to end after SIGTERM.
const STRANGERS_GRACE: Duration = Duration::from_secs(2);
/// Maximum number of searches for processes in a namespace. More than one is needed, since a process may
/// start others before it ends.
const ROUNDS: usize = 3;
/// Time limit for a daemon to end after SIGTERM, and again after SIGKILL.
const GRACE: Duration = Duration::from_secs(5);

/// Process, identified by its process id and start time. A later process with the same id has another start
/// time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Process ID.
    pub pid: i32,
    /// Start time in clock ticks since the machine's boot (field 22 of `/proc/PID/stat`).
    pub start_time: u64,
}

impl Process {
    /// Returns the process that has this ID now.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        let (_, start_time) = stat(pid)?;
        Some(Self { pid, start_time })
    }

    /// Whether the process still runs; a zombie does not.
    pub fn is_running(self) -> bool {
        stat(self.pid)
            .is_some_and(|(state, start_time)| start_time == self.start_time && !matches!(state, 'Z' | 'X'))
    }

    /// Sends SIGTERM to the process, and SIGKILL if it has not ended after 5 s.
    pub(crate) fn stop(self) -> Result<(), LabError> {
        for (signal, patience) in [(Signal::SIGTERM, GRACE), (Signal::SIGKILL, GRACE)] {
            if !self.is_running() {
                return Ok(());
            }
            match kill(Pid::from_raw(self.pid), signal) {
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(error) => return Err(LabError::system(format!("stop process {}", self.pid))(error)),
            }
            let deadline = Instant::now() + patience;
            while self.is_running() && Instant::now() < deadline {
                std::thread::sleep(LOOK);
            }
        }
        if self.is_running() {
            let source = io::Error::from(io::ErrorKind::TimedOut);
            return Err(LabError::System { action: format!("stop process {}", self.pid), source });
        }
        Ok(())
    }
}

/// Ends all processes in a network namespace, whoever started them. Returns name and process id of each.
pub(crate) fn end_all(namespace: &Path) -> Vec<(String, i32)> {
    let mut ended = Vec::new();
    // Search again: a process may have started others before it ended.
    for _ in 0..ROUNDS {
        let found = inside(namespace);
        if found.is_empty() {
            break;
        }
        for process in &found {
            ended.push((name(process.pid), process.pid));
            let _ = kill(Pid::from_raw(process.pid), Signal::SIGTERM);
        }
        let deadline = Instant::now() + STRANGERS_GRACE;
        while found.iter().any(|process| process.is_running()) && Instant::now() < deadline {
            std::thread::sleep(LOOK);
        }
        // Kill processes that ignore SIGTERM. If that fails, removing the namespace reports the failure.
        found.into_iter().filter(|process| process.is_running()).for_each(|process| drop(process.stop()));
    }
    ended
}

/// Returns the processes in a network namespace, by a search in `/proc`.
fn inside(namespace: &Path) -> Vec<Process> {
    let identity = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    let Some(wanted) = identity(namespace) else { return Vec::new() };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let own = std::process::id().cast_signed();
    let is_inside =
        |pid: &i32| *pid != own && identity(Path::new(&format!("/proc/{pid}/ns/net"))) == Some(wanted);
    numbers.filter(is_inside).filter_map(Process::of).filter(|process| process.is_running()).collect()
}

/// Returns the name of a process.
fn name(pid: i32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned()
}

/// Returns the state and start time of a process.
fn stat(pid: i32) -> Option<(char, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Skip the process name, which is in parentheses and may contain any character.
    let mut fields = text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

/// Started daemon that may not be ready yet.
#[derive(Debug)]
pub(crate) struct Starting {
    pub child: Child,
    pub process: Process,
    ready: File,
}

/// Opens a file for output; truncates it unless `appends`. Refuses a symbolic link, since the directory may
/// belong to another user.
pub(crate) fn open_output(path: &Path, appends: bool) -> Result<File, LabError> {
    let mut options = OpenOptions::new();
    options.create(true).custom_flags(OFlag::O_NOFOLLOW.bits());
    let options = if appends { options.append(true) } else { options.write(true).truncate(true) };
    options.open(path).map_err(LabError::file("write", path))
}

/// Starts a program in a namespace, and appends its output to a log file. The program has its own process
/// group, so the caller's Ctrl-C doesn't end it.
pub(crate) fn spawn(
    namespace: &str,
    program: &Path,
    arguments: &[String],
    log: &Path,
) -> Result<(Child, Process), LabError> {
    let output = open_output(log, true)?;
    let errors = output.try_clone().map_err(LabError::file("write", log))?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0);
    let child = within(namespace, || command.spawn())?
        .map_err(|source| LabError::Program { program: program.display().to_string(), source })?;
    // This finds the process even if it has already ended: it stays in the process table until it is waited
    // for.
    let process = i32::try_from(child.id()).ok().and_then(Process::of);
    let process =
        process.ok_or_else(|| LabError::system("read /proc")(io::Error::from(io::ErrorKind::NotFound)))?;
    Ok((child, process))
}

/// Starts `program ARGUMENTS --ready-fd N` like [`spawn`].
pub(crate) fn start(
    namespace: &str,
    program: &Path,
    arguments: &[String],
    log: &Path,
) -> Result<Starting, LabError> {
    let (ready, announce) = pipe2(OFlag::O_CLOEXEC).map_err(LabError::system("make a pipe"))?;
    fcntl(&announce, FcntlArg::F_SETFD(FdFlag::empty())).map_err(LabError::system("prepare a pipe"))?;
    let number = announce.as_raw_fd().to_string();
    let arguments = [arguments, &["--ready-fd".to_owned(), number]].concat();
    let (child, process) = spawn(namespace, program, &arguments, log)?;
    Ok(Starting { child, process, ready: File::from(ready) })
}

/// Reason why a daemon did not become ready.
pub(crate) enum NotReady {
    Ended(String),
    TimedOut,
    Interrupted,
}

/// Waits until `ready` returns true. Each call of `ready` itself waits up to 20 ms before it returns false.
pub(crate) fn wait(
    child: &mut Child,
    deadline: Instant,
    interrupted: impl Fn() -> bool,
    mut ready: impl FnMut() -> bool,
) -> Result<(), NotReady> {
    loop {
        if interrupted() {
            return Err(NotReady::Interrupted);
        }
        if ready() {
            return Ok(());
        }
        if let Ok(Some(status)) = child.try_wait() {
            return Err(NotReady::Ended(status.to_string()));
        }
        if Instant::now() >= deadline {
            return Err(NotReady::TimedOut);
        }
    }
}

impl Starting {
    /// Waits until the daemon announces through its pipe that it is ready.
    pub fn wait(&mut self, deadline: Instant, interrupted: impl Fn() -> bool) -> Result<(), NotReady> {
        let Self { child, ready, .. } = self;
        wait(child, deadline, interrupted, || announced(ready))
    }
}

/// Returns whether a daemon has announced through the pipe that it is ready. Waits up to 20 ms for the
/// announcement.
fn announced(pipe: &mut File) -> bool {
    let mut fds = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(LOOK).unwrap_or(PollTimeout::ZERO);
    let readable = poll(&mut fds, timeout).is_ok_and(|count| count > 0);
    let mut byte = [0];
    let announced = readable && pipe.read(&mut byte).is_ok_and(|length| length > 0);
    if readable && !announced {
        // The daemon closed the pipe without an announcement: it is about to end, or ignores `--ready-fd`.
        // Wait, to avoid a busy loop.
        std::thread::sleep(LOOK);
    }
    announced
}

/// Returns the last lines of a log, joined to one line.
pub(crate) fn last_lines(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    match lines.as_slice() {
        [] => "no output".to_owned(),
        lines => lines[lines.len().saturating_sub(5)..].join(" | "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_ended_or_was_replaced_is_not_running() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::of(i32::try_from(child.id()).unwrap()).unwrap();
        assert!(process.is_running());
        let stranger = Process { start_time: process.start_time + 1, ..process };
        assert!(!stranger.is_running());
        stranger.stop().unwrap();
        assert!(process.is_running(), "a stranger's number must not be hit");
        process.stop().unwrap();
        assert!(!process.is_running());
        child.wait().unwrap();
        assert_eq!(Process::of(process.pid), None);
    }

    #[test]
    fn a_process_deaf_to_sigterm_ends_all_the_same() {
        let mut child =
            Command::new("sh").args(["-c", "trap '' TERM; while :; do sleep 1; done"]).spawn().unwrap();
        let process = Process::of(i32::try_from(child.id()).unwrap()).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        process.stop().unwrap();
        assert!(!child.wait().unwrap().success());
    }
}
