//! Programs that run in the background of a test.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::namespace::Namespace;
use crate::wait::wait_until;

/// Time limit for a program to end after a signal.
const GRACE: Duration = Duration::from_secs(5);

/// Program in the background of a test. Dropping it ends the program.
#[derive(Debug)]
pub struct Background {
    child: Child,
    log: PathBuf,
}

impl Background {
    /// Starts `program ARGUMENTS` inside a namespace, with its output in the file `log`.
    ///
    /// # Panics
    /// The program can't be started.
    pub fn start(namespace: &Namespace, program: &str, arguments: &[&str], log: PathBuf) -> Self {
        let output = File::create(&log).unwrap_or_else(|error| panic!("{}: {error}", log.display()));
        let errors = output.try_clone().expect("a second descriptor");
        let mut command = namespace.command(program);
        command.args(arguments).stdout(output).stderr(errors);
        let child = command.spawn().unwrap_or_else(|error| panic!("{program}: {error}"));
        Self { child, log }
    }

    /// Returns the process ID.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a process number")
    }

    /// Returns the output so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Whether the program still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends a signal and waits for the end of the program; returns `None` if it still runs after 5 s.
    pub fn end_by(&mut self, signal: Signal) -> Option<ExitStatus> {
        if self.is_running() {
            let _ = kill(Pid::from_raw(self.pid()), signal);
        }
        self.wait(GRACE)
    }

    /// Waits for the end of the program; returns `None` if it still runs after `patience`.
    pub fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        let mut status = None;
        wait_until(patience, || {
            status = self.child.try_wait().ok().flatten();
            status.is_some()
        });
        status
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if self.end_by(Signal::SIGTERM).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
