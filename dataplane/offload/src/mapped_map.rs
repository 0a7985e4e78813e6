//! An array map of the kernel, seen as memory of ours.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use aya::Ebpf;
use aya::maps::Map;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use crate::OffloadError;
use crate::object::map_mut;

/// A map made with `BPF_F_MMAPABLE`.
#[derive(Debug)]
pub(crate) struct MappedMap {
    start: NonNull<c_void>,
    length: usize,
}

// SAFETY: what is copied in and out as bytes is, on our side, a worker's own part, whoever else has mapped the same array; the rest are words that
// are loaded and stored as one. The kernel's programs read and write the memory meanwhile; what they and we both look at is either such a word, or
// not looked at by them until such a word says so.
unsafe impl Send for MappedMap {}
// SAFETY: as above; what is reached by a shared reference is loaded and stored in words, or copied out as bytes, of which any are a value.
unsafe impl Sync for MappedMap {}

impl MappedMap {
    /// Maps the array `name` of `object`, `entries` values of `size` bytes.
    pub(crate) fn new(
        object: &mut Ebpf,
        name: &'static str,
        entries: usize,
        size: usize,
    ) -> Result<Self, OffloadError> {
        let failed = |detail: String| OffloadError::Map { map: name, detail };
        let Map::Array(data) = map_mut(object, name)? else {
            return Err(failed("it is no array".to_owned()));
        };
        let length = (entries * size).next_multiple_of(4096);
        let length_or = NonZeroUsize::new(length).ok_or_else(|| failed("it is empty".to_owned()))?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice; nothing is unmapped by it.
        let start = unsafe { mmap(None, length_or, protection, MapFlags::MAP_SHARED, data.fd().as_fd(), 0) };
        Ok(Self { start: start.map_err(|error| failed(format!("mmap: {error}")))?, length })
    }

    /// Copies `bytes` to `at`, counted in bytes from the start of the map; what would not fit panics.
    pub(crate) fn write(&mut self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.length, "{} bytes at {at} of a map of {}", bytes.len(), self.length);
        // SAFETY: the range was just checked to lie inside the mapping, which no reference of ours points into.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                self.start.as_ptr().cast::<u8>().add(at),
                bytes.len(),
            )
        }
    }

    /// Reads `N` bytes from `at`; what lies outside panics.
    pub(crate) fn read<const N: usize>(&self, at: usize) -> [u8; N] {
        assert!(at + N <= self.length, "{N} bytes at {at} of a map of {}", self.length);
        // SAFETY: the range was just checked to lie inside the mapping; an array of bytes has no alignment.
        unsafe { self.start.as_ptr().cast::<u8>().add(at).cast::<[u8; N]>().read() }
    }

    /// The four bytes from `at` on, which programs read and write as well; what lies outside, or across, panics.
    #[inline]
    pub(crate) fn word32(&self, at: usize) -> &AtomicU32 {
        assert!(at + 4 <= self.length && at.is_multiple_of(4), "a word at {at} of a map of {}", self.length);
        // SAFETY: inside the mapping, which lives as long as `self` and begins at a page, so that the word is aligned.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().cast::<u8>().add(at).cast()) }
    }

    /// The eight bytes from `at` on, likewise.
    #[inline]
    pub(crate) fn word64(&self, at: usize) -> &AtomicU64 {
        assert!(at + 8 <= self.length && at.is_multiple_of(8), "a word at {at} of a map of {}", self.length);
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().cast::<u8>().add(at).cast()) }
    }
}

impl Drop for MappedMap {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `new`, which nothing refers to any more.
        let _ = unsafe { munmap(self.start, self.length) };
    }
}
