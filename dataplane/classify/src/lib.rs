//! Filters and the tables that match packets against them.
//!
//! A [`Filter`] is what people write; compiled, with port names resolved to ids, it matches [`Candidate`]s. A
//! [`FilterTable`] finds the best of many: [`LinearOracle`] defines what *best* means, and every faster table is
//! held against it.
#![forbid(unsafe_code)]

mod candidate;
mod change_log;
mod filter;
mod filter_table;
mod flow_table;
mod fragment_table;
pub mod prefix_match;

pub use candidate::Candidate;
pub use change_log::{ChangeLog, Touch};
pub use filter::{
    CompiledFilter, Dscp, ExceptionsMatch, Field, Filter, FilterError, FilterExpression, MOST_ALTERNATIVES,
    PortRange, Specificity, TcpFlagsMatch, UnknownPort,
};
pub use filter_table::{
    Ambiguous, Analysis, BoundedTable, CuttingTree, DagConfig, DagTable, Entry, Explanation, FilterId,
    FilterTable, LinearOracle, Links, MemoryBound, Moved, Outcome, OverMemory, Rank, Shadowed, TupleSpace,
    VaryingBits, analyse, explain_in_order, in_order, shadowed_by,
};
pub use flow_table::{
    FlowAnswer, FlowIndex, FlowRecord, FlowTable, FlowTableConfig, FlowTableCounts, FlowTableError, Full,
    LARGEST as LARGEST_FLOW_TABLE, Meeting, NearKey, RemovalReason, RemovedFlow, Sought, flow_hash,
};
pub use fragment_table::{Fragment, FragmentTable, fragment_key};
