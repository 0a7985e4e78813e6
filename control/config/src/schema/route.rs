//! Static routes and static neighbours.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use millrace_wire::MacAddr;
use schemars::JsonSchema;
use serde::de::{Error, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::values::{Named, Text, is_default};

/// Static route.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Route {
    /// Destination prefix.
    pub to: Text<IpNet>,
    /// Next hops: an address, or a list of addresses. With several next hops, the router distributes the
    /// flows among them.
    #[schemars(with = "OneOrMany")]
    #[serde(
        default,
        deserialize_with = "one_or_many",
        skip_serializing_if = "Vec::is_empty",
        serialize_with = "one_alone"
    )]
    pub via: Vec<IpAddr>,
    /// Egress port. Without `via`, the destinations are neighbours at this port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<Named>,
    /// Kind of the route. Default `forward`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub kind: RouteKind,
}

/// Serializes a single address as a value, and several addresses as a list.
fn one_alone<S: serde::Serializer>(addresses: &[IpAddr], serializer: S) -> Result<S::Ok, S::Error> {
    match addresses {
        [address] => address.serialize(serializer),
        addresses => addresses.serialize(serializer),
    }
}

fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpAddr>, D::Error> {
    deserializer.deserialize_any(NextHopsVisitor)
}

/// Visitor of one address, or a list of addresses.
struct NextHopsVisitor;

impl<'de> Visitor<'de> for NextHopsVisitor {
    type Value = Vec<IpAddr>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an IP address, or a list of IP addresses such as [\"10.0.0.1\", \"10.0.0.2\"]")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Vec<IpAddr>, E> {
        let address = text.parse().map_err(|_| E::invalid_value(Unexpected::Str(text), &self))?;
        Ok(vec![address])
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Vec<IpAddr>, A::Error> {
        let mut addresses = Vec::new();
        while let Some(address) = access.next_element()? {
            addresses.push(address);
        }
        Ok(addresses)
    }
}

/// Kind of a route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RouteKind {
    /// Packets are sent to a next hop.
    #[default]
    Forward,
    /// Packets are dropped silently.
    Blackhole,
    /// Packets are dropped, and their source gets the ICMP error "unreachable".
    Unreachable,
    /// Packets are dropped, and their source gets the ICMP error "prohibited".
    Prohibit,
}

impl RouteKind {
    /// Returns the name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Blackhole => "blackhole",
            Self::Unreachable => "unreachable",
            Self::Prohibit => "prohibit",
        }
    }
}

/// Static neighbour, at a port without a kernel device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Neighbour {
    /// Port of the neighbour.
    pub port: Named,
    /// IP address of the neighbour.
    pub address: IpAddr,
    /// MAC address of the neighbour.
    pub mac: Text<MacAddr>,
}

/// Schema of next hops: one address, or a list of addresses.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "only the schema of the type is used")]
enum OneOrMany {
    One(IpAddr),
    Many(Vec<IpAddr>),
}
