//! Index of records: a keyed hash of flow keys, and the buckets that map a hash to the slot of a record.

mod buckets;
mod hash;
mod overflow;

pub(super) use self::buckets::Buckets;
pub(super) use self::hash::FlowHash;
pub use self::hash::{connection_hash, flow_hash};
