//! Causes of drops in queues and schedulers, and counters of drops and ECN marks.

use std::fmt;

/// Cause of a drop in a queue or scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum DropCause {
    /// Queue above its discard threshold, in bytes.
    Threshold,
    /// Port at its limit of packets or bytes, or queue larger than the port's free space.
    BufferFull,
    /// RED chose the packet: the average queue length is between the thresholds, or in the gentle range above
    /// them.
    Early,
    /// RED drops every packet: the average queue length is above the thresholds and the gentle range.
    Forced,
    /// CoDel: queueing delay above the target for too long.
    Sojourn,
    /// FQ-CoDel leaf above its packet limit: it drops packets of the flow with the most bytes.
    Overlimit,
    /// Packet for an unknown node, or for a node that is no leaf.
    NoQueue,
    /// Node removed together with its packets.
    Removed,
}

impl DropCause {
    /// All causes, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::Threshold,
        Self::BufferFull,
        Self::Early,
        Self::Forced,
        Self::Sojourn,
        Self::Overlimit,
        Self::NoQueue,
        Self::Removed,
    ];

    /// Returns the name in counters and documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Threshold => "threshold",
            Self::BufferFull => "buffer_full",
            Self::Early => "early",
            Self::Forced => "forced",
            Self::Sojourn => "sojourn",
            Self::Overlimit => "overlimit",
            Self::NoQueue => "no_queue",
            Self::Removed => "removed",
        }
    }
}

impl fmt::Display for DropCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Counters of dropped packets and bytes by cause, and of packets with an ECN mark instead of a drop (RFC
/// 3168).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DropCounts {
    packets: [u64; DropCause::ALL.len()],
    bytes: u64,
    marked: u64,
}

impl DropCounts {
    #[inline]
    pub(crate) fn add(&mut self, cause: DropCause, length: u32) {
        self.packets[cause as usize] += 1;
        self.bytes += u64::from(length);
    }

    /// Counts a marked packet.
    #[inline]
    pub(crate) fn mark(&mut self) {
        self.marked += 1;
    }

    /// Returns the number of packets with an ECN mark. Marked packets don't count as dropped.
    pub fn marked(&self) -> u64 {
        self.marked
    }

    /// Whether no packet was dropped or marked.
    pub fn is_empty(&self) -> bool {
        self.packets() == 0 && self.marked == 0
    }

    /// Returns the number of packets dropped for `cause`.
    pub fn get(&self, cause: DropCause) -> u64 {
        self.packets[cause as usize]
    }

    /// Returns the number of packets dropped for any cause.
    pub fn packets(&self) -> u64 {
        self.packets.iter().sum()
    }

    /// Returns the number of dropped bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Iterates over the causes that occurred, with their packet counts.
    pub fn iter(&self) -> impl Iterator<Item = (DropCause, u64)> + '_ {
        DropCause::ALL.into_iter().map(|cause| (cause, self.get(cause))).filter(|(_, packets)| *packets > 0)
    }

    /// Adds the counters of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (here, there) in self.packets.iter_mut().zip(other.packets) {
            *here += there;
        }
        self.bytes += other.bytes;
        self.marked += other.marked;
    }
}

/// Receiver of dropped packets: the caller of the scheduler counts and releases them. Any closure with the
/// arguments of [`dropped`](Self::dropped) is a sink.
pub trait DropSink<T> {
    /// Receives a dropped packet `item` and the cause.
    fn dropped(&mut self, item: T, cause: DropCause);

    /// Reports that a packet was marked. The packet stays in the queue or is sent.
    #[inline]
    fn marked(&mut self) {}
}

impl<T, F: FnMut(T, DropCause)> DropSink<T> for F {
    #[inline]
    fn dropped(&mut self, item: T, cause: DropCause) {
        self(item, cause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_stand_in_the_order_of_their_numbers() {
        for (index, cause) in DropCause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, index);
        }
    }

    #[test]
    fn counts_add_up() {
        let mut counts = DropCounts::default();
        counts.add(DropCause::Early, 100);
        counts.add(DropCause::Early, 50);
        counts.add(DropCause::Removed, 10);
        assert_eq!((counts.packets(), counts.bytes(), counts.get(DropCause::Early)), (3, 160, 2));
        assert_eq!(counts.iter().count(), 2);
    }
}
