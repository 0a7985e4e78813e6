//! What can go wrong between us and the kernel.

use std::io;

/// An error of the Linux side.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A netlink socket could not be made, set up or used.
    #[error("netlink: {what}: {source}")]
    Socket {
        /// What was being done.
        what: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// The kernel refused a request.
    #[error("the kernel refused to {what}: {source}{}", hint(.source))]
    Refused {
        /// What was asked, with its object.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The kernel did not answer in time.
    #[error("netlink: no answer from the kernel to {what} within {seconds} s")]
    Silent {
        /// What was asked.
        what: String,
        /// How long we waited.
        seconds: u64,
    },
    /// The mirror's task has ended, or could not finish what was asked.
    #[error("the kernel mirror has stopped, or could not list the kernel's state in full")]
    Stopped,
    /// A device that does not exist was named.
    #[error("there is no device {name:?} in this network namespace; `ip link` lists those that are")]
    NoDevice {
        /// The name or index.
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
