//! Dry run of a start: determines its effects without starting the router.

use std::fmt;
use std::io;
use std::path::Path;

use millrace_config::{Config, Step};
use millrace_port::check_recording;
use millrace_port::pcap::Recording;
use millrace_units::count;
use nix::unistd::{AccessFlags, access};
use serde::Serialize;

use crate::error::Unplannable;
use crate::model::{Model, PortPlan};
use crate::ports::kernel_settings::complete;
use crate::show;
use crate::start::{findings, is_serious, kernel_links, start_mirror};
use crate::{ControlError, admission};

/// Maximum number of filters in the text for people; JSON lists all filters.
const LISTED: usize = 32;

/// Effects of starting a router.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Plan {
    /// Effects on each port.
    pub ports: Vec<PortPlanView>,
    /// Number of kernel routes that the router would mirror.
    pub routes: usize,
    /// Routes that the router would install in the kernel.
    pub installed: Vec<String>,
    /// Filters and instances, each with its effect on packets.
    pub filters: Vec<String>,
    /// Kernel policies that the router would bypass. If there are any, the start needs
    /// `--ignore-kernel-policy`.
    pub refused_for: Vec<String>,
    /// Further notes about the start.
    pub notes: Vec<String>,
}

/// Effects of starting a router on a port.
#[derive(Clone, Debug, Serialize)]
pub struct PortPlanView {
    /// Name of the port.
    pub name: String,
    /// Kernel device below the port.
    pub device: Option<String>,
    /// Addresses of the port.
    pub addresses: Vec<String>,
    /// Packets that the router would take.
    pub to_router: &'static str,
    /// Packets that stay with the kernel.
    pub to_kernel: &'static str,
    /// Changes on the device.
    pub changes: &'static str,
    /// Treatment of the port's packets after the router has died.
    pub on_death: Option<&'static str>,
    /// Reverse-path check of packets from the port: `off`, `strict` or `loose`.
    pub reverse_path: &'static str,
}

/// Determines the effects of starting a router.
///
/// # Errors
/// Returns an error that would prevent the start. Exception: kernel policies also prevent a start, but cause
/// no error here; the plan lists them.
pub async fn plan(config: &Config) -> Result<Plan, ControlError> {
    let mut model = Model::planned(config)?;
    admission::check(config)?;
    look_at_files(config)?;
    let mut plan = Plan::default();
    if model.ports.iter().any(PortPlan::is_kernel) {
        let (mirror, mut changes) = start_mirror().await?;
        changes.recv().await;
        let links = kernel_links(&model, &mirror.state())?;
        complete(&mut model, &mirror.state());
        plan.routes = mirror.state().routes().count();
        let indices: Vec<u32> = links.iter().map(|(_, link)| link.ifindex).collect();
        for finding in findings(&indices, model.router.forwarding)? {
            let list = if is_serious(&finding) { &mut plan.refused_for } else { &mut plan.notes };
            list.push(finding.to_string());
        }
    }
    plan.installed = model.kernel_routes().map(|route| route.to.written().to_owned()).collect();
    let filter = |binding: millrace_plugin::BindingDescription| {
        let action = show::action(&binding.action, &model);
        format!("{action} for {:?} at gate {}, priority {}", binding.filter, binding.gate, binding.priority)
    };
    plan.filters = model.plugins.bindings().into_iter().map(filter).collect();
    plan.ports = model.ports.iter().map(|port| view(port, config)).collect();
    Ok(plan)
}

/// Checks that each port's input file can be read, and that its output file can be written. Creates no file.
fn look_at_files(config: &Config) -> Result<(), ControlError> {
    let mut wrong = Unplannable::of(config);
    for (index, port) in config.port.iter().enumerate() {
        let mut look = |key, looked: Result<(), String>| {
            let steps = [Step::Key("port"), Step::Entry(index), Step::Key(key)];
            let said = |problem| ControlError::invalid(format!("port {:?}: {problem}", &*port.name));
            wrong.unless(looked.map_err(|problem| said(problem).placed(config, &steps)));
        };
        if let Some(input) = &port.input {
            look("input", playable(input));
        }
        for (key, file) in [("output", &port.output), ("record", &port.record)] {
            if let Some(file) = file {
                look(key, writable(file));
            }
        }
    }
    wrong.refuse()
}

/// Checks that a file is a regular file in the format pcap or pcapng, with Ethernet frames.
fn playable(file: &Path) -> Result<(), String> {
    let read = Recording::read_regular(file).map(drop);
    read.map_err(|error| format!("{error}; give a pcap or pcapng file of Ethernet frames"))
}

/// Checks that a file can be created, or replaced if it exists.
fn writable(file: &Path) -> Result<(), String> {
    let refused = |what: &Path, error: io::Error| {
        format!("{}: {error}; give a file that can be written", what.display())
    };
    let known = check_recording(file).map_err(|error| refused(file, error))?;
    if known.is_some_and(|known| !known.is_file()) {
        // A file that is not regular is a device such as /dev/null, which can be written.
        return Ok(());
    }
    let above = file.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !above.is_dir() {
        return Err(format!("{} is no directory; give a file that can be written", above.display()));
    }
    let is_allowed = access(above, AccessFlags::W_OK | AccessFlags::X_OK);
    is_allowed.map_err(|error| refused(above, error.into()))
}

fn view(plan: &PortPlan, config: &Config) -> PortPlanView {
    let (to_router, to_kernel, changes) = match plan.is_kernel() {
        true => (
            "IPv4 and IPv6 unicast to the port's MAC address, except packets to this host",
            "ARP and neighbour discovery, packets to this host's addresses, multicast, broadcast, other EtherTypes",
            "the router attaches an XDP program (or a tcx program, where AF_XDP does not work) until it ends",
        ),
        false => ("everything", "nothing", "none"),
    };
    PortPlanView {
        name: plan.settings.name.clone(),
        device: plan.config.device.clone(),
        addresses: plan.settings.addresses.iter().map(ToString::to_string).collect(),
        to_router,
        to_kernel,
        changes,
        on_death: plan.is_kernel().then(|| show::on_death(config.on_death(&plan.config))),
        reverse_path: show::reverse_path(plan.settings.reverse_path),
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for port in &self.ports {
            writeln!(
                f,
                "port {} ({}): {}",
                port.name,
                port.device.as_deref().unwrap_or("no device"),
                port.addresses.join(", ")
            )?;
            writeln!(f, "  Millrace: {}", port.to_router)?;
            writeln!(f, "  kernel:   {}", port.to_kernel)?;
            writeln!(f, "  changes:  {}", port.changes)?;
            if let Some(on_death) = port.on_death {
                writeln!(f, "  on death: {on_death}")?;
            }
            if port.reverse_path != "off" {
                writeln!(f, "  reverse path: {}", port.reverse_path)?;
            }
        }
        writeln!(f, "the router would mirror {}", count(self.routes, "route of the kernel"))?;
        let mut installed = self.installed.iter();
        installed.try_for_each(|route| writeln!(f, "the router would add route {route} to the kernel"))?;
        self.filters.iter().take(LISTED).try_for_each(|filter| writeln!(f, "filter: {filter}"))?;
        if let Some(more) = self.filters.len().checked_sub(LISTED).filter(|more| *more > 0) {
            writeln!(f, "and {}", count(more, "more filter"))?;
        }
        self.refused_for.iter().try_for_each(|finding| writeln!(f, "would refuse to start: {finding}"))?;
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn port_files_are_checked_and_reported_with_their_lines() {
        let folder = std::env::temp_dir().join(format!("millrace-plan-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (text, new) = (folder.join("text.pcap"), folder.join("new.pcap"));
        std::fs::write(&text, "no recording").unwrap();
        let [link, pipe] = ["link.pcap", "pipe"].map(|name| folder.join(name));
        std::os::unix::fs::symlink(&text, &link).unwrap();
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let port =
            |name: &str, files: &str| format!("[[port]]\nname = \"{name}\"\nkind = \"pcap\"\n{files}\n");
        let said = |key: &str, file: &Path| format!("{key} = {:?}", file.display().to_string());
        let all = [
            port("absent", &said("input", &folder.join("absent.pcap"))),
            port("text", &said("input", &text)),
            port("nowhere", &said("output", &folder.join("no/where.pcap"))),
            port("fine", &said("output", &new)),
            port("link", &said("input", &link)),
            port("pipe", &said("input", &pipe)),
            port("random", &said("output", Path::new("/dev/random"))),
        ];
        let config = Config::parse(&all.concat(), "ports.toml").unwrap();
        let wrong = plan(&config).await.unwrap_err().to_string();
        for told in [
            "ports.toml:4:9: port \"absent\": ",
            "absent.pcap",
            "ports.toml:8",
            "text.pcap",
            "ports.toml:12",
            "is no directory",
            "link.pcap: it is a symbolic link",
            "pipe: not a regular file",
            "/dev/random: it is a device",
        ] {
            assert!(wrong.contains(told), "{told}: {wrong}");
        }
        assert!(!wrong.contains("fine") && !new.exists(), "{wrong}");
        let config = Config::parse(&all[3], "ports.toml").unwrap();
        assert_eq!(plan(&config).await.unwrap().ports.len(), 1);
        assert!(!new.exists(), "nothing is made");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
