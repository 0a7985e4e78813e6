//! Routes, and neighbours that are known for good.

use std::net::IpAddr;

use ipnet::IpNet;
use millrace_wire::MacAddr;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::{Named, Text, is_default};

/// A route of our own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Route {
    /// Destination prefix.
    #[schemars(with = "String")]
    pub to: Text<IpNet>,
    /// Next hop; several share the flows.
    #[serde(default, deserialize_with = "one_or_many")]
    #[schemars(with = "OneOrMany")]
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "one_alone")]
    pub via: Vec<IpAddr>,
    /// Port to leave by; without `via` the destinations are neighbours there.
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<Named>,
    /// What the route does. Default `forward`.
    #[serde(default)]
    #[serde(skip_serializing_if = "is_default")]
    pub kind: RouteKind,
}

/// One address as it is, several as a list.
fn one_alone<S: serde::Serializer>(addresses: &[IpAddr], serializer: S) -> Result<S::Ok, S::Error> {
    match addresses {
        [address] => address.serialize(serializer),
        addresses => addresses.serialize(serializer),
    }
}

fn one_or_many<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<IpAddr>, D::Error> {
    let one_or_many = OneOrMany::deserialize(deserializer)
        .map_err(|_| serde::de::Error::custom("not an address, nor a list of addresses"))?;
    Ok(match one_or_many {
        OneOrMany::One(address) => vec![address],
        OneOrMany::Many(addresses) => addresses,
    })
}

/// What a route does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RouteKind {
    /// It leads to the next hop.
    #[default]
    Forward,
    /// Packets vanish.
    Blackhole,
    /// Packets are refused as unreachable.
    Unreachable,
    /// Packets are refused as prohibited.
    Prohibit,
}

impl RouteKind {
    /// Its name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Blackhole => "blackhole",
            Self::Unreachable => "unreachable",
            Self::Prohibit => "prohibit",
        }
    }
}

/// A neighbour that is known for good, at a port without a kernel device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Neighbour {
    /// The port it is behind.
    #[schemars(with = "String")]
    pub port: Named,
    /// Its address.
    pub address: IpAddr,
    /// Its MAC address.
    #[schemars(with = "String")]
    pub mac: Text<MacAddr>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum OneOrMany {
    One(IpAddr),
    Many(Vec<IpAddr>),
}
