//! Ended records: the reason for the end, and the copy for the caller.

use millrace_packet::FlowKey;
use millrace_units::Instant;

use super::storage::{FlowAnswer, FlowIndex};

/// Reason for the end of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum RemovalReason {
    /// [`FlowTable::remove`](super::FlowTable::remove) removed the record.
    Removed,
    /// A new flow displaced the record.
    Recycled,
    /// No packet arrived during the idle time.
    Expired,
}

impl RemovalReason {
    /// Returns the reason with this number.
    pub(super) fn from_code(code: u8) -> Self {
        [Self::Removed, Self::Recycled, Self::Expired][usize::from(code) % 3]
    }
}

/// Copy of an ended record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemovedFlow {
    /// Index of the record. After the next [`insert`](super::FlowTable::insert) it may stand for another
    /// record.
    pub index: FlowIndex,
    /// Flow key of the record.
    pub key: FlowKey,
    /// Number of the record's variant: 0 for the base record.
    pub variant: u32,
    /// Answer that the pipeline stored last.
    pub answer: FlowAnswer,
    /// Word in which the pipeline stores the flow state; 0 without flow state.
    pub state: u32,
    /// Number of packets of the flow.
    pub packets: u64,
    /// Number of bytes of the flow's packets.
    pub bytes: u64,
    /// Time of the record's creation.
    pub created: Instant,
    /// Time of the flow's last packet, with a resolution of 17 ms.
    pub last_used: Instant,
    /// Whether the record belonged to a reservation.
    pub reserved: bool,
    /// Reason for the record's end.
    pub reason: RemovalReason,
}
