//! Arguments of the commands that start a router or prepare a start.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct Run {
    /// Use a kernel device as a port; may be given several times.
    #[arg(long = "port", value_name = "DEVICE", conflicts_with = "config")]
    pub ports: Vec<String>,
    /// Read a configuration file.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Start from the last good revision, else from the file.
    #[arg(long, conflicts_with = "ports")]
    pub last_good: bool,
    /// State directory, or `none`; overrides the file.
    #[arg(long, value_name = "DIR", value_parser = state)]
    pub state: Option<PathBuf>,
    /// Receive mode of the workers.
    #[arg(long, value_name = "MODE")]
    pub mode: Option<Mode>,
    /// Number of workers, 1 to 16.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=16))]
    pub workers: Option<u8>,
    /// Default driver of kernel devices.
    #[arg(long, value_name = "DRIVER")]
    pub driver: Option<Driver>,
    /// Default on-death action; filters and bindings need one.
    #[arg(long, value_name = "WHAT")]
    pub on_death: Option<OnDeath>,
    /// Forward despite kernel policies that Millrace bypasses.
    #[arg(long)]
    pub ignore_kernel_policy: bool,
    /// Show the planned changes to ports and kernel; change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Serve the API over TLS; repeatable; needs API tokens.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Vec<std::net::SocketAddr>,
    /// TLS certificate chain in PEM (default: self-signed).
    #[arg(long, value_name = "FILE", requires = "key")]
    pub certificate: Option<PathBuf>,
    /// The certificate's key, in PEM.
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub key: Option<PathBuf>,
    /// Write "ready\n" to this descriptor once the router forwards.
    #[arg(long, value_name = "FD")]
    pub ready_fd: Option<i32>,
}

/// Parses a directory as an absolute path, or `none`.
fn state(text: &str) -> Result<PathBuf, String> {
    match text {
        "none" => Ok(text.into()),
        _ => std::path::absolute(text).map_err(|error| error.to_string()),
    }
}

/// Receive mode of the workers.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Mode {
    /// Busy polling.
    Poll,
    /// Sleep when idle.
    Interrupt,
    /// Poll under load, sleep when idle.
    Adaptive,
}

/// Driver of kernel devices.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Driver {
    /// Best available.
    #[value(name = "auto")]
    Auto,
    /// AF_XDP, in driver mode if available.
    #[value(name = "af_xdp")]
    AfXdp,
    /// AF_XDP, generic mode.
    #[value(name = "af_xdp-generic")]
    AfXdpGeneric,
    /// AF_PACKET rings.
    #[value(name = "af_packet")]
    AfPacket,
}

/// Treatment of packets after the router's death.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum OnDeath {
    /// The kernel forwards.
    Kernel,
    /// Drop packets until a router starts again.
    Drop,
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct Check {
    /// The configuration file.
    #[arg(required_unless_present = "schema")]
    pub file: Option<PathBuf>,
    /// Print the JSON Schema of configurations instead.
    #[arg(long)]
    pub schema: bool,
}

/// Arguments of `init`.
#[derive(Debug, Args)]
pub struct Init {
    /// Devices (default: up, and in no bridge, bond or VRF).
    pub devices: Vec<String>,
    /// The file to write; standard output without it.
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Overwrite the file.
    #[arg(long, requires = "output")]
    pub force: bool,
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Devices to check (default: all of this namespace).
    pub devices: Vec<String>,
}
