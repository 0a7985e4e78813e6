//! The rings that an AF_XDP socket shares with the kernel.
//!
//! Each has one producer and one consumer: two free-running 32-bit counters and a power of two of slots. Whoever
//! advances a counter publishes it with release order, and the other reads it with acquire order, so that a slot's
//! contents are seen before the slot is (`Documentation/networking/af_xdp.rst`).

use std::io;
use std::marker::PhantomData;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

/// What lies in the slots of a ring: any bytes that the kernel writes must be a valid value.
pub(super) trait Slot: Copy + sealed::Sealed {}

/// The address of a frame in the packet memory, as in the fill and the completion ring.
pub(super) type Address = u64;
/// A piece of a packet, as in the receive and the transmit ring.
pub(super) type Descriptor = libc::xdp_desc;

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Address {}
    impl Sealed for super::Descriptor {}
}
impl Slot for Address {}
impl Slot for Descriptor {}

/// A mapped ring. Unmapped when dropped.
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
        // SAFETY: the kernel's offsets lie inside of the mapping, whose length was computed from the largest of them,
        // and are aligned for what stands there.
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
        // SAFETY: inside of the mapping, which lives as long as `self`; only accessed atomically.
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

/// A ring that we fill and the kernel empties: fill, transmit.
#[derive(Debug)]
pub(super) struct ProducerRing<T> {
    memory: Memory<T>,
    /// Our counter, not yet published perhaps.
    head: u32,
    /// What the kernel's counter was when we last looked.
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

    /// Free slots: exact if there are fewer than `wanted`, else at least that many.
    #[inline]
    pub(super) fn free(&mut self, wanted: u32) -> u32 {
        let free = self.memory.size() - self.head.wrapping_sub(self.tail);
        if free >= wanted {
            return free;
        }
        self.tail = self.memory.consumer().load(Ordering::Acquire);
        self.memory.size() - self.head.wrapping_sub(self.tail)
    }

    /// Puts `value` into the next slot; [`free`](Self::free) must have said that there is one.
    #[inline]
    pub(super) fn push(&mut self, value: T) {
        debug_assert!(self.free(1) > 0, "the ring is full");
        self.memory.write(self.head, value);
        self.head = self.head.wrapping_add(1);
    }

    /// Lets the kernel see what was pushed.
    #[inline]
    pub(super) fn publish(&mut self) {
        self.memory.producer().store(self.head, Ordering::Release);
    }

    /// Slots that the kernel has not emptied yet.
    #[inline]
    pub(super) fn waiting(&mut self) -> u32 {
        self.tail = self.memory.consumer().load(Ordering::Acquire);
        self.head.wrapping_sub(self.tail)
    }

    /// The contents of the slots that the kernel has not emptied yet.
    pub(super) fn waiting_slots(&mut self) -> impl Iterator<Item = T> + '_ {
        let waiting = self.waiting();
        let ring = &*self;
        (0..waiting).map(|n| ring.memory.read(ring.tail.wrapping_add(n)))
    }

    /// Whether the kernel sleeps and wants a system call.
    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        self.memory.needs_wakeup()
    }

    #[inline]
    pub(super) fn size(&self) -> u32 {
        self.memory.size()
    }
}

/// A ring that the kernel fills and we empty: receive, completion.
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

    /// Filled slots that were not taken yet. Asks the kernel's counter only when it knows of none.
    #[inline]
    pub(super) fn available(&mut self) -> u32 {
        if self.head == self.tail {
            self.head = self.memory.producer().load(Ordering::Acquire);
        }
        self.head.wrapping_sub(self.tail)
    }

    /// Takes the next slot's contents; [`available`](Self::available) must have said that there is one.
    #[inline]
    pub(super) fn take(&mut self) -> T {
        debug_assert!(self.head != self.tail, "the ring is empty");
        let value = self.memory.read(self.tail);
        self.tail = self.tail.wrapping_add(1);
        value
    }

    /// Lets the kernel reuse the slots that were taken.
    #[inline]
    pub(super) fn release(&mut self) {
        self.memory.consumer().store(self.tail, Ordering::Release);
    }
}
