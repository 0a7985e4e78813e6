//! Scratch memory of a router.

use millrace_plugin::Released;

use crate::egress::queueing::EgressScratch;
use crate::gates::Copies;
use crate::work::Work;

/// Scratch memory that the router reuses for each batch; its contents are meaningless between two batches.
#[derive(Default)]
pub(crate) struct Scratch {
    /// Batch that [`Router::follow_up`](super::Router::follow_up) fills, and that takes the packets that
    /// instances release.
    pub spare: Work,
    pub copies: Copies,
    pub egress: EgressScratch,
    /// Packets that instances release.
    pub released: Vec<Released>,
}
