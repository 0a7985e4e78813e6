//! Arguments of the commands that start a router or prepare a start.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct Run {
    /// Use a kernel device as a port; repeatable.
    #[arg(long = "port", value_name = "DEVICE", conflicts_with = "config")]
    pub ports: Vec<String>,
    /// Configuration file.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Start from the newest confirmed revision, else from --config.
    #[arg(long, conflicts_with = "ports")]
    pub last_good: bool,
    /// State directory, or `none` (default for root: /var/lib/millrace); overrides the file.
    #[arg(long, value_name = "DIR", value_parser = state)]
    pub state: Option<PathBuf>,
    /// Receive mode of the workers (default: adaptive); overrides the file.
    #[arg(long, value_name = "MODE")]
    pub mode: Option<Mode>,
    /// Number of workers, 1 to 16 (default: 1); overrides the file.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=16))]
    pub workers: Option<u8>,
    /// Packet I/O driver of devices without a driver in the file (default: auto).
    #[arg(long, value_name = "DRIVER")]
    pub driver: Option<Driver>,
    /// Treatment of packets after the router's death (default: kernel; required with filters and bindings).
    #[arg(long, value_name = "ACTION")]
    pub on_death: Option<OnDeath>,
    /// Start although the router bypasses kernel policies, such as nftables, tc or policy rules.
    #[arg(long)]
    pub ignore_kernel_policy: bool,
    /// Show the planned changes to ports and kernel; change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Also serve the API over TLS at this address, to clients with API tokens; repeatable (default: Unix socket only).
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Vec<std::net::SocketAddr>,
    /// TLS certificate chain in PEM (default: the router's own, self-signed).
    #[arg(long, value_name = "FILE", requires = "key")]
    pub certificate: Option<PathBuf>,
    /// Private key of --certificate, in PEM.
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub key: Option<PathBuf>,
    /// Write "ready\n" to file descriptor FD once the router forwards.
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
    /// Never sleep: each worker keeps one CPU busy.
    Poll,
    /// Sleep whenever no packet waits.
    Interrupt,
    /// Poll under load, sleep after 50 us without a packet.
    Adaptive,
}

/// Packet I/O driver of kernel devices.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Driver {
    /// First available driver, in this order.
    #[value(name = "auto")]
    Auto,
    /// AF_XDP, in native mode if available, else in generic mode.
    #[value(name = "af_xdp")]
    AfXdp,
    /// AF_XDP in generic mode.
    #[value(name = "af_xdp-generic")]
    AfXdpGeneric,
    /// AF_PACKET rings; needs Linux 6.6.
    #[value(name = "af_packet")]
    AfPacket,
}

/// Treatment of packets after the router's death.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum OnDeath {
    /// The kernel forwards; filters and bindings no longer apply.
    Kernel,
    /// Drop packets until a router starts again.
    Drop,
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct Check {
    /// Configuration file.
    #[arg(required_unless_present = "schema")]
    pub file: Option<PathBuf>,
    /// Print the JSON Schema of the configuration file instead.
    #[arg(long)]
    pub schema: bool,
}

/// Arguments of `init`.
#[derive(Debug, Args)]
pub struct Init {
    /// Devices for ports (default: Ethernet devices that are up, and in no bridge, bond or VRF).
    pub devices: Vec<String>,
    /// File to write (default: standard output).
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Overwrite an existing file.
    #[arg(long, requires = "output")]
    pub force: bool,
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Devices to check (default: all devices except loopback).
    pub devices: Vec<String>,
}

/// Arguments of `shell`.
#[derive(Debug, Args)]
pub struct Shell {
    /// File with commands (default: terminal or standard input).
    pub file: Option<PathBuf>,
    /// Continue after failed commands; exit with the status of the last failed command.
    #[arg(long, short)]
    pub keep_going: bool,
}
