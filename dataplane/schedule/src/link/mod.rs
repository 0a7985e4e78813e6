//! Link schedulers: they decide the next packet that a port sends, and its time.

mod deficit_round_robin;
mod discipline;
mod fifo;
mod flow_queues;
#[expect(clippy::indexing_slicing, reason = "flows by a bucket below their count, and by links between them")]
mod fq_codel;
mod hfsc;
mod hierarchy;
#[expect(clippy::indexing_slicing, reason = "words of a bitmap by a level that was inserted")]
mod priority;
mod round;
mod token_bucket;

pub use flow_queues::FlowQueuesSettings;
pub use fq_codel::FqCodelSettings;
pub use hfsc::{Curve, Curves, NodeWaits};
pub use hierarchy::{
    FlowEditor, GuaranteeLimit, LeafBacklog, Leftover, LinkRate, LinkScheduler, MOST_DEPTH, MOST_NODES,
    NodeKind, NodeView, ScheduleError, Share, TreeEditor, TreeReport, in_tree,
};
pub use priority::PRIORITY_LEVELS;
