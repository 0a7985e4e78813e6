//! Start of a principal's process in its group.

#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::error::GroupError;
use crate::group::Group;
use crate::thread::{Policy, Processor, ThreadError, processor_set};

/// Command that starts in a group. The process joins the group before it runs the program, so that its first
/// instruction is limited already. It runs with the normal scheduling policy and nice value 0, also when the
/// caller's thread doesn't.
#[derive(Debug)]
pub struct Launch {
    command: Command,
    /// Files by which the process joins, opened by the caller.
    files: Vec<File>,
    /// Directory of the group, for errors.
    path: PathBuf,
    processors: Option<CpuSet>,
}

impl Launch {
    /// Prepares the start of a command in a group.
    ///
    /// # Errors
    /// The group holds threads or was removed, or may not be joined.
    pub fn new(group: &Group, command: Command) -> Result<Self, GroupError> {
        Self::by_files(&group.join_files()?, command)
    }

    /// Prepares the start of a command in the group with these files, which
    /// [`Group::join_files`](Group::join_files) returned in another process.
    ///
    /// # Errors
    /// A file can't be opened for writing.
    pub fn by_files(files: &[PathBuf], command: Command) -> Result<Self, GroupError> {
        let open = |path: &PathBuf| {
            OpenOptions::new().write(true).open(path).map_err(GroupError::file("write", path))
        };
        let path = files.first().and_then(|file| file.parent()).map_or_else(PathBuf::new, Path::to_owned);
        let files = files.iter().map(open).collect::<Result<_, _>>()?;
        Ok(Self { command, files, path, processors: None })
    }

    /// Binds the process to processors. Without this call it may run on the processors of the calling thread.
    ///
    /// # Errors
    /// The list is empty, or a number is too high.
    pub fn bind(mut self, processors: &[Processor]) -> Result<Self, ThreadError> {
        self.processors = Some(processor_set(processors)?);
        Ok(self)
    }

    /// Runs the command in place of this process. Returns only if that fails.
    #[must_use]
    pub fn replace(self) -> GroupError {
        let (mut command, path) = self.prepared();
        let source = command.exec();
        failed(&command, path, source)
    }

    /// Starts the command. Its owner waits for the returned child; dropping the child doesn't end it.
    ///
    /// # Errors
    /// The program can't be run, or the kernel refuses the group, for example because it was removed.
    pub fn start(self) -> Result<Child, GroupError> {
        let (mut command, path) = self.prepared();
        command.spawn().map_err(|source| failed(&command, path, source))
    }

    /// Returns the command, which joins the group before it runs the program, and the group's directory.
    fn prepared(self) -> (Command, PathBuf) {
        let Self { mut command, mut files, path, processors } = self;
        let prepare = move || {
            Policy::Other { nice: 0 }.set(Pid::from_raw(0)).or_else(ignore_refusal)?;
            if let Some(processors) = &processors {
                sched_setaffinity(Pid::from_raw(0), processors)?;
            }
            // 0 is the calling process.
            files.iter_mut().try_for_each(|file| file.write_all(b"0"))
        };
        // SAFETY: between fork and exec the closure only makes system calls on open files and on itself; it
        // doesn't allocate or lock.
        unsafe { command.pre_exec(prepare) };
        (command, path)
    }
}

fn failed(command: &Command, path: PathBuf, source: io::Error) -> GroupError {
    let program = command.get_program().to_string_lossy().into_owned();
    GroupError::Start { program, path, source }
}

/// Accepts the refusal to a caller without privileges, whose nice value is above 0: it may not lower the
/// value.
fn ignore_refusal(error: io::Error) -> io::Result<()> {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => Ok(()),
        _ => Err(error),
    }
}
