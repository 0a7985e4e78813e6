//! Receive ring that an AF_PACKET socket shares with the kernel: TPACKET_V2
//! (`Documentation/networking/packet_mmap.rst`).
//!
//! Version 2 delivers a frame as soon as it arrives. Version 3 waits until a block is full or timed out. Each
//! slot begins with a status word, which tells whether kernel or process owns the slot.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::socket_option;

/// Maximum number of bytes before the frame in a slot: ring header, virtio header, address and alignment.
const SLOT_OVERHEAD: usize = 128;
/// Maximum length of a ring in bytes.
const MAX_RING: usize = 64 << 20;
/// Size of the ring's memory blocks, in bytes.
const BLOCK: usize = 1 << 17;
/// Length of `struct virtio_net_hdr`, which precedes the frame.
pub(super) const VNET_HEADER: usize = 10;

/// The kernel's description of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) status: u32,
    /// Length of the frame in bytes; the slot may hold fewer.
    pub(super) length: u32,
    captured: u32,
    mac: u16,
    vlan_control: u16,
    vlan_protocol: u16,
}

impl Header {
    /// Returns whether the slot holds the whole frame.
    pub(super) fn is_whole(&self) -> bool {
        self.captured >= self.length
    }

    /// Returns the VLAN tag that the kernel removed from the frame, in wire format.
    pub(super) fn tag(&self) -> Option<[u8; 4]> {
        if self.status & libc::TP_STATUS_VLAN_VALID == 0 {
            return None;
        }
        let has_protocol = self.status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
        let protocol = if has_protocol { self.vlan_protocol } else { 0x8100 }.to_be_bytes();
        let control = self.vlan_control.to_be_bytes();
        Some([protocol[0], protocol[1], control[0], control[1]])
    }
}

/// Mapped ring. Dropping it unmaps the ring.
#[derive(Debug)]
pub(super) struct ReceiveRing {
    memory: NonNull<u8>,
    length: usize,
    slot_size: usize,
    slots: usize,
    next: usize,
}

/// Size of a socket's receive ring before it is mapped.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingSize {
    length: usize,
    slot_size: usize,
}

impl RingSize {
    /// Sets up a ring of `slots` frames of `frame` bytes each. If these would take too much memory, the ring
    /// gets fewer slots.
    pub(super) fn set(fd: BorrowedFd<'_>, slots: u32, frame: usize) -> io::Result<Self> {
        let slot_size = (frame + SLOT_OVERHEAD).next_power_of_two();
        let block = slot_size.max(BLOCK);
        let length = (slots as usize * slot_size).clamp(block, MAX_RING);
        let request = libc::tpacket_req {
            tp_block_size: block as u32,
            tp_block_nr: (length / block) as u32,
            tp_frame_size: slot_size as u32,
            tp_frame_nr: (length / slot_size) as u32,
        };
        socket_option::set(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        Ok(Self { length, slot_size })
    }
}

impl ReceiveRing {
    /// Maps the ring of a socket.
    pub(super) fn map(fd: BorrowedFd<'_>, size: RingSize) -> io::Result<Self> {
        let RingSize { length, slot_size } = size;
        // SAFETY: a new mapping at an address that the kernel chooses touches no existing memory.
        let memory = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                fd.as_raw_fd(),
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { memory, length, slot_size, slots: length / slot_size, next: 0 })
    }

    #[inline]
    fn slot(&self) -> NonNull<u8> {
        // SAFETY: `next` is below the number of slots, so the slot lies inside of the mapping.
        unsafe { self.memory.add(self.next * self.slot_size) }
    }

    #[inline]
    fn status(&self) -> &AtomicU32 {
        // SAFETY: a slot begins with its status, is aligned to 2,048 bytes and lives as long as the mapping.
        // All accesses to the status are atomic.
        unsafe { self.slot().cast::<AtomicU32>().as_ref() }
    }

    /// Whether a frame has arrived that [`peek`](Self::peek) would return.
    #[inline]
    pub(super) fn is_filled(&self) -> bool {
        self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// Returns the header of the next frame, if one has arrived. After [`release`](Self::release), `peek`
    /// returns the following frame.
    #[inline]
    pub(super) fn peek(&self) -> Option<Header> {
        let status = self.status().load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the status gave the slot to this process, and any bytes are a valid header of integers.
        let header = unsafe { self.slot().cast::<libc::tpacket2_hdr>().read() };
        Some(Header {
            status,
            length: header.tp_len,
            captured: header.tp_snaplen,
            mac: header.tp_mac,
            vlan_control: header.tp_vlan_tci,
            vlan_protocol: header.tp_vlan_tpid,
        })
    }

    /// Returns the virtio header and the bytes of the frame of `header`.
    #[inline]
    pub(super) fn frame(&self, header: &Header) -> ([u8; VNET_HEADER], &[u8]) {
        let start = usize::from(header.mac).clamp(VNET_HEADER, self.slot_size);
        let length = (header.captured as usize).min(self.slot_size - start);
        // SAFETY: both lie inside of the slot, which belongs to this process until `release`, and the borrow
        // ends before.
        unsafe {
            let frame = self.slot().add(start);
            let mut vnet = [0; VNET_HEADER];
            vnet.copy_from_slice(std::slice::from_raw_parts(frame.sub(VNET_HEADER).as_ptr(), VNET_HEADER));
            (vnet, std::slice::from_raw_parts(frame.as_ptr(), length))
        }
    }

    /// Returns the slot of the peeked frame to the kernel.
    #[inline]
    pub(super) fn release(&mut self) {
        self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.slots;
    }
}

impl Drop for ReceiveRing {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length; every reference into it borrows from `self`.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.length) };
    }
}
