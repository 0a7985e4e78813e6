//! Views of instances' shared maps, read while the instances write them.

use std::sync::Arc;

use millrace_plugin_abi::SharedMap;

use crate::ControlError;
use crate::router::Router;
use crate::view::{MapEntryView, MapView};

/// Maximum number of map entries in one answer.
const MOST_SHOWN: usize = 4096;

impl Router {
    /// Returns the shared maps of an instance, without their entries.
    ///
    /// # Errors
    /// No such instance.
    pub fn instance_maps(&self, instance: &str) -> Result<Vec<MapView>, ControlError> {
        let inner = self.lock();
        Ok(inner.model.plugins.maps(instance)?.iter().map(summary).collect())
    }

    /// Returns a shared map of an instance with up to 4,096 of its entries. The entries of each worker are
    /// ordered by key.
    ///
    /// # Errors
    /// No such instance or map.
    pub fn instance_map(&self, instance: &str, map: &str) -> Result<MapView, ControlError> {
        let map = self.lock().model.plugins.map_named(instance, map)?;
        let mut view = summary(&map);
        for worker in 0..map.counts().len() {
            let mut entries = map.entries(worker, MOST_SHOWN + 1 - view.content.len());
            entries.sort();
            view.content.extend(entries.into_iter().map(|(key, value)| MapEntryView {
                worker,
                key: hexadecimal(&key),
                value: hexadecimal(&value),
            }));
        }
        view.more = view.content.len() > MOST_SHOWN;
        view.content.truncate(MOST_SHOWN);
        Ok(view)
    }
}

fn summary(map: &Arc<SharedMap>) -> MapView {
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

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
