//! Accounts of queues: what was given to them, and what became of it.

use std::ops::AddAssign;

use serde::Serialize;

/// Packets, and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Amount {
    /// Packets.
    pub packets: u64,
    /// Their bytes, link headers included.
    pub bytes: u64,
}

impl Amount {
    /// A packet of so many bytes.
    #[inline(always)]
    pub fn packet(bytes: usize) -> Self {
        Self { packets: 1, bytes: bytes as u64 }
    }

    /// Less `other`, and never less than nothing.
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

/// What a route or a filter has given to the queues of ports, and what of it has not left from there. The rest was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueAccount {
    /// Given to the queues.
    pub queued: Amount,
    /// Waiting there now.
    pub waiting: Amount,
    /// Dropped there, or behind, before a device took it.
    pub dropped: Amount,
}

impl QueueAccount {
    /// What devices have taken.
    pub fn sent(&self) -> Amount {
        self.queued.less(self.waiting).less(self.dropped)
    }

    /// Counts from nothing again. What waits was given to the queues all the same.
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
    fn what_waits_is_still_to_be_sent_after_counters_are_cleared() {
        let amount = |packets| Amount { packets, bytes: packets * 100 };
        let mut account = QueueAccount { queued: amount(10), waiting: amount(3), dropped: amount(2) };
        assert_eq!(account.sent(), amount(5));
        account.clear();
        assert_eq!((account.queued, account.dropped, account.sent()), (amount(3), amount(0), amount(0)));
        account.waiting = account.waiting.less(amount(1));
        assert_eq!(account.sent(), amount(1));
    }
}
