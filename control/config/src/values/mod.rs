//! Checked values that a file holds as text.

pub(crate) mod action;
pub(crate) mod flow;
mod form;
pub(crate) mod overhead;
pub(crate) mod quantity;
pub(crate) mod reservation;
pub(crate) mod share;
pub(crate) mod worker_policy;

use std::fmt;
use std::ops::{Deref, Range};
use std::str::FromStr;

use ipnet::IpNet;
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Unexpected, Visitor};
use serde::{Serialize, Serializer};

use crate::reading::Placed;
use form::string_schema;

/// Type whose values a file holds as text.
pub trait Written: Sized {
    /// Parses the text.
    ///
    /// # Errors
    /// Returns the problem and the remedy. The error doesn't repeat the text.
    fn parse(text: &str) -> Result<Self, String>;
}

/// Implements [`Written`] for types whose [`FromStr`] errors name problem and remedy.
macro_rules! written {
    ($($kind:ty),+ $(,)?) => {$(
        impl $crate::values::Written for $kind {
            fn parse(text: &str) -> Result<Self, String> {
                text.parse().map_err(|error: <Self as std::str::FromStr>::Err| error.to_string())
            }
        }
    )+};
}
pub(crate) use written;

written!(
    millrace_classify::FilterExpression,
    millrace_plugin_abi::Position,
    millrace_wire::MacAddr,
    action::FilterAction,
);

impl Written for IpNet {
    fn parse(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| {
            "no address with prefix length: write, for example, 10.0.0.0/8 or fd00::/48".to_owned()
        })
    }
}

/// Value in text form, such as an address or a filter. It keeps its original text and its byte range in the
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

    /// Returns the text, as it is in the file.
    pub fn written(&self) -> &str {
        &self.written
    }

    /// Returns the byte range in the file; `None` for a value outside of any file.
    pub(crate) fn span(&self) -> Option<Range<usize>> {
        self.span.clone()
    }
}

impl<T: fmt::Display> Text<T> {
    /// Creates a value that comes from no file. Its text is the text that `Display` writes.
    pub fn of(value: T) -> Self {
        Self { written: value.to_string(), value, span: None }
    }
}

string_schema!([T] Text<T>);

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

impl<T: Written> FromStr for Text<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(Self { value: T::parse(text)?, written: text.to_owned(), span: None })
    }
}

impl<'de, T: Written> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Placed { value: written, span } = Placed::<String>::deserialize(deserializer)?;
        match T::parse(&written) {
            Ok(value) => Ok(Self { value, written, span }),
            Err(problem) => Err(D::Error::custom(format!("{written:?}: {problem}"))),
        }
    }
}

/// Name with its byte range in the file.
#[derive(Clone, Debug)]
pub struct Named(Placed<String>);

impl Named {
    /// Returns the byte range in the file; `None` for a name outside of any file.
    pub(crate) fn span(&self) -> Option<Range<usize>> {
        self.0.span.clone()
    }
}

impl From<&str> for Named {
    /// Creates a name that comes from no file.
    fn from(name: &str) -> Self {
        Self(Placed { value: name.to_owned(), span: None })
    }
}

string_schema!([] Named);

impl Serialize for Named {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl Deref for Named {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0.value
    }
}

impl PartialEq for Named {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<'de> Deserialize<'de> for Named {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Placed::deserialize(deserializer).map(Self)
    }
}

/// One VLAN id, or an outer and an inner id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
#[serde(untagged)]
pub enum VlanIds {
    /// One 802.1Q tag, 1 to 4094.
    Single(u16),
    /// Outer 802.1ad tag and inner 802.1Q tag, 1 to 4094 each.
    Double([u16; 2]),
}

impl VlanIds {
    /// Returns the first id that is not in the range 1 to 4094; `None` if all are.
    pub(crate) fn invalid(self) -> Option<u16> {
        let ids = match self {
            Self::Single(id) => [id, 1],
            Self::Double(ids) => ids,
        };
        ids.into_iter().find(|id| !(1..=4094).contains(id))
    }
}

impl<'de> Deserialize<'de> for VlanIds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(VlanIdsVisitor)
    }
}

/// Visitor of one VLAN id, or a list of two.
struct VlanIdsVisitor;

impl<'de> Visitor<'de> for VlanIdsVisitor {
    type Value = VlanIds;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a VLAN id from 1 to 4094, or an outer and an inner id such as [100, 5]")
    }

    fn visit_u64<E: Error>(self, id: u64) -> Result<VlanIds, E> {
        let id = u16::try_from(id).map_err(|_| E::invalid_value(Unexpected::Unsigned(id), &self))?;
        Ok(VlanIds::Single(id))
    }

    fn visit_i64<E: Error>(self, id: i64) -> Result<VlanIds, E> {
        match u64::try_from(id) {
            Ok(id) => self.visit_u64(id),
            Err(_) => Err(E::invalid_value(Unexpected::Signed(id), &self)),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<VlanIds, A::Error> {
        let mut ids = Vec::new();
        while let Some(id) = access.next_element()? {
            ids.push(id);
        }
        match ids[..] {
            [outer, inner] => Ok(VlanIds::Double([outer, inner])),
            _ => Err(A::Error::invalid_length(ids.len(), &self)),
        }
    }
}

/// Whether a value is the default of its type.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Maximum number of packets that a worker takes from a port in an iteration.
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
            _ => Err(format!("weight must be 1 to 256 packets per worker iteration, not {weight}")),
        }
    }
}

/// Weight of sending at a port among the functions of core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "u64")]
pub struct OutputWeight(pub u16);

impl Default for OutputWeight {
    fn default() -> Self {
        Self(256)
    }
}

impl TryFrom<u64> for OutputWeight {
    type Error = String;

    fn try_from(weight: u64) -> Result<Self, String> {
        match u16::try_from(weight) {
            Ok(weight @ 1..=256) => Ok(Self(weight)),
            _ => Err(format!("weight must be 1 to 256, not {weight}")),
        }
    }
}
