//! Counts of created, ended and refused records.

use super::error::Full;
use super::removal::RemovalReason;

/// Number of created, ended and refused records since the table's creation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowTableCounts {
    /// Number of created records.
    pub inserted: u64,
    /// Number of records that new flows displaced while on probation.
    pub recycled_on_probation: u64,
    /// Number of records that new flows displaced when off probation.
    pub recycled: u64,
    /// Number of records that ended because no packet arrived in time.
    pub expired: u64,
    /// Number of records that [`FlowTable::remove`](super::FlowTable::remove) removed.
    pub removed: u64,
    /// Number of records refused with [`Full::Protected`].
    pub refused_protected: u64,
    /// Number of records refused with [`Full::Unread`].
    pub refused_unread: u64,
    /// Number of records refused with [`Full::Collisions`].
    pub refused_collisions: u64,
}

impl FlowTableCounts {
    /// Counts the end of a record.
    pub(super) fn ended(&mut self, reason: RemovalReason, was_on_probation: bool) {
        *match reason {
            RemovalReason::Removed => &mut self.removed,
            RemovalReason::Expired => &mut self.expired,
            RemovalReason::Recycled if was_on_probation => &mut self.recycled_on_probation,
            RemovalReason::Recycled => &mut self.recycled,
        } += 1;
    }

    /// Counts a refused record.
    pub(super) fn refused(&mut self, reason: &Full) {
        *match reason {
            Full::Protected => &mut self.refused_protected,
            Full::Unread => &mut self.refused_unread,
            Full::Collisions => &mut self.refused_collisions,
        } += 1;
    }
}
