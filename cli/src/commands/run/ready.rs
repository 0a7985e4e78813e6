//! Notifies the starting process that the router forwards.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};

use crate::output::Failure;

/// File descriptor that the starting process has passed (`--ready-fd`).
#[derive(Debug)]
pub struct Ready(File);

impl Ready {
    /// Takes ownership of the descriptor `fd`, which the starting process passed.
    ///
    /// # Errors
    /// The descriptor is not open.
    pub fn new(fd: RawFd) -> Result<Self, Failure> {
        // SAFETY: fcntl with F_GETFD touches no memory, whatever the number.
        if fd < 0 || unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            return Err(Failure::usage(format!(
                "--ready-fd {fd}: this file descriptor is not open: give an open descriptor"
            )));
        }
        // SAFETY: `fd` is open, and this runs before this process opens a descriptor. So the starting process
        // passed it, and no other code here owns it.
        let owned = unsafe { OwnedFd::from_raw_fd(fd) };
        let file = File::from(owned);
        if fd <= 2 {
            // Write to a duplicate of a standard descriptor, so that closing it keeps the standard one open.
            let copy = file.try_clone().map_err(|error| Failure::new(format!("--ready-fd {fd}: {error}")))?;
            std::mem::forget(file);
            return Ok(Self(copy));
        }
        fcntl(&file, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))
            .map_err(|error| Failure::new(format!("--ready-fd {}: {error}", file.as_raw_fd())))?;
        Ok(Self(file))
    }

    /// Writes `ready` and a newline, and closes the descriptor.
    pub fn announce(mut self) {
        if let Err(error) = self.0.write_all(b"ready\n") {
            tracing::warn!("can't write to --ready-fd: {error}");
        }
    }
}
