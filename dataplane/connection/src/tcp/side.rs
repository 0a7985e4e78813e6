//! One side of a TCP connection, as known from the segments that pass.
//!
//! The limits follow Guido van Rooij, *Real Stateful TCP Packet Filtering in IP Filter* (2000): a segment is
//! in the window if it begins before the end of what its receiver has advertised, and ends after what that
//! receiver can have acknowledged and forgotten.

use millrace_memory::zeroable;

use super::segment::Segment;

/// Largest distance in octets by which an acknowledgment may be behind the data that was sent: the largest
/// window without scaling (van Rooij, 4.2).
const OLDEST_ACKNOWLEDGMENT: u32 = 66_000;

zeroable! {
    /// Side that sends segments.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    #[repr(C)]
    pub(super) struct Side {
        /// Sequence number after the last octet that the side has sent.
        pub end: u32,
        /// Sequence number after the last octet that the other side has offered to take.
        pub limit: u32,
        /// Largest window that the side has advertised, in octets.
        pub window: u32,
        /// Highest acknowledgment number that the side has sent.
        pub acknowledged: u32,
        /// Binary logarithm of the unit of its windows.
        pub scale: u8,
        /// Facts about the side: [`SYN`], [`FIN`] and so on.
        pub seen: u8,
        pub unused: u16,
    }
}

/// The side has sent SYN.
pub(super) const SYN: u8 = 1;
/// The side has sent FIN, the last octet before `end`.
pub(super) const FIN: u8 = 2;
/// The other side has acknowledged the FIN.
pub(super) const FIN_TAKEN: u8 = 4;
/// The side's SYN offered a window scale.
pub(super) const OFFERS_SCALE: u8 = 8;
/// The side has sent an acknowledgment.
pub(super) const ACK: u8 = 16;

impl Side {
    /// Returns whether a fact is known of the side.
    #[inline]
    pub fn has(&self, fact: u8) -> bool {
        self.seen & fact != 0
    }

    /// Begins the side with its SYN.
    pub fn begin(&mut self, syn: &Segment) {
        *self = Self {
            end: syn.end(),
            limit: syn.sequence.wrapping_add(1),
            window: u32::from(syn.window).max(1),
            acknowledged: self.acknowledged,
            scale: syn.scale.unwrap_or(0),
            seen: SYN | self.seen & ACK | if syn.scale.is_some() { OFFERS_SCALE } else { 0 },
            unused: 0,
        };
    }

    /// Returns whether a segment of this side lies in the window that `peer` has advertised.
    ///
    /// One octet beyond the window is allowed, as a probe of a closed window sends it.
    #[inline]
    pub fn is_in_window(&self, segment: &Segment, peer: &Self) -> bool {
        let latest = self.limit.wrapping_add(1);
        let earliest = self.end.wrapping_sub(peer.window.max(1));
        !is_after(segment.end(), latest) && !is_after(earliest, segment.end())
    }

    /// Returns whether this side may acknowledge what the segment acknowledges: data that `peer` has sent,
    /// and not long ago.
    #[inline]
    pub fn may_acknowledge(&self, segment: &Segment, peer: &Self) -> bool {
        let oldest = peer.end.wrapping_sub(self.window.max(OLDEST_ACKNOWLEDGMENT));
        !is_after(segment.acknowledgment, peer.end) && !is_after(oldest, segment.acknowledgment)
    }

    /// Returns whether this side has sent a sequence number, and not long ago.
    pub fn has_sent(&self, sequence: u32, peer: &Self) -> bool {
        let oldest = self.end.wrapping_sub(peer.window.max(OLDEST_ACKNOWLEDGMENT));
        self.has(SYN) && !is_after(sequence, self.end) && !is_after(oldest, sequence)
    }

    /// Takes over sequence numbers, acknowledgment and window of a valid segment of this side.
    #[inline]
    pub fn advance(&mut self, segment: &Segment, peer: &mut Self) {
        if is_after(segment.end(), self.end) {
            self.end = segment.end();
        }
        let scale = if self.has(SYN) && segment.has(millrace_wire::tcp::Flags::SYN) { 0 } else { self.scale };
        let window = u32::from(segment.window) << scale;
        self.window = self.window.max(window);
        if !segment.has(millrace_wire::tcp::Flags::ACK) {
            return;
        }
        let offered = segment.acknowledgment.wrapping_add(window);
        if is_after(offered, peer.limit) {
            peer.limit = offered;
        }
        if !self.has(ACK) || is_after(segment.acknowledgment, self.acknowledged) {
            self.acknowledged = segment.acknowledgment;
            self.seen |= ACK;
        }
        if peer.has(FIN) && self.acknowledged == peer.end {
            peer.seen |= FIN_TAKEN;
        }
    }
}

/// Returns whether a sequence number comes after another one (RFC 9293, 3.4).
#[inline]
pub(super) fn is_after(number: u32, other: u32) -> bool {
    number.wrapping_sub(other) as i32 > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_numbers_wrap() {
        assert!(is_after(0, u32::MAX) && is_after(5, 4) && !is_after(4, 4) && !is_after(u32::MAX, 3));
    }
}
