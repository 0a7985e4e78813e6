//! Maps that instances share: one writes, others read.

use millrace_plugin_abi::binary::map_answer;

use crate::{Plain, host};

/// Why a map did not take a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapError {
    /// There is no room for another key.
    Full,
    /// There is no map of that number, its keys or values have another size, or it is another instance's; or the plugin is still
    /// beginning.
    Refused,
}

/// A map, by its number: its place among the manifest's `maps`, or what the plugin got for a setting whose format is `map`.
///
/// Each worker's instance writes a copy of its own. Who reads gets what its own worker's copy has, or else another's. Not
/// during [`Plugin::init`](crate::Plugin::init).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedMap(pub u32);

impl SharedMap {
    /// The value of a key; `None` where there is none, or the map's keys or values are of another size. Capability `map-read`.
    #[must_use]
    pub fn get<K: Plain, V: Plain>(self, key: &K) -> Option<V> {
        let (mut name, mut value) = ([0; MOST], [0; MOST]);
        let value = value.get_mut(..V::BYTES)?;
        self.get_bytes(bytes_of(key, &mut name)?, value).then(|| V::read(value))?
    }

    /// Sets the value of a key. Capability `map-write`.
    ///
    /// # Errors
    /// Why there is no such value now.
    pub fn set<K: Plain, V: Plain>(self, key: &K, value: &V) -> Result<(), MapError> {
        let (mut name, mut content) = ([0; MOST], [0; MOST]);
        match (bytes_of(key, &mut name), bytes_of(value, &mut content)) {
            (Some(key), Some(value)) => self.set_bytes(key, value),
            _ => Err(MapError::Refused),
        }
    }

    /// Takes a key out; whether it was there. Capability `map-write`.
    pub fn remove<K: Plain>(self, key: &K) -> bool {
        let mut name = [0; MOST];
        bytes_of(key, &mut name).is_some_and(|key| self.remove_bytes(key))
    }

    /// As [`get`](Self::get), with bytes; whether there was a value.
    pub fn get_bytes(self, key: &[u8], value: &mut [u8]) -> bool {
        host::map_get(self.0, key, value) == map_answer::DONE
    }

    /// As [`set`](Self::set), with bytes.
    ///
    /// # Errors
    /// Why there is no such value now.
    pub fn set_bytes(self, key: &[u8], value: &[u8]) -> Result<(), MapError> {
        match host::map_set(self.0, key, value) {
            map_answer::DONE => Ok(()),
            map_answer::FULL => Err(MapError::Full),
            _ => Err(MapError::Refused),
        }
    }

    /// As [`remove`](Self::remove), with bytes.
    pub fn remove_bytes(self, key: &[u8]) -> bool {
        host::map_remove(self.0, key) == map_answer::DONE
    }
}

/// Bytes of a value, at most.
const MOST: usize = 256;

fn bytes_of<'a, T: Plain>(value: &T, room: &'a mut [u8; MOST]) -> Option<&'a [u8]> {
    let bytes = room.get_mut(..T::BYTES)?;
    value.write(bytes).then_some(bytes)
}
