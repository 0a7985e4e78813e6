//! Descriptor that is readable when any of several descriptors is readable.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

/// Creates an epoll descriptor that is readable when any of `descriptors` is.
pub(crate) fn any_of<'a>(descriptors: impl Iterator<Item = BorrowedFd<'a>>) -> io::Result<OwnedFd> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    for (n, descriptor) in descriptors.enumerate() {
        epoll.add(descriptor, EpollEvent::new(EpollFlags::EPOLLIN, n as u64))?;
    }
    Ok(epoll.0)
}
