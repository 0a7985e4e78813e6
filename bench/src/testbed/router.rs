//! Process of the router that is measured.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::sys::signal::Signal;
use nix::unistd::pipe2;

use crate::BenchError;
use crate::testbed::network::Network;
use crate::testbed::process::{Processor, Running, command, run};
use crate::testbed::scratch::Scratch;

/// Time limit until the router forwards. Adding 100,000 routes takes some seconds.
const PATIENCE: Duration = Duration::from_secs(20);

/// Processor that the worker of [`Router::start_alone`] has for itself.
pub(crate) const OWN_PROCESSOR: Processor = 1;
/// Configuration of such a router.
const CONFIGURATION: &str = r#"
[router]
on-death = "kernel"
worker-processors = [1]
worker-policy = "other -20"

[[port]]
name = "r1"
device = "r1"
driver = "af_xdp"

[[port]]
name = "r2"
device = "r2"
driver = "af_xdp"
"#;

/// Process `millrace run` with both ports of the router. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct Router {
    running: Running,
    socket: SocketFile,
    binary: PathBuf,
}

impl Router {
    /// Starts the router and waits until it reports that it forwards.
    pub fn start(binary: &Path, network: &Network, processor: Option<Processor>) -> Result<Self, BenchError> {
        let socket = std::env::temp_dir().join(format!("{}.sock", network.r.name()));
        let mut command = command(network.r.open()?, &binary.to_string_lossy(), processor)?;
        command.args(["run", "--port", "r1", "--port", "r2", "--driver", "af_xdp"]);
        command.args(["--on-death", "kernel", "--state", "none"]);
        Self::launch(command, binary, socket)
    }

    /// Starts a router whose worker has the processor [`OWN_PROCESSOR`] for itself, and waits until it reports that it forwards.
    pub fn start_alone(binary: &Path, network: &Network) -> Result<Self, BenchError> {
        let scratch = Scratch::new()?;
        let file = scratch.write("router.toml", CONFIGURATION.as_bytes())?;
        let mut command = command(network.r.open()?, &binary.to_string_lossy(), None)?;
        command.args(["run", "--config", &file, "--state", "none"]);
        let socket = std::env::temp_dir().join(format!("{}.sock", network.r.name()));
        Self::launch(command, binary, socket)
    }

    /// Starts `command`, which runs a router that listens on `socket`. Waits until the router reports that it
    /// forwards.
    pub fn launch(mut command: Command, binary: &Path, socket: PathBuf) -> Result<Self, BenchError> {
        let socket = SocketFile(socket);
        let (ready, announce) =
            pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).map_err(BenchError::system("make a pipe"))?;
        fcntl(&announce, FcntlArg::F_SETFD(FdFlag::empty())).map_err(BenchError::system("prepare a pipe"))?;
        command.arg("--socket").arg(&socket.0).args(["--ready-fd", &announce.as_raw_fd().to_string()]);
        let mut router = Self { running: Running::start(&mut command)?, socket, binary: binary.to_owned() };
        drop(announce);
        let mut ready = File::from(ready);
        router
            .running
            .wait_ready(PATIENCE, || Ok(ready.read(&mut [0; 16]).is_ok_and(|length| length > 0)))?;
        Ok(router)
    }

    /// Runs a command against the router and returns its output.
    pub fn tell(&self, arguments: &[&str]) -> Result<String, BenchError> {
        let (socket, binary) = (self.socket.0.to_string_lossy(), self.binary.to_string_lossy());
        let mut all = vec!["--socket", &*socket];
        all.extend(arguments);
        run(&binary, &all)
    }

    /// Returns a command against the router that is not started yet.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.arg("--socket").arg(&self.socket.0).args(arguments);
        command
    }

    /// Returns the router's process ID.
    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// Stops the router as a user would, and waits for its end.
    pub fn stop(self) -> Result<(), BenchError> {
        self.running.stop(Signal::SIGTERM).map(drop)
    }

    /// Kills the router. From now on, only the kernel forwards in the namespace.
    pub fn kill(self) -> Result<(), BenchError> {
        self.running.signal(Signal::SIGKILL)
    }
}

/// Socket file of a daemon. Dropping it removes the file, since a killed daemon leaves it behind.
#[derive(Debug)]
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Ignore errors: a daemon that ended normally has already removed the file.
        let _ = std::fs::remove_file(&self.0);
    }
}
