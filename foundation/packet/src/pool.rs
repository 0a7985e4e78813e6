//! Packet memory of a worker: one mapped region of equal memory frames, and one cache line of metadata per
//! frame.

use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::rc::Rc;

use crate::frame::{FRAME_SIZE, Frame, PoolInner};

/// Headroom of a new packet in bytes: room for link headers and encapsulation. AF_XDP reserves the same.
pub const HEADROOM: usize = 256;

/// Errors of [`Pool::new`].
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The number of frames is 0 or too large.
    #[error("a packet pool must have 1 to 4194304 frames, not {0}")]
    Size(u32),
    /// The kernel maps no memory.
    #[error("no memory for a packet pool of {frames} frames ({mebibytes} MiB): {source}; use fewer frames")]
    Memory {
        /// Number of frames requested.
        frames: u32,
        /// Size of the requested frames in MiB.
        mebibytes: usize,
        /// Error of the kernel.
        source: std::io::Error,
    },
}

/// Handle of a thread's packet memory. Clones refer to the same memory.
///
/// If packets outlive all handles, their memory stays mapped until the process ends.
#[derive(Clone, Debug)]
pub struct Pool(Rc<Handle>);

#[derive(Debug)]
struct Handle {
    inner: NonNull<PoolInner>,
    _one_thread: PhantomData<*mut ()>,
}

impl Pool {
    /// Maps memory for `frames` frames, in transparent huge pages if the kernel has any.
    ///
    /// # Errors
    /// [`PoolError`] if `frames` is 0 or too large, or the kernel has no memory.
    pub fn new(frames: u32) -> Result<Self, PoolError> {
        if frames == 0 || frames > 1 << 22 {
            return Err(PoolError::Size(frames));
        }
        let region = map_region(frames)?;
        let free = UnsafeCell::new((0..frames).rev().collect());
        let inner = Box::new(PoolInner { region, frames: Box::new([]), free, exhausted: Cell::new(0) });
        let inner = NonNull::from(Box::leak(inner));
        let metadata =
            (0..frames).map(|index| UnsafeCell::new(Frame::unused(inner, region, index))).collect();
        // SAFETY: `inner` was just leaked from a box, and no other code refers to it yet.
        unsafe { (*inner.as_ptr()).frames = metadata };
        Ok(Self(Rc::new(Handle { inner, _one_thread: PhantomData })))
    }

    #[inline]
    fn inner(&self) -> &PoolInner {
        // SAFETY: the handle keeps `inner` alive, and only this thread uses it.
        unsafe { self.0.inner.as_ref() }
    }

    /// Takes a free frame. Returns `None`, and counts the failed request, if all frames are in use.
    #[inline]
    pub(crate) fn take(&self) -> Option<NonNull<Frame>> {
        let Some(index) = self.inner().pop() else {
            self.inner().exhausted.set(self.inner().exhausted.get() + 1);
            return None;
        };
        self.frame(index)
    }

    /// Returns a frame by its index; `None` for an index out of range.
    #[inline]
    pub(crate) fn frame(&self, index: u32) -> Option<NonNull<Frame>> {
        self.inner().frame(index)
    }

    /// Returns address and length in bytes of the mapped region, for its registration with the kernel. Frame
    /// `n` starts at offset `n * FRAME_SIZE`.
    pub fn region(&self) -> (*mut u8, usize) {
        (self.inner().region.as_ptr(), self.inner().frames.len() * FRAME_SIZE)
    }

    /// Returns the number of frames in the pool.
    pub fn capacity(&self) -> u32 {
        self.inner().frames.len() as u32
    }

    /// Returns the number of free frames.
    #[inline]
    pub fn available(&self) -> u32 {
        // SAFETY: only this thread uses the pool, and the reference ends here.
        unsafe { &*self.inner().free.get() }.len() as u32
    }

    /// Returns the number of frames that packets or the kernel hold.
    #[inline]
    pub fn in_use(&self) -> u32 {
        self.capacity() - self.available()
    }

    /// Returns the number of requests that failed because no frame was free.
    pub fn exhausted(&self) -> u64 {
        self.inner().exhausted.get()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: this was the last handle, on the pool's one thread.
        let inner = unsafe { self.inner.as_ref() };
        // SAFETY: only this thread uses the pool, and the reference ends here.
        let free = unsafe { &*inner.free.get() }.len();
        if free != inner.frames.len() {
            return;
        }
        // SAFETY: no frame is in use, so no reference to the region or the metadata is left.
        unsafe {
            libc::munmap(inner.region.as_ptr().cast(), inner.frames.len() * FRAME_SIZE);
            drop(Box::from_raw(self.inner.as_ptr()));
        }
    }
}

fn map_region(frames: u32) -> Result<NonNull<u8>, PoolError> {
    let size = frames as usize * FRAME_SIZE;
    // SAFETY: an anonymous mapping at an address that the kernel chooses touches no existing memory.
    let region = unsafe {
        libc::mmap(
            ptr::null_mut(),
            size,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    let mapped = NonNull::new(region).filter(|region| region.as_ptr() != libc::MAP_FAILED);
    let Some(mapped) = mapped else {
        let source = std::io::Error::last_os_error();
        return Err(PoolError::Memory { frames, mebibytes: size >> 20, source });
    };
    // SAFETY: the range was mapped just now; the advice does not change its contents.
    unsafe { libc::madvise(region, size, libc::MADV_HUGEPAGE) };
    Ok(mapped.cast())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_when_packets_are_dropped() {
        let pool = Pool::new(4).unwrap();
        let packets: Vec<_> = std::iter::from_fn(|| pool.allocate()).collect();
        assert_eq!((packets.len(), pool.in_use(), pool.exhausted()), (4, 4, 1));
        drop(packets);
        assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn packet_outlives_its_pool() {
        let pool = Pool::new(2).unwrap();
        let packet = pool.packet_from(b"still here").unwrap();
        drop(pool);
        assert_eq!(packet.data(), b"still here");
    }

    #[test]
    fn sizes_out_of_range_are_refused() {
        assert!(matches!(Pool::new(0), Err(PoolError::Size(0))));
        assert!(matches!(Pool::new(u32::MAX), Err(PoolError::Size(_))));
    }
}
