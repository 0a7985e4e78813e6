//! Array map of the kernel, mapped into this process.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use aya::Ebpf;
use aya::maps::Map;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use super::object::map_mut;
use crate::OffloadError;

/// Map created with `BPF_F_MMAPABLE`.
#[derive(Debug)]
pub(crate) struct MappedMap {
    start: NonNull<c_void>,
    length: usize,
}

// SAFETY: in this process, only one worker copies bytes of a part of the map, the worker that owns the part.
// All other accesses load or store single words. The kernel's programs access the memory at the same time:
// single words, or bytes that a word permits them to read.
unsafe impl Send for MappedMap {}
// SAFETY: a shared reference only loads and stores words, or copies bytes out, and any bytes are a valid
// value. Other accesses are as for `Send`.
unsafe impl Sync for MappedMap {}

impl MappedMap {
    /// Maps the array `name` of `object`, with `entries` values of `size` bytes.
    pub(crate) fn new(
        object: &mut Ebpf,
        name: &'static str,
        entries: usize,
        size: usize,
    ) -> Result<Self, OffloadError> {
        let failed = |detail: String| OffloadError::Map { map: name, detail };
        let Map::Array(data) = map_mut(object, name)? else {
            return Err(failed("it is not an array".to_owned()));
        };
        let length = (entries * size).next_multiple_of(4096);
        let length_or = NonZeroUsize::new(length).ok_or_else(|| failed("it is empty".to_owned()))?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses; the call unmaps nothing.
        let start = unsafe { mmap(None, length_or, protection, MapFlags::MAP_SHARED, data.fd().as_fd(), 0) };
        Ok(Self { start: start.map_err(|error| failed(format!("mmap: {error}")))?, length })
    }

    /// Copies `bytes` to the byte offset `at`. Panics if they don't fit into the map.
    pub(crate) fn write(&mut self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.length, "{} bytes at {at} of a map of {}", bytes.len(), self.length);
        // SAFETY: the range was just checked to lie inside the mapping, and no reference of this process
        // points into it.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                self.start.as_ptr().cast::<u8>().add(at),
                bytes.len(),
            )
        }
    }

    /// Reads `N` bytes from the byte offset `at`. Panics if they are outside of the map.
    pub(crate) fn read<const N: usize>(&self, at: usize) -> [u8; N] {
        assert!(at + N <= self.length, "{N} bytes at {at} of a map of {}", self.length);
        // SAFETY: the range was just checked to lie inside the mapping; an array of bytes has no alignment.
        unsafe { self.start.as_ptr().cast::<u8>().add(at).cast::<[u8; N]>().read() }
    }

    /// Returns the four bytes from the byte offset `at` on, which programs read and write as well. Panics if
    /// they are outside of the map, or `at` is not aligned.
    #[inline]
    pub(crate) fn word32(&self, at: usize) -> &AtomicU32 {
        assert!(at + 4 <= self.length && at.is_multiple_of(4), "a word at {at} of a map of {}", self.length);
        // SAFETY: inside the mapping, which lives as long as `self` and begins at a page, so the word is
        // aligned.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().cast::<u8>().add(at).cast()) }
    }

    /// Returns the eight bytes from the byte offset `at` on, which programs read and write as well. Panics if
    /// they are outside of the map, or `at` is not aligned.
    #[inline]
    pub(crate) fn word64(&self, at: usize) -> &AtomicU64 {
        assert!(at + 8 <= self.length && at.is_multiple_of(8), "a word at {at} of a map of {}", self.length);
        // SAFETY: inside the mapping, which lives as long as `self` and begins at a page, so the word is
        // aligned.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().cast::<u8>().add(at).cast()) }
    }
}

impl Drop for MappedMap {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `new`, and no reference to it is left.
        let _ = unsafe { munmap(self.start, self.length) };
    }
}
