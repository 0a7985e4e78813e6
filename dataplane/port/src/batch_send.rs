//! Alternative sender for batches of many packets.

use std::fmt::Debug;

use millrace_packet::Packet;

/// Alternative sender of a device that costs more than the port's own sender for a few packets, and less for
/// many.
///
/// The caller that gives a sender to a port guarantees the order: packets sent by one sender, and then by the
/// other, arrive in that order.
pub trait BatchSend: Debug + Send {
    /// Returns the length of the longest frame that the sender takes now, in bytes; 0 while it takes none.
    fn longest(&self) -> usize;

    /// Sends packets, first to last, and copies them: their memory is free afterwards. Returns the number of
    /// packets taken from the start of `packets`. The other packets are lost.
    fn send(&mut self, packets: &[Packet]) -> usize;
}
