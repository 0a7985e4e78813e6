//! Another way for many packets at once.

use std::fmt::Debug;

use millrace_packet::Packet;

/// A way out of a device that costs more than the port's own for a few packets, and less for many.
///
/// Who gives one to a port answers for the order: what was sent by one way, and then by the other, arrives so.
pub trait BatchSend: Debug + Send {
    /// The longest frame that it takes now, in bytes; 0 while it takes none.
    fn longest(&self) -> usize;

    /// Sends packets, first to last, and copies them: their memory is free afterwards. Returns how many first ones were taken; the
    /// others are lost.
    fn send(&mut self, packets: &[Packet]) -> usize;
}
