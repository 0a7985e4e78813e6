//! What a lab consists of, once its file is checked.

use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::impairment::Impairment;

/// A checked lab file: it can be built, unless the machine objects.
#[derive(Clone, Debug)]
pub struct LabFile {
    /// The lab's name, the first part of its namespaces' names.
    pub name: String,
    /// Where it was read from.
    pub path: Option<PathBuf>,
    /// Hosts, then routers, in the file's order.
    pub nodes: Vec<Node>,
    /// Links, in the file's order.
    pub links: Vec<Link>,
}

/// A host or a router.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its name, unique in the lab.
    pub name: String,
    /// What it is.
    pub kind: NodeKind,
    /// One for each link that ends here, in the links' order.
    pub devices: Vec<Device>,
    /// Its static routes.
    pub routes: Vec<Route>,
    /// Whether its devices keep the checksum and segmentation offloads that Linux turns on.
    pub offloads: bool,
    /// Generic receive offload on its devices; as Linux has it when `None`.
    pub gro: Option<bool>,
    /// For a Millrace router, how it is run.
    pub router: Option<Router>,
    /// Its routing daemons, in the order in which they are started.
    pub daemons: Vec<Daemon>,
    /// Shell commands that are run there when everything else is up.
    pub commands: Vec<String>,
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeKind {
    /// It sends and receives.
    Host,
    /// The kernel forwards.
    Kernel,
    /// A Millrace daemon forwards.
    Millrace,
}

/// How a Millrace router is run.
#[derive(Clone, Debug, Default)]
pub struct Router {
    /// How its worker waits for packets; Millrace's default when `None`.
    pub mode: Option<&'static str>,
    /// Its configuration; ports are added when it is written.
    pub config: toml::Table,
    /// More arguments for `millrace run`.
    pub arguments: Vec<String>,
}

/// A routing daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Daemon {
    /// `bird`, or a daemon of FRR.
    pub program: &'static str,
    /// The text of its configuration.
    pub config: String,
}

/// One end of a link.
#[derive(Clone, Debug)]
pub struct Device {
    /// Its name inside the node's namespace.
    pub name: String,
    /// Its addresses.
    pub addresses: Vec<IpNet>,
    /// What the port on it does to packets; only at a Millrace router.
    pub impairment: Option<Impairment>,
}

/// A pair of virtual Ethernet devices.
#[derive(Clone, Debug)]
pub struct Link {
    /// Its two ends, at different nodes.
    pub ends: [End; 2],
    /// Largest packet in bytes; 1500 when `None`.
    pub mtu: Option<u32>,
}

/// Indices of a node and of one of its devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Index into [`LabFile::nodes`].
    pub node: usize,
    /// Index into [`Node::devices`].
    pub device: usize,
}

/// A static route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Where it leads.
    pub to: IpNet,
    /// The next hop.
    pub via: Option<IpAddr>,
    /// The device it leaves by, where the next hop doesn't say it.
    pub device: Option<String>,
}

impl LabFile {
    /// The index of a node.
    pub fn node(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.name == name)
    }

    /// The namespace of a node.
    pub fn namespace(&self, node: &str) -> String {
        format!("{}-{node}", self.name)
    }
}
