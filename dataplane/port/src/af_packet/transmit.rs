//! Transmission by AF_PACKET: one system call per batch.
//!
//! `sendmmsg` gathers a packet from its memory frames, and takes frames of any length. When the call ends,
//! the kernel has copied the packets, so their memory frames return to the pool at once.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use millrace_packet::{BATCH_SIZE, DropCounts, DropReason, Packet};

/// Maximum number of pieces, which are contiguous parts of packets, in one call.
const MAX_PIECES: usize = 1024;
/// Length of the shortest frame that the kernel takes: an Ethernet header.
const MIN_FRAME: usize = 14;

/// Transmitter of an AF_PACKET port.
#[derive(Debug)]
pub(super) struct Transmitter {
    packets: Vec<Packet>,
    /// Number of pieces of each packet.
    counts: Vec<usize>,
    pieces: Vec<libc::iovec>,
    messages: Vec<libc::mmsghdr>,
    pub(super) sent: u64,
    pub(super) sent_bytes: u64,
    pub(super) drops: DropCounts,
}

impl Transmitter {
    pub(super) fn new() -> Self {
        Self {
            packets: Vec::with_capacity(BATCH_SIZE),
            counts: Vec::with_capacity(BATCH_SIZE),
            pieces: Vec::with_capacity(MAX_PIECES),
            messages: Vec::with_capacity(BATCH_SIZE),
            sent: 0,
            sent_bytes: 0,
            drops: DropCounts::default(),
        }
    }

    /// Queues a packet for the next [`flush`](Self::flush).
    #[inline]
    pub(super) fn send(&mut self, fd: BorrowedFd<'_>, limit: usize, packet: Packet) {
        let length = packet.len();
        if length > limit {
            return self.drops.add(DropReason::LinkOversize, 1);
        }
        let count = packet.frames().count();
        if length < MIN_FRAME || count > MAX_PIECES {
            return self.drops.add(DropReason::TransmitFailed, 1);
        }
        if self.packets.len() == BATCH_SIZE || self.pieces.len() + count > MAX_PIECES {
            self.flush(fd);
        }
        for bytes in packet.frames() {
            self.pieces
                .push(libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() });
        }
        self.counts.push(count);
        self.packets.push(packet);
    }

    /// Sends the queued packets. Packets that the kernel refuses are dropped.
    pub(super) fn flush(&mut self, fd: BorrowedFd<'_>) {
        self.write_messages();
        let mut done = 0;
        while done < self.messages.len() {
            match send_messages(fd, &mut self.messages[done..]) {
                Ok(count) => {
                    let lengths = self.packets[done..done + count].iter().map(|packet| packet.len() as u64);
                    self.sent += count as u64;
                    self.sent_bytes += lengths.sum::<u64>();
                    done += count;
                }
                // The kernel refused the first of the remaining messages; later messages may succeed.
                Err(_) => {
                    self.drops.add(DropReason::TransmitFailed, 1);
                    done += 1;
                }
            }
        }
        self.messages.clear();
        self.pieces.clear();
        self.counts.clear();
        self.packets.clear();
    }

    fn write_messages(&mut self) {
        let mut first = 0;
        for &count in &self.counts {
            let header = libc::msghdr {
                msg_name: ptr::null_mut(),
                msg_namelen: 0,
                msg_iov: self.pieces[first..first + count].as_mut_ptr(),
                msg_iovlen: count,
                msg_control: ptr::null_mut(),
                msg_controllen: 0,
                msg_flags: 0,
            };
            self.messages.push(libc::mmsghdr { msg_hdr: header, msg_len: 0 });
            first += count;
        }
    }

    /// Returns the number of queued packets.
    pub(super) fn held(&self) -> u64 {
        self.packets.len() as u64
    }
}

/// Calls `sendmmsg`. Returns the number of messages sent, at least one.
fn send_messages(fd: BorrowedFd<'_>, messages: &mut [libc::mmsghdr]) -> io::Result<usize> {
    // SAFETY: each message names pieces of packets that `Transmitter` owns until the call ends, and the
    // kernel only reads them.
    let count = unsafe {
        libc::sendmmsg(fd.as_raw_fd(), messages.as_mut_ptr(), messages.len() as u32, libc::MSG_DONTWAIT)
    };
    match count {
        1.. => Ok(count as usize),
        0 => Err(io::ErrorKind::WouldBlock.into()),
        _ => Err(io::Error::last_os_error()),
    }
}
