//! Allocations that batches reuse.

use millrace_plugin::Released;

use crate::egress::queueing::EgressScratch;
use crate::gates::Copies;
use crate::work::Work;

/// Reused allocations; their contents are meaningless between two batches.
#[derive(Default)]
pub(crate) struct Scratch {
    /// Batch of [`Router::follow_up`](super::Router::follow_up), and of packets that plugins release.
    pub spare: Work,
    pub copies: Copies,
    pub egress: EgressScratch,
    /// Packets released by plugins.
    pub released: Vec<Released>,
}
