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
    pub limit: u32,
    /// Total number of entries at all workers.
    pub entries: u64,
    /// Number of new keys refused so far because the map was full.
    pub refused: u64,
    /// Entries of the map; filled only in the answer about a single map.
    pub content: Vec<MapEntryView>,
    /// Whether the map has entries that are missing in `content`.
    pub more: bool,
}

/// Entry of a map.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MapEntryView {
    /// Number of the worker whose instance wrote the entry, counted from 0.
    pub worker: usize,
    /// Key in hexadecimal digits.
    pub key: String,
    /// Value in hexadecimal digits.
    pub value: String,
}
