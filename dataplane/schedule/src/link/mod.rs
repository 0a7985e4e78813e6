//! Link schedulers: which packet a port sends next, and when.

mod aqm;
mod codel;
mod deficit_round_robin;
mod discipline;
mod fifo;
mod flow_batch;
mod flow_queues;
mod fq_codel;
mod heap;
mod hfsc;
mod hierarchy;
mod overhead;
mod priority;
mod rate;
mod red;
mod reservation;
mod round;
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
