//! Link schedulers: which packet a port sends next, and when.

mod aqm;
mod codel;
mod deficit_round_robin;
mod discipline;
mod fifo;
mod flow_batch;
mod flow_queues;
#[expect(clippy::indexing_slicing, reason = "flows by a bucket below their count, and by links between them")]
mod fq_codel;
#[expect(
    clippy::indexing_slicing,
    reason = "members by places in the heap, and their positions by the numbers that were put in"
)]
mod heap;
mod hfsc;
mod hierarchy;
mod overhead;
#[expect(clippy::indexing_slicing, reason = "words of a bitmap by a level that was inserted")]
mod priority;
mod rate;
mod red;
mod reservation;
mod round;
#[expect(clippy::indexing_slicing, reason = "words of marks by a hash below their count")]
mod sharing;
mod token_bucket;

pub use aqm::Aqm;
pub use codel::CodelSettings;
pub use flow_queues::FlowQueuesSettings;
pub use fq_codel::FqCodelSettings;
pub use hfsc::{Curve, Curves};
pub use hierarchy::{
    Arrival, LeafBacklog, Leftover, LinkRate, LinkScheduler, MOST_DEPTH, MOST_NODES, NodeId, NodeKind,
    NodeView, ScheduleError, Share, in_tree,
};
pub use overhead::LinkOverhead;
pub use priority::PRIORITY_LEVELS;
pub use rate::Rate;
pub use red::{RedSettings, RedUnit};

pub(crate) use aqm::AqmState;
pub(crate) use codel::CodelQueue;
pub(crate) use red::RedVerdict;
