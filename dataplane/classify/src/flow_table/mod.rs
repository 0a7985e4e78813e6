//! The flow table. A record holds the classification of a flow's first packet, for all later packets of the
//! flow.
//!
//! A table belongs to one thread. A record is 128 bytes in arrays that never move. [Buckets](index) find a
//! record by a keyed [hash](FlowTable::hash), and read one further cache line per lookup. An IPv4 packet reads
//! and writes one line of the record. An IPv6 packet also reads half of another line near it.
//! [`find_batch`](FlowTable::find_batch) finds the flows of a batch together, with the widest vectors of the
//! processor. The table allocates nothing after it was made. It maps memory for the maximum, and populates
//! that memory at once or as records need it.
//!
//! **Growth.** The table starts with room for `initial` records, and doubles it whenever it is full, up to
//! `maximum`. Records never move. The table splits buckets group by group: one with each new record, and more
//! in [`maintain`](FlowTable::maintain). So each call does a bounded part of the work.
//!
//! **Probation.** A new record is on probation until its flow's second packet. At the maximum, a new flow
//! recycles the oldest record on probation. Records on probation are kept in order, so this choice is exact.
//! Once a [share](eviction::PROBATION_SHARE) of the records is on probation, a flood of new flows displaces
//! no established flow. Below that share, the table recycles about the least recently used established
//! record. It takes the record with the oldest last packet among the next [`SAMPLE`](eviction::SAMPLE)
//! records after a moving index (sampled LRU). Without a share for probation, interleaved new flows in a
//! table full of old flows would displace each other before their second packets (as in 2Q: Johnson and
//! Shasha, VLDB 1994). The table never recycles reserved records, nor records with state that are off
//! probation. So a flood of flows with state displaces no other flow's state. Such records expire, like all
//! others, when no packet arrives for the idle time.
//!
//! **The end of a record.** A record that ends leaves the table at once. It waits unchanged until
//! [`pop_removed`](FlowTable::pop_removed) returns it, exactly once. Only then may the table reuse its slot.
//! So a [`FlowIndex`] names the same record and answer from the lookup until `pop_removed` returns the
//! record. A worker that calls `pop_removed` between batches can keep indexes for a whole batch, whatever
//! flows it inserts meanwhile. Without these calls, the table [refuses](Full::Unread) new flows once it holds
//! [`UNREAD`](record_set::UNREAD) records above the maximum.

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
pub use self::index::flow_hash;
pub use self::meeting::{Meeting, Sought};
pub use self::removal::{RemovalReason, RemovedFlow};
pub use self::storage::{FlowAnswer, FlowIndex, FlowRecord, NearKey};
pub use self::table::FlowTable;
