//! Views of shared maps of instances.

use schemars::JsonSchema;
use serde::Serialize;

/// Shared map of an instance.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MapView {
    /// Name of the map.
    pub name: String,
    /// Length of each key in bytes.
    pub key: u16,
    /// Length of each value in bytes.
    pub value: u16,
    /// Maximum number of entries at each worker.
    pub most: u32,
    /// Number of entries at all workers together.
    pub entries: u64,
    /// Number of new keys that found the map full, so far.
    pub refused: u64,
    /// Entries of the map; only in the answer about a single map.
    pub content: Vec<MapEntryView>,
    /// Whether the map has entries that are missing in `content`.
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
