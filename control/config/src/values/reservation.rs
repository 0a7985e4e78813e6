//! Reservation of a resource, or the name of the principal whose reservation also counts here.

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::Named;
use super::quantity::Bits;
use super::share::CpuShare;

/// Key of the name of the other principal in files.
const SAME_AS: &str = "same-as";
/// Same key in JSON.
const SAME_AS_JSON: &str = "same_as";

/// Reserved amount of a resource, written as the amount or as `{ same-as = "NAME" }`.
#[derive(Clone, Debug, PartialEq)]
pub enum Reservation<T> {
    /// Amount of its own.
    Own(T),
    /// Amount of the principal of this name, which several principals share.
    SameAs(Named),
}

/// Reserved processor time of a principal, such as `"5 %"`.
pub type CpuReservation = Reservation<CpuShare>;
/// Reserved rate of a principal at a port, such as `"10mbit"`.
pub type LinkReservation = Reservation<Bits>;

/// Amount of a resource that principals reserve.
pub trait Reserved: FromStr<Err = String> + Serialize {
    /// Key of the setting.
    const KEY: &'static str;
    /// Amount in words, with an example.
    const EXPECTED: &'static str;
}

impl Reserved for CpuShare {
    const KEY: &'static str = "cpu";
    const EXPECTED: &'static str = "a share of a processor such as \"5 %\"";
}

impl Reserved for Bits {
    const KEY: &'static str = "link";
    const EXPECTED: &'static str = "a rate such as \"10mbit\"";
}

impl<T> Reservation<T> {
    /// Returns the amount of its own; `None` for the amount of another principal.
    pub fn own(&self) -> Option<&T> {
        match self {
            Self::Own(amount) => Some(amount),
            Self::SameAs(_) => None,
        }
    }

    /// Returns the name of the other principal; `None` for an amount of its own.
    pub fn same_as(&self) -> Option<&Named> {
        match self {
            Self::Own(_) => None,
            Self::SameAs(other) => Some(other),
        }
    }
}

impl<T: Reserved> Serialize for Reservation<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Own(amount) => amount.serialize(serializer),
            Self::SameAs(other) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry(SAME_AS, other)?;
                map.end()
            }
        }
    }
}

impl<'de, T: Reserved> Deserialize<'de> for Reservation<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let visitor = ReservationVisitor { key: T::KEY, expected: T::EXPECTED };
        match deserializer.deserialize_any(visitor)? {
            Reservation::Own(text) => text.parse().map(Self::Own).map_err(D::Error::custom),
            Reservation::SameAs(other) => Ok(Self::SameAs(other)),
        }
    }
}

/// Reads a reservation whose amount is not parsed yet.
struct ReservationVisitor {
    key: &'static str,
    expected: &'static str,
}

impl<'de> Visitor<'de> for ReservationVisitor {
    type Value = Reservation<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, or {{ same-as = \"NAME\" }}", self.expected)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Reservation<String>, E> {
        Ok(Reservation::Own(text.to_owned()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Reservation<String>, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Reservation<String>, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Reservation<String>, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Reservation<String>, A::Error> {
        let mut other = None;
        while let Some(key) = map.next_key::<String>()? {
            if key != SAME_AS && key != SAME_AS_JSON {
                return Err(Error::custom(format!(
                    "unknown key {key:?} in `{}`: expected {{ same-as = \"NAME\" }}",
                    self.key
                )));
            }
            other = Some(map.next_value::<Named>()?);
        }
        other.map(Reservation::SameAs).ok_or_else(|| Error::missing_field(SAME_AS))
    }
}

impl<T> schemars::JsonSchema for Reservation<T> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Reservation".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"anyOf": [
            {"type": "string"},
            {"type": "object", "additionalProperties": {"type": "string"}},
        ]})
    }

    fn inline_schema() -> bool {
        true
    }
}
