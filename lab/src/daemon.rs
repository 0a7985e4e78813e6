//! Routing daemons of nodes: BIRD and the daemons of FRR.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Instant;

use nix::unistd::{User, chown};

use crate::error::LabError;
use crate::ip_command::run_within;
use crate::process::{LOOK, NotReady, last_lines, open_output, wait};
use crate::topology::Daemon;

/// FRR daemon that installs the routes of the other FRR daemons in the kernel.
pub(crate) const ZEBRA: &str = "zebra";
const BIRD: &str = "bird";
/// Names of the routing daemons that a lab can start.
pub(crate) const PROGRAMS: [&str; 15] = [
    BIRD, ZEBRA, "babeld", "bfdd", "bgpd", "eigrpd", "isisd", "ldpd", "ospf6d", "ospfd", "pimd", "ripd",
    "ripngd", "staticd", "vrrpd",
];
/// Directory of FRR's daemons on Debian and other distributions.
const FRR: &str = "/usr/lib/frr";
/// User to which FRR's daemons switch.
const FRR_USER: &str = "frr";

/// Files of one routing daemon, all in the lab's own directory.
pub(crate) struct DaemonFiles {
    name: &'static str,
    pub program: PathBuf,
    config: PathBuf,
    pub arguments: Vec<String>,
    pub log: PathBuf,
    /// File that appears when the daemon is ready.
    ready: PathBuf,
}

impl DaemonFiles {
    /// Writes a daemon's configuration into the node's directory; returns the daemon's files.
    pub fn make(files: &Path, node: &str, daemon: &Daemon) -> Result<Self, LabError> {
        let name = daemon.program;
        let directory = files.join(node);
        fs::create_dir_all(&directory).map_err(LabError::file("create", &directory))?;
        let config = directory.join(format!("{name}.conf"));
        let written = open_output(&config, false)?.write_all(daemon.config.as_bytes());
        written.map_err(LabError::file("write", &config))?;
        let path = |extension: &str| directory.join(format!("{name}.{extension}"));
        let text = |path: &Path| path.display().to_string();
        let log = path("log");
        if name == BIRD {
            let (socket, pid) = (path("ctl"), path("pid"));
            let words = ["-f", "-c", &text(&config), "-s", &text(&socket), "-P", &text(&pid)];
            let arguments = words.map(str::to_owned).to_vec();
            return Ok(Self { name, program: BIRD.into(), config, arguments, log, ready: socket });
        }
        give_to_frr(&[files, &directory], &directory)?;
        let (pid, zebra) = (path("pid"), directory.join("zserv.api"));
        let ready = if name == ZEBRA { zebra.clone() } else { path("vty") };
        let words =
            ["-f", &text(&config), "-i", &text(&pid), "-z", &text(&zebra), "--vty_socket", &text(&directory)];
        let arguments = words.into_iter().chain(["-P", "0"]).map(str::to_owned).collect();
        Ok(Self { name, program: Path::new(FRR).join(name), config, arguments, log, ready })
    }

    /// Lets the daemon check its configuration, without starting it.
    pub fn check(&self, namespace: &str) -> Result<(), LabError> {
        let program = self.program.display().to_string();
        let config = self.config.display().to_string();
        let words = if self.name == BIRD { ["-p", "-c", &config] } else { ["-C", "-f", &config] };
        run_within(namespace, &program, &words)
    }

    /// Waits until the daemon is ready.
    pub fn wait(
        &self,
        child: &mut Child,
        deadline: Instant,
        interrupted: impl Fn() -> bool,
    ) -> Result<(), LabError> {
        let failed =
            |problem: String| LabError::Daemon { program: self.name, problem, log: last_lines(&self.log) };
        let ready = || {
            let is_ready = self.ready.exists();
            if !is_ready {
                std::thread::sleep(LOOK);
            }
            is_ready
        };
        wait(child, deadline, interrupted, ready).map_err(|why| match why {
            NotReady::Ended(status) => failed(format!("ended ({status})")),
            NotReady::TimedOut => failed("was not ready in time".to_owned()),
            NotReady::Interrupted => LabError::Interrupted,
        })
    }
}

/// Lets all users enter the directories in `way`, and makes FRR's user the owner of `directory`. If FRR's
/// user doesn't exist, the owner stays.
fn give_to_frr(way: &[&Path], directory: &Path) -> Result<(), LabError> {
    for step in way {
        fs::set_permissions(step, Permissions::from_mode(0o755)).map_err(LabError::file("open", step))?;
    }
    let user = User::from_name(FRR_USER).map_err(LabError::system("look up the user frr"))?;
    let Some(user) = user else { return Ok(()) };
    chown(directory, Some(user.uid), Some(user.gid)).map_err(LabError::system("give a directory to frr"))
}
