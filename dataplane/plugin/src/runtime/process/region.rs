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

use nix::fcntl::{FcntlArg, SealFlag, fcntl};

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::stat::fstat;
use nix::unistd::ftruncate;

/// Index of the word of the bell. No other word shares its cache line.
const BELL: usize = 32;

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

    /// Maps the memory in the process. Its file must have this number of words.
    pub fn open(file: impl AsFd, words: usize) -> io::Result<Self> {
        match fstat(&file)?.st_size as usize == words * 8 {
            true => Self::map(&file, words),
            false => Err(io::Error::other("the shared memory has another size")),
        }
    }

    fn map(file: &impl AsFd, words: usize) -> io::Result<Self> {
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

    /// Returns the address of the memory in this process.
    pub fn address(&self) -> u64 {
        self.address.as_ptr() as u64
    }
}

/// Reads bytes from words on. Reads no more words than there are.
#[inline]
pub(super) fn load(words: &[AtomicU64], to: &mut [u8]) {
    use std::sync::atomic::Ordering::Relaxed;
    let (whole, rest) = to.as_chunks_mut::<8>();
    let (first, others) = words.split_at_checked(whole.len()).unwrap_or((words, &[]));
    for (bytes, word) in whole.iter_mut().zip(first) {
        *bytes = word.load(Relaxed).to_ne_bytes();
    }
    if let Some(word) = others.first() {
        rest.iter_mut().zip(word.load(Relaxed).to_ne_bytes()).for_each(|(place, byte)| *place = byte);
    }
}

/// Writes bytes to words on, and zeros to the rest of the last word. Writes no more words than there are.
#[inline]
pub(super) fn store(words: &[AtomicU64], from: &[u8]) {
    use std::sync::atomic::Ordering::Relaxed;
    let (whole, rest) = from.as_chunks::<8>();
    let (first, others) = words.split_at_checked(whole.len()).unwrap_or((words, &[]));
    for (bytes, word) in whole.iter().zip(first) {
        word.store(u64::from_ne_bytes(*bytes), Relaxed);
    }
    if let (Some(word), false) = (others.first(), rest.is_empty()) {
        let mut bytes = [0; 8];
        bytes.iter_mut().zip(rest).for_each(|(place, byte)| *place = *byte);
        word.store(u64::from_ne_bytes(bytes), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn process_can_not_change_the_size() {
        let (region, file) = Region::create(1024).unwrap();
        assert!(ftruncate(&file, 0).is_err() && ftruncate(&file, 1 << 20).is_err());
        assert_eq!(region.words().len(), 1024);
        assert!(Region::open(&file, 1023).is_err());
        let other = Region::open(&file, 1024).unwrap();
        store(&region.words()[500..], b"some bytes");
        let mut read = [0; 10];
        load(&other.words()[500..], &mut read);
        assert_eq!(&read, b"some bytes");
    }

    proptest! {
        #[test]
        fn stored_bytes_are_loaded(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let words: Vec<_> = (0..12).map(|_| AtomicU64::new(u64::MAX)).collect();
            store(&words, &bytes);
            let mut read = vec![0; bytes.len()];
            load(&words, &mut read);
            prop_assert_eq!(read, bytes);
        }
    }
}
