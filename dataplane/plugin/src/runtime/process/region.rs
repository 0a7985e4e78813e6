//! Memory that a worker shares with the process of a plugin.
//!
//! Both sides access the memory as atomic words only, because the process may write at any time. The memory
//! file is sealed against changes of its size, so the process can't take pages away from the worker.
#![allow(unsafe_code)]

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use millrace_plugin_abi::process::BELL;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::unistd::ftruncate;

/// Mapping of the shared memory.
#[derive(Debug)]
pub(super) struct Region {
    address: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the mapping belongs to the region, and all accesses to it are atomic.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: `map` created the mapping with this length, and no reference outlives the region. A failure
        // leaves the mapping in place, which is harmless.
        let _ = unsafe { munmap(self.address.cast(), self.words * 8) };
    }
}

impl Region {
    /// Creates zeroed memory of this number of words. Returns it with its file, which the process maps.
    pub fn create(words: usize) -> io::Result<(Self, OwnedFd)> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let file = memfd_create(c"millrace-process", flags)?;
        ftruncate(&file, (words * 8) as libc::off_t)?;
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
        Ok((Self::map(&file, words)?, file))
    }

    pub(super) fn map(file: &impl AsFd, words: usize) -> io::Result<Self> {
        let length = NonZeroUsize::new(words * 8).ok_or(io::ErrorKind::InvalidInput)?;
        let (protection, flags) =
            (ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED | MapFlags::MAP_POPULATE);
        // SAFETY: the kernel chooses an unused address; the memory file has this size, which is sealed.
        let address = unsafe { mmap(None, length, protection, flags, file, 0) }?;
        Ok(Self { address: address.cast(), words })
    }

    /// Returns the memory as words.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has this length and lives as long as the region. It is aligned to a page. The
        // process accesses it, too, but its accesses can't break an atomic word.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), self.words) }
    }

    /// Returns the word on which the process sleeps.
    #[inline]
    pub fn bell(&self) -> &AtomicU32 {
        debug_assert!(self.words > BELL);
        // SAFETY: each region has a header with this word, which is accessed by this function only.
        unsafe { self.address.add(BELL).cast().as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use millrace_plugin_abi::process::{load, store};

    use super::*;

    #[test]
    fn process_can_not_change_the_size() {
        let (region, file) = Region::create(1024).unwrap();
        assert!(ftruncate(&file, 0).is_err() && ftruncate(&file, 1 << 20).is_err());
        assert_eq!(region.words().len(), 1024);
        let other = Region::map(&file, 1024).unwrap();
        store(&region.words()[500..], b"some bytes");
        let mut read = [0; 10];
        load(&other.words()[500..], &mut read);
        assert_eq!(&read, b"some bytes");
    }
}
