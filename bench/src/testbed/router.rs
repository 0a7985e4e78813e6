//! The measured router, as a process.

use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::sys::signal::Signal;
use nix::unistd::pipe2;

use crate::BenchError;
use crate::interrupt::wait_until;
use crate::testbed::network::Network;
use crate::testbed::process::{Processor, Running, command, run};

/// Time limit until the router forwards. Adding 100,000 routes takes a while.
const PATIENCE: Duration = Duration::from_secs(20);

/// `millrace run` on both ports of the router. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct Router {
    running: Running,
    socket: SocketFile,
    binary: PathBuf,
}

impl Router {
    /// Starts the router and waits until it reports that it forwards.
    pub fn start(binary: &Path, network: &Network, processor: Option<Processor>) -> Result<Self, BenchError> {
        let socket = SocketFile(std::env::temp_dir().join(format!("{}.sock", network.r.name())));
        let (ready, announce) =
            pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).map_err(BenchError::system("make a pipe"))?;
        keep_across_exec(&announce)?;
        let mut command = command(network.r.open()?, &binary.to_string_lossy(), processor)?;
        command
            .args(["run", "--port", "r1", "--port", "r2", "--driver", "af_xdp"])
            .args(["--on-death", "kernel", "--state", "none", "--socket"])
            .arg(&socket.0);
        command.args(["--ready-fd", &announce.as_raw_fd().to_string()]);
        let mut router = Self { running: Running::start(&mut command)?, socket, binary: binary.to_owned() };
        drop(announce);
        router.wait(ready)?;
        Ok(router)
    }

    fn wait(&mut self, ready: OwnedFd) -> Result<(), BenchError> {
        let mut ready = std::fs::File::from(ready);
        let forwards = wait_until(PATIENCE, || {
            if ready.read(&mut [0; 16]).is_ok_and(|length| length > 0) {
                return Ok(true);
            }
            match self.running.ended()? {
                Some(status) => Err(self.running.failure(&status.to_string())),
                None => Ok(false),
            }
        })?;
        if forwards { Ok(()) } else { Err(self.running.failure(&format!("not ready after {PATIENCE:?}"))) }
    }

    /// Runs a command against the router and returns its output.
    pub fn tell(&self, arguments: &[&str]) -> Result<String, BenchError> {
        let (socket, binary) = (self.socket.0.to_string_lossy(), self.binary.to_string_lossy());
        let mut all = vec!["--socket", &*socket];
        all.extend(arguments);
        run(&binary, &all)
    }

    /// Returns the router's process ID.
    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// Stops the router as a user would, and waits for its end.
    pub fn stop(self) -> Result<(), BenchError> {
        self.running.stop(Signal::SIGTERM).map(drop)
    }

    /// Kills the router. The namespace's kernel is on its own from now on.
    pub fn kill(self) -> Result<(), BenchError> {
        self.running.signal(Signal::SIGKILL)
    }
}

/// Socket file of a daemon. Dropping it removes the file, because a killed daemon leaves it behind.
#[derive(Debug)]
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // A daemon that ended by itself has removed the file.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn keep_across_exec(fd: &OwnedFd) -> Result<(), BenchError> {
    fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty())).map(drop).map_err(BenchError::system("prepare a pipe"))
}
