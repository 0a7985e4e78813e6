//! Shared maps of an instance. Its plugin addresses them by number.

use millrace_plugin_abi::binary::map_answer;
use millrace_plugin_abi::{MOST_MAP_KEY, MapHandle, MapProblem};

/// Handles of the instance's shared maps. Every access is refused until `has_begun` is set. Before that,
/// control initializes the plugin, and control must not write maps that a worker writes.
#[derive(Debug, Default)]
pub(crate) struct Maps {
    handles: Vec<MapHandle>,
    pub has_begun: bool,
}

/// Copy of a map key. The copy is needed because the plugin may write the value to the memory that holds the
/// key.
#[derive(Clone, Copy)]
pub(crate) struct Key {
    bytes: [u8; MOST_MAP_KEY as usize],
    length: usize,
}

impl Key {
    /// Copies a key. For a key that is too long, returns an empty key, which no map contains.
    pub fn of(bytes: &[u8]) -> Self {
        let mut key = Self { bytes: [0; MOST_MAP_KEY as usize], length: 0 };
        if let Some(place) = key.bytes.get_mut(..bytes.len()) {
            place.copy_from_slice(bytes);
            key.length = bytes.len();
        }
        key
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

impl Maps {
    pub fn attach(&mut self, handles: Vec<MapHandle>) {
        self.handles = handles;
    }

    pub fn get(&self, map: u32, key: Key, value: &mut [u8]) -> i32 {
        let handle = self.handles.get(map as usize).filter(|_| self.has_begun);
        answer(handle.map(|handle| handle.get(key.bytes(), value)))
    }

    pub fn set(&mut self, map: u32, key: Key, value: &[u8]) -> i32 {
        answer(self.handle(map).map(|handle| handle.set(key.bytes(), value)))
    }

    pub fn remove(&mut self, map: u32, key: Key) -> i32 {
        answer(self.handle(map).map(|handle| handle.remove(key.bytes())))
    }

    fn handle(&mut self, map: u32) -> Option<&mut MapHandle> {
        self.handles.get_mut(map as usize).filter(|_| self.has_begun)
    }
}

/// Converts a map result into the plugin's return value.
fn answer(result: Option<Result<(), MapProblem>>) -> i32 {
    match result {
        Some(Ok(())) => map_answer::DONE,
        Some(Err(MapProblem::Absent)) => map_answer::ABSENT,
        Some(Err(MapProblem::Full)) => map_answer::FULL,
        Some(Err(MapProblem::Refused)) | None => map_answer::REFUSED,
    }
}
