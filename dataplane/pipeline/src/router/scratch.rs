//! Allocations that batches reuse.

use millrace_packet::Packet;
use millrace_plugin::Released;

use crate::gates::Copies;
use crate::ports::scheduler::QueueDrops;
use crate::work::Work;

/// Reused allocations; their contents are meaningless between two batches.
#[derive(Default)]
pub(crate) struct Scratch {
    /// Batch of [`Router::follow_up`](super::Router::follow_up), and of packets that plugins release.
    pub spare: Work,
    pub copies: Copies,
    pub fragments: Vec<Packet>,
    /// Packets dropped by queues and not yet counted.
    pub queue_drops: QueueDrops,
    /// Packets released by plugins.
    pub released: Vec<Released>,
    /// Filter accounts of a packet in hand-over, one word each.
    pub handed_filters: Vec<u64>,
}
