//! The flow table. A record holds the classification of a flow's first packet, for all later packets of the
//! flow.
//!
//! A table belongs to one thread. A record has 128 bytes, in arrays that never move. [Buckets](index) find a
//! record by a keyed [hash](FlowTable::hash), at the cost of one further cache line per lookup. An IPv4
//! packet reads and writes one line of the record. An IPv6 packet also reads half of another line near it.
//! [`find_batch`](FlowTable::find_batch) finds the flows of a batch together, with the widest vectors of the
//! processor.
//!
//! The table allocates nothing after its creation. It maps memory for the maximum number of records, and
//! populates that memory at once or as records need it.
//!
//! **Growth.** The table starts with room for `initial` records, and doubles it whenever it is full, up to
//! `maximum`. Records never move. The table splits buckets group by group: one group with each new record,
//! and more in [`maintain`](FlowTable::maintain). So each call does a bounded part of the work.
//!
//! **Probation.** A new record is on probation until its flow's second packet. Once a
//! [share](eviction::PROBATION_SHARE) of a full table's records is on probation, a new flow displaces the
//! oldest of them. So a flood of new flows displaces no established flow. Below that share, a new flow
//! displaces an established record, approximately the least recently used one: of the next
//! [`SAMPLE`](eviction::SAMPLE) records behind a moving index, the one whose last packet is oldest (sampled
//! LRU). Without a share for records on probation, interleaved new flows in a table full of old flows would
//! displace each other before their second packets (as in 2Q: Johnson and Shasha, VLDB 1994).
//!
//! **Protection.** The table never displaces a reserved record, nor a record with flow state that is off
//! probation. So a flood of flows with state displaces no other flow's state. Such records expire, like all
//! others, after the idle time without a packet.
//!
//! **The end of a record.** Lookups no longer find a record that has ended. It stays unchanged until
//! [`pop_removed`](FlowTable::pop_removed) returns it, exactly once. Only then may the table reuse its slot.
//! So a [`FlowIndex`] stays valid, for the same record and answer, from the lookup until `pop_removed`
//! returns the record. A worker that calls `pop_removed` between batches can keep indexes for a whole batch,
//! whatever flows it inserts during the batch. Without these calls, the table [refuses](Full::Unread) new
//! flows once it holds [`UNREAD`](record_set::UNREAD) records above the maximum.

mod batch_search;
mod config;
mod counts;
mod error;
mod eviction;
mod expiry;
mod index;
mod lookup;
mod meeting;
mod probation;
mod record_set;
mod removal;
mod storage;
mod table;
#[cfg(test)]
mod tests;

pub use self::config::{FlowTableConfig, LARGEST};
pub use self::counts::FlowTableCounts;
pub use self::error::{FlowTableError, Full};
pub use self::index::{connection_hash, flow_hash};
pub use self::meeting::{Meeting, Sought};
pub use self::removal::{RemovalReason, RemovedFlow};
pub use self::storage::{FlowAnswer, FlowIndex, FlowRecord, NearKey};
pub use self::table::FlowTable;
