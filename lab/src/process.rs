//! A router's daemon: started in its namespace, waited for until it forwards, and stopped without hitting a stranger
//! that has got its number since.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
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

/// How often a state that sends no event is looked at.
pub(crate) const LOOK: Duration = Duration::from_millis(20);
/// How long processes that are not ours may take to end by themselves.
const STRANGERS_GRACE: Duration = Duration::from_secs(2);
/// How often a namespace is looked through for processes.
const ROUNDS: usize = 3;
/// How long a daemon may take to drain and end by itself.
const GRACE: Duration = Duration::from_secs(5);

/// A process, told apart from later ones of the same number by when it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its process id.
    pub pid: i32,
    /// When it started, in clock ticks since the machine did (field 22 of `/proc/PID/stat`).
    pub start_time: u64,
}

impl Process {
    /// The process that has this number now.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        let (_, start_time) = stat(pid)?;
        Some(Self { pid, start_time })
    }

    /// Whether it still runs; one that has ended and was not waited for doesn't.
    pub fn is_running(self) -> bool {
        stat(self.pid)
            .is_some_and(|(state, start_time)| start_time == self.start_time && !matches!(state, 'Z' | 'X'))
    }

    /// Asks it to end, and makes it when it doesn't.
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

/// Ends all processes in a network namespace, whoever started them. Returns those that were there: name and number.
pub(crate) fn end_all(namespace: &Path) -> Vec<(String, i32)> {
    let mut ended = Vec::new();
    // Who is asked to end may start others before it does.
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
        // What is deaf is killed; a failure is told where the namespace can't be removed.
        found.into_iter().filter(|process| process.is_running()).for_each(|process| drop(process.stop()));
    }
    ended
}

/// The processes in a network namespace, by what `/proc` says.
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

/// What a process is called.
fn name(pid: i32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned()
}

/// State and start time of a process.
fn stat(pid: i32) -> Option<(char, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let mut fields = text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

/// A daemon that was started and may not forward yet.
#[derive(Debug)]
pub(crate) struct Starting {
    pub child: Child,
    pub process: Process,
    ready: File,
}

/// Opens a file for output, whole or behind what is there. No symbolic link is followed: the directory may be another user's.
pub(crate) fn open_output(path: &Path, appends: bool) -> Result<File, LabError> {
    let mut options = OpenOptions::new();
    options.create(true).custom_flags(OFlag::O_NOFOLLOW.bits());
    let options = if appends { options.append(true) } else { options.write(true).truncate(true) };
    options.open(path).map_err(LabError::file("write", path))
}

/// Starts a program inside a namespace, with its output in a log file, behind what is there. It gets a process group of its own, so that
/// a Ctrl-C meant for us doesn't end it.
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
    // A child that has ended already keeps its entry until it is waited for.
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
    keep_across_exec(&announce).map_err(LabError::system("prepare a pipe"))?;
    let number = announce.as_raw_fd().to_string();
    let arguments = [arguments, &["--ready-fd".to_owned(), number]].concat();
    let (child, process) = spawn(namespace, program, &arguments, log)?;
    Ok(Starting { child, process, ready: File::from(ready) })
}

fn keep_across_exec(fd: &OwnedFd) -> nix::Result<()> {
    fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty())).map(drop)
}

/// Why waiting ended without success.
pub(crate) enum NotReady {
    Ended(String),
    TimedOut,
    Interrupted,
}

impl Starting {
    /// Waits until the daemon says that it is ready.
    pub fn wait(&mut self, patience: Duration, interrupted: impl Fn() -> bool) -> Result<(), NotReady> {
        let deadline = Instant::now() + patience;
        loop {
            if interrupted() {
                return Err(NotReady::Interrupted);
            }
            if self.announced() {
                return Ok(());
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(NotReady::Ended(status.to_string()));
            }
            if Instant::now() >= deadline {
                return Err(NotReady::TimedOut);
            }
        }
    }

    /// Whether something was written to the pipe; waits a moment for it.
    fn announced(&mut self) -> bool {
        let mut fds = [PollFd::new(self.ready.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(LOOK).unwrap_or(PollTimeout::ZERO);
        let readable = poll(&mut fds, timeout).is_ok_and(|count| count > 0);
        let mut byte = [0];
        let announced = readable && self.ready.read(&mut byte).is_ok_and(|length| length > 0);
        if readable && !announced {
            // The other end was closed: the process is about to end, or doesn't speak the protocol.
            std::thread::sleep(LOOK);
        }
        announced
    }
}

/// The last lines of a log, on one line.
pub(crate) fn last_lines(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    match lines.as_slice() {
        [] => "it printed nothing".to_owned(),
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
