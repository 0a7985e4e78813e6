//! Accounts of queues: amounts of packets queued, waiting and dropped.

use std::ops::AddAssign;

use serde::Serialize;

/// Number of packets and of their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Amount {
    /// Number of packets.
    pub packets: u64,
    /// Number of bytes of `packets`, link headers included.
    pub bytes: u64,
}

impl Amount {
    /// Returns the amount of one packet of `bytes` bytes.
    #[inline(always)]
    pub fn packet(bytes: usize) -> Self {
        Self { packets: 1, bytes: bytes as u64 }
    }

    /// Returns the amount minus `other`; 0 instead of a negative number.
    #[must_use]
    pub fn less(self, other: Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(other.packets),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}

impl AddAssign for Amount {
    #[inline(always)]
    fn add_assign(&mut self, other: Self) {
        self.packets = self.packets.wrapping_add(other.packets);
        self.bytes = self.bytes.wrapping_add(other.bytes);
    }
}

/// Account of a route or filter: all its packets that were queued at ports, and how many of them wait or were
/// dropped. All others were sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueAccount {
    /// All packets queued.
    pub queued: Amount,
    /// Packets that wait in the queues now.
    pub waiting: Amount,
    /// Packets dropped by a queue, or dropped between the queue and the device.
    pub dropped: Amount,
}

impl QueueAccount {
    /// Returns the amount that devices have taken, which is what neither waits nor was dropped.
    pub fn sent(&self) -> Amount {
        self.queued.less(self.waiting).less(self.dropped)
    }

    /// Clears the counts. Packets that wait still count as queued.
    pub fn clear(&mut self) {
        (self.queued, self.dropped) = (self.waiting, Amount::default());
    }
}

impl AddAssign for QueueAccount {
    fn add_assign(&mut self, other: Self) {
        self.queued += other.queued;
        self.waiting += other.waiting;
        self.dropped += other.dropped;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_packets_stay_to_be_sent_after_counters_are_cleared() {
        let amount = |packets| Amount { packets, bytes: packets * 100 };
        let mut account = QueueAccount { queued: amount(10), waiting: amount(3), dropped: amount(2) };
        assert_eq!(account.sent(), amount(5));
        account.clear();
        assert_eq!((account.queued, account.dropped, account.sent()), (amount(3), amount(0), amount(0)));
        account.waiting = account.waiting.less(amount(1));
        assert_eq!(account.sent(), amount(1));
    }
}
