//! Plugin process, as the keeper sees it: start, last words and end.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use millrace_plugin::process::{Link, ProcessPlugin, Tie};
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
}

impl ChildCommand {
    /// Returns the command that starts this program itself with the argument `plugin-process`, even if the
    /// program's file was replaced since the program's start.
    pub fn own() -> Self {
        Self { program: "/proc/self/exe".into(), arguments: vec!["plugin-process".into()] }
    }
}

/// Running plugin process. Dropping this kills the process, and waits for its end.
#[derive(Debug)]
pub(crate) struct Process {
    /// Number of the process in its seat.
    pub number: u64,
    child: Child,
    stderr: Option<ChildStderr>,
    said: Vec<u8>,
    pub tie: Arc<Tie>,
    /// Ends the thread that has started the process, when it is dropped.
    _starter: SyncSender<()>,
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Process {
    /// Starts a process for a plugin. `user` determines the user of the process. Runs no code of the daemon
    /// between fork and exec, so that the kernel doesn't copy the page tables of the daemon.
    pub fn start(
        command: &ChildCommand,
        plugin: &ProcessPlugin,
        number: u64,
        user: u32,
    ) -> io::Result<(Self, Link)> {
        let (link, memory) = plugin.link()?;
        let mut program = Command::new(&command.program);
        program.args(&command.arguments).arg(user.to_string()).arg(plugin.form().name()).env_clear();
        program.stdin(plugin.object().try_clone_to_owned()?).stdout(memory).stderr(Stdio::piped());
        let (mut child, starter) = spawn(program)?;
        let stderr = child.stderr.take();
        Ok((Self { number, child, stderr, said: Vec::new(), tie: link.tie(), _starter: starter }, link))
    }

    /// Returns the process id. The process may have ended, but the kernel doesn't reuse the id yet.
    pub fn id(&self) -> u32 {
        self.child.id()
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

    /// Kills the process if it still runs, and reports its end.
    pub fn end(&mut self) {
        let status = self.kill();
        self.tie.end(described(status, &self.said));
    }

    fn kill(&mut self) -> Option<ExitStatus> {
        // An error means that the process has ended already. A daemon without CAP_KILL may not kill a process
        // of another user; it has no such process.
        let _ = self.child.kill();
        self.child.wait().ok()
    }
}

/// Starts a program as the first process of a new PID namespace. Without the privilege for that, it starts in
/// the namespace of the router.
///
/// A thread can enter only one new namespace, and the kernel kills the process when the thread ends. So a
/// thread of its own starts the program. The thread ends when the returned channel is dropped.
fn spawn(mut program: Command) -> io::Result<(Child, SyncSender<()>)> {
    let (starter, ended) = sync_channel(0);
    let (reply, answer) = sync_channel(1);
    let thread = std::thread::Builder::new().name("process".to_owned()).stack_size(STACK);
    thread.spawn(move || {
        // System calls and descriptors of other processes are closed to the process in any case.
        let _ = unshare(CloneFlags::CLONE_NEWPID);
        let _ = reply.send(program.spawn());
        let _ = ended.recv();
    })?;
    let child = answer.recv().map_err(|_| io::Error::other("the starting thread has ended"))??;
    Ok((child, starter))
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
