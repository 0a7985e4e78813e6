//! Queues of a port and its link schedulers: they decide the next packet to send, and its time.
//!
//! A [`LinkScheduler`] is the scheduler tree of one port. Its leaves hold packets: a FIFO, a queue per flow
//! under weighted deficit round robin, or FQ-CoDel. Other nodes choose among children: strict priority,
//! weighted deficit round robin, H-FSC, a token bucket around one child. Any kind can stand at any node. A
//! queue drops packets that arrive above its discard threshold, and may run RED or CoDel. All packets of a
//! port share one bounded memory.
//!
//! The crate is a pure function of its inputs: packets, changes and the current time, which the caller passes
//! and which never goes back. It reads no clock, sends nothing, takes no lock and allocates nothing per
//! packet. A [`DropSink`] receives each dropped packet with its cause.
//!
//! ```
//! use millrace_schedule::{
//!     BufferLimits, DropCause, FlowNumber, Item, LinkOverhead, LinkRate, LinkScheduler, NodeId, NodeKind, Rate, Share,
//! };
//! use millrace_units::Instant;
//!
//! struct Frame(u32);
//!
//! impl Item for Frame {
//!     fn length(&self) -> u32 {
//!         self.0
//!     }
//!     fn mark_congestion(&mut self) -> bool {
//!         false
//!     }
//! }
//!
//! let link = LinkRate { rate: Some(Rate::from_megabits(10)), slack: 0 };
//! let mut port = LinkScheduler::new(link, LinkOverhead::Ethernet, BufferLimits::default())?;
//! let (top, voice, rest) = (NodeId(0), NodeId(1), NodeId(2));
//! let now = Instant::ZERO;
//! port.edit().add(top, None, Share::Only, &NodeKind::Priority, now)?;
//! port.edit().add(voice, Some(top), Share::Level(0), &NodeKind::Fifo(Default::default()), now)?;
//! port.edit().add(rest, Some(top), Share::Level(1), &NodeKind::FqCodel(Default::default()), now)?;
//!
//! let mut dropped = |_: Frame, cause: DropCause| panic!("{cause}");
//! port.enqueue(rest, FlowNumber(7), Frame(1514), now, &mut dropped);
//! port.enqueue(voice, FlowNumber(8), Frame(60), now, &mut dropped);
//! assert_eq!(port.dequeue(now, &mut dropped).map(|frame| frame.0), Some(60));
//! // 84 bytes on the wire at 10 Mb/s take 67.2 microseconds.
//! assert_eq!(port.next_ready(), Instant::from_nanos(67_200));
//! # Ok::<(), millrace_schedule::ScheduleError>(())
//! ```
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod aqm;
mod arena;
mod arrival;
pub mod cpu;
#[expect(clippy::indexing_slicing, reason = "there is a count for each of the causes, by their number")]
mod drop_cause;
mod ecn;
#[expect(clippy::indexing_slicing, reason = "places by a hash below their count")]
mod flow_table;
#[expect(
    clippy::indexing_slicing,
    reason = "members by places in the heap, and their positions by the numbers that were put in"
)]
mod heap;
mod item;
mod link;
mod overhead;
mod queue;
mod queue_manager;
mod random;
mod rate;
#[expect(
    clippy::indexing_slicing,
    reason = "the one place where slots are indexed: by numbers that links of the same structure hold"
)]
mod slots;

pub use aqm::{Aqm, CodelSettings, RedSettings, RedUnit};
pub use arrival::{Arrival, NodeId};
pub use drop_cause::{DropCause, DropCounts, DropSink};
pub use item::{FlowNumber, Item};
pub use link::{
    Curve, Curves, FlowEditor, FlowQueuesSettings, FqCodelSettings, GuaranteeLimit, LeafBacklog, Leftover,
    LinkRate, LinkScheduler, MOST_DEPTH, MOST_NODES, NodeKind, NodeView, NodeWaits, PRIORITY_LEVELS,
    ScheduleError, Share, TreeEditor, TreeReport, in_tree,
};
pub use overhead::LinkOverhead;
pub use queue::{QueueSettings, QueueView};
pub use queue_manager::{BufferLimits, MOST_QUEUES};
pub use rate::Rate;
