//! Views of shared maps of instances.

use schemars::JsonSchema;
use serde::Serialize;

/// Shared map of an instance.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MapView {
    /// Name of the map.
    pub name: String,
    /// Bytes of each key.
    pub key: u16,
    /// Bytes of each value.
    pub value: u16,
    /// Most entries at each worker.
    pub most: u32,
    /// Number of entries at all workers together.
    pub entries: u64,
    /// Number of new keys so far for which there was no room.
    pub refused: u64,
    /// Entries of the map; only in the answer about a single map.
    pub content: Vec<MapEntryView>,
    /// Whether the map has more entries than those in `content`.
    pub more: bool,
}

/// Entry of a map.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MapEntryView {
    /// Number of the worker whose instance wrote the entry, from 0 on.
    pub worker: usize,
    /// Key in hexadecimal digits.
    pub key: String,
    /// Value in hexadecimal digits.
    pub value: String,
}
