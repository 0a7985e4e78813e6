//! Rings that an AF_XDP socket shares with the kernel.
//!
//! Each ring has a producer and a consumer, two free-running 32-bit counters, and slots whose number is a
//! power of two. The side that advances a counter publishes it with release order; the other side reads it
//! with acquire order. So a side that sees the new counter also sees the contents of the slot
//! (`Documentation/networking/af_xdp.rst`).

use std::io;
use std::marker::PhantomData;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

/// Type of the slots of a ring. Any bytes that the kernel writes must be a valid value.
pub(super) trait Slot: Copy + sealed::Sealed {}

/// Address of a memory frame: the slot type of the fill and the completion ring.
pub(super) type Address = u64;
/// Piece of a packet: the slot type of the receive and the transmit ring.
pub(super) type Descriptor = libc::xdp_desc;

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Address {}
    impl Sealed for super::Descriptor {}
}
impl Slot for Address {}
impl Slot for Descriptor {}

/// Mapped ring. Dropping it unmaps the ring.
#[derive(Debug)]
struct Memory<T> {
    map: NonNull<libc::c_void>,
    map_length: usize,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    slots: NonNull<T>,
    mask: u32,
    _slots: PhantomData<*mut T>,
}

impl<T: Slot> Memory<T> {
    fn map(
        fd: BorrowedFd<'_>,
        page_offset: i64,
        offsets: &libc::xdp_ring_offset,
        size: u32,
    ) -> io::Result<Self> {
        assert!(size.is_power_of_two(), "the kernel makes rings of powers of two only");
        let map_length = offsets.desc as usize + size as usize * size_of::<T>();
        // SAFETY: a new mapping at an address that the kernel chooses touches no existing memory.
        let map = unsafe {
            libc::mmap(
                ptr::null_mut(),
                map_length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                fd.as_raw_fd(),
                page_offset,
            )
        };
        if map == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let map = NonNull::new(map).ok_or(io::ErrorKind::InvalidData)?;
        let base = map.cast::<u8>();
        // SAFETY: the kernel's offsets lie inside of the mapping, whose length was computed from the largest
        // of them, and are aligned for the values there.
        let (producer, consumer, flags, slots) = unsafe {
            (
                base.add(offsets.producer as usize).cast(),
                base.add(offsets.consumer as usize).cast(),
                base.add(offsets.flags as usize).cast(),
                base.add(offsets.desc as usize).cast(),
            )
        };
        Ok(Self { map, map_length, producer, consumer, flags, slots, mask: size - 1, _slots: PhantomData })
    }

    #[inline]
    fn producer(&self) -> &AtomicU32 {
        // SAFETY: the pointer is inside of the mapping, which lives as long as `self`; all accesses are
        // atomic.
        unsafe { self.producer.as_ref() }
    }

    #[inline]
    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as in `producer`.
        unsafe { self.consumer.as_ref() }
    }

    #[inline]
    fn needs_wakeup(&self) -> bool {
        // SAFETY: as in `producer`.
        unsafe { self.flags.as_ref() }.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    #[inline]
    fn size(&self) -> u32 {
        self.mask + 1
    }

    #[inline]
    fn read(&self, counter: u32) -> T {
        // SAFETY: the mask keeps the slot inside of the ring; any bytes are a valid `T`.
        unsafe { self.slots.add((counter & self.mask) as usize).read() }
    }

    #[inline]
    fn write(&mut self, counter: u32, value: T) {
        // SAFETY: the mask keeps the slot inside of the ring.
        unsafe { self.slots.add((counter & self.mask) as usize).write(value) }
    }
}

impl<T> Drop for Memory<T> {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length; every reference into it borrows from `self`.
        unsafe { libc::munmap(self.map.as_ptr(), self.map_length) };
    }
}

/// Ring that this process fills and the kernel empties: the fill or the transmit ring.
#[derive(Debug)]
pub(super) struct ProducerRing<T> {
    memory: Memory<T>,
    /// Producer counter of this process. The kernel sees it only after [`publish`](Self::publish).
    head: u32,
    /// Consumer counter of the kernel at the last reading.
    tail: u32,
}

impl<T: Slot> ProducerRing<T> {
    pub(super) fn map(
        fd: BorrowedFd<'_>,
        page_offset: i64,
        offsets: &libc::xdp_ring_offset,
        size: u32,
    ) -> io::Result<Self> {
        Ok(Self { memory: Memory::map(fd, page_offset, offsets, size)?, head: 0, tail: 0 })
    }

    /// Returns the number of free slots. The number is exact if it is below `wanted`; otherwise more slots
    /// may be free.
    #[inline]
    pub(super) fn free(&mut self, wanted: u32) -> u32 {
        let free = self.memory.size() - self.head.wrapping_sub(self.tail);
        if free >= wanted {
            return free;
        }
        self.tail = self.memory.consumer().load(Ordering::Acquire);
        self.memory.size() - self.head.wrapping_sub(self.tail)
    }

    /// Puts `value` into the next slot. [`free`](Self::free) must have returned at least 1.
    #[inline]
    pub(super) fn push(&mut self, value: T) {
        debug_assert!(self.free(1) > 0, "the ring is full");
        self.memory.write(self.head, value);
        self.head = self.head.wrapping_add(1);
    }

    /// Publishes the pushed slots to the kernel.
    #[inline]
    pub(super) fn publish(&mut self) {
        self.memory.producer().store(self.head, Ordering::Release);
    }

    /// Returns the number of slots that the kernel has not emptied yet.
    #[inline]
    pub(super) fn waiting(&mut self) -> u32 {
        self.tail = self.memory.consumer().load(Ordering::Acquire);
        self.head.wrapping_sub(self.tail)
    }

    /// Iterates over the slots that the kernel has not emptied yet.
    pub(super) fn waiting_slots(&mut self) -> impl Iterator<Item = T> + '_ {
        let waiting = self.waiting();
        let ring = &*self;
        (0..waiting).map(|n| ring.memory.read(ring.tail.wrapping_add(n)))
    }

    /// Returns whether the kernel sleeps and needs a system call.
    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        self.memory.needs_wakeup()
    }

    #[inline]
    pub(super) fn size(&self) -> u32 {
        self.memory.size()
    }
}

/// Ring that the kernel fills and this process empties: the receive or the completion ring.
#[derive(Debug)]
pub(super) struct ConsumerRing<T> {
    memory: Memory<T>,
    head: u32,
    tail: u32,
}

impl<T: Slot> ConsumerRing<T> {
    pub(super) fn map(
        fd: BorrowedFd<'_>,
        page_offset: i64,
        offsets: &libc::xdp_ring_offset,
        size: u32,
    ) -> io::Result<Self> {
        Ok(Self { memory: Memory::map(fd, page_offset, offsets, size)?, head: 0, tail: 0 })
    }

    /// Returns the number of filled slots not taken yet. Reads the kernel's counter only when no filled slot
    /// is known.
    #[inline]
    pub(super) fn available(&mut self) -> u32 {
        if self.head == self.tail {
            self.head = self.memory.producer().load(Ordering::Acquire);
        }
        self.head.wrapping_sub(self.tail)
    }

    /// Whether a filled slot was not taken yet.
    #[inline]
    pub(super) fn is_filled(&self) -> bool {
        self.head != self.tail || self.memory.producer().load(Ordering::Acquire) != self.tail
    }

    /// Takes the contents of the next slot. [`available`](Self::available) must have returned at least 1.
    #[inline]
    pub(super) fn take(&mut self) -> T {
        debug_assert!(self.head != self.tail, "the ring is empty");
        let value = self.memory.read(self.tail);
        self.tail = self.tail.wrapping_add(1);
        value
    }

    /// Releases the taken slots to the kernel.
    #[inline]
    pub(super) fn release(&mut self) {
        self.memory.consumer().store(self.tail, Ordering::Release);
    }
}
