//! Errors of requests to the kernel.

use std::io;

/// Error of a request to the kernel.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A netlink socket could not be created, set up or used.
    #[error("netlink: {what}: {source}")]
    Socket {
        /// Operation that failed.
        what: &'static str,
        /// Error of the system call.
        source: io::Error,
    },
    /// The kernel refused a request.
    #[error("the kernel refused to {what}: {source}{}", hint(.source))]
    Refused {
        /// Request, with the object that it concerns.
        what: String,
        /// Error returned by the kernel.
        source: io::Error,
    },
    /// The kernel did not answer in time.
    #[error("netlink: the kernel did not answer the request to {what} within {seconds} s")]
    Silent {
        /// Request, with the object that it concerns.
        what: String,
        /// Timeout in seconds.
        seconds: u64,
    },
    /// The mirror's task has ended, or could not complete a comparison.
    #[error("the kernel mirror has stopped, or could not list the kernel's state in full")]
    Stopped,
    /// The named device does not exist.
    #[error("there is no device {name:?} in this network namespace; `ip link` lists the existing devices")]
    NoDevice {
        /// Name or index of the device.
        name: String,
    },
}

fn hint(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => " (CAP_NET_ADMIN is needed in this network namespace)",
        Some(libc::ENETUNREACH) => " (the gateway is not on a connected prefix, or its device is down)",
        Some(libc::ENODEV | libc::ENXIO) => " (the device is gone)",
        _ => "",
    }
}
