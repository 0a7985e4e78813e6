//! Transmission: moves packets from a batch into the transmit ring, and returns sent memory frames to the
//! pool.

use std::io;

use millrace_packet::{Batch, DropCounts, DropReason, Packet};

use super::lent_frames::LentFrames;
use super::ring::Descriptor;
use super::socket::Socket;
use crate::BatchSend;

/// Maximum number of pieces of a packet that the kernel joins in copy mode: the first piece, and 17 fragments
/// (`MAX_SKB_FRAGS`).
const MAX_PIECES: usize = 18;
/// Maximum number of system calls per [`Transmitter::flush`]. At 32 frames per call they empty the largest
/// ring.
const MAX_KICKS: u32 = 1024;
/// Length of the shortest frame that the kernel takes: an Ethernet header.
const MIN_FRAME: usize = 14;

/// Minimum number of packets of a batch for the alternative sender. That sender costs some 5.5 µs more per
/// call than the socket, because it runs a program on live frames.
///
/// Measured by `bench levels --case crossover`: number of frames from which the alternative sender is
/// cheaper. With frames of 60 bytes, it is 16 if the other end drops them in its driver, and 25 if a host's
/// kernel receives them. With frames of 1,514 bytes, it is 22 and 40 to 51. The constant is between these
/// figures, because a port doesn't know its other end.
pub const LEAST_BATCH: usize = 24;

/// Transmitter of one socket.
#[derive(Debug, Default)]
pub(super) struct Transmitter {
    /// Number of packets put into the ring or sent by `batch_send` so far.
    queued: u64,
    queued_bytes: u64,
    /// Number of packets sent by `batch_send`.
    pub(super) batched: u64,
    /// Number of pieces put into the ring whose memory frames have not come back.
    outstanding: u32,
    pub(super) drops: DropCounts,
    pub(super) batch_send: Option<Box<dyn BatchSend>>,
}

impl Transmitter {
    /// Sends a whole batch by `batch_send` instead of the ring, under three conditions: the batch has at
    /// least [`LEAST_BATCH`] packets, `batch_send` accepts the packets' lengths, and the ring is empty.
    /// Returns whether the batch was sent.
    #[inline]
    pub(super) fn send_batch(&mut self, socket: &mut Socket, limit: usize, batch: &mut Batch) -> bool {
        let Some(way) = &mut self.batch_send else { return false };
        if batch.len() < LEAST_BATCH || socket.transmit.waiting() > 0 {
            return false;
        }
        let (longest, mut bytes) = (way.longest().min(limit), 0);
        for packet in batch.iter() {
            let length = packet.len();
            if !(MIN_FRAME..=longest).contains(&length) {
                return false;
            }
            bytes += length as u64;
        }
        let taken = way.send(batch);
        let lost = batch.get(taken..).unwrap_or_default();
        self.queued += taken as u64;
        self.batched += taken as u64;
        self.queued_bytes += bytes - lost.iter().map(|packet| packet.len() as u64).sum::<u64>();
        self.drops.add(DropReason::TransmitFailed, lost.len() as u64);
        batch.clear();
        true
    }

    /// Puts `packet` into the ring, or drops and counts it.
    #[inline]
    pub(super) fn send(&mut self, socket: &mut Socket, lent: &mut LentFrames, limit: usize, packet: Packet) {
        if packet.is_linear() && socket.transmit.free(1) > 0 {
            let length = packet.data().len();
            if (MIN_FRAME..=limit).contains(&length) {
                match lent.lend(packet) {
                    Ok(address) => self.push(socket, address, length, 0),
                    Err(packet) => return self.send_copied(socket, lent, &packet),
                }
                return self.count(length);
            }
        }
        self.send_uncommon(socket, lent, limit, packet);
    }

    #[inline]
    fn push(&mut self, socket: &mut Socket, address: u64, length: usize, options: u32) {
        socket.transmit.push(Descriptor { addr: address, len: length as u32, options });
        self.outstanding += 1;
    }

    #[inline]
    fn count(&mut self, length: usize) {
        self.queued += 1;
        self.queued_bytes += length as u64;
    }

    /// Sends a packet of several memory frames, or a packet for which the ring has no room. Drops a packet of
    /// a wrong length.
    #[cold]
    fn send_uncommon(
        &mut self,
        socket: &mut Socket,
        lent: &mut LentFrames,
        limit: usize,
        mut packet: Packet,
    ) {
        // The kernel sends only from this worker's memory, so the borrowed part of a packet is copied.
        packet.gather();
        let length = packet.len();
        if length > limit {
            return self.drops.add(DropReason::LinkOversize, 1);
        }
        let pieces = packet.segments().filter(|(.., length)| *length > 0).count();
        if length < MIN_FRAME || !self.make_room(socket, lent, pieces as u32) {
            return self.drops.add(DropReason::TransmitFailed, 1);
        }
        if pieces == 1 && packet.is_linear() {
            match lent.lend(packet) {
                Ok(address) => {
                    self.push(socket, address, length, 0);
                    self.count(length);
                }
                Err(packet) => self.send_copied(socket, lent, &packet),
            }
        } else if !socket.scatter || pieces > MAX_PIECES || !lent.owns(&packet) {
            self.send_copied(socket, lent, &packet);
        } else {
            self.send_chain(socket, lent, length, packet);
        }
    }

    fn send_chain(&mut self, socket: &mut Socket, lent: &mut LentFrames, length: usize, mut packet: Packet) {
        // The kernel returns every memory frame separately, so no copy may share these frames.
        if !packet.make_writable(lent.pool()) {
            return self.drops.add(DropReason::NoMemory, 1);
        }
        // The packet may have more pieces now, and need more room in the ring.
        let pieces = packet.segments().filter(|(.., length)| *length > 0).count();
        if pieces > MAX_PIECES || socket.transmit.free(pieces as u32) < pieces as u32 {
            return self.drops.add(DropReason::TransmitFailed, 1);
        }
        let mut left = pieces;
        let mut rest = Some(packet);
        while let Some(packet) = rest {
            let Ok((piece, behind)) = packet.split() else { break };
            rest = behind;
            let piece_length = piece.data().len();
            if piece_length == 0 {
                continue;
            }
            left -= 1;
            let options = if left > 0 { libc::XDP_PKT_CONTD } else { 0 };
            if let Ok(address) = lent.lend(piece) {
                self.push(socket, address, piece_length, options);
            }
        }
        self.count(length);
    }

    /// Sends a copy of the packet: in one memory frame, or in several if the socket accepts such packets.
    #[cold]
    fn send_copied(&mut self, socket: &mut Socket, lent: &mut LentFrames, packet: &Packet) {
        let Some(mut copy) = lent.pool().allocate() else {
            return self.drops.add(DropReason::NoMemory, 1);
        };
        for bytes in packet.frames() {
            if !copy.append(lent.pool(), bytes) {
                return self.drops.add(DropReason::NoMemory, 1);
            }
        }
        let length = copy.len();
        if copy.is_linear() && self.make_room(socket, lent, 1) {
            if let Ok(address) = lent.lend(copy) {
                self.push(socket, address, length, 0);
                self.count(length);
            }
        } else if socket.scatter && !copy.is_linear() {
            self.send_chain(socket, lent, length, copy);
        } else {
            self.drops.add(DropReason::TransmitFailed, 1);
        }
    }

    /// Makes room for `pieces` slots; if necessary the kernel first sends waiting packets. Returns whether
    /// there is room.
    fn make_room(&mut self, socket: &mut Socket, lent: &mut LentFrames, pieces: u32) -> bool {
        if socket.transmit.free(pieces) >= pieces {
            return true;
        }
        socket.transmit.publish();
        self.flush(socket, lent);
        socket.transmit.free(pieces) >= pieces
    }

    /// Requests the kernel to send waiting packets, and takes sent frames back.
    #[inline]
    pub(super) fn flush(&mut self, socket: &mut Socket, lent: &mut LentFrames) {
        if self.outstanding == 0 {
            return;
        }
        if socket.transmit.needs_wakeup() {
            self.kick(socket, lent);
        }
        self.complete(socket, lent);
    }

    /// Calls the kernel until the transmit ring is empty. In copy mode a call sends a part of the ring;
    /// `EAGAIN` means that packets are left. In zero-copy mode one call wakes the driver.
    fn kick(&mut self, socket: &mut Socket, lent: &mut LentFrames) {
        let mut waiting = socket.transmit.waiting();
        for _ in 0..MAX_KICKS {
            if waiting == 0 {
                return;
            }
            let again = match socket.kick_transmit() {
                Ok(()) => !socket.zero_copy,
                Err(error) => may_pass(&error),
            };
            let before = waiting;
            waiting = socket.transmit.waiting();
            let completed = self.complete(socket, lent);
            if !again || (waiting == before && completed == 0) {
                return;
            }
        }
    }

    /// Returns sent memory frames to the pool. Returns their number.
    #[inline]
    fn complete(&mut self, socket: &mut Socket, lent: &mut LentFrames) -> u32 {
        let mut completed = 0;
        while socket.completion.available() > 0 {
            drop(lent.take_back(socket.completion.take(), 0));
            completed += 1;
        }
        if completed > 0 {
            socket.completion.release();
            self.outstanding = self.outstanding.saturating_sub(completed);
        }
        completed
    }

    /// Returns the number of packets put into the ring or sent by `batch_send` so far.
    pub(super) fn queued(&self) -> u64 {
        self.queued
    }

    /// Returns the number of packets that the kernel took, their bytes, and the number of packets still in
    /// the ring.
    pub(super) fn taken(&self, socket: &mut Socket) -> (u64, u64, u64) {
        let (mut held, mut held_bytes) = (0, 0);
        for piece in socket.transmit.waiting_slots() {
            held_bytes += u64::from(piece.len);
            held += u64::from(piece.options & libc::XDP_PKT_CONTD == 0);
        }
        (self.queued - held, self.queued_bytes.saturating_sub(held_bytes), held)
    }
}

/// Returns whether the same call may succeed if it is repeated at once. It may if the call's budget was used
/// up, or if memory was missing and completed frames have freed memory since.
fn may_pass(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS))
}
