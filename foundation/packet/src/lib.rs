//! Packet memory, flows, drop reasons and packet annotations.
//!
//! A [`Pool`] is one mapped region of memory frames of equal size. A [`Packet`] owns a chain of one or more
//! memory frames, "frames" in this crate. When the packet is dropped, its frames return to the pool. Pool,
//! packets and batches belong to one thread: none of them is `Send`.
//!
//! A packet's first frame is never shared, so its bytes may always be written. Later frames may be shared
//! between copies, or borrowed from another thread, and are then read-only. No method of a packet panics, because lengths and offsets may come
//! from outside. A method that can't do its work reports it and leaves the packet unchanged.
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod annotations;
mod arrivals;
mod batch;
mod control_class;
mod drop_reason;
mod flow_key;
mod frame;
mod loan;
mod offloaded_flow;
mod opened;
mod packet;
mod places;
mod pool;

pub use annotations::{Annotations, Exceptions};
pub use arrivals::Arrivals;
pub use batch::{BATCH_SIZE, Batch};
pub use control_class::{CONTROL_CLASSES, ClassCounts, ControlClass};
pub use drop_reason::{DropCounts, DropReason};
pub use flow_key::{Family, FlowKey};
pub use frame::FRAME_SIZE;
pub use loan::{Borrower, EndedLoan, FRONT, Lender, Loan};
pub use offloaded_flow::{OffloadAction, OffloadEgress, OffloadTotals, OffloadedFlow};
pub use opened::{Opened, Start};
pub use packet::Packet;
pub use pool::{HEADROOM, Pool, PoolError};
