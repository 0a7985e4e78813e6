//! Values with their byte ranges in a file.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};

/// Name of a pretended struct. [`Placed`] asks for this struct, so that the reader of a [`Tree`](super::Tree)
/// also returns the byte range.
pub(super) const PLACED: &str = "$millrace::placed";

/// Value with its byte range; only a value from a file has one.
#[derive(Clone, Debug)]
pub(crate) struct Placed<T> {
    pub value: T,
    pub span: Option<Range<usize>>,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Placed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(PLACED, PlacedVisitor(PhantomData))
    }
}

/// Visitor of a value: either a list of the start, the end and the value, or the value alone.
struct PlacedVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for PlacedVisitor<T> {
    type Value = Placed<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Placed<T>, D::Error> {
        Ok(Placed { value: T::deserialize(deserializer)?, span: None })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Placed<T>, A::Error> {
        let missing =
            |index| serde::de::Error::invalid_length(index, &"the ends of a byte range and a value");
        let start = access.next_element()?.ok_or_else(|| missing(0))?;
        let end = access.next_element()?.ok_or_else(|| missing(1))?;
        let value = access.next_element()?.ok_or_else(|| missing(2))?;
        Ok(Placed { value, span: Some(start..end) })
    }
}
