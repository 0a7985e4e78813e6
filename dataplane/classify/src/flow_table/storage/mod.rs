//! Storage of records by slot: the parts of records, lists of records, and free slots.

mod list;
pub(super) mod record;
mod records;
mod slots;

pub(super) use self::list::List;
pub use self::record::{FlowAnswer, FlowIndex, FlowRecord, NearKey};
pub(super) use self::records::Records;
pub(super) use self::slots::Slots;
