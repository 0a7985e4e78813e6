//! Checked description of a lab: nodes, links, devices and routes.

use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::impairment::Impairment;

/// Checked lab file. Building it can fail only if the machine refuses a step.
#[derive(Clone, Debug)]
pub struct LabFile {
    /// Name of the lab; it is the prefix of its namespaces' names.
    pub name: String,
    /// Path of the lab file; `None` for a lab from a text.
    pub path: Option<PathBuf>,
    /// Hosts, then routers, each in the order of the file.
    pub nodes: Vec<Node>,
    /// Links, in the order of the file.
    pub links: Vec<Link>,
}

/// Host or router of a lab.
#[derive(Clone, Debug)]
pub struct Node {
    /// Name of the node, unique in the lab.
    pub name: String,
    /// Kind of the node.
    pub kind: NodeKind,
    /// Devices of the node: one for each link that ends at the node, in the order of the links.
    pub devices: Vec<Device>,
    /// Static routes of the node.
    pub routes: Vec<Route>,
    /// Whether the devices keep Linux's default checksum and segmentation offloads.
    pub offloads: bool,
    /// Whether the devices use generic receive offload; `None` for Linux's default.
    pub gro: Option<bool>,
    /// Settings of a Millrace router; `None` for other nodes.
    pub router: Option<Router>,
    /// Routing daemons in starting order.
    pub daemons: Vec<Daemon>,
    /// Shell commands, run in order after everything else has started.
    pub commands: Vec<String>,
}

/// Kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeKind {
    /// Host, which sends and receives.
    Host,
    /// Router whose kernel forwards.
    Kernel,
    /// Router whose Millrace daemon forwards.
    Millrace,
}

/// Settings of a Millrace router.
#[derive(Clone, Debug, Default)]
pub struct Router {
    /// Receive mode of the workers; `None` for Millrace's default.
    pub mode: Option<&'static str>,
    /// Configuration of the router, without the ports of links.
    pub config: toml::Table,
    /// Further arguments of `millrace run`.
    pub arguments: Vec<String>,
}

/// Routing daemon of a node, with its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Daemon {
    /// Program: `bird`, or a daemon of FRR.
    pub program: &'static str,
    /// Text of the configuration.
    pub config: String,
}

/// Device at one end of a link.
#[derive(Clone, Debug)]
pub struct Device {
    /// Name of the device inside the node's namespace.
    pub name: String,
    /// Addresses of the device.
    pub addresses: Vec<IpNet>,
    /// Impairment that the device's port causes; `None` for none. Only a Millrace router's port can have one.
    pub impairment: Option<Impairment>,
}

/// Link: a pair of virtual Ethernet (veth) devices.
#[derive(Clone, Debug)]
pub struct Link {
    /// Ends of the link, at different nodes.
    pub ends: [End; 2],
    /// MTU in bytes; `None` for 1500.
    pub mtu: Option<u32>,
}

/// End of a link: indices of a node, and of one of its devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Index into [`LabFile::nodes`].
    pub node: usize,
    /// Index into [`Node::devices`].
    pub device: usize,
}

/// Static route of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destination network.
    pub to: IpNet,
    /// Next hop; `None` if the destinations are on the link at `device`.
    pub via: Option<IpAddr>,
    /// Output device; `None` if the next hop determines it.
    pub device: Option<String>,
}

impl LabFile {
    /// Returns the index of a node.
    pub fn node(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.name == name)
    }

    /// Returns the namespace of a node.
    pub fn namespace(&self, node: &str) -> String {
        format!("{}-{node}", self.name)
    }
}
