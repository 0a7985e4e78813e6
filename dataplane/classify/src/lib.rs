//! Filters, the tables that match packets against them, and the flow table.
//!
//! A [`Filter`] is the form that users write. A [`CompiledFilter`] has port names resolved to ids, and
//! matches [`Candidate`]s. A [`FilterTable`] finds the best of many filters. [`LinearOracle`] defines *best*,
//! and tests compare every faster table with it.
//!
//! # Flows
//! A record of the [`FlowTable`] holds the answer for packets with one flow key. Some filters match fields
//! that vary inside a flow: TCP flags, DSCP, tag and exceptions. If such a filter can match a flow, the
//! flow's record states the relevant bits. Packets with other values of these bits get *variant records*,
//! further records of the same key. All other flows have one record. The [`FragmentTable`] gives later
//! fragments the flow of the first one.
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod candidate;
#[expect(
    clippy::indexing_slicing,
    reason = "regions by the leading bits of an address, of which there are as many as these bits make"
)]
mod change_log;
mod filter;
mod filter_table;
#[expect(
    clippy::indexing_slicing,
    reason = "records, buckets and lists by slots that the table gave; notes on a batch by places in it; hash secrets by constants"
)]
mod flow_table;
mod fragment_table;
#[expect(
    clippy::indexing_slicing,
    reason = "nodes by links of the same tree, and their parts by a rank or a bit below the length"
)]
pub mod prefix_match;

pub use candidate::Candidate;
pub use change_log::{ChangeLog, Touch};
pub use filter::{
    CompiledExpression, CompiledFilter, CompiledSelection, Dscp, ExceptionsMatch, Field, Filter, FilterError,
    FilterExpression, MOST_ALTERNATIVES, PortRange, Selection, Specificity, TcpFlagsMatch, UnknownPort,
};
pub use filter_table::{
    Ambiguous, Analysis, BoundedTable, CuttingTree, DagConfig, DagTable, Entry, Explanation, FilterId,
    FilterTable, LinearOracle, Links, MemoryBound, Moved, Outcome, OverMemory, Rank, Shadowed, TupleSpace,
    VaryingBits, analyse, explain_in_order, in_order, overlap, shadowed_by,
};
pub use flow_table::{
    FlowAnswer, FlowIndex, FlowRecord, FlowTable, FlowTableConfig, FlowTableCounts, FlowTableError, Full,
    LARGEST as LARGEST_FLOW_TABLE, Meeting, NearKey, RemovalReason, RemovedFlow, Sought, connection_hash,
    flow_hash,
};
pub use fragment_table::{Fragment, FragmentTable, fragment_key};
