//! Ids of keys.

use std::fmt;

/// Id of a key: 64 random bits, stored in the key and in its signatures. Anybody can copy an id, so it proves
/// nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct KeyId(u64);

impl KeyId {
    /// Reads the id from the bytes of a key or a signature.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut id = [0; 8];
        id.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        Self(u64::from_le_bytes(id))
    }
}

impl From<KeyId> for String {
    fn from(id: KeyId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for KeyId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let id = u64::from_str_radix(&text, 16).ok().filter(|_| text.len() == 16);
        id.map(Self).ok_or_else(|| format!("{text:?} is no key id: a key id has 16 hexadecimal digits"))
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016X}", self.0)
    }
}
