//! Private BPF file system for maps that the programs of several ports share.
//!
//! The loader finds existing maps by their pinned names. The usual directory, /sys/fs/bpf, does not exist in
//! a network namespace of `ip netns exec`, and maps pinned there outlive the process. So the router uses a
//! BPF file system without a mount point. Only the descriptor of its root gives access to it, and it ends
//! when that descriptor is closed.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use crate::OffloadError;
use crate::bpf::syscall::detached_mount;

/// Root of a private BPF file system.
#[derive(Debug)]
pub(crate) struct Directory(OwnedFd);

impl Directory {
    /// Creates an empty file system.
    pub fn new() -> Result<Self, OffloadError> {
        detached_mount(c"bpf").map(Self).map_err(|source| match source.raw_os_error() {
            Some(libc::EPERM) => {
                OffloadError::Permission { what: "creating a BPF file system for maps".to_owned(), source }
            }
            _ => OffloadError::Load { program: "level0", detail: no_directory(&source) },
        })
    }

    /// Returns the path of the root, valid only in this process.
    pub fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }
}

fn no_directory(source: &io::Error) -> String {
    format!("can't create a BPF file system for its maps (needs Linux 5.2 with CONFIG_BPF_SYSCALL): {source}")
}
