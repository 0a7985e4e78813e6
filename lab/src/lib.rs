//! Labs: hosts, routers and links in network namespaces of this machine, built from one file and removed
//! completely.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use millrace_lab::{Lab, LabFile, Options};
//!
//! let file = LabFile::read("examples/lab/two-hosts.toml".as_ref())?;
//! let lab = Lab::up(&file, &Options::new("out/millrace"))?;
//! let ping = lab.command("h1", "ping")?.args(["-c", "1", "10.2.0.2"]).status()?;
//! assert!(ping.success());
//! lab.down()?;
//! # Ok(()) }
//! ```
//!
//! [`schema`] describes the file; `examples/lab/two-hosts.toml` is an example. Node `h1` of lab `demo` has
//! the namespace `demo-h1`. Running labs are recorded under `/run/millrace/lab`, so that any process can list
//! a lab, run commands in it and remove it. A lab whose construction fails leaves nothing behind.
//!
//! Labs need root and the programs `ip`, `nsenter` and `ethtool`.

mod build;
mod check;
mod daemon;
mod error;
mod impairment;
mod ip_command;
mod lab;
mod namespace;
mod position;
mod process;
mod router_config;
pub mod schema;
mod state;
mod topology;

pub use build::Options;
pub use error::{FileError, LabError};
pub use impairment::Impairment;
pub use lab::{Lab, Removed, down, exec, list};
pub use namespace::within;
pub use process::Process;
pub use state::{DEFAULT_RUNTIME_DIRECTORY, DeviceState, NodeState, State};
pub use topology::{Daemon, Device, End, LabFile, Link, Node, NodeKind, Route, Router};
