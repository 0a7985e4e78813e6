//! The command `doctor`: features of this machine, the chosen modes with reasons, and advice for more speed.

mod confinement;
mod crashes;
mod device;
mod isolation;
mod system;

use std::fmt::Write as _;

use millrace_host::policy::{self, Ours, PolicyKind};
use millrace_host::{HostLink, HostState, Mirror, MirrorOptions, SwitchUse, forwarding_advice};
use millrace_offload::{DeviceReport, own_program_ids};
use serde::Serialize;
use serde_json::Value;

use crate::arguments::{Connection, Doctor};
use crate::client::Client;
use crate::output::{Failure, show};
use device::DeviceView;
pub use system::missing_permissions;
use system::{Check, SystemView};

/// Output of `doctor`: findings about the machine and about each device.
#[derive(Debug, Serialize)]
struct Report {
    system: SystemView,
    devices: Vec<DeviceView>,
}

/// Inspects the machine and its devices, and prints the findings.
pub fn doctor(doctor: &Doctor, connection: &Connection, json: bool) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::new)?;
    let running = Client::hasty(connection).ok();
    let ask = |path| running.as_ref().and_then(|client| client.get(path).ok());
    let switches = switch_use(ask("/router").as_ref());
    let mut report = runtime.block_on(examine(&doctor.devices, switches))?;
    let status = ask("/status");
    let running = status.as_ref().map(|status| ("interface", confinement::of_running(status)));
    let findings = [("confinement", confinement::possible()), ("confinement", confinement::from_settings())];
    let findings =
        findings.into_iter().chain(running).chain([("crashes", crashes::kept(connection, status))]);
    report.system.checks.extend(findings.map(|(topic, finding)| Check::of(topic, finding)));
    report.system.checks.extend(isolation::checks());
    show(&serde_json::to_value(&report).map_err(Failure::new)?, json, || written(&report));
    Ok(())
}

/// Returns whether the running router follows or ignores the kernel's forwarding sysctls, by its setting
/// `forwarding`.
fn switch_use(settings: Option<&Value>) -> SwitchUse {
    match settings.and_then(|settings| settings["forwarding"].as_str()) {
        Some("on") => SwitchUse::Ignored,
        Some("kernel") => SwitchUse::Followed,
        _ => SwitchUse::Unknown,
    }
}

async fn examine(wanted: &[String], switches: SwitchUse) -> Result<Report, Failure> {
    let mut system = SystemView::look();
    let (mirror, _changes) = match Mirror::start(MirrorOptions::default()).await {
        Ok(started) => started,
        Err(error) => {
            let text = format!("can't inspect devices: {error}; run `millrace doctor` as root");
            system.checks.push(Check::of("devices", Err(text)));
            return Ok(Report { system, devices: Vec::new() });
        }
    };
    if !nix::unistd::geteuid().is_root() {
        let text = "not root: driver features, eBPF programs and nftables of devices are not checked; run \
                    `millrace doctor` as root";
        system.checks.push(Check::of("privileges", Err(text.to_owned())));
    }
    let state = mirror.state().clone();
    let links = chosen(&state, wanted)?;
    let devices = links.into_iter().map(|link| look_at(&state, link, &system, switches)).collect();
    Ok(Report { system, devices })
}

/// Returns the named devices; without names, all but loopback.
fn chosen<'a>(state: &'a HostState, wanted: &[String]) -> Result<Vec<&'a HostLink>, Failure> {
    if wanted.is_empty() {
        return Ok(state.links().filter(|link| !link.loopback).collect());
    }
    wanted.iter().map(|name| state.link_by_name(name).ok_or_else(|| unknown(state, name))).collect()
}

pub(super) fn unknown(state: &HostState, name: &str) -> Failure {
    let remedy = millrace_units::remedy("device", name, state.links().map(|link| link.name.as_str()));
    Failure::new(format!("no device is named {name:?} in this network namespace{remedy}"))
}

fn look_at(state: &HostState, link: &HostLink, system: &SystemView, switches: SwitchUse) -> DeviceView {
    let probe = DeviceReport::of(&link.name).map_err(|error| error.to_string());
    let mut view = DeviceView::new(link, probe.as_ref().map_err(String::as_str), system.has_af_xdp());
    view.policy = match policy::inspect(&[link.ifindex], &Ours { programs: own_program_ids(), switches }) {
        // Leave out the forwarding sysctls: `view.sysctls` below lists them, with the commands that enable
        // them.
        Ok(findings) => {
            let others = findings.iter().filter(|finding| finding.kind != PolicyKind::Forwarding);
            others.map(ToString::to_string).collect()
        }
        Err(error) => vec![format!("can't read the kernel's policies: {error}")],
    };
    // `policy::inspect` has already reported an error of netlink.
    let queueing = policy::queueing(&[link.ifindex]).unwrap_or_default();
    queueing.get(&link.ifindex).into_iter().for_each(|discipline| view.passes_by(discipline));
    let advice = forwarding_advice(state, &[link.ifindex], switches);
    view.sysctls = advice
        .into_iter()
        .map(|advice| format!("sysctl -w {}: {}", advice.sysctl, advice.consequence))
        .collect();
    view
}

/// Smallest width of the column with the topics.
const TOPIC: usize = 12;

fn written(report: &Report) -> String {
    let mut text = String::new();
    let longest = report.system.checks.iter().map(|check| check.topic.len()).max();
    let width = longest.map_or(TOPIC, |longest| longest.max(TOPIC));
    for check in &report.system.checks {
        let mark = if check.fine { "ok" } else { "!!" };
        let _ = writeln!(text, "{mark}  {:<width$} {}", check.topic, check.text);
    }
    for device in &report.devices {
        let _ = write!(text, "\n{device}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_marks_problems() {
        let checks = vec![Check::of("kernel", Ok("new".to_owned())), Check::of("jit", Err("off".to_owned()))];
        let system = SystemView { checks };
        let text = written(&Report { system, devices: Vec::new() });
        assert_eq!(text, "ok  kernel       new\n!!  jit          off\n");
    }
}
