//! Maps of instances as people see them.

use schemars::JsonSchema;
use serde::Serialize;

/// A map of an instance.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MapView {
    /// Its name.
    pub name: String,
    /// Bytes of each key.
    pub key: u16,
    /// Bytes of each value.
    pub value: u16,
    /// Entries that there may be, at each worker.
    pub most: u32,
    /// Entries that there are, at all workers together.
    pub entries: u64,
    /// New keys so far for which there was no room.
    pub refused: u64,
    /// What stands there; only where one map was asked for.
    pub content: Vec<MapEntryView>,
    /// Whether there is more than what is shown.
    pub more: bool,
}

/// An entry of a map.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MapEntryView {
    /// The worker whose instance wrote it, from 0 on.
    pub worker: usize,
    /// The key, in hexadecimal digits.
    pub key: String,
    /// The value, in hexadecimal digits.
    pub value: String,
}
