//! Alternative sender for batches of many packets.

use std::fmt::Debug;

use millrace_packet::Packet;

/// Alternative sender of a device. It costs more than the port's own sender for a few packets, and less for
/// many.
///
/// The caller that sets the alternative sender must ensure the packets' order: packets sent by one sender,
/// then by the other, must arrive in that order.
pub trait BatchSend: Debug + Send {
    /// Returns the length of the longest frame that the sender takes now, in bytes; 0 if the sender takes no
    /// frames now.
    fn longest(&self) -> usize;

    /// Sends packets in order. Copies them, so the caller may free their memory afterwards. Returns the
    /// number of packets taken from the start of `packets`. The other packets are lost.
    fn send(&mut self, packets: &[Packet]) -> usize;
}
