//! Conversion of a lab file into a checked lab. The error for an impossible lab names the position of the
//! fault.

use std::collections::HashSet;
use std::fs;
use std::net::IpAddr;
use std::ops::Range;
use std::path::Path;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use millrace_units::{here, remedy};
use toml::Spanned;

use crate::daemon;
use crate::error::FileError;
use crate::position::{improve, place};
use crate::router_config;
use crate::schema::{
    self, DaemonTable, Destination, File, HostTable, LinkTable, RouteTable, RouterKind, RouterTable, Text,
};
use crate::topology::{Daemon, Device, End, LabFile, Link, Node, NodeKind, Route, Router};

/// Fault of a lab file and its position.
#[derive(Debug)]
pub(crate) struct Wrong {
    pub span: Option<Range<usize>>,
    pub message: String,
}

fn wrong<T>(span: Range<usize>, message: impl Into<String>) -> Result<T, Wrong> {
    Err(Wrong { span: Some(span), message: message.into() })
}

/// Maximum length of a network device's name: IFNAMSIZ without the terminating zero.
const DEVICE_NAME_LENGTH: usize = 15;
/// Maximum length of the name of a lab or a node. It keeps namespace names and socket paths short enough.
const NAME_LENGTH: usize = 24;

impl LabFile {
    /// Reads and checks a file. Relative paths in the file are relative to the file's directory.
    ///
    /// # Errors
    /// The file can't be read, is not TOML, has an unknown key or describes an impossible lab. The error
    /// names line and column.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let text = fs::read_to_string(path)
            .map_err(|source| FileError::Read { path: path.to_path_buf(), source })?;
        let mut file = Self::parse(&text, path)?;
        file.path = Some(fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf()));
        Ok(file)
    }

    /// Checks the text of a lab file. `path` is the file's name in errors; relative paths in the text start
    /// at its directory.
    ///
    /// # Errors
    /// See [`LabFile::read`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, FileError> {
        let name = path.display().to_string();
        let content = |span, message| FileError::Content { place: place(&name, text, span), message };
        let file: schema::File =
            toml::from_str(text).map_err(|error| content(error.span(), improve(error.message())))?;
        let directory = path.parent().unwrap_or(Path::new("."));
        check(file, directory).map_err(|wrong| content(wrong.span, wrong.message))
    }

    /// Returns the lab's name for a command-line argument. If a lab file exists at this path, returns the
    /// name in it. Otherwise returns the argument itself.
    ///
    /// # Errors
    /// The file exists, but is not a lab file.
    pub fn name_of(word: &str) -> Result<String, FileError> {
        let path = Path::new(word);
        if path.is_file() { Self::read(path).map(|file| file.name) } else { Ok(word.to_owned()) }
    }
}

/// Checks a parsed lab file. Relative paths in it start at `directory`.
pub(crate) fn check(file: File, directory: &Path) -> Result<LabFile, Wrong> {
    check_name(&file.lab.name, "lab")?;
    let mut lab = LabFile {
        name: file.lab.name.get_ref().clone(),
        path: None,
        nodes: nodes(&file, directory)?,
        links: Vec::new(),
    };
    for link in &file.link {
        add_link(&mut lab, link)?;
    }
    for host in &file.host {
        complete_host(&mut lab, host)?;
    }
    check_addresses(&lab, &file)?;
    for host in &file.host {
        add_gateways(&mut lab, host)?;
    }
    for route in &file.route {
        add_route(&mut lab, route)?;
    }
    for daemon in &file.daemon {
        add_daemon(&mut lab, daemon, directory)?;
    }
    Ok(lab)
}

fn check_name(name: &Spanned<String>, of: &str) -> Result<(), Wrong> {
    let text = name.get_ref();
    let letters = text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
    if !letters || text.is_empty() || text.len() > NAME_LENGTH || text.starts_with('-') {
        let right = format!("1 to {NAME_LENGTH} letters, digits, - and _, not beginning with -");
        return wrong(name.span(), format!("{text:?} is not a valid name of a {of}: give {right}"));
    }
    Ok(())
}

fn nodes(file: &File, directory: &Path) -> Result<Vec<Node>, Wrong> {
    let mut nodes: Vec<Node> = Vec::new();
    for host in &file.host {
        add_node(&mut nodes, &host.name, host_node(host))?;
    }
    for router in &file.router {
        add_node(&mut nodes, &router.name, router_node(router, directory)?)?;
    }
    Ok(nodes)
}

fn add_node(nodes: &mut Vec<Node>, name: &Spanned<String>, node: Node) -> Result<(), Wrong> {
    check_name(name, "node")?;
    if nodes.iter().any(|other| other.name == node.name) {
        return wrong(
            name.span(),
            format!("two nodes have the name {}: give each a different name", node.name),
        );
    }
    nodes.push(node);
    Ok(())
}

fn host_node(host: &HostTable) -> Node {
    Node {
        name: host.name.get_ref().clone(),
        kind: NodeKind::Host,
        devices: Vec::new(),
        routes: Vec::new(),
        offloads: host.offloads,
        // Hosts accept redirected frames only with GRO. Without it, a router's XDP program can't forward to
        // them.
        gro: Some(host.gro.unwrap_or(host.offloads)),
        router: None,
        daemons: Vec::new(),
        commands: host.commands.clone(),
    }
}

fn router_node(table: &RouterTable, directory: &Path) -> Result<Node, Wrong> {
    let kind = match table.kind {
        RouterKind::Kernel => NodeKind::Kernel,
        RouterKind::Millrace => NodeKind::Millrace,
    };
    if kind == NodeKind::Kernel {
        refuse_millrace_keys(table)?;
    }
    let config = match &table.config {
        Some(config) => router_config::read(config.get_ref(), directory)
            .map_err(|message| Wrong { span: Some(config.span()), message })?,
        None => toml::Table::new(),
    };
    let router = Router {
        mode: table.mode.as_ref().map(|mode| mode.get_ref().name()),
        config,
        arguments: table.arguments.as_ref().map(|list| list.get_ref().clone()).unwrap_or_default(),
    };
    Ok(Node {
        name: table.name.get_ref().clone(),
        kind,
        devices: Vec::new(),
        routes: Vec::new(),
        offloads: table.offloads,
        gro: table.gro,
        router: (kind == NodeKind::Millrace).then_some(router),
        daemons: Vec::new(),
        commands: table.commands.clone(),
    })
}

fn add_daemon(lab: &mut LabFile, table: &DaemonTable, directory: &Path) -> Result<(), Wrong> {
    let index = find_node(lab, table.node.get_ref(), table.node.span())?;
    let name = table.program.get_ref();
    let Some(program) = daemon::PROGRAMS.iter().find(|known| *known == name) else {
        let known = here("routing daemon", daemon::PROGRAMS);
        return wrong(table.program.span(), format!("{name:?} is not a supported routing daemon; {known}"));
    };
    let config = match (&table.config, &table.text) {
        (None, Some(text)) => text.get_ref().clone(),
        (Some(path), None) => {
            let file = directory.join(path.get_ref());
            std::fs::read_to_string(&file).map_err(|error| Wrong {
                span: Some(path.span()),
                message: format!("cannot read {}: {error}", file.display()),
            })?
        }
        (None, None) => {
            let message =
                format!("{name} needs a configuration: set config = \"FILE\", or text = \"\"\"…\"\"\"");
            return wrong(table.program.span(), message);
        }
        (Some(_), Some(text)) => {
            return wrong(text.span(), "`config` and `text` exclude each other: give one of them");
        }
    };
    let node = &mut lab.nodes[index];
    if node.daemons.iter().any(|other| other.program == *program) {
        return wrong(
            table.program.span(),
            format!("node {} already has {program}: remove one of the two", node.name),
        );
    }
    node.daemons.push(Daemon { program, config });
    // Start zebra first: the other daemons of FRR reach the kernel through zebra.
    node.daemons.sort_by_key(|daemon| daemon.program != daemon::ZEBRA);
    Ok(())
}

fn refuse_millrace_keys(table: &RouterTable) -> Result<(), Wrong> {
    let spans = [
        ("mode", table.mode.as_ref().map(Spanned::span)),
        ("config", table.config.as_ref().map(Spanned::span)),
        ("arguments", table.arguments.as_ref().map(Spanned::span)),
    ];
    match spans.into_iter().find_map(|(key, span)| Some((key, span?))) {
        Some((key, span)) => wrong(
            span,
            format!(
                "`{key}` needs a router of kind \"millrace\", but {} is of kind \"kernel\"",
                table.name.get_ref()
            ),
        ),
        None => Ok(()),
    }
}

fn add_link(lab: &mut LabFile, link: &LinkTable) -> Result<(), Wrong> {
    let [first, second] = link.ends.get_ref().as_slice() else {
        return wrong(link.ends.span(), "a link needs two ends, as in ends = [\"h1\", \"r:r1\"]");
    };
    let mtu = link.mtu.as_ref().map(check_mtu).transpose()?;
    let ends = [add_end(lab, first)?, add_end(lab, second)?];
    if ends[0].node == ends[1].node {
        return wrong(
            link.ends.span(),
            format!("both ends of the link are at {}: name two different nodes", node_part(first)),
        );
    }
    for (name, addresses) in &link.addresses {
        let Some(end) = ends.iter().find(|end| lab.nodes[end.node].name == *name) else {
            let message = format!(
                "`addresses` names {name}, but the ends of this link are at {} and {}",
                node_part(first),
                node_part(second)
            );
            return wrong(link.ends.span(), message);
        };
        let addresses = addresses.iter().map(|address| address.get_ref().0);
        lab.nodes[end.node].devices[end.device].addresses.extend(addresses);
    }
    impair(lab, link, ends)?;
    lab.links.push(Link { ends, mtu });
    Ok(())
}

fn check_mtu(mtu: &Spanned<i64>) -> Result<u32, Wrong> {
    match u32::try_from(*mtu.get_ref()) {
        Ok(value @ 68..=65_535) => Ok(value),
        _ => wrong(mtu.span(), format!("mtu must be 68 to 65535 bytes, not {}", mtu.get_ref())),
    }
}

fn node_part(end: &Spanned<String>) -> &str {
    end.get_ref().split_once(':').map_or(end.get_ref(), |(node, _)| node)
}

/// Adds a device for an end of a link, given as `NODE` or `NODE:DEVICE`.
fn add_end(lab: &mut LabFile, end: &Spanned<String>) -> Result<End, Wrong> {
    let index = find_node(lab, node_part(end), end.span())?;
    let node = &mut lab.nodes[index];
    let device = match end.get_ref().split_once(':') {
        Some((_, device)) => device.to_owned(),
        None => format!("eth{}", node.devices.len()),
    };
    let letters = device.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '/' | ':' | '%'));
    if !letters
        || device.is_empty()
        || device.len() > DEVICE_NAME_LENGTH
        || matches!(&*device, "." | ".." | "lo")
    {
        let right = format!("1 to {DEVICE_NAME_LENGTH} letters and digits, as in \"{}:r1\"", node.name);
        return wrong(end.span(), format!("{device:?} is not a valid device name: give {right}"));
    }
    if node.devices.iter().any(|other| other.name == device) {
        return wrong(
            end.span(),
            format!("node {} has two devices with the name {device}: rename one", node.name),
        );
    }
    node.devices.push(Device { name: device, addresses: Vec::new(), impairment: None });
    Ok(End { node: index, device: node.devices.len() - 1 })
}

fn find_node(lab: &LabFile, name: &str, span: Range<usize>) -> Result<usize, Wrong> {
    if let Some(index) = lab.node(name) {
        return Ok(index);
    }
    let names: Vec<&str> = lab.nodes.iter().map(|node| node.name.as_str()).collect();
    wrong(span, format!("no [[host]] or [[router]] is named {name:?}{}", remedy("node", name, names)))
}

/// Assigns a link's impairment to the port of the Millrace router at one end. If both ends have a Millrace
/// router, takes the first end.
fn impair(lab: &mut LabFile, link: &LinkTable, ends: [End; 2]) -> Result<(), Wrong> {
    let Some(impairment) = &link.impairment else { return Ok(()) };
    if let Some(message) = impairment.get_ref().objection() {
        return wrong(impairment.span(), message);
    }
    let Some(end) = ends.iter().find(|end| lab.nodes[end.node].kind == NodeKind::Millrace) else {
        let message = "impairment needs a router of kind \"millrace\" at one end of the link, because its \
                       port applies the impairment";
        return wrong(impairment.span(), message);
    };
    lab.nodes[end.node].devices[end.device].impairment = Some(impairment.get_ref().clone());
    Ok(())
}

/// Adds the `addresses` of a host's table to the host's only device.
fn complete_host(lab: &mut LabFile, host: &HostTable) -> Result<(), Wrong> {
    let Some(address) = host.addresses.first() else { return Ok(()) };
    let index = find_node(lab, host.name.get_ref(), host.name.span())?;
    let [device] = lab.nodes[index].devices.as_mut_slice() else {
        let links = lab.nodes[index].devices.len();
        let message = format!(
            "{} has {links} links: move the address to one link, as addresses.{} = [{:?}]",
            host.name.get_ref(),
            host.name.get_ref(),
            address.get_ref().0.to_string()
        );
        return wrong(address.span(), message);
    };
    device.addresses.splice(0..0, host.addresses.iter().map(|address| address.get_ref().0));
    Ok(())
}

/// Checks that no address occurs twice, and none is a network address.
fn check_addresses(lab: &LabFile, file: &File) -> Result<(), Wrong> {
    let of_links = file.link.iter().flat_map(|link| link.addresses.values().flatten());
    let spanned = file.host.iter().flat_map(|host| &host.addresses).chain(of_links);
    let mut seen = HashSet::new();
    for address in spanned {
        let net = address.get_ref().0;
        if !seen.insert(net.addr()) {
            return wrong(
                address.span(),
                format!("address {} is given twice in lab {}: remove one", net.addr(), lab.name),
            );
        }
        if is_network_address(net) {
            return wrong(
                address.span(),
                format!("{net} is the address of the network itself: give a host address in this network"),
            );
        }
    }
    Ok(())
}

fn is_network_address(net: IpNet) -> bool {
    match net {
        IpNet::V4(net) => net.prefix_len() < 31 && net.addr() == net.network(),
        IpNet::V6(net) => net.addr().is_unspecified(),
    }
}

fn add_gateways(lab: &mut LabFile, host: &HostTable) -> Result<(), Wrong> {
    let v4 = host.gateway.as_ref().map(|via| (IpAddr::V4(via.get_ref().0), via.span()));
    let v6 = host.gateway6.as_ref().map(|via| (IpAddr::V6(via.get_ref().0), via.span()));
    let index = find_node(lab, host.name.get_ref(), host.name.span())?;
    for (via, span) in [v4, v6].into_iter().flatten() {
        require_reachable(&lab.nodes[index], via, span)?;
        lab.nodes[index].routes.push(Route { to: everywhere(via), via: Some(via), device: None });
    }
    Ok(())
}

/// Returns the default route's prefix, 0.0.0.0/0 or ::/0, for the family of an address.
fn everywhere(address: IpAddr) -> IpNet {
    match address {
        IpAddr::V4(_) => IpNet::V4(Ipv4Net::default()),
        IpAddr::V6(_) => IpNet::V6(Ipv6Net::default()),
    }
}

fn require_reachable(node: &Node, via: IpAddr, span: Range<usize>) -> Result<(), Wrong> {
    let mut addresses = node.devices.iter().flat_map(|device| &device.addresses);
    if addresses.any(|net| net.contains(&via)) {
        return Ok(());
    }
    wrong(
        span,
        format!(
            "next hop {via} is in none of the networks of node {}: give a next hop in a connected network",
            node.name
        ),
    )
}

fn add_route(lab: &mut LabFile, route: &RouteTable) -> Result<(), Wrong> {
    let index = find_node(lab, route.node.get_ref(), route.node.span())?;
    let node = &lab.nodes[index];
    let via = route.via.as_ref().map(|via| via.get_ref().0);
    let device = route.device.as_ref().map(|device| device.get_ref().clone());
    if let Some(name) = &route.device
        && !node.devices.iter().any(|device| device.name == *name.get_ref())
    {
        let devices = node.devices.iter().map(|device| &*device.name);
        let remedy = remedy("device", name.get_ref(), devices);
        return wrong(name.span(), format!("node {} has no device {:?}{remedy}", node.name, name.get_ref()));
    }
    let to = destination(&route.to, via)?;
    match (&route.via, &device) {
        (Some(via), None) => require_reachable(node, via.get_ref().0, via.span())?,
        (None, None) => return wrong(route.to.span(), "a route needs `via`, `device`, or both"),
        _ => {}
    }
    lab.nodes[index].routes.push(Route { to, via, device });
    Ok(())
}

fn destination(to: &Spanned<Text<Destination>>, via: Option<IpAddr>) -> Result<IpNet, Wrong> {
    let net = match to.get_ref().0 {
        Destination::Default => everywhere(via.unwrap_or(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED))),
        Destination::Network(net) => net,
    };
    if net != net.trunc() {
        return wrong(
            to.span(),
            format!("{net} has host bits set beyond its prefix length: write {}", net.trunc()),
        );
    }
    if via.is_some_and(|via| via.is_ipv4() != net.addr().is_ipv4()) {
        return wrong(
            to.span(),
            "`to` and `via` are of different address families: write both as IPv4, or both as IPv6",
        );
    }
    Ok(net)
}
