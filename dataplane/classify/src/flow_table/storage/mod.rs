//! Storage of records by slot: their parts, their lists, and the slots without a record.

mod list;
pub(super) mod record;
mod records;
mod slots;

pub(super) use self::list::List;
pub use self::record::{FlowAnswer, FlowIndex, FlowRecord, NearKey};
pub(super) use self::records::Records;
pub(super) use self::slots::Slots;
