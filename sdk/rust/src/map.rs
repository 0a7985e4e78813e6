//! Shared maps: one instance writes a map, others read it.

use millrace_plugin_abi::binary::map_answer;

use crate::{Plain, host};

/// Error of a map operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapError {
    /// The map has its maximum number of entries.
    Full,
    /// The map number is unknown, the key or value has the wrong size, the map belongs to another instance,
    /// or the call came during [`Plugin::init`](crate::Plugin::init).
    Refused,
}

/// Shared map, by its number. The number is the index of the map in the manifest's `maps`, or the value of a
/// setting with the format `map`.
///
/// The writing instance has a copy of the map at each worker. A reader gets the value from the copy of its
/// own worker; if the key is absent there, from another copy. Maps are not available during
/// [`Plugin::init`](crate::Plugin::init).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedMap(pub u32);

impl SharedMap {
    /// Returns the value of a key; `None` for an absent key. Capability `map-read`.
    ///
    /// # Errors
    /// [`Refused`](MapError::Refused).
    pub fn get<K: Plain, V: Plain>(self, key: &K) -> Result<Option<V>, MapError> {
        let (mut name, mut value) = ([0; MOST], [0; MOST]);
        let (Some(key), Some(value)) = (bytes_of(key, &mut name), value.get_mut(..V::BYTES)) else {
            return Err(MapError::Refused);
        };
        Ok(if self.get_bytes(key, value)? { V::read(value) } else { None })
    }

    /// Sets the value of a key. Capability `map-write`.
    ///
    /// # Errors
    /// [`Full`](MapError::Full) or [`Refused`](MapError::Refused).
    pub fn set<K: Plain, V: Plain>(self, key: &K, value: &V) -> Result<(), MapError> {
        let (mut name, mut content) = ([0; MOST], [0; MOST]);
        match (bytes_of(key, &mut name), bytes_of(value, &mut content)) {
            (Some(key), Some(value)) => self.set_bytes(key, value),
            _ => Err(MapError::Refused),
        }
    }

    /// Removes a key. Returns whether the key existed. Capability `map-write`.
    ///
    /// # Errors
    /// [`Refused`](MapError::Refused).
    pub fn remove<K: Plain>(self, key: &K) -> Result<bool, MapError> {
        let mut name = [0; MOST];
        self.remove_bytes(bytes_of(key, &mut name).ok_or(MapError::Refused)?)
    }

    /// Reads a value as bytes, like [`get`](Self::get). For an absent key, returns `false` and doesn't change
    /// `value`.
    ///
    /// # Errors
    /// [`Refused`](MapError::Refused).
    pub fn get_bytes(self, key: &[u8], value: &mut [u8]) -> Result<bool, MapError> {
        was_there(host::map_get(self.0, key, value))
    }

    /// Sets a value as bytes, like [`set`](Self::set).
    ///
    /// # Errors
    /// [`Full`](MapError::Full) or [`Refused`](MapError::Refused).
    pub fn set_bytes(self, key: &[u8], value: &[u8]) -> Result<(), MapError> {
        match host::map_set(self.0, key, value) {
            map_answer::DONE => Ok(()),
            map_answer::FULL => Err(MapError::Full),
            _ => Err(MapError::Refused),
        }
    }

    /// Removes a key given as bytes, like [`remove`](Self::remove).
    ///
    /// # Errors
    /// [`Refused`](MapError::Refused).
    pub fn remove_bytes(self, key: &[u8]) -> Result<bool, MapError> {
        was_there(host::map_remove(self.0, key))
    }
}

/// Converts the return code of a map function. Returns whether the key existed.
fn was_there(answer: i32) -> Result<bool, MapError> {
    match answer {
        map_answer::DONE => Ok(true),
        map_answer::ABSENT => Ok(false),
        _ => Err(MapError::Refused),
    }
}

/// Maximum bytes of a key, and of a value.
const MOST: usize = 256;

fn bytes_of<'a, T: Plain>(value: &T, room: &'a mut [u8; MOST]) -> Option<&'a [u8]> {
    let bytes = room.get_mut(..T::BYTES)?;
    value.write(bytes).then_some(bytes)
}
