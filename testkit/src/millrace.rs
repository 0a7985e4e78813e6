//! Router process, and its command-line client.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, pipe2};
use serde_json::Value;

use crate::ground::binary;
use crate::namespace::Namespace;
use crate::wait::wait_until;

/// Time limit until a router forwards.
const START: Duration = Duration::from_secs(20);
/// Time limit for a router to drain and end.
const GRACE: Duration = Duration::from_secs(6);

/// Result of a program that has ended.
#[derive(Debug)]
pub struct Ended {
    /// Exit code; `None` if a signal ended the program.
    pub code: Option<i32>,
    /// Signal that ended the program.
    pub signal: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Ended {
    /// Checks that the program failed with this exit code, and that its error line contains all `words`. For
    /// a file with several faults, there may be one line for each; the first must contain the words.
    ///
    /// # Panics
    /// The program did not fail in this way.
    pub fn assert_refused(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        let lines: Vec<&str> = self.stderr.lines().collect();
        // Ignore log lines, such as warnings before the failure.
        let said: Vec<&&str> = lines.iter().filter(|line| line.starts_with("millrace: ")).collect();
        let is_end = said.last().copied() == lines.last();
        let is_of_file = |line: &str| line.matches(':').count() >= 4 || line.starts_with("millrace: and ");
        let is_one = said.len() == 1 || said.iter().all(|line| is_of_file(line));
        assert!(is_end && is_one, "not one line: {}", self.stderr);
        for word in words {
            assert!(said[0].contains(word), "{word:?} is not in: {}", said[0]);
        }
    }
}

/// Runs `millrace ARGUMENTS` in a namespace until it ends, for at most 20 s.
///
/// # Panics
/// The program can't be started.
pub fn run_to_end(namespace: &Namespace, arguments: &[&str]) -> Ended {
    let (cache, state) = (own_file("cache"), own_file("state"));
    let mut command = namespace.command("timeout");
    command.env("CACHE_DIRECTORY", &cache).env("STATE_DIRECTORY", &state);
    command.args(["-k", "1", "20"]).arg(binary()).args(arguments);
    let ended = ended(&mut command);
    for folder in [cache, state] {
        let _ = std::fs::remove_dir_all(folder);
    }
    ended
}

/// Returns `--on-death kernel`; nothing if the arguments or their configuration file set on-death. Without
/// on-death, a router refuses filters that are added at run time.
fn word_on_death(arguments: &str) -> &'static [&'static str] {
    let mut words = arguments.split_ascii_whitespace();
    let file = words.by_ref().any(|word| word == "--config").then(|| words.next()).flatten();
    let text = file.and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
    if text.contains("on-death") || arguments.contains("--on-death") || arguments.contains("--last-good") {
        return &[];
    }
    &["--on-death", "kernel"]
}

fn ended(command: &mut Command) -> Ended {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    Ended {
        code: output.status.code(),
        signal: output.status.signal(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Running router. Dropping it sends SIGTERM and, if the router does not end, SIGKILL.
#[derive(Debug)]
pub struct Millrace {
    child: Child,
    socket: PathBuf,
    log: PathBuf,
    /// Cache directory for compiled plugins.
    cache: PathBuf,
    /// State directory, unless the configuration names another.
    state: PathBuf,
}

impl Millrace {
    /// Starts `millrace run ARGUMENTS` in a namespace and waits until the router forwards. Spaces separate
    /// the arguments.
    ///
    /// # Panics
    /// The router does not start; the message has its log.
    pub fn start(namespace: &Namespace, arguments: &str) -> Self {
        let router = Self::try_start(namespace, arguments);
        router.unwrap_or_else(|ended| panic!("millrace run {arguments}: {ended:?}"))
    }

    /// Starts a router like [`start`](Self::start), with a socket at a given path.
    ///
    /// # Panics
    /// The router does not start; the message has its log.
    pub fn start_at(namespace: &Namespace, arguments: &str, socket: &Path) -> Self {
        let router = Self::bring_up(namespace, &[], arguments, socket.to_owned());
        router.unwrap_or_else(|ended| panic!("millrace run {arguments}: {ended:?}"))
    }

    /// Starts a router like [`start`](Self::start). If the router ends before it forwards, returns its result
    /// as the error.
    ///
    /// # Errors
    /// The router ends before it forwards.
    ///
    /// # Panics
    /// The router neither forwards nor ends within 20 s.
    pub fn try_start(namespace: &Namespace, arguments: &str) -> Result<Self, Ended> {
        Self::bring_up(namespace, &[], arguments, usual_socket(namespace))
    }

    /// Starts a router like [`try_start`](Self::try_start), through a wrapper program such as `strace -D` or
    /// `prlimit`.
    ///
    /// # Errors
    /// The router ends before it forwards.
    ///
    /// # Panics
    /// The router neither forwards nor ends within 20 s.
    pub fn try_start_by(namespace: &Namespace, by: &[&str], arguments: &str) -> Result<Self, Ended> {
        Self::bring_up(namespace, by, arguments, usual_socket(namespace))
    }

    fn bring_up(namespace: &Namespace, by: &[&str], arguments: &str, socket: PathBuf) -> Result<Self, Ended> {
        let log = own_file("log");
        let (mut router, ready) = Self::spawn(namespace, by, arguments, socket, log);
        let deadline = Instant::now() + START;
        while Instant::now() < deadline {
            if announced(&ready) {
                return Ok(router);
            }
            if let Ok(Some(status)) = router.child.try_wait() {
                let log = router.log();
                let (code, signal) = (status.code(), status.signal());
                return Err(Ended { code, signal, stdout: String::new(), stderr: log });
            }
        }
        panic!("millrace run {arguments}: not ready within {START:?}:\n{}", router.log());
    }

    fn spawn(
        namespace: &Namespace,
        by: &[&str],
        arguments: &str,
        socket: PathBuf,
        log: PathBuf,
    ) -> (Self, File) {
        let output = File::create(&log).unwrap_or_else(|error| panic!("{}: {error}", log.display()));
        let errors = output.try_clone().expect("a second descriptor");
        let (ready, announce) = pipe2(OFlag::O_CLOEXEC).expect("a pipe");
        fcntl(&announce, FcntlArg::F_SETFD(FdFlag::empty())).expect("a pipe that outlives exec");
        let (cache, state) = (own_file("cache"), own_file("state"));
        let program = binary().display().to_string();
        let words: Vec<&str> = by.iter().copied().chain([&*program]).collect();
        let mut command = namespace.command(words[0]);
        command.args(&words[1..]);
        command.env("CACHE_DIRECTORY", &cache).env("STATE_DIRECTORY", &state);
        command.arg("--socket").arg(&socket).arg("run").args(arguments.split_ascii_whitespace());
        command.args(word_on_death(arguments));
        command.arg("--ready-fd").arg(announce.as_raw_fd().to_string());
        command.stdout(output).stderr(errors);
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        (Self { child, socket, log, cache, state }, File::from(ready))
    }

    /// Returns the process ID.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a process number")
    }

    /// Returns the path of the router's socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Returns the log so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Whether the router still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Kills the router like `kill -9`, and waits for its end.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends a signal to the router.
    pub fn signal(&self, signal: Signal) {
        let _ = kill(Pid::from_raw(self.pid()), signal);
    }

    /// Sends a signal and waits for the end of the router.
    ///
    /// # Panics
    /// The router still runs after 6 s.
    pub fn end_by(&mut self, signal: Signal) -> ExitStatus {
        self.signal(signal);
        self.wait_for_end()
    }

    /// Waits for the end of the router.
    ///
    /// # Panics
    /// The router still runs after 6 s.
    pub fn wait_for_end(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until(GRACE, || {
            status = self.child.try_wait().ok().flatten();
            status.is_some()
        });
        status.unwrap_or_else(|| panic!("still there after {GRACE:?}:\n{}", self.log()))
    }

    /// Returns a client of this router as a command, to which the caller adds the arguments.
    pub fn client(&self) -> Command {
        let mut command = Command::new(binary());
        command.arg("--socket").arg(&self.socket).stdin(Stdio::null());
        command
    }

    /// Runs a client command until it ends.
    pub fn try_ask(&self, arguments: &[&str]) -> Ended {
        ended(self.client().args(arguments))
    }

    /// Runs a client command; returns its output.
    ///
    /// # Panics
    /// The command fails.
    pub fn ask(&self, arguments: &[&str]) -> String {
        let ended = self.try_ask(arguments);
        assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}\n{}", self.log());
        ended.stdout
    }

    /// Runs a client command with `--json`; returns its output.
    ///
    /// # Panics
    /// The command fails, or its output is not JSON.
    pub fn json(&self, arguments: &[&str]) -> Value {
        let text = self.ask(&[arguments, &["--json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {text}"))
    }

    /// Returns the row of `show NOUN` whose `key` is `value`.
    ///
    /// # Panics
    /// No such row exists.
    pub fn row(&self, noun: &str, key: &str, value: &str) -> Value {
        let rows = self.json(&["show", noun]);
        let row = rows.as_array().into_iter().flatten().find(|row| row[key] == value);
        row.cloned().unwrap_or_else(|| panic!("no {noun} with {key} {value}: {rows:#}"))
    }

    /// Returns the number `key` of `show summary`.
    pub fn summary(&self, key: &str) -> u64 {
        self.json(&["show", "summary"])[key].as_u64().unwrap_or_else(|| panic!("summary has no {key}"))
    }

    /// Returns the number of packets dropped for a reason so far.
    pub fn drops(&self, reason: &str) -> u64 {
        let drops = self.json(&["show", "drops"]);
        let row = drops.as_array().into_iter().flatten().find(|row| row["reason"] == reason);
        row.and_then(|row| row["packets"].as_u64()).unwrap_or(0)
    }

    /// Checks that there are no unaccounted packets. Traffic must have stopped.
    ///
    /// # Panics
    /// There are still unaccounted packets after two seconds.
    pub fn assert_conservation(&self) {
        let mut last = Value::Null;
        let settled = wait_until(Duration::from_secs(2), || {
            let summary = self.json(&["show", "summary"]);
            // Two equal summaries show that no packet moved in between.
            let holds = summary["unaccounted"] == 0 && summary == last;
            last = summary;
            holds
        });
        assert!(settled.is_some(), "packets are lost or invented: {last:#}");
    }
}

/// Returns the socket path of a namespace's router. A router that replaces the first uses the same socket,
/// since revisions belong to a socket. A second router beside the first gets a socket of its own.
fn usual_socket(namespace: &Namespace) -> PathBuf {
    let usual = std::env::temp_dir().join(format!("{}.sock", namespace.name()));
    if UnixStream::connect(&usual).is_ok() { own_file("sock") } else { usual }
}

/// Returns the path of a new file that nothing else uses.
fn own_file(extension: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("mr{}-{number}.{extension}", std::process::id()))
}

/// Returns whether the router has announced that it forwards. Waits up to 20 ms for the announcement.
fn announced(mut ready: &File) -> bool {
    let mut fds = [PollFd::new(ready.as_fd(), PollFlags::POLLIN)];
    let readable = poll(&mut fds, PollTimeout::from(20_u8)).is_ok_and(|count| count > 0);
    let mut byte = [0];
    let announced = readable && ready.read(&mut byte).is_ok_and(|length| length > 0);
    if readable && !announced {
        // The pipe is closed without an announcement, so the router is about to end. Wait, to avoid a busy
        // loop.
        std::thread::sleep(Duration::from_millis(20));
    }
    announced
}

impl Drop for Millrace {
    fn drop(&mut self) {
        if self.is_running() {
            let _ = kill(Pid::from_raw(self.pid()), Signal::SIGTERM);
            if wait_until(GRACE, || !self.is_running()).is_none() {
                self.kill();
            }
        }
        if std::thread::panicking() {
            eprintln!("--- the router's log:\n{}", self.log());
        }
        let _ = std::fs::remove_file(&self.log);
        // Keep the socket's file if the namespace's next router already listens on it.
        if UnixStream::connect(&self.socket).is_err() {
            let _ = std::fs::remove_file(&self.socket);
        }
        let _ = std::fs::remove_dir_all(&self.cache);
        let _ = std::fs::remove_dir_all(&self.state);
    }
}
