//! Views of instances' shared maps. They are read while the instances write the maps.

use std::sync::Arc;

use millrace_plugin_abi::SharedMap;

use crate::view::MapView;

/// Maximum number of map entries in one answer.
pub(crate) const MOST_SHOWN: usize = 4096;

pub(crate) fn summary(map: &Arc<SharedMap>) -> MapView {
    let (shape, counts) = (map.shape(), map.counts());
    MapView {
        name: shape.name.clone(),
        key: shape.key,
        value: shape.value,
        limit: shape.entries,
        entries: counts.iter().map(|counts| u64::from(counts.entries)).sum(),
        refused: counts.iter().map(|counts| counts.refused).sum(),
        content: Vec::new(),
        more: false,
    }
}
