//! Signal by which one thread wakes another.

use std::os::fd::AsRawFd;
use std::sync::Arc;

use nix::sys::eventfd::{EfdFlags, EventFd};

/// Signal by which one thread wakes another, over an event descriptor.
#[derive(Clone, Debug)]
pub struct Wake(Arc<EventFd>);

impl Wake {
    /// Returns a new signal.
    ///
    /// # Errors
    /// Returns the kernel's error if no descriptor is free.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self(Arc::new(EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?)))
    }

    /// Signals the thread. Several signals before the next [`clear`](Self::clear) count as one.
    pub fn signal(&self) {
        // Can't fail: the counter of an event descriptor overflows only after 2^64 signals.
        let _ = self.0.write(1);
    }

    /// Clears all signals so far.
    pub fn clear(&self) {
        // An error means that there was no signal.
        let _ = self.0.read();
    }
}

impl AsRawFd for Wake {
    fn as_raw_fd(&self) -> i32 {
        self.0.as_raw_fd()
    }
}
