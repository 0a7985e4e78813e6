//! What can go wrong between Millrace and the kernel's programs.

use std::io;

use thiserror::Error;

/// Why a program could not be loaded, attached or told something.
#[derive(Debug, Error)]
pub enum OffloadError {
    /// The device no longer exists in this network namespace.
    #[error(
        "no device with index {ifindex} in this network namespace: it was removed, renamed away or moved"
    )]
    DeviceGone {
        /// The index that was asked for.
        ifindex: u32,
    },
    /// The process may not do this.
    #[error("{what} needs CAP_NET_ADMIN and CAP_SYS_ADMIN (or root): {source}")]
    Permission {
        /// What was tried.
        what: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Somebody else's program is attached.
    #[error(
        "another XDP program (id {id}, name {name}) is attached to {device}: remove it (`ip link set {device} xdp off`) or choose another driver for this port"
    )]
    Occupied {
        /// The device's name.
        device: String,
        /// The other program's id.
        id: u32,
        /// The other program's name, as the kernel keeps it (at most 15 characters).
        name: String,
    },
    /// The device is busy, and no program explains it.
    #[error(
        "{device} is busy ({detail}): a program that was just detached can hold it for some 50 ms; try again"
    )]
    Busy {
        /// The device's name.
        device: String,
        /// The kernel's words.
        detail: String,
    },
    /// The frames of this device don't fit one buffer.
    #[error(
        "the MTU of {device} or its peer is too large for native XDP in one buffer (about 3,506 on a veth): lower it to 3,498, or attach with frags"
    )]
    MtuTooLarge {
        /// The device's name.
        device: String,
        /// The kernel's words.
        detail: String,
    },
    /// The device or the kernel can't do this.
    #[error("{device} does not support {what}: {detail}")]
    NotSupported {
        /// The device's name.
        device: String,
        /// What was asked for.
        what: &'static str,
        /// The kernel's words.
        detail: String,
    },
    /// A program was refused, by the verifier or before.
    #[error("the kernel refused the program {program}: {detail}")]
    Load {
        /// The program's name.
        program: &'static str,
        /// The verifier's or loader's words.
        detail: String,
    },
    /// The form of a plugin can't be used.
    #[error("the form for the driver: {detail}")]
    Form {
        /// Why, in the verifier's words where it was that.
        detail: String,
    },
    /// A map refused an entry.
    #[error("the map {map} of the level-0 program: {detail}")]
    Map {
        /// The map's name.
        map: &'static str,
        /// What was refused, and why.
        detail: String,
    },
    /// A socket can't be registered or unregistered for this queue.
    #[error("queue {queue}: {detail}")]
    Queue {
        /// The device queue's index.
        queue: u32,
        /// Why not.
        detail: String,
    },
    /// Any other answer of the kernel.
    #[error("{call} failed for {device}: {source}")]
    Kernel {
        /// The device's name, or its index when it has none.
        device: String,
        /// The call.
        call: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// Why frames could not be injected.
#[derive(Debug, Error)]
pub enum InjectError {
    /// The frame does not fit the room of a page.
    #[error("a frame of {length} bytes is too long to inject: at most {max} bytes fit")]
    TooLong {
        /// The frame's length in bytes.
        length: usize,
        /// The longest frame that fits, in bytes.
        max: usize,
    },
    /// The frame has no whole Ethernet header.
    #[error("a frame of {length} bytes is too short to inject: an Ethernet header needs 14")]
    TooShort {
        /// The frame's length in bytes.
        length: usize,
    },
    /// No frames, or more than the program can hold.
    #[error("{count} templates: between 1 and {max} are needed")]
    Templates {
        /// How many were given.
        count: usize,
        /// How many can be held.
        max: usize,
    },
    /// The port's device no longer exists in this network namespace.
    #[error("no device with index {ifindex} in this network namespace")]
    DeviceGone {
        /// The index that was asked for.
        ifindex: u32,
    },
    /// The program could not be made ready.
    #[error(transparent)]
    Program(#[from] OffloadError),
    /// The kernel refused the run.
    #[error("the kernel refused to run frames through the program: {0}")]
    Kernel(#[from] io::Error),
}

impl OffloadError {
    /// For system calls on a map's descriptor.
    pub(crate) fn from_io(map: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self::Map { map, detail: error.to_string() }
    }
}
