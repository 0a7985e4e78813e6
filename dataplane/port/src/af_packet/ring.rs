//! The receive ring that an AF_PACKET socket shares with the kernel: TPACKET_V2
//! (`Documentation/networking/packet_mmap.rst`).
//!
//! Version 2 and not 3, because a frame is there as soon as it arrives, and not when its block is full or timed out.
//! Each slot begins with a status word; whoever the status names owns the rest of the slot.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::socket_option;

/// Bytes of a slot before the frame, at most: the headers of the ring and of virtio, an address, alignment.
const SLOT_OVERHEAD: usize = 128;
/// Most bytes that a ring takes.
const MAX_RING: usize = 64 << 20;
/// Bytes that the kernel allocates at a time.
const BLOCK: usize = 1 << 17;
/// Bytes of `struct virtio_net_hdr`, which stands before the frame.
pub(super) const VNET_HEADER: usize = 10;

/// What the kernel says of a frame beside its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) status: u32,
    /// Bytes of the frame, of which the slot may hold fewer.
    pub(super) length: u32,
    captured: u32,
    mac: u16,
    vlan_control: u16,
    vlan_protocol: u16,
}

impl Header {
    /// Whether the slot holds the whole frame.
    pub(super) fn is_whole(&self) -> bool {
        self.captured >= self.length
    }

    /// The tag that the kernel took out of the frame, as it stood there.
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

/// A mapped ring; unmapped when dropped.
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
    /// Has the socket make a ring of `slots` frames (fewer, if they would take too much memory) for frames of `frame` bytes.
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
        // SAFETY: a slot begins with its status, is aligned to 2,048 bytes and lives as long as the mapping, and the
        // status is only accessed atomically.
        unsafe { self.slot().cast::<AtomicU32>().as_ref() }
    }

    /// The header of the next frame, if one has arrived. [`release`](Self::release) goes on to the one after.
    #[inline]
    pub(super) fn peek(&self) -> Option<Header> {
        let status = self.status().load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the status gave the slot to us, and any bytes are a valid header of integers.
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

    /// The virtio header and the bytes of the frame that `header` was read of.
    #[inline]
    pub(super) fn frame(&self, header: &Header) -> ([u8; VNET_HEADER], &[u8]) {
        let start = usize::from(header.mac).clamp(VNET_HEADER, self.slot_size);
        let length = (header.captured as usize).min(self.slot_size - start);
        // SAFETY: both lie inside of the slot, which is ours until `release`, for which the borrow must have ended.
        unsafe {
            let frame = self.slot().add(start);
            let mut vnet = [0; VNET_HEADER];
            vnet.copy_from_slice(std::slice::from_raw_parts(frame.sub(VNET_HEADER).as_ptr(), VNET_HEADER));
            (vnet, std::slice::from_raw_parts(frame.as_ptr(), length))
        }
    }

    /// Gives the frame that was peeked at back to the kernel.
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
