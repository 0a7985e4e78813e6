//! Why a port can't be opened.

use std::io;
use std::path::PathBuf;

/// Why a port could not be opened, or does not work any more.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// No device has that name or index here.
    #[error("no network device {device} in this network namespace: `ip link` lists those that exist")]
    UnknownDevice {
        /// The name or index that was asked for.
        device: String,
    },
    /// The process may not do this.
    #[error("{device}: {what} needs {capability}: run as root, or give the program that capability")]
    Permission {
        /// The device's name.
        device: String,
        /// What was tried.
        what: &'static str,
        /// The capability that allows it.
        capability: &'static str,
    },
    /// The device is administratively down.
    #[error("{device} is down: `ip link set {device} up` first")]
    DeviceDown {
        /// The device's name.
        device: String,
    },
    /// Somebody else holds the device or the queue.
    #[error("{device}: device busy: {holder}")]
    Busy {
        /// The device's name.
        device: String,
        /// What holds it, as far as it is known, and what would free it.
        holder: String,
    },
    /// The kernel gave no memory.
    #[error(
        "{device}: no memory for {what} ({source}): ask for smaller rings or fewer frames, or raise the limit on locked memory (`ulimit -l`)"
    )]
    Memory {
        /// The device's name.
        device: String,
        /// What the memory was for.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// An impairment that was asked for is out of range.
    #[error("impairment: {0}")]
    Impairment(#[from] crate::ImpairError),
    /// A ring can't have that many entries.
    #[error("{device}: a {ring} ring of {size} entries: it takes a power of two from {min} to {max}")]
    RingSize {
        /// The device's name.
        device: String,
        /// Which ring.
        ring: &'static str,
        /// Entries asked for.
        size: u32,
        /// Fewest that are allowed.
        min: u32,
        /// Most that are allowed.
        max: u32,
    },
    /// No device queue was named, or one that the device does not have.
    #[error("{device}: {problem}: `ethtool -l {device}` shows the queues that it has, counted from 0")]
    Queue {
        /// The device's name.
        device: String,
        /// Which queue, and what is wrong with it.
        problem: String,
    },
    /// The device or the kernel can't do this.
    #[error("{device} can't do {what}: {instead}")]
    NotSupported {
        /// The device's name.
        device: String,
        /// What was asked for.
        what: &'static str,
        /// What would work instead.
        instead: String,
    },
    /// A file can't be read or written.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A file does not hold what it should.
    #[error("{path}: {problem}", path = path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong in it, and what would be right.
        problem: String,
    },
    /// Any other answer of the kernel.
    #[error("{device}: {call} failed: {source}")]
    Kernel {
        /// The device's name.
        device: String,
        /// The call.
        call: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}
