//! Reception: moves packets from the receive ring into a batch, and empty memory frames into the fill ring.

use millrace_packet::{Batch, Packet};

use super::lent_frames::LentFrames;
use super::socket::Socket;
use crate::Arrivals;

/// Number of free memory frames that a refill leaves in the pool. While the fill ring holds fewer frames than
/// this number, a refill takes up to half of the pool's free memory frames instead.
const RESERVE: u32 = 256;

/// Receiver of one socket.
#[derive(Debug)]
pub(super) struct Receiver {
    /// Packet whose last piece is not read yet.
    partial: Option<Packet>,
    /// Number of memory frames that the fill ring lacks.
    missing: u32,
    arrivals: Arrivals,
}

impl Receiver {
    pub(super) fn new(fill_size: u32) -> Self {
        Self { partial: None, missing: fill_size, arrivals: Arrivals::default() }
    }

    /// Clears the flag that the queue is drained. Only the next read of the ring can set it again.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.arrivals.drained = false;
    }

    /// Moves whole packets to `batch` until the batch is full, the ring is empty, or a packet is longer than
    /// `limit` bytes. Returns such a long packet.
    #[inline]
    pub(super) fn receive(
        &mut self,
        socket: &mut Socket,
        lent: &mut LentFrames,
        limit: usize,
        batch: &mut Batch,
    ) -> Option<Packet> {
        let before = batch.len();
        let mut long = None;
        let mut taken = 0;
        while batch.room() > 0 && long.is_none() && socket.receive.available() > 0 {
            let piece = socket.receive.take();
            taken += 1;
            let Some(packet) = lent.take_back(piece.addr, piece.len) else { continue };
            if piece.options == 0 && self.partial.is_none() && packet.data().len() <= limit {
                packet.prefetch();
                let _ = batch.push(packet);
            } else if let Some(whole) = self.join(packet, piece.options & libc::XDP_PKT_CONTD != 0) {
                long = if whole.len() > limit { Some(whole) } else { batch.push(whole).err() };
            }
        }
        if taken > 0 {
            socket.receive.release();
            self.missing += taken;
        }
        self.arrivals.read += (batch.len() - before) as u64 + u64::from(long.is_some());
        self.arrivals.drained = socket.receive.available() == 0;
        long
    }

    /// Returns the number of frames read, and whether the last call of `receive` drained the queue.
    pub(super) fn arrivals(&self) -> Arrivals {
        self.arrivals
    }

    /// Appends a piece to the partial packet. Returns the packet if the piece is its last.
    fn join(&mut self, piece: Packet, continued: bool) -> Option<Packet> {
        match &mut self.partial {
            Some(partial) => partial.chain(piece),
            None => self.partial = Some(piece),
        }
        if continued { None } else { self.partial.take() }
    }

    /// Refills the fill ring as far as the pool allows, and wakes a driver that waits for memory frames.
    #[inline]
    pub(super) fn refill(&mut self, socket: &mut Socket, lent: &mut LentFrames) {
        if self.missing > 0 {
            self.lend_empty_frames(socket, lent);
        }
        if socket.fill.needs_wakeup() {
            socket.kick_receive();
        }
    }

    fn lend_empty_frames(&mut self, socket: &mut Socket, lent: &mut LentFrames) {
        let available = lent.pool().available();
        let in_ring = socket.fill.size() - self.missing;
        let spare = if in_ring < RESERVE { available / 2 } else { available.saturating_sub(RESERVE) };
        let wanted = self.missing.min(spare);
        // The kernel took as many frames from the fill ring as it put into the receive ring, so there is
        // room. But it publishes the fill ring's counter later, so the room is checked.
        let count = wanted.min(socket.fill.free(wanted));
        for _ in 0..count {
            let Some(address) = lent.lend_empty() else { break };
            socket.fill.push(address);
            self.missing -= 1;
        }
        if count > 0 {
            socket.fill.publish();
        }
    }

    /// Returns the number of partial packets.
    pub(super) fn held(&self) -> u64 {
        u64::from(self.partial.is_some())
    }
}
