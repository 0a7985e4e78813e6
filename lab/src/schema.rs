//! Keys of a lab file as written. [`crate::LabFile`] is the checked result.
//!
//! ```toml
//! [lab]
//! name = "demo"                        # namespaces are called demo-h1, demo-r
//!
//! [[host]]
//! name = "h1"
//! addresses = ["10.1.0.2/24"]          # of its only link; with several links, set them on the links
//! gateway = "10.1.0.1"                 # and gateway6
//! offloads = true                      # false turns off checksum and segmentation offloads
//! gro = false                          # generic receive offload; default for hosts: value of offloads
//! commands = ["iperf3 -s -D"]          # run by `sh -c` in order, after everything else has started
//!
//! [[router]]
//! name = "r"
//! kind = "millrace"                    # or "kernel"
//! mode = "adaptive"                    # wait for packets: adaptive, poll, interrupt; only Millrace
//! config = "router.toml"               # Millrace configuration, or its tables in place; ports are added
//! arguments = []                       # further arguments of `millrace run`
//! commands = []                        # as for a host
//!
//! [[link]]
//! ends = ["h1", "r:r1"]                # NODE, or NODE:DEVICE; devices without a name are eth0, eth1, …
//! addresses.r = ["10.1.0.1/24"]        # of the end at node r
//! mtu = 1500                           # 68 to 65535 bytes
//! impairment = { delay-ms = 20, loss = 0.01, seed = 1 }   # needs a Millrace router at one end
//!
//! [[route]]
//! node = "r"
//! to = "10.9.0.0/16"                   # or "default"
//! via = "10.2.0.254"                   # or device = "r1"
//!
//! [[daemon]]                           # a routing daemon: bird, or one of FRR (zebra, bgpd, ospfd, …)
//! node = "r"
//! program = "bird"
//! config = "bird.conf"                 # beside the lab file; or text = """…""", the configuration itself
//! ```
//!
//! `docs/labs.md` documents the keys for users; a test compares both.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, de};
use toml::Spanned;

use crate::Impairment;

/// Lab file as parsed from TOML.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    pub lab: LabTable,
    #[serde(default)]
    pub host: Vec<HostTable>,
    #[serde(default)]
    pub router: Vec<RouterTable>,
    #[serde(default)]
    pub link: Vec<LinkTable>,
    #[serde(default)]
    pub route: Vec<RouteTable>,
    #[serde(default)]
    pub daemon: Vec<DaemonTable>,
}

/// Table `[lab]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LabTable {
    pub name: Spanned<String>,
}

/// Table `[[host]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HostTable {
    pub name: Spanned<String>,
    #[serde(default)]
    pub addresses: Vec<Spanned<Text<IpNet>>>,
    pub gateway: Option<Spanned<Text<Ipv4Addr>>>,
    pub gateway6: Option<Spanned<Text<Ipv6Addr>>>,
    #[serde(default = "yes")]
    pub offloads: bool,
    pub gro: Option<bool>,
    #[serde(default)]
    pub commands: Vec<String>,
}

/// Table `[[router]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RouterTable {
    pub name: Spanned<String>,
    #[serde(default)]
    pub kind: RouterKind,
    pub mode: Option<Spanned<Mode>>,
    pub config: Option<Spanned<Config>>,
    pub arguments: Option<Spanned<Vec<String>>>,
    #[serde(default = "yes")]
    pub offloads: bool,
    pub gro: Option<bool>,
    #[serde(default)]
    pub commands: Vec<String>,
}

/// Software that forwards on a router.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RouterKind {
    /// Millrace daemon.
    #[default]
    Millrace,
    /// Kernel without a daemon.
    Kernel,
}

/// Receive mode of a Millrace router's workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    Adaptive,
    Poll,
    Interrupt,
}

impl Mode {
    /// Returns the name of the mode, as in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Adaptive => "adaptive",
            Self::Poll => "poll",
            Self::Interrupt => "interrupt",
        }
    }
}

/// Configuration of a router: the path of a file, or the tables themselves in the lab file.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a path, or the configuration's tables")]
pub(crate) enum Config {
    Path(String),
    Tables(toml::Table),
}

/// Table `[[link]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LinkTable {
    pub ends: Spanned<Vec<Spanned<String>>>,
    #[serde(default)]
    pub addresses: BTreeMap<String, Vec<Spanned<Text<IpNet>>>>,
    pub mtu: Option<Spanned<i64>>,
    pub impairment: Option<Spanned<Impairment>>,
}

/// Table `[[route]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RouteTable {
    pub node: Spanned<String>,
    pub to: Spanned<Text<Destination>>,
    pub via: Option<Spanned<Text<std::net::IpAddr>>>,
    pub device: Option<Spanned<String>>,
}

/// Table `[[daemon]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DaemonTable {
    pub node: Spanned<String>,
    pub program: Spanned<String>,
    pub config: Option<Spanned<String>>,
    pub text: Option<Spanned<String>>,
}

/// Destination of a route: a network, or all addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    Default,
    Network(IpNet),
}

impl FromStr for Destination {
    type Err = ipnet::AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "default" { Ok(Self::Default) } else { text.parse().map(Self::Network) }
    }
}

/// Value that the lab file has as a string, parsed as a `T`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text<T>(pub T);

/// Type that is parsed from a string of the lab file.
pub(crate) trait Form: FromStr {
    /// Description of the format for the error `"x" is not …`.
    const FORM: &'static str;
}

impl Form for IpNet {
    const FORM: &'static str = "an address with its prefix length, as in 10.1.0.2/24 or fd00:1::2/64";
}

impl Form for Ipv4Addr {
    const FORM: &'static str = "an IPv4 address, as in 10.1.0.1";
}

impl Form for Ipv6Addr {
    const FORM: &'static str = "an IPv6 address, as in fd00:1::1";
}

impl Form for std::net::IpAddr {
    const FORM: &'static str = "an address, as in 10.1.0.1 or fd00:1::1";
}

impl Form for Destination {
    const FORM: &'static str = "a network, as in 10.9.0.0/16 or fd00:9::/48, or \"default\"";
}

impl<'de, T> Deserialize<'de> for Text<T>
where
    T: Form,
    T::Err: Display,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Text).map_err(|_| de::Error::custom(format!("{text:?} is not {}", T::FORM)))
    }
}

fn yes() -> bool {
    true
}
