//! Reading, writing and schema of values that a file holds as text.

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserializer, Error, Visitor};

/// Declares the schema of a type to be a string. The generic parameters precede the type.
macro_rules! string_schema {
    ([$($generics:tt)*] $name:ty) => {
        impl<$($generics)*> schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                "String".into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({"type": "string"})
            }

            fn inline_schema() -> bool {
                true
            }
        }
    };
}

/// Implements reading, writing and schema of a type by its text form. The generic parameters precede the
/// type.
macro_rules! written_value {
    ([$($generics:tt)*] $name:ty, $expected:literal) => {
        impl<$($generics)*> serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de, $($generics)*> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                crate::values::form::read_written(deserializer, $expected)
            }
        }

        crate::values::form::string_schema!([$($generics)*] $name);
    };
}

pub(crate) use {string_schema, written_value};

/// Reads a value in text form. A plain number is passed to the parser as a text, so that the error says that
/// the unit is missing.
pub(crate) fn read_written<'de, T: FromStr<Err = String>, D: Deserializer<'de>>(
    deserializer: D,
    expected: &'static str,
) -> Result<T, D::Error> {
    struct WrittenVisitor<T>(&'static str, std::marker::PhantomData<T>);

    impl<T: FromStr<Err = String>> Visitor<'_> for WrittenVisitor<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
            text.parse().map_err(E::custom)
        }

        fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
            self.visit_str(&number.to_string())
        }

        fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
            self.visit_str(&number.to_string())
        }

        fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
            self.visit_str(&number.to_string())
        }
    }
    deserializer.deserialize_any(WrittenVisitor(expected, std::marker::PhantomData))
}
