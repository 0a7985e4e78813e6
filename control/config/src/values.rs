//! Checked values that are text in the file.

use std::fmt;
use std::ops::{Deref, Range};
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error};
use serde::{Serialize, Serializer};

/// Error text for a value that is not an address with a prefix length.
const NO_PREFIX: &str = "no address with prefix length: write, for example, 10.0.0.0/8 or fd00::/48";

/// Value written as text, such as an address or a filter, with its original text and its byte range in the
/// file.
#[derive(Clone, Debug)]
pub struct Text<T> {
    value: T,
    written: String,
    span: Option<Range<usize>>,
}

impl<T> Text<T> {
    /// Returns the value.
    pub fn value(&self) -> &T {
        &self.value
    }

    /// Returns the text in the file.
    pub fn written(&self) -> &str {
        &self.written
    }

    /// Returns the byte range in the file; `None` for a value outside of any file.
    pub(crate) fn span(&self) -> Option<Range<usize>> {
        self.span.clone()
    }
}

impl<T: fmt::Display> Text<T> {
    /// Creates a value outside of any file, with the text that the program writes.
    pub fn of(value: T) -> Self {
        Self { written: value.to_string(), value, span: None }
    }
}

impl<T> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.written)
    }
}

impl<T: PartialEq> PartialEq for Text<T> {
    fn eq(&self, other: &Self) -> bool {
        (&self.value, &self.written) == (&other.value, &other.written)
    }
}

impl<T: FromStr<Err: fmt::Display>> FromStr for Text<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        Ok(Self { value: text.parse()?, written: text.to_owned(), span: None })
    }
}

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = toml::Spanned::<String>::deserialize(deserializer)?;
        let (span, written) = (Some(spanned.span()), spanned.into_inner());
        match written.parse() {
            Ok(value) => Ok(Self { value, written, span }),
            Err(error) => {
                let said = match error.to_string().as_str() {
                    "invalid IP address syntax" => NO_PREFIX.to_owned(),
                    said => said.to_owned(),
                };
                Err(D::Error::custom(format!("{written:?}: {said}")))
            }
        }
    }
}

/// Name with its byte range in the file.
#[derive(Clone, Debug)]
pub struct Named(toml::Spanned<String>);

impl Named {
    pub(crate) fn span(&self) -> Range<usize> {
        self.0.span()
    }
}

impl From<&str> for Named {
    /// Creates a name outside of any file.
    fn from(name: &str) -> Self {
        Self(toml::Spanned::new(0..0, name.to_owned()))
    }
}

impl Serialize for Named {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl Deref for Named {
    type Target = str;

    fn deref(&self) -> &str {
        self.0.get_ref()
    }
}

impl PartialEq for Named {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<'de> Deserialize<'de> for Named {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        toml::Spanned::deserialize(deserializer).map(Self)
    }
}

/// One VLAN id, or an outer and an inner id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(untagged)]
pub enum VlanIds {
    /// One 802.1Q tag, 1 to 4094.
    Single(u16),
    /// An 802.1ad tag around an 802.1Q tag, 1 to 4094 each.
    Double([u16; 2]),
}

impl VlanIds {
    /// Whether every id is valid, 1 to 4094.
    pub fn is_valid(self) -> bool {
        let ids = match self {
            Self::Single(id) => [id, 1],
            Self::Double(ids) => ids,
        };
        ids.into_iter().all(|id| (1..=4094).contains(&id))
    }
}

/// Returns whether a value is the default of its type.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Maximum number of packets taken from a port per iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "u64")]
pub struct InputWeight(pub u16);

impl Default for InputWeight {
    fn default() -> Self {
        Self(256)
    }
}

impl TryFrom<u64> for InputWeight {
    type Error = String;

    fn try_from(weight: u64) -> Result<Self, String> {
        match u16::try_from(weight) {
            Ok(weight @ 1..=256) => Ok(Self(weight)),
            _ => Err(format!(
                "weight {weight} is out of range: give 1 to 256 packets per iteration of the worker"
            )),
        }
    }
}
