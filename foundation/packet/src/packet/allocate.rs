//! Allocation of packets from a pool.

use super::Packet;
use super::chain::Chain;
use crate::pool::HEADROOM;
use crate::{FRAME_SIZE, Pool};

impl Pool {
    /// Allocates an empty packet with [`HEADROOM`] bytes of headroom. Returns `None`, and counts the failed
    /// request, if all frames are in use.
    #[inline]
    pub fn allocate(&self) -> Option<Packet> {
        Some(Packet { chain: Chain::allocate(self, HEADROOM as u16)? })
    }

    /// Allocates a packet with a copy of `bytes`, in as many frames as needed; `None` if the pool has too few
    /// free frames.
    pub fn packet_from(&self, bytes: &[u8]) -> Option<Packet> {
        let mut packet = self.allocate()?;
        packet.append(self, bytes).then_some(packet)
    }

    /// Takes back a frame that a device has filled, as a packet of `length` bytes from `offset` on. Returns
    /// `None` if there is no such frame, or the bytes are outside it.
    ///
    /// # Safety
    /// [`Packet::into_raw`] must have released the frame, and no call may have taken it back since.
    #[inline]
    pub unsafe fn packet_from_raw(&self, index: u32, offset: u16, length: u16) -> Option<Packet> {
        if usize::from(offset) + usize::from(length) > FRAME_SIZE {
            return None;
        }
        let frame = self.frame(index)?;
        // SAFETY: the caller promises that no other code owns this frame.
        Some(Packet { chain: unsafe { Chain::of_frame(frame, offset, length) } })
    }
}
