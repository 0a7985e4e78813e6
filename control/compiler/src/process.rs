//! The router's side of the compiling process: it starts the process, waits within a time limit, and makes
//! sure that the process ends.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use millrace_plugin::wasm::{ModuleError, Tier};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::CompileError;
use crate::child::{self, BROKEN, Order, REFUSED};

/// Maximum number of bytes kept from the standard error of the process.
const MOST_SAID: usize = 2048;
/// Start of the message that the process prints when an allocation fails. Such a failure ends the process.
const NO_MEMORY: &str = "memory allocation of ";
/// Setting of the process's C library: allocation in huge pages. The compiler touches some tens of megabytes.
/// Allocating and freeing these as thousands of small pages takes longer.
const HUGE_PAGES: &str = "glibc.malloc.hugetlb=1";
/// Interval between checks whether a process that has closed its pipes has also exited.
const PAUSE: Duration = Duration::from_micros(100);

/// Command that starts the compiling process: a program and its first arguments. The arguments of the
/// compiler's task are appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildCommand {
    /// Path of the program.
    pub program: PathBuf,
    /// First arguments of the program.
    pub arguments: Vec<OsString>,
}

impl ChildCommand {
    /// Returns the command that starts this program itself with the argument `compile-plugin`, even if the
    /// program's file was replaced since the program's start.
    pub fn own() -> Self {
        Self { program: "/proc/self/exe".into(), arguments: vec!["compile-plugin".into()] }
    }
}

/// Limits of the compiling process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Time until the process is killed. 10 s by default.
    pub time: Duration,
    /// Address space in bytes. 1 GiB by default.
    pub memory: u64,
    /// Size of the code in bytes. 256 MiB by default.
    pub code: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { time: Duration::from_secs(10), memory: 1 << 30, code: 256 << 20 }
    }
}

impl Limits {
    /// Returns the limit of processor time in seconds: the most that all threads together can use within the
    /// time limit.
    fn seconds(&self) -> u64 {
        self.time.as_secs().max(1) * child::MOST_THREADS as u64
    }
}

/// Compiles a module in a process. The process has ended on return.
///
/// # Errors
/// [`CompileError`], with one variant for each kind of failure.
pub(crate) fn compile(
    command: &ChildCommand,
    wasm: &[u8],
    tier: Tier,
    limits: &Limits,
) -> Result<Vec<u8>, CompileError> {
    let no_process = |error: std::io::Error| CompileError::NoProcess(error.to_string());
    let deadline = Instant::now() + limits.time;
    let module = file_of(wasm).map_err(no_process)?;
    let order = Order { tier, memory: limits.memory, seconds: limits.seconds() };
    let mut running = Running::start(command, module, order).map_err(no_process)?;
    let output = running.listen(deadline, limits)?;
    let status = running.end(deadline, limits)?;
    outcome(status, output, limits)
}

/// Returns an in-memory file with the bytes. With a pipe instead, a thread would have to write the bytes to
/// the process.
fn file_of(bytes: &[u8]) -> std::io::Result<File> {
    let mut file = File::from(memfd_create("plugin", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(bytes)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}

/// Output of a compiling process: code, and text from its standard error.
#[derive(Default)]
struct Output {
    code: Vec<u8>,
    said: Vec<u8>,
}

/// Running compiling process. Dropping this kills the process, and waits for its end.
struct Running {
    child: Child,
}

impl Drop for Running {
    fn drop(&mut self) {
        // Reap the process at once if it has ended. A daemon without CAP_KILL may not kill a process of
        // `nobody`; then don't wait for the process, which ends by its own limits.
        match self.child.kill() {
            Ok(()) => _ = self.child.wait(),
            Err(error) => tracing::error!("can't kill a compiler process: {error}"),
        }
    }
}

impl Running {
    /// Starts the process. Runs no code of the daemon between fork and exec: such code would make the kernel
    /// copy the page tables of the whole daemon first. So the process itself sets its limits.
    fn start(command: &ChildCommand, module: File, order: Order) -> std::io::Result<Self> {
        let mut program = Command::new(&command.program);
        program
            .args(&command.arguments)
            .args(order.arguments())
            .env_clear()
            .env("GLIBC_TUNABLES", HUGE_PAGES)
            .stdin(module)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Ok(Self { child: crate::launcher::spawn(program)? })
    }

    /// Reads the output of the process until both pipes are closed.
    fn listen(&mut self, deadline: Instant, limits: &Limits) -> Result<Output, CompileError> {
        let mut output = Output::default();
        let (mut out, mut said) = (self.child.stdout.take(), self.child.stderr.take());
        while out.is_some() || said.is_some() {
            let files = [out.as_ref().map(AsFd::as_fd), said.as_ref().map(AsFd::as_fd)];
            let [out_ready, said_ready] = wait(files, deadline, limits)?;
            if out_ready && read(&mut out, &mut output.code, limits.code + 1)? == Some(limits.code + 1) {
                return Err(CompileError::TooLarge(limits.code));
            }
            if said_ready {
                read(&mut said, &mut output.said, MOST_SAID)?;
            }
        }
        Ok(output)
    }

    /// Waits until the process has ended.
    fn end(&mut self, deadline: Instant, limits: &Limits) -> Result<ExitStatus, CompileError> {
        loop {
            let ended = self.child.try_wait().map_err(|error| CompileError::NoProcess(error.to_string()))?;
            match ended {
                Some(status) => return Ok(status),
                None if Instant::now() >= deadline => return Err(CompileError::TooLong(limits.time)),
                None => std::thread::sleep(PAUSE),
            }
        }
    }
}

/// Waits until a file is readable or closed. Returns one flag per file.
fn wait(
    files: [Option<BorrowedFd<'_>>; 2],
    deadline: Instant,
    limits: &Limits,
) -> Result<[bool; 2], CompileError> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(CompileError::TooLong(limits.time));
        }
        // Round up, to avoid a busy loop in the last millisecond.
        let timeout = PollTimeout::try_from(left.as_millis() + 1).unwrap_or(PollTimeout::MAX);
        let mut waited: Vec<_> =
            files.iter().flatten().map(|file| PollFd::new(*file, PollFlags::POLLIN)).collect();
        match poll(&mut waited, timeout) {
            Ok(0) | Err(Errno::EINTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(CompileError::NoProcess(error.to_string())),
        }
        let mut ready = waited.iter().map(|file| file.any().unwrap_or(false));
        return Ok(files.map(|file| file.is_some() && ready.next().unwrap_or(false)));
    }
}

/// Reads once from a file; keeps at most `most` bytes, and discards further ones. Sets a closed file to
/// `None`. Returns the total number of bytes kept.
fn read(
    from: &mut Option<impl Read>,
    into: &mut Vec<u8>,
    most: usize,
) -> Result<Option<usize>, CompileError> {
    let Some(file) = from else { return Ok(None) };
    let mut piece = [0; 64 << 10];
    match file.read(&mut piece) {
        Ok(0) => *from = None,
        Ok(count) => {
            let kept = count.min(most.saturating_sub(into.len()));
            into.extend_from_slice(&piece[..kept]);
        }
        Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
        Err(error) => return Err(CompileError::NoProcess(error.to_string())),
    }
    Ok(Some(into.len()))
}

fn outcome(status: ExitStatus, output: Output, limits: &Limits) -> Result<Vec<u8>, CompileError> {
    if status.success() {
        return Ok(output.code);
    }
    let said = readable(&output.said);
    let failed = |how: String| CompileError::Failed { how, said: said.clone() };
    Err(match (status.code(), status.signal()) {
        (Some(code), _) if code == i32::from(REFUSED) => ModuleError::Compile(said).into(),
        (Some(code), _) if code == i32::from(BROKEN) => CompileError::NoProcess(said),
        (Some(code), _) if code == i32::from(child::NO_MEMORY) => CompileError::TooMuchMemory(limits.memory),
        (_, Some(libc::SIGABRT)) if said.contains(NO_MEMORY) => CompileError::TooMuchMemory(limits.memory),
        (_, Some(libc::SIGXCPU)) => CompileError::TooMuchWork(limits.seconds()),
        (_, Some(libc::SIGKILL)) => CompileError::Killed,
        (_, Some(signal)) => failed(format!("signal {signal}")),
        (code, None) => failed(format!("exit code {}", code.unwrap_or(-1))),
    })
}

/// Returns the output on one line, without characters that a terminal interprets.
fn readable(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    let words = text.split(|c: char| c.is_whitespace() || c.is_control());
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn child_output_becomes_one_line() {
        assert_eq!(readable(b"  a\n\x1b[31mb\t\xffc\n"), "a [31mb \u{fffd}c");
    }

    #[test]
    fn ends_of_a_process_are_distinguished() {
        let outcome = |raw: i32, said: &str| {
            let output = Output { code: Vec::new(), said: said.into() };
            outcome(ExitStatus::from_raw(raw), output, &Limits::default()).unwrap_err()
        };
        assert_eq!(outcome(libc::SIGKILL, ""), CompileError::Killed);
        assert_eq!(outcome(libc::SIGXCPU, ""), CompileError::TooMuchWork(40));
        let out_of_memory = outcome(libc::SIGABRT, "memory allocation of 12 bytes failed\n");
        assert_eq!(out_of_memory, CompileError::TooMuchMemory(1 << 30));
        let crash = outcome(libc::SIGSEGV, "oh");
        assert_eq!(crash.to_string(), "the compiler failed (signal 11): oh");
        let before_all = outcome(i32::from(child::NO_MEMORY) << 8, "no memory for the module");
        assert_eq!(before_all, CompileError::TooMuchMemory(1 << 30));
        let refused = outcome(i32::from(REFUSED) << 8, "no");
        assert_eq!(refused, ModuleError::Compile("no".into()).into());
    }
}
