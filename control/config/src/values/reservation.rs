//! Reserved share of the processor, or the name of the principal whose share also counts here.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::Named;
use super::share::CpuShare;

/// Key of the name of the other principal in files.
const SAME_AS: &str = "same-as";
/// Same key in JSON.
const SAME_AS_JSON: &str = "same_as";

/// Reserved processor time of a principal, written as `"5 %"` or `{ same-as = "NAME" }`.
#[derive(Clone, Debug, PartialEq)]
pub enum CpuReservation {
    /// Share of its own.
    Share(CpuShare),
    /// Share of the principal of this name, which pays for all calls.
    SameAs(Named),
}

impl Serialize for CpuReservation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Share(share) => share.serialize(serializer),
            Self::SameAs(other) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry(SAME_AS, other)?;
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for CpuReservation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ReservationVisitor)
    }
}

struct ReservationVisitor;

impl<'de> Visitor<'de> for ReservationVisitor {
    type Value = CpuReservation;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a share of a processor such as \"5 %\", or { same-as = \"NAME\" }")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<CpuReservation, E> {
        text.parse().map(CpuReservation::Share).map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<CpuReservation, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<CpuReservation, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<CpuReservation, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<CpuReservation, A::Error> {
        let mut other = None;
        while let Some(key) = map.next_key::<String>()? {
            if key != SAME_AS && key != SAME_AS_JSON {
                return Err(Error::custom(format!(
                    "unknown key {key:?} in `cpu`: expected {{ same-as = \"NAME\" }}"
                )));
            }
            other = Some(map.next_value::<Named>()?);
        }
        other.map(CpuReservation::SameAs).ok_or_else(|| Error::missing_field(SAME_AS))
    }
}

impl schemars::JsonSchema for CpuReservation {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "CpuReservation".into()
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
