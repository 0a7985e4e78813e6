//! Memory frames of packets, and their metadata.

use std::cell::{Cell, UnsafeCell};
use std::ptr::{self, NonNull};

use crate::Annotations;
use crate::places::Places;

/// Size of a memory frame in bytes, headroom included. AF_XDP permits 2,048 or 4,096; an Ethernet frame fits
/// into 2,048.
pub const FRAME_SIZE: usize = 2048;

/// Metadata of a memory frame: one cache line. The metadata of a packet's first frame is that of the packet.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) buffer: NonNull<u8>,
    pub(crate) pool: NonNull<PoolInner>,
    pub(crate) next: *mut Frame,
    pub(crate) index: u32,
    pub(crate) references: Cell<u32>,
    pub(crate) places: Places,
    pub(crate) annotations: Annotations,
}

/// Bit of a [`Frame::index`]: the frame is borrowed. Its bytes are in the memory of another thread, and read-only.
pub(crate) const BORROWED: u32 = 1 << 31;

impl Frame {
    /// Makes the metadata of the frame with an index; the frame is free.
    pub(crate) fn unused(pool: NonNull<PoolInner>, region: NonNull<u8>, index: u32) -> Self {
        // SAFETY: the region holds `FRAME_SIZE` bytes for every index.
        let buffer = unsafe { region.add(index as usize * FRAME_SIZE) };
        Self {
            buffer,
            pool,
            next: ptr::null_mut(),
            index,
            references: Cell::new(0),
            places: Places::NONE,
            annotations: Annotations::EMPTY,
        }
    }

    /// Returns whether this frame belongs to one chain alone, which may write its bytes.
    #[inline]
    pub(crate) fn is_own(&self) -> bool {
        self.references.get() == 1 && self.index & BORROWED == 0
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: offset and length are kept within the frame's buffer, which lives as long as its pool's region.
        unsafe {
            std::slice::from_raw_parts(
                self.buffer.as_ptr().add(self.places.offset.into()),
                self.places.length.into(),
            )
        }
    }
}

/// Memory frames of a pool, and the list of free ones.
#[derive(Debug)]
pub(crate) struct PoolInner {
    pub(crate) region: NonNull<u8>,
    pub(crate) frames: Box<[UnsafeCell<Frame>]>,
    pub(crate) free: UnsafeCell<Vec<u32>>,
    pub(crate) exhausted: Cell<u64>,
}

impl PoolInner {
    #[inline]
    pub(crate) fn pop(&self) -> Option<u32> {
        // SAFETY: only this thread uses the pool, and the reference ends here.
        unsafe { &mut *self.free.get() }.pop()
    }

    #[inline]
    pub(crate) fn frame(&self, index: u32) -> Option<NonNull<Frame>> {
        self.frames.get(index as usize).map(|frame| NonNull::from(frame).cast())
    }

    #[inline]
    pub(crate) fn release(&self, index: u32) {
        // SAFETY: only this thread uses the pool, and the reference ends here. The list has room for every frame.
        unsafe { &mut *self.free.get() }.push(index);
    }
}
