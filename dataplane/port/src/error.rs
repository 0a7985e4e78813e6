//! Errors of ports.

use std::io;
use std::path::PathBuf;

/// Error of opening or using a port.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// No device has this name or index.
    #[error("no network device {device} in this network namespace: `ip link` lists the devices")]
    UnknownDevice {
        /// Requested name or index.
        device: String,
    },
    /// The process lacks a privilege.
    #[error("{device}: {what} needs {capability}: run as root, or give the program this capability")]
    Permission {
        /// Name of the device.
        device: String,
        /// Operation that failed.
        what: &'static str,
        /// Capability that permits the operation.
        capability: &'static str,
    },
    /// The device is administratively down.
    #[error("{device} is down: `ip link set {device} up` first")]
    DeviceDown {
        /// Name of the device.
        device: String,
    },
    /// Another process or socket holds the device or the queue.
    #[error("{device}: device busy: {holder}")]
    Busy {
        /// Name of the device.
        device: String,
        /// Holder of the device or queue, if known, and the remedy.
        holder: String,
    },
    /// The kernel has no memory left.
    #[error(
        "{device}: no memory for {what} ({source}): use smaller rings or fewer frames, or raise the limit on \
         locked memory (`ulimit -l`)"
    )]
    Memory {
        /// Name of the device.
        device: String,
        /// Purpose of the memory.
        what: &'static str,
        /// Error of the kernel.
        source: io::Error,
    },
    /// A requested impairment is out of range.
    #[error("{0}")]
    Impairment(#[from] crate::ImpairError),
    /// The number of entries of a ring is invalid.
    #[error("{device}: invalid {ring} ring size {size}: give a power of two from {min} to {max}")]
    RingSize {
        /// Name of the device.
        device: String,
        /// Name of the ring.
        ring: &'static str,
        /// Requested number of entries.
        size: u32,
        /// Minimum number of entries.
        min: u32,
        /// Maximum number of entries.
        max: u32,
    },
    /// No device queue is given, or a queue that the device does not have.
    #[error("{device}: {problem}: `ethtool -l {device}` shows how many queues it has; the first is queue 0")]
    Queue {
        /// Name of the device.
        device: String,
        /// Queue, and its problem.
        problem: String,
    },
    /// The device or the kernel lacks a feature.
    #[error("{device} does not support {what}: {instead}")]
    NotSupported {
        /// Name of the device.
        device: String,
        /// Requested feature.
        what: &'static str,
        /// Alternative that works.
        instead: String,
    },
    /// A file cannot be read or written.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
    /// A file has the wrong contents.
    #[error("{path}: {problem}", path = path.display())]
    Format {
        /// Path of the file.
        path: PathBuf,
        /// Fault of the contents, and the correct form.
        problem: String,
    },
    /// Any other error of the kernel.
    #[error("{device}: {call} failed: {source}")]
    Kernel {
        /// Name of the device.
        device: String,
        /// Name of the call.
        call: &'static str,
        /// Error of the kernel.
        source: io::Error,
    },
}
