//! Plugin process, as the keeper sees it: start, last words and end.
//!
//! A thread of its own starts each process, and waits for its end. So no process waits for another one.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use millrace_plugin::process::{Link, ProcessPlugin, START, Tie};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;

/// Maximum number of bytes kept from the standard error of a process. The rest stays in the pipe, so a process
/// that writes on waits.
const MOST_SAID: usize = 2048;

/// Stack of a thread that starts a process, in bytes.
const STACK: usize = 128 << 10;

/// Command that starts a plugin process: a program and its first arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildCommand {
    /// Path of the program.
    pub program: PathBuf,
    /// First arguments of the program.
    pub arguments: Vec<OsString>,
    /// Maximum time until a process has initialised its plugin. It is longer where a group limits its processor time.
    pub start: Duration,
}

impl ChildCommand {
    /// Returns the command that starts this program itself with the argument `plugin-process`, even if the
    /// program's file was replaced since the program's start.
    pub fn own() -> Self {
        let arguments = vec!["plugin-process".into()];
        Self { program: "/proc/self/exe".into(), arguments, start: START }
    }
}

/// Work of the thread of a process at the end of the process.
type Burial = Box<dyn FnOnce() + Send>;

/// Running plugin process. Dropping this kills the process, and reports its end later.
#[derive(Debug)]
pub(crate) struct Process {
    /// Number of the process in its seat.
    pub number: u64,
    /// Time of the start.
    pub since: Instant,
    id: u32,
    /// Child process, until its burial.
    child: Option<Child>,
    stderr: Option<ChildStderr>,
    said: Vec<u8>,
    /// Reason why the keeper ends the process; `None` if the process ends by itself, or nobody needs it.
    reason: Option<String>,
    pub tie: Arc<Tie>,
    /// Channel to the thread that has started the process: the kernel kills the process when this thread ends.
    thread: SyncSender<Burial>,
}

impl Drop for Process {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let (tie, said, reason) = (self.tie.clone(), std::mem::take(&mut self.said), self.reason.take());
        let bury = move || {
            // An error means that the process has ended already. A daemon without CAP_KILL may not kill a process
            // of another user; it has no such process.
            let _ = child.kill();
            let status = child.wait().ok();
            tie.end(reason.unwrap_or_else(|| described(status, &said)));
        };
        // If the thread has ended, the kernel has killed the process.
        let _ = self.thread.send(Box::new(bury));
    }
}

impl Process {
    /// Starts a process for a plugin, and calls `report` with the result on another thread. `user` determines the
    /// user of the process. Runs no code of the daemon between fork and exec, so that the kernel doesn't copy the
    /// page tables of the daemon.
    ///
    /// # Errors
    /// The system refuses memory or a thread: there is no report.
    pub fn start(
        command: &ChildCommand,
        plugin: &ProcessPlugin,
        (number, user): (u64, u32),
        report: impl FnOnce(io::Result<(Self, Link)>) + Send + 'static,
    ) -> io::Result<()> {
        let (link, memory) = plugin.link()?;
        let mut program = Command::new(&command.program);
        program.args(&command.arguments).arg(user.to_string()).arg(plugin.form().name()).env_clear();
        program.stdin(plugin.object().try_clone_to_owned()?).stdout(memory).stderr(Stdio::piped());
        // A place, so that the keeper never waits for the thread.
        let (thread, burial) = sync_channel::<Burial>(1);
        let begun = move |child: Child| {
            let mut process = Self {
                number,
                since: Instant::now(),
                id: child.id(),
                child: Some(child),
                stderr: None,
                said: Vec::new(),
                reason: None,
                tie: link.tie(),
                thread,
            };
            process.tie.set_process(process.id);
            process.stderr = process.child.as_mut().and_then(|child| child.stderr.take());
            (process, link)
        };
        let run = move || {
            // The first process of a new PID namespace; without the privilege for that, of the router's one. System
            // calls and descriptors of other processes are closed to the process in any case. A thread can enter
            // only one new namespace.
            let _ = unshare(CloneFlags::CLONE_NEWPID);
            let child = program.spawn();
            // Closes the descriptors for the process.
            drop(program);
            report(child.map(begun));
            if let Ok(bury) = burial.recv() {
                bury();
            }
        };
        std::thread::Builder::new().name("process".to_owned()).stack_size(STACK).spawn(run).map(drop)
    }

    /// Returns the process id. The process may have ended, but the kernel doesn't reuse the id yet.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Returns the file that is readable when the process writes an error or ends. `None` if the process has
    /// written enough; the end is noticed nevertheless.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.stderr.as_ref().map(AsFd::as_fd)
    }

    /// Whether the process may still write errors.
    pub fn is_heard(&self) -> bool {
        self.said.len() < MOST_SAID
    }

    /// Reads once from the standard error. Returns whether the process has closed it, as its end does.
    pub fn listen(&mut self) -> bool {
        let Some(stderr) = &mut self.stderr else { return true };
        let mut piece = [0; 512];
        match stderr.read(&mut piece) {
            Ok(0) => true,
            Ok(count) => {
                self.said.extend(piece.iter().take(count));
                false
            }
            Err(error) => error.kind() != io::ErrorKind::Interrupted,
        }
    }

    /// Kills the process for a reason, and reports its end later.
    pub fn end(mut self, reason: String) {
        self.reason = Some(reason);
    }
}

/// Describes the end of a process, on one line.
fn described(status: Option<ExitStatus>, said: &[u8]) -> String {
    let how = match status.map(|status| (status.code(), status.signal())) {
        Some((Some(code), _)) => format!("its process exited with code {code}"),
        Some((_, Some(number))) => match Signal::try_from(number) {
            Ok(signal) => format!("its process was killed by signal {number} ({signal})"),
            Err(_) => format!("its process was killed by signal {number}"),
        },
        _ => "its process ended".to_owned(),
    };
    let text = String::from_utf8_lossy(said);
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    let said = words.collect::<Vec<_>>().join(" ");
    if said.is_empty() { how } else { format!("{how}: {said}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_is_described_on_one_line() {
        let end = |raw, said: &str| described(Some(ExitStatus::from_raw(raw)), said.as_bytes());
        assert_eq!(end(libc::SIGSEGV, ""), "its process was killed by signal 11 (SIGSEGV)");
        assert_eq!(end(7 << 8, " oh\n\x1b[31mno\n"), "its process exited with code 7: oh [31mno");
    }
}
