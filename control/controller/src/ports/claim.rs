//! Claim of a router on a device. By its claim, a router makes sure that no other router of the network
//! namespace uses the device.
//!
//! A claim has two parts. Both belong to the network namespace, as device indexes do. The kernel removes them when
//! the process ends, so no stale claim remains.
//!
//! - The *name* is an abstract Unix socket named after the device. Of two routers that start at the same time, one gets
//!   the name. Any user can bind a name, so it counts only if root or the router's own user holds it.
//! - The [*mark*](Mark) is a packet socket, which only privileged processes open. A router first marks the device, and
//!   then counts the marks. So the marks of two routers never go unnoticed, even if another user holds the name.

mod mark;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, UnixCredentials, bind, connect, getsockopt, listen,
    socket, sockopt,
};
use nix::unistd::geteuid;

use crate::ControlError;
use mark::Mark;

/// Number of attempts to connect to the holder of a name. A router listens right after it has bound a name.
const ATTEMPTS: u32 = 10;
/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(10);

/// Claim on a device. Dropping it releases the device.
#[derive(Debug)]
pub struct Claim {
    _mark: Mark,
    /// `None` if another user holds the name.
    _name: Option<OwnedFd>,
}

/// Name of a claim.
enum Name {
    Own(OwnedFd),
    /// Name of another process; `None` if the process doesn't listen.
    Others(Option<UnixCredentials>),
}

impl Claim {
    /// Claims the device with index `ifindex` and name `name`.
    ///
    /// # Errors
    /// Returns [`ControlError::Conflict`] if another router holds the device. The error names the process id
    /// of that router, if its name tells it.
    pub fn take(ifindex: u32, name: &str) -> Result<Self, ControlError> {
        let failed = |error: io::Error| ControlError::system(&format!("claim device {name:?}"), error);
        let own = match take_name(ifindex).map_err(failed)? {
            Name::Own(socket) => Some(socket),
            Name::Others(Some(holder)) if may_be_router(holder) => return Err(held(name, Some(holder))),
            Name::Others(holder) => {
                tracing::warn!("{}", ignored(name, holder));
                None
            }
        };
        let mark = Mark::set(ifindex).map_err(failed)?;
        match Mark::count(ifindex).map_err(failed)? {
            0 | 1 => Ok(Self { _mark: mark, _name: own }),
            _ => Err(held(name, None)),
        }
    }

    /// Whether a router of the network namespace holds the device with index `ifindex`.
    pub fn is_taken(ifindex: u32) -> bool {
        let holder = address(ifindex).ok().and_then(|address| holder(&address, 1));
        holder.is_some_and(may_be_router) || Mark::count(ifindex).is_ok_and(|marks| marks > 0)
    }
}

fn address(ifindex: u32) -> io::Result<UnixAddr> {
    Ok(UnixAddr::new_abstract(format!("millrace/device/{ifindex}").as_bytes())?)
}

fn new_socket() -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    Ok(socket(AddressFamily::Unix, SockType::Stream, flags, None)?)
}

/// Binds the name of a device, unless another process has it.
fn take_name(ifindex: u32) -> io::Result<Name> {
    let (address, socket) = (address(ifindex)?, new_socket()?);
    match bind(socket.as_raw_fd(), &address) {
        Ok(()) => {
            listen(&socket, Backlog::MAXCONN)?;
            Ok(Name::Own(socket))
        }
        Err(Errno::EADDRINUSE) => Ok(Name::Others(holder(&address, ATTEMPTS))),
        Err(error) => Err(error.into()),
    }
}

/// Returns the process that holds a name; `None` if none listens there.
fn holder(address: &UnixAddr, attempts: u32) -> Option<UnixCredentials> {
    for attempt in 1..=attempts {
        let socket = new_socket().ok()?;
        match connect(socket.as_raw_fd(), address) {
            Ok(()) => return getsockopt(&socket, sockopt::PeerCredentials).ok(),
            Err(Errno::ECONNREFUSED) if attempt < attempts => std::thread::sleep(PAUSE),
            Err(_) => return None,
        }
    }
    None
}

/// Whether the holder of a name may be a router: root's, or this router's own user's. Others may hold names only to
/// keep routers from devices.
fn may_be_router(holder: UnixCredentials) -> bool {
    holder.uid() == 0 || holder.uid() == geteuid().as_raw()
}

/// Returns the error for a device that another router holds.
fn held(name: &str, holder: Option<UnixCredentials>) -> ControlError {
    let who = match holder {
        Some(holder) => format!("process {}", holder.pid()),
        None => "another process".to_owned(),
    };
    ControlError::conflict(format!(
        "device {name:?} is in use by another router ({who}): stop that router, or leave the device out"
    ))
}

/// Returns the warning about a process that holds the name of a device, and is no router.
fn ignored(name: &str, holder: Option<UnixCredentials>) -> String {
    let who = match holder {
        Some(holder) => format!("process {} of user {}", holder.pid(), holder.uid()),
        None => "a process that does not listen there".to_owned(),
    };
    format!(
        "device {name:?}: {who} holds the socket by which routers claim the device; the router ignores it"
    )
}

#[cfg(test)]
mod tests {
    use nix::sched::{CloneFlags, unshare};

    use super::*;

    /// Index of the loopback device of a new network namespace.
    const LOOPBACK: u32 = 1;

    /// Runs a test on a thread in a new network namespace; skips it without root.
    fn in_namespace(test: impl FnOnce() + Send + 'static) {
        if !geteuid().is_root() {
            return millrace_testkit::skip("needs root");
        }
        let thread = std::thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            test();
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    }

    /// Binds the name of the loopback device as an unprivileged user, and listens there if `listens`.
    fn squat(listens: bool) -> OwnedFd {
        let bound = std::thread::spawn(move || {
            // SAFETY: changes the effective user of this thread alone.
            let answer = unsafe { libc::syscall(libc::SYS_setresuid, -1_i64, 1000_i64, -1_i64) };
            assert_eq!(answer, 0);
            // The change has made the files of the process in /proc those of root alone.
            nix::sys::prctl::set_dumpable(true).unwrap();
            let socket = new_socket().unwrap();
            bind(socket.as_raw_fd(), &address(LOOPBACK).unwrap()).unwrap();
            if listens {
                listen(&socket, Backlog::MAXCONN).unwrap();
            }
            socket
        });
        bound.join().unwrap()
    }

    #[test]
    fn a_second_claim_names_the_holder_until_the_first_is_dropped() {
        in_namespace(|| {
            let claim = Claim::take(LOOPBACK, "eth7").unwrap();
            let refused = Claim::take(LOOPBACK, "eth7").unwrap_err().to_string();
            assert!(
                refused.contains("\"eth7\"") && refused.contains(&std::process::id().to_string()),
                "{refused}"
            );
            assert!(Claim::is_taken(LOOPBACK));
            drop(claim);
            assert!(!Claim::is_taken(LOOPBACK));
            Claim::take(LOOPBACK, "eth7").unwrap();
        });
    }

    #[test]
    fn name_of_an_unprivileged_user_neither_keeps_a_router_from_a_device_nor_lets_two_in() {
        for listens in [true, false] {
            in_namespace(move || {
                let squatter = squat(listens);
                assert!(!Claim::is_taken(LOOPBACK));
                let claim = Claim::take(LOOPBACK, "eth7").unwrap();
                assert!(Claim::is_taken(LOOPBACK));
                let refused = Claim::take(LOOPBACK, "eth7").unwrap_err().to_string();
                assert!(refused.contains("in use by another router"), "{refused}");
                // The refused router leaves no mark.
                drop(claim);
                Claim::take(LOOPBACK, "eth7").unwrap();
                drop(squatter);
                Claim::take(LOOPBACK, "eth7").unwrap();
            });
        }
    }

    #[test]
    fn warning_names_the_process_and_the_user_that_hold_a_name() {
        in_namespace(|| {
            let _squatter = squat(true);
            let Name::Others(holder) = take_name(LOOPBACK).unwrap() else { panic!("the name is free") };
            let warning = ignored("eth7", holder);
            let who = format!("process {} of user 1000", std::process::id());
            assert!(warning.contains("\"eth7\"") && warning.contains(&who), "{warning}");
        });
    }
}
