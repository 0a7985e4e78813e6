//! Maps that instances share: one writes, others read.

use millrace_plugin_abi::binary::map_answer;

use crate::{Plain, host};

/// Why a map did not do what it was asked.
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
    /// The value of a key; `None` where there is none. Capability `map-read`.
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
    /// Why there is no such value now.
    pub fn set<K: Plain, V: Plain>(self, key: &K, value: &V) -> Result<(), MapError> {
        let (mut name, mut content) = ([0; MOST], [0; MOST]);
        match (bytes_of(key, &mut name), bytes_of(value, &mut content)) {
            (Some(key), Some(value)) => self.set_bytes(key, value),
            _ => Err(MapError::Refused),
        }
    }

    /// Takes a key out; whether it was there. Capability `map-write`.
    ///
    /// # Errors
    /// [`Refused`](MapError::Refused).
    pub fn remove<K: Plain>(self, key: &K) -> Result<bool, MapError> {
        let mut name = [0; MOST];
        self.remove_bytes(bytes_of(key, &mut name).ok_or(MapError::Refused)?)
    }

    /// As [`get`](Self::get), with bytes; whether there was a value.
    ///
    /// # Errors
    /// [`Refused`](MapError::Refused).
    pub fn get_bytes(self, key: &[u8], value: &mut [u8]) -> Result<bool, MapError> {
        was_there(host::map_get(self.0, key, value))
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
    ///
    /// # Errors
    /// [`Refused`](MapError::Refused).
    pub fn remove_bytes(self, key: &[u8]) -> Result<bool, MapError> {
        was_there(host::map_remove(self.0, key))
    }
}

/// Whether the key was there, as the router answers.
fn was_there(answer: i32) -> Result<bool, MapError> {
    match answer {
        map_answer::DONE => Ok(true),
        map_answer::ABSENT => Ok(false),
        _ => Err(MapError::Refused),
    }
}

/// Bytes of a value, at most.
const MOST: usize = 256;

fn bytes_of<'a, T: Plain>(value: &T, room: &'a mut [u8; MOST]) -> Option<&'a [u8]> {
    let bytes = room.get_mut(..T::BYTES)?;
    value.write(bytes).then_some(bytes)
}
