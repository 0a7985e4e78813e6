//! Keeping a program that is only run, never attached to a port, fast to run.
//!
//! For a run of more than one frame the kernel puts the program into its XDP dispatcher and takes it out afterwards,
//! unless that very program is there already; each change waits for all processors. Measured on Linux 6.18 with two
//! frames: 20 to 36 ms, also while another program is attached to the port; 14 us once the same program is attached to
//! any device; one frame alone takes 14 us always. So we attach it to the loopback device of a network namespace that
//! is made for this, has nothing else in it and vanishes with us: nobody's device is touched.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use nix::sched::{CloneFlags, unshare};

use crate::OffloadError;
use crate::attach::GENERIC;
use crate::bpf_syscall::{Hook, create_link};

/// The loopback device is the first of every namespace.
const LOOPBACK: u32 = 1;

/// Holds the namespace and the link.
#[derive(Debug)]
pub(crate) struct Anchor {
    _link: OwnedFd,
    _namespace: OwnedFd,
}

impl Anchor {
    /// Anchors `program`.
    pub(crate) fn hold(program: BorrowedFd<'_>) -> Result<Self, OffloadError> {
        let held = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("anchor".to_owned());
            let thread = thread.spawn_scoped(scope, || Self::hold_here(program))?;
            thread.join().unwrap_or_else(|_| Err(io::Error::other("the helper thread panicked")))
        });
        held.map_err(|source| OffloadError::Kernel {
            device: "the loopback of a network namespace of our own".to_owned(),
            call: "attaching a helper program",
            source,
        })
    }

    /// On a thread of its own, which ends inside the new namespace.
    fn hold_here(program: BorrowedFd<'_>) -> io::Result<Self> {
        unshare(CloneFlags::CLONE_NEWNET)?;
        let namespace = std::fs::File::open("/proc/thread-self/ns/net")?;
        let link = create_link(program, LOOPBACK, Hook::Xdp { flags: GENERIC })?;
        Ok(Self { _link: link, _namespace: namespace.into() })
    }
}
