//! New packets of a pool.

use crate::pool::HEADROOM;
use crate::{FRAME_SIZE, Packet, Pool};

impl Pool {
    /// An empty packet whose first byte will stand behind [`HEADROOM`]; `None` when all frames are in use (counted).
    #[inline]
    pub fn allocate(&self) -> Option<Packet> {
        let frame = self.take()?;
        // SAFETY: the frame was free, so nothing else refers to it.
        Some(unsafe { Packet::from_frame(frame, HEADROOM as u16, 0) })
    }

    /// A packet with a copy of `bytes`, in as many frames as they need; `None` when there are too few.
    pub fn packet_from(&self, bytes: &[u8]) -> Option<Packet> {
        let mut packet = self.allocate()?;
        packet.append(self, bytes).then_some(packet)
    }

    /// The packet of one frame that a device filled: `length` bytes from `offset` on. `None` when there is no such frame, or
    /// the bytes lie outside of it.
    ///
    /// # Safety
    /// The frame must have been given away by [`Packet::into_raw`] and not come back since.
    #[inline]
    pub unsafe fn packet_from_raw(&self, index: u32, offset: u16, length: u16) -> Option<Packet> {
        if usize::from(offset) + usize::from(length) > FRAME_SIZE {
            return None;
        }
        let frame = self.frame(index)?;
        // SAFETY: the caller promises that this frame is owned by nobody else.
        Some(unsafe { Packet::from_frame(frame, offset, length) })
    }
}
