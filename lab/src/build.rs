//! Construction of a lab. Each step is written to the lab's record before its execution, so that the lab can
//! be removed after any failed step.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ipnet::IpNet;

use crate::daemon::DaemonFiles;
use crate::error::LabError;
use crate::ip_command::{ip, ip_batch, run_within};
use crate::process::{LOOK, NotReady, Starting, last_lines, spawn, start};
use crate::router_config;
use crate::state::{DEFAULT_RUNTIME_DIRECTORY, NodeState, Records, State};
use crate::topology::{Daemon, End, LabFile, Link, Node, NodeKind, Route, Router};
use crate::{namespace, topology::Device};

/// Options for building a lab.
#[derive(Clone, Debug)]
pub struct Options {
    /// Path of the `millrace` binary that Millrace routers run.
    pub router_binary: PathBuf,
    /// Directory of the lab's record, and of the sockets and logs of its routers. Default
    /// `/run/millrace/lab`.
    pub runtime_directory: PathBuf,
    /// Time limit until a router forwards. Default 10 s.
    pub patience: Duration,
    /// Flag that another thread or a signal handler sets to interrupt the construction. The lab is then
    /// removed.
    pub interrupted: Arc<AtomicBool>,
}

impl Options {
    /// Returns the default options; Millrace routers run `router_binary`.
    pub fn new(router_binary: impl Into<PathBuf>) -> Self {
        Self {
            router_binary: router_binary.into(),
            runtime_directory: PathBuf::from(DEFAULT_RUNTIME_DIRECTORY),
            patience: Duration::from_secs(10),
            interrupted: Arc::new(AtomicBool::new(false)),
        }
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

/// Sysctl values of every node, set before its devices exist. With these values, addresses need no duplicate
/// address detection, and hosts send no unneeded packets.
const NODE_SYSCTLS: &[(&str, &str)] = &[
    ("ipv6/conf/all/accept_dad", "0"),
    ("ipv6/conf/default/accept_dad", "0"),
    ("ipv6/conf/default/accept_ra", "0"),
    ("ipv6/conf/default/router_solicitations", "0"),
];

const ROUTER_SYSCTLS: &[(&str, &str)] = &[("ipv4/ip_forward", "1"), ("ipv6/conf/all/forwarding", "1")];

/// Device offloads that `offloads = false` turns off, as `ethtool` names them.
const OFFLOADS: &[&str] = &["rx", "tx", "tso", "gso", "gro"];

/// Construction of a lab: file, options and record.
pub(crate) struct Builder<'a> {
    pub file: &'a LabFile,
    pub options: &'a Options,
    pub records: &'a Records,
    pub state: &'a mut State,
    pub children: &'a mut Vec<Child>,
}

impl Builder<'_> {
    /// Builds the whole lab. After an error, the parts built so far remain; the record lists them.
    pub fn build(&mut self) -> Result<(), LabError> {
        for (index, node) in self.file.nodes.iter().enumerate() {
            self.step(format!("making {}", node.name), |lab| lab.make_node(index))?;
        }
        for link in &self.file.links {
            let [first, second] = link.ends.map(|end| describe(self.file, end));
            self.step(format!("linking {first} and {second}"), |lab| lab.make_link(link))?;
        }
        for node in &self.file.nodes {
            self.step(format!("giving {} its addresses", node.name), |lab| lab.configure(node))?;
        }
        for node in &self.file.nodes {
            self.step(format!("giving {} its routes", node.name), |lab| lab.add_routes(node))?;
        }
        for (index, node) in self.file.nodes.iter().enumerate() {
            if let Some(router) = &node.router {
                self.step(format!("starting router {}", node.name), |lab| lab.start_router(index, router))?;
            }
        }
        for (index, node) in self.file.nodes.iter().enumerate() {
            for daemon in &node.daemons {
                let step = format!("starting {} at {}", daemon.program, node.name);
                self.step(step, |lab| lab.start_daemon(index, daemon))?;
            }
        }
        for node in &self.file.nodes {
            for command in &node.commands {
                self.step(format!("running a command at {}", node.name), |lab| {
                    lab.run_command(node, command)
                })?;
            }
        }
        Ok(())
    }

    fn step(
        &mut self,
        step: String,
        act: impl FnOnce(&mut Self) -> Result<(), LabError>,
    ) -> Result<(), LabError> {
        let result = if self.options.is_interrupted() { Err(LabError::Interrupted) } else { act(self) };
        result.map_err(|error| match error {
            // Report the interruption rather than the failure of `ip`, which received the same signal.
            _ if self.options.is_interrupted() => {
                LabError::Step { step, source: Box::new(LabError::Interrupted) }
            }
            error => LabError::Step { step, source: Box::new(error) },
        })
    }

    fn namespace(&self, end: End) -> String {
        self.file.namespace(&self.file.nodes[end.node].name)
    }

    fn make_node(&mut self, index: usize) -> Result<(), LabError> {
        let node = &self.file.nodes[index];
        let name = self.file.namespace(&node.name);
        if namespace::path(&name).exists() {
            return Err(LabError::NamespaceTaken(name));
        }
        self.state.nodes.push(NodeState::new(self.file, index));
        self.records.save(self.state)?;
        ip(&["netns", "add", &name])?;
        namespace::set_sysctls(&name, NODE_SYSCTLS)?;
        if node.kind != NodeKind::Host {
            namespace::set_sysctls(&name, ROUTER_SYSCTLS)?;
        }
        ip(&["-n", &name, "link", "set", "lo", "up"])
    }

    fn make_link(&mut self, link: &Link) -> Result<(), LabError> {
        let [near, far] = link.ends.map(|end| self.namespace(end));
        let [device, peer] = link.ends.map(|end| &self.file.nodes[end.node].devices[end.device].name);
        let mtu = link.mtu.unwrap_or(1500).to_string();
        let first = ["link", "add", "name", device, "mtu", &mtu, "netns", &near, "type", "veth"];
        let second = ["peer", "name", peer, "mtu", &mtu, "netns", &far];
        ip(&[&first[..], &second[..]].concat())?;
        link.ends.iter().try_for_each(|&end| self.set_offloads(end))
    }

    fn set_offloads(&self, end: End) -> Result<(), LabError> {
        let node = &self.file.nodes[end.node];
        let device = &node.devices[end.device].name;
        let mut arguments = vec!["-K", device];
        if !node.offloads {
            arguments.extend(OFFLOADS.iter().flat_map(|feature| [*feature, "off"]));
        }
        if let Some(gro) = node.gro {
            arguments.extend(["gro", if gro { "on" } else { "off" }]);
        }
        if arguments.len() == 2 { Ok(()) } else { run_within(&self.namespace(end), "ethtool", &arguments) }
    }

    fn configure(&mut self, node: &Node) -> Result<(), LabError> {
        let lines: Vec<String> = node.devices.iter().flat_map(device_commands).collect();
        ip_batch(&self.file.namespace(&node.name), &lines)
    }

    fn add_routes(&mut self, node: &Node) -> Result<(), LabError> {
        let lines: Vec<String> = node.routes.iter().map(route_command).collect();
        ip_batch(&self.file.namespace(&node.name), &lines)
    }

    fn start_router(&mut self, index: usize, router: &Router) -> Result<(), LabError> {
        let node = &self.file.nodes[index];
        let files = RouterFiles::new(&self.records.files(&self.file.name), &node.name);
        let config = router_config::render(node, router)
            .map_err(|message| LabError::RouterConfig { router: node.name.clone(), message })?;
        fs::write(&files.config, config).map_err(LabError::file("write", &files.config))?;
        let binary = &self.options.router_binary;
        let mut starting =
            start(&self.file.namespace(&node.name), binary, &files.arguments(&router.arguments), &files.log)?;
        let record = &mut self.state.nodes[index];
        record.process = Some(starting.process);
        record.socket = Some(files.socket);
        let recorded = self.records.save(self.state);
        let ready = recorded.and_then(|()| self.wait(&node.name, &mut starting, &files.log));
        self.children.push(starting.child);
        ready
    }

    fn start_daemon(&mut self, index: usize, daemon: &Daemon) -> Result<(), LabError> {
        let node = &self.file.nodes[index];
        let files = DaemonFiles::make(&self.records.files(&self.file.name), &node.name, daemon)?;
        let namespace = self.file.namespace(&node.name);
        files.check(&namespace)?;
        let (mut child, process) = spawn(&namespace, &files.program, &files.arguments, &files.log)?;
        self.state.nodes[index].daemons.push(process);
        let recorded = self.records.save(self.state);
        let deadline = Instant::now() + self.options.patience;
        let ready =
            recorded.and_then(|()| files.wait(&mut child, deadline, || self.options.is_interrupted()));
        self.children.push(child);
        ready
    }

    /// Runs a command of the lab file in a shell, with its output in a log.
    fn run_command(&mut self, node: &Node, command: &str) -> Result<(), LabError> {
        let log = self.records.files(&self.file.name).join(format!("{}.commands.log", node.name));
        let (mut child, _) = spawn(
            &self.file.namespace(&node.name),
            Path::new("/bin/sh"),
            &["-c".to_owned(), command.to_owned()],
            &log,
        )?;
        let status = loop {
            if self.options.is_interrupted() {
                self.children.push(child);
                return Err(LabError::Interrupted);
            }
            match child.try_wait().map_err(LabError::system("wait for a command"))? {
                Some(status) => break status,
                None => std::thread::sleep(LOOK),
            }
        };
        if status.success() {
            return Ok(());
        }
        let command = command.to_owned();
        Err(LabError::StartCommand { command, status: status.to_string(), output: last_lines(&log) })
    }

    fn wait(&self, router: &str, starting: &mut Starting, log: &Path) -> Result<(), LabError> {
        let patience = self.options.patience;
        let router = router.to_owned();
        let deadline = Instant::now() + patience;
        starting.wait(deadline, || self.options.is_interrupted()).map_err(|why| match why {
            NotReady::Ended(status) => LabError::RouterEnded { router, status, log: last_lines(log) },
            NotReady::TimedOut => {
                LabError::RouterNotReady { router, seconds: patience.as_secs(), log: last_lines(log) }
            }
            NotReady::Interrupted => LabError::Interrupted,
        })
    }
}

/// Formats an end of a link as `NODE:DEVICE`.
fn describe(file: &LabFile, end: End) -> String {
    let node = &file.nodes[end.node];
    format!("{}:{}", node.name, node.devices[end.device].name)
}

fn device_commands(device: &Device) -> Vec<String> {
    let name = &device.name;
    let address = |net: &IpNet| match net {
        IpNet::V4(_) => format!("address add {net} dev {name}"),
        IpNet::V6(_) => format!("address add {net} dev {name} nodad"),
    };
    let up = std::iter::once(format!("link set {name} up"));
    up.chain(device.addresses.iter().map(address)).collect()
}

fn route_command(route: &Route) -> String {
    let via = route.via.map(|via| format!(" via {via}")).unwrap_or_default();
    let device = route.device.as_ref().map(|device| format!(" dev {device}")).unwrap_or_default();
    format!("route add {}{via}{device}", route.to)
}

/// Files of a Millrace router's daemon.
struct RouterFiles {
    config: PathBuf,
    socket: PathBuf,
    log: PathBuf,
    /// State directory, which is removed with the lab.
    state: PathBuf,
}

impl RouterFiles {
    fn new(directory: &Path, router: &str) -> Self {
        let file = |extension: &str| directory.join(format!("{router}.{extension}"));
        Self { config: file("toml"), socket: file("sock"), log: file("log"), state: file("state") }
    }

    fn arguments(&self, more: &[String]) -> Vec<String> {
        let text = |path: &Path| path.display().to_string();
        let mut arguments = vec![
            "--socket".to_owned(),
            text(&self.socket),
            "run".to_owned(),
            "--config".to_owned(),
            text(&self.config),
        ];
        if !more.iter().any(|word| word.starts_with("--state")) {
            arguments.extend(["--state".to_owned(), text(&self.state)]);
        }
        arguments.extend(more.iter().cloned());
        arguments
    }
}
