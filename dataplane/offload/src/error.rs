//! Errors of programs in the kernel and of frame injection.

use std::io;

use thiserror::Error;

/// Error of loading, attaching or configuring a program.
#[derive(Debug, Error)]
pub enum OffloadError {
    /// The device no longer exists in this network namespace.
    #[error(
        "no device with index {ifindex} in this network namespace: it was removed, or moved to another \
         namespace"
    )]
    DeviceGone {
        /// Requested index.
        ifindex: u32,
    },
    /// The process lacks privileges.
    #[error("{what} needs CAP_NET_ADMIN and CAP_SYS_ADMIN (or root): {source}")]
    Permission {
        /// Operation that failed.
        what: String,
        /// Error of the kernel.
        source: io::Error,
    },
    /// Another XDP program is attached.
    #[error(
        "another XDP program (id {id}, name {name}) is attached to {device}: remove it (`ip link set {device} xdp off`) or choose another driver for this port"
    )]
    Occupied {
        /// Name of the device.
        device: String,
        /// Id of the other program.
        id: u32,
        /// Name of the other program, as the kernel keeps it (at most 15 characters).
        name: String,
    },
    /// The device is busy, although no other program is attached.
    #[error(
        "{device} is busy ({detail}): a program that was just detached can hold the device for about 50 ms; \
         try again"
    )]
    Busy {
        /// Name of the device.
        device: String,
        /// Message of the kernel.
        detail: String,
    },
    /// Frames of the device can be longer than one buffer.
    #[error(
        "the MTU of {device} or its peer is too large for native XDP (limit with one buffer: about 3,506 on \
         a veth): lower the MTU to 3,498"
    )]
    MtuTooLarge {
        /// Name of the device.
        device: String,
        /// Message of the kernel.
        detail: String,
    },
    /// The device or the kernel lacks a feature.
    #[error("{device} does not support {what}: {detail}")]
    NotSupported {
        /// Name of the device.
        device: String,
        /// Required feature.
        what: &'static str,
        /// Message of the kernel.
        detail: String,
    },
    /// The verifier or the loader refused a program.
    #[error("can't load eBPF program {program}: {detail}")]
    Load {
        /// Name of the program.
        program: &'static str,
        /// Message of the verifier or loader.
        detail: String,
    },
    /// The eBPF variant of a plugin is not usable.
    #[error("eBPF variant of the plugin: {detail}")]
    Variant {
        /// Reason, with the verifier's message if the verifier refused it.
        detail: String,
    },
    /// A map refused an entry.
    #[error("eBPF map {map}: {detail}")]
    Map {
        /// Name of the map.
        map: &'static str,
        /// Refused entry, and the reason.
        detail: String,
    },
    /// A socket cannot be registered or unregistered for this queue.
    #[error("queue {queue}: {detail}")]
    Queue {
        /// Index of the device queue.
        queue: u32,
        /// Reason.
        detail: String,
    },
    /// Any other error of the kernel.
    #[error("{call} failed for {device}: {source}")]
    Kernel {
        /// Name of the device, or its index when it has no name.
        device: String,
        /// Name of the call.
        call: &'static str,
        /// Error of the kernel.
        source: io::Error,
    },
}

/// Error of frame injection.
#[derive(Debug, Error)]
pub enum InjectError {
    /// The frame is too long for a page.
    #[error("a frame of {length} bytes is too long to inject: at most {max} bytes fit")]
    TooLong {
        /// Length of the frame in bytes.
        length: usize,
        /// Length of the longest frame that fits, in bytes.
        max: usize,
    },
    /// The frame has no whole Ethernet header.
    #[error("a frame of {length} bytes is too short to inject: an Ethernet header needs 14")]
    TooShort {
        /// Length of the frame in bytes.
        length: usize,
    },
    /// No templates, or more than the program can hold.
    #[error("{count} frame templates given: 1 to {max} are allowed")]
    Templates {
        /// Number of given templates.
        count: usize,
        /// Maximum number of templates.
        max: usize,
    },
    /// The port's device no longer exists in this network namespace.
    #[error("no device with index {ifindex} in this network namespace")]
    DeviceGone {
        /// Requested index.
        ifindex: u32,
    },
    /// The program could not be prepared.
    #[error(transparent)]
    Program(#[from] OffloadError),
    /// The kernel refused the run.
    #[error("the kernel refused to run frames through the program: {0}")]
    Kernel(#[from] io::Error),
}

impl OffloadError {
    /// Returns a conversion for errors of system calls on a map's descriptor.
    pub(crate) fn from_io(map: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self::Map { map, detail: error.to_string() }
    }
}
