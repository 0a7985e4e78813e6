//! Why a queue let go of a packet without sending it, and how often; and how often it marked one instead.

use std::fmt;

/// Why a packet was dropped by a queue or a scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum DropCause {
    /// The queue held more bytes than its discard threshold.
    Threshold,
    /// The port held as many packets or bytes as it may, or the queue more than what was free beside it.
    BufferFull,
    /// RED chose it while the average was between the thresholds, or in the gentle part above them.
    Early,
    /// RED's average was above what is borne at all.
    Forced,
    /// CoDel: packets had waited above the target for too long.
    Sojourn,
    /// FQ-CoDel held too much, and its flow held most.
    Overlimit,
    /// The packet was sent to a node that is unknown or holds no packets itself.
    NoQueue,
    /// Its class was removed, and its packets were to be dropped with it.
    Removed,
}

impl DropCause {
    /// Every cause, in the order of their numbers.
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

    /// The name in counters and documents.
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

/// Packets and bytes dropped, by cause, and packets that were marked rather than dropped (RFC 3168).
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

    /// A packet was marked.
    #[inline]
    pub(crate) fn mark(&mut self) {
        self.marked += 1;
    }

    /// Packets that were marked, which is no drop.
    pub fn marked(&self) -> u64 {
        self.marked
    }

    /// Whether nothing was dropped or marked.
    pub fn is_empty(&self) -> bool {
        self.packets() == 0 && self.marked == 0
    }

    /// Packets dropped for `cause`.
    pub fn get(&self, cause: DropCause) -> u64 {
        self.packets[cause as usize]
    }

    /// Packets dropped for any cause.
    pub fn packets(&self) -> u64 {
        self.packets.iter().sum()
    }

    /// Their bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The causes that occurred, with their packets.
    pub fn iter(&self) -> impl Iterator<Item = (DropCause, u64)> + '_ {
        DropCause::ALL.into_iter().map(|cause| (cause, self.get(cause))).filter(|(_, packets)| *packets > 0)
    }

    /// Adds what `other` counted.
    pub fn merge(&mut self, other: &Self) {
        for (here, there) in self.packets.iter_mut().zip(other.packets) {
            *here += there;
        }
        self.bytes += other.bytes;
        self.marked += other.marked;
    }
}

/// Takes what is dropped: the caller counts it and lets it go. Every closure of this form is one.
pub trait DropSink<T> {
    /// `item` was dropped, because of `cause`.
    fn dropped(&mut self, item: T, cause: DropCause);

    /// A packet was marked, and goes on.
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
