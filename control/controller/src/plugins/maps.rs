//! Views of instances' shared maps, read while the instances write them.

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
        most: shape.entries,
        entries: counts.iter().map(|counts| u64::from(counts.entries)).sum(),
        refused: counts.iter().map(|counts| counts.refused).sum(),
        content: Vec::new(),
        more: false,
    }
}
