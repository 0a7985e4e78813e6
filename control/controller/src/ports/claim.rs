//! Claim of a router on a device. By its claim, a router makes sure that no other router of the network
//! namespace uses the device.
//!
//! A claim is an abstract Unix socket named after the device. Abstract names belong to the network namespace,
//! as device indexes do. The kernel removes the name when the process ends, so no stale claim remains.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, getsockopt, listen, socket, sockopt,
};

use crate::ControlError;

/// Claim on a device. Dropping it releases the device.
#[derive(Debug)]
pub struct Claim {
    _socket: OwnedFd,
}

impl Claim {
    /// Claims the device with index `ifindex` and name `name`.
    ///
    /// # Errors
    /// Returns [`ControlError::Conflict`] if another router holds the device. The error names the process id
    /// of that router.
    pub fn take(ifindex: u32, name: &str) -> Result<Self, ControlError> {
        let failed = |error| ControlError::system(&format!("claim device {name:?}"), error);
        let address = address(ifindex).map_err(failed)?;
        let socket = new_socket()?;
        match bind(socket.as_raw_fd(), &address) {
            Ok(()) => {}
            Err(Errno::EADDRINUSE) => return Err(held(&address, name)),
            Err(error) => return Err(failed(error)),
        }
        listen(&socket, Backlog::MAXCONN).map_err(failed)?;
        Ok(Self { _socket: socket })
    }

    /// Whether a router of the network namespace holds the device with index `ifindex`.
    pub fn is_taken(ifindex: u32) -> bool {
        let (Ok(address), Ok(probe)) = (address(ifindex), new_socket()) else { return false };
        // A full backlog means that a router listens.
        matches!(connect(probe.as_raw_fd(), &address), Ok(()) | Err(Errno::EAGAIN))
    }
}

fn address(ifindex: u32) -> nix::Result<UnixAddr> {
    UnixAddr::new_abstract(format!("millrace/device/{ifindex}").as_bytes())
}

fn new_socket() -> Result<OwnedFd, ControlError> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socket(AddressFamily::Unix, SockType::Stream, flags, None)
        .map_err(|error| ControlError::system("open a socket to claim a device", error))
}

fn held(address: &UnixAddr, name: &str) -> ControlError {
    let holder = new_socket().ok().and_then(|socket| {
        connect(socket.as_raw_fd(), address).ok()?;
        getsockopt(&socket, sockopt::PeerCredentials).ok().map(|peer| peer.pid())
    });
    let who = match holder {
        Some(pid) => format!("process {pid}"),
        None => "another process".to_owned(),
    };
    ControlError::conflict(format!(
        "device {name:?} is in use by another router ({who}): stop that router, or leave the device out"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_claim_names_the_holder_until_the_first_is_dropped() {
        let index = u32::MAX - std::process::id();
        let claim = Claim::take(index, "eth7").unwrap();
        let refused = Claim::take(index, "eth7").unwrap_err().to_string();
        assert!(
            refused.contains("\"eth7\"") && refused.contains(&std::process::id().to_string()),
            "{refused}"
        );
        assert!(Claim::is_taken(index));
        drop(claim);
        assert!(!Claim::is_taken(index));
        Claim::take(index, "eth7").unwrap();
    }
}
