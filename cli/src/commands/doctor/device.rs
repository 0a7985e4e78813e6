//! Features of a device, the mode that `run` would choose, and the reason.

use std::fmt;

use millrace_host::HostLink;
use millrace_offload::{DeviceReport, Support, why_no_redirects};
use millrace_units::count;
use serde::Serialize;

/// Kernel drivers that the router's own tests use.
const TRIED: &[&str] = &["veth", "tun"];
/// Largest MTU at which nearly all drivers pass a frame to XDP in a single buffer.
const ONE_BUFFER: u32 = 3498;

/// Findings of `doctor` about one device.
#[derive(Debug, Serialize)]
pub struct DeviceView {
    device: String,
    /// Name of the driver.
    driver: String,
    /// Whether the router's own tests use this driver.
    tried: bool,
    state: &'static str,
    mtu: u32,
    rx_queues: u32,
    tx_queues: u32,
    xdp_features: Vec<&'static str>,
    native_xdp: Ability,
    tcx: Ability,
    /// Whether a scheduler can receive packets that the kernel itself sends by the device.
    host_output: Ability,
    /// Whether plain flows that arrive on the device can be offloaded.
    flows_in: Ability,
    /// Whether another port's XDP program can redirect to the device.
    flows_out: Ability,
    /// Attached XDP program.
    attached: Option<String>,
    /// Whether the XDP program is Millrace's. The device is a port of a running router, or of a dead router
    /// whose program still drops packets.
    is_port: bool,
    /// Choice of `run`; none if the device can't be a port.
    choice: Option<Choice>,
    /// Reasons why the device can't be a port, now or ever.
    problems: Vec<String>,
    /// Advice for more speed.
    faster: Vec<String>,
    /// Kernel policies beyond routing on the device, which Millrace's packets would bypass.
    pub policy: Vec<String>,
    /// Switches that stop the kernel from forwarding.
    pub sysctls: Vec<String>,
}

/// Result of a test; `works` is `None` if the test was not possible.
#[derive(Debug, Serialize)]
struct Ability {
    works: Option<bool>,
    why: Option<String>,
}

/// Driver and mode that `run` would choose for a device.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Choice {
    driver: &'static str,
    mode: &'static str,
    /// Reason why no better mode is possible.
    why: Option<String>,
}

impl From<&Support> for Ability {
    fn from(support: &Support) -> Self {
        match support {
            Support::Yes => Self { works: Some(true), why: None },
            Support::No(why) => Self { works: Some(false), why: Some(why.clone()) },
            Support::Unknown(why) => Self { works: None, why: Some(why.clone()) },
        }
    }
}

impl DeviceView {
    /// Creates the report from netlink data, from the probe, and from the availability of AF_XDP sockets.
    pub fn new(link: &HostLink, probe: Result<&DeviceReport, &str>, has_af_xdp: bool) -> Self {
        let ability = |of: fn(&DeviceReport) -> Ability| {
            probe.map_or_else(|why| Ability { works: None, why: Some(why.to_owned()) }, of)
        };
        let report = probe.ok();
        let program = report.and_then(|report| report.attached.as_ref());
        let attached = program.map(|program| {
            let place = if program.native { "native" } else { "generic" };
            format!("{} (id {}, {place})", program.name, program.id)
        });
        let is_port = program.is_some_and(|program| program.ours);
        let mut problems = problems(link);
        problems.extend(attached.as_ref().filter(|_| !is_port).map(|program| {
            format!(
                "XDP program {program} of another application is attached, and Millrace does not replace it: \
                 detach the program"
            )
        }));
        let driver = report.map(|report| report.driver.as_str()).filter(|driver| !driver.is_empty());
        let driver = driver.or(link.kind.as_deref()).unwrap_or_default();
        let usable = report.filter(|_| link.mac.is_some() && !link.loopback);
        let choice = usable.and_then(|report| choose(report, has_af_xdp));
        Self {
            device: link.name.clone(),
            driver: driver.to_owned(),
            tried: TRIED.contains(&driver),
            state: state(link),
            mtu: link.mtu,
            rx_queues: report.map_or(link.rx_queues, |report| report.rx_queues.max(1)),
            tx_queues: report.map_or(link.tx_queues, |report| report.tx_queues.max(1)),
            xdp_features: report.map(|report| report.xdp_features.clone()).unwrap_or_default(),
            native_xdp: ability(|report| (&report.native_xdp).into()),
            tcx: ability(|report| (&report.tcx).into()),
            host_output: ability(|report| (&report.tcx_egress).into()),
            flows_in: ability(flows_in),
            flows_out: ability(flows_out),
            attached,
            is_port,
            faster: usable.map(|report| faster(report, choice.as_ref())).unwrap_or_default(),
            choice,
            problems,
            policy: Vec::new(),
            sysctls: Vec::new(),
        }
    }

    /// Adds a queueing discipline of the device to the kernel policies, because packets from Millrace bypass
    /// the queueing discipline.
    pub fn passes_by(&mut self, discipline: &str) {
        if self.flows_out.works == Some(true) {
            let why = format!(
                "the kernel has the qdisc {discipline} on this device: flows stay at a worker; all packets of \
                 Millrace bypass the qdisc"
            );
            self.flows_out = Ability { works: Some(false), why: Some(why) };
        }
    }
}

/// Returns whether plain flows that arrive on a device can be offloaded.
fn flows_in(report: &DeviceReport) -> Ability {
    let queues = report.rx_queues;
    match &report.native_xdp {
        Support::Yes if queues > 1 => {
            let why = format!(
                "offloading needs one receive queue, and the device has {queues}: ethtool -L {} combined 1",
                report.name
            );
            Ability { works: Some(false), why: Some(why) }
        }
        Support::No(_) => {
            let why =
                "the driver does not support native XDP, and offload in generic XDP saves nothing".to_owned();
            Ability { works: Some(false), why: Some(why) }
        }
        other => other.into(),
    }
}

/// Returns whether another port's XDP program can redirect to a device.
fn flows_out(report: &DeviceReport) -> Ability {
    let why = why_no_redirects(&report.driver, &report.xdp_features);
    Ability { works: Some(why.is_none()), why: why.map(ToOwned::to_owned) }
}

fn state(link: &HostLink) -> &'static str {
    match (link.admin_up, link.carrier) {
        (true, true) => "up",
        (true, false) => "no carrier",
        (false, _) => "down",
    }
}

/// Returns the reasons why a device can't be a port, now or ever.
fn problems(link: &HostLink) -> Vec<String> {
    let mut problems = Vec::new();
    if link.loopback || link.mac.is_none() {
        problems.push("it is not an Ethernet device, so it can't be a port".to_owned());
    } else if !link.admin_up {
        problems.push(format!("it is down: ip link set {} up", link.name));
    } else if !link.carrier {
        problems.push("it has no carrier: check that the other end is connected and up".to_owned());
    }
    if let Some(kind) = &link.master_kind {
        problems.push(format!("it belongs to a {kind}, which would no longer receive its packets"));
    }
    problems
}

/// Returns the best working mode, in the order of `run`: native AF_XDP, generic AF_XDP, AF_PACKET.
fn choose(report: &DeviceReport, has_af_xdp: bool) -> Option<Choice> {
    let packet = |why: String| match &report.tcx {
        Support::No(_) => None,
        _ => Some(Choice { driver: "af_packet", mode: "ring", why: Some(why) }),
    };
    match &report.native_xdp {
        _ if !has_af_xdp => packet("AF_XDP sockets can't be created on this machine".to_owned()),
        Support::Yes if copies_nothing(report) => {
            Some(Choice { driver: "af_xdp", mode: "zero-copy", why: None })
        }
        Support::Yes => {
            let why = match report.xdp_features.is_empty() {
                true => {
                    "the driver does not say whether it supports zero-copy; the router tries zero-copy at \
                     its start"
                }
                false => "the driver does not support zero-copy AF_XDP: the kernel copies each frame once",
            };
            Some(Choice { driver: "af_xdp", mode: "native", why: Some(why.to_owned()) })
        }
        Support::No(why) => {
            let why = format!("the driver does not support native XDP: {why}");
            Some(Choice { driver: "af_xdp", mode: "generic", why: Some(why) })
        }
        // The probe failed, so the mode is unknown.
        Support::Unknown(_) => None,
    }
}

fn copies_nothing(report: &DeviceReport) -> bool {
    let mut features = report.xdp_features.iter();
    features.any(|feature| matches!(*feature, "xsk-zerocopy" | "xsk_zerocopy" | "zero-copy"))
}

fn faster(report: &DeviceReport, choice: Option<&Choice>) -> Vec<String> {
    let (mode, queues, features) = (choice.map(|choice| choice.mode), report.rx_queues, &report.xdp_features);
    let (is_native, is_veth) = (mode == Some("native"), report.driver == "veth");
    let no_redirects = is_native && !features.is_empty() && !features.contains(&"ndo-xmit");
    let advice = [
        (
            mode == Some("generic") && report.mtu > ONE_BUFFER,
            format!("an MTU of {ONE_BUFFER} or less: many drivers support XDP only if a frame fits one buffer"),
        ),
        (
            matches!(mode, Some("generic" | "ring")),
            "a device whose driver supports XDP: no socket buffer for each frame".to_owned(),
        ),
        (
            is_native && !is_veth,
            "a NIC with zero-copy AF_XDP (drivers ice, i40e, ixgbe, mlx5_core, …): no copy per frame".to_owned(),
        ),
        (
            no_redirects && is_veth,
            "receive offload at the other end (ethtool -K DEVICE gro on): the XDP program can then forward \
             plain flows to this device, without the worker"
                .to_owned(),
        ),
        (
            no_redirects && !is_veth,
            "a driver that accepts redirected frames (ndo-xmit): the XDP program can then send offloaded flows by it".to_owned(),
        ),
        (
            is_veth,
            "a NIC instead of a veth, which copies each frame on the sender's processor".to_owned(),
        ),
        (
            queues > 1,
            format!(
                "one receive queue (now {queues}: ethtool -L {} combined 1): a worker polls every queue",
                report.name
            ),
        ),
    ];
    advice.into_iter().filter_map(|(is_apt, text)| is_apt.then_some(text)).collect()
}

impl fmt::Display for DeviceView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let driver = if self.driver.is_empty() { "unknown driver" } else { &self.driver };
        let tx_queues = count(self.tx_queues, "tx queue");
        let queues = format!("{} rx and {tx_queues}", self.rx_queues);
        writeln!(f, "{}: {driver}, {}, MTU {}, {queues}", self.device, self.state, self.mtu)?;
        match &self.choice {
            Some(choice) => writeln!(f, "    run would use  {}, {}", choice.driver, choice.mode)?,
            None => writeln!(f, "    run would use  unknown (not probed)")?,
        }
        if let Some(why) = self.choice.as_ref().and_then(|choice| choice.why.as_ref()) {
            writeln!(f, "    because        {why}")?;
        }
        if let Some(program) = self.attached.as_ref().filter(|_| self.is_port) {
            writeln!(
                f,
                "    in use         as a port of a running Millrace, with its XDP program {program}"
            )?;
        }
        writeln!(f, "    native XDP     {}", self.native_xdp)?;
        if !self.xdp_features.is_empty() {
            writeln!(f, "    XDP features   {}", self.xdp_features.join(", "))?;
        }
        writeln!(f, "    tcx            {}", self.tcx)?;
        writeln!(f, "    host output    {}", self.host_output)?;
        writeln!(f, "    offload in     {}", self.flows_in)?;
        writeln!(f, "    offload out    {}", self.flows_out)?;
        let tried = if self.tried {
            "yes: the project's tests run on this driver"
        } else {
            "no: test this driver before you rely on it"
        };
        writeln!(f, "    tested         {tried}")?;
        let lists = [
            ("problem", &self.problems),
            ("faster with", &self.faster),
            ("kernel policy", &self.policy),
            ("sysctl", &self.sysctls),
        ];
        for (heading, lines) in lists {
            lines.iter().try_for_each(|line| writeln!(f, "    {heading:<14} {line}"))?;
        }
        Ok(())
    }
}

impl fmt::Display for Ability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.works {
            Some(true) => "works",
            Some(false) => "does not work",
            None => "not tried",
        };
        f.write_str(word)?;
        match &self.why {
            Some(why) if !why.is_empty() => write!(f, ": {why}"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link() -> HostLink {
        HostLink {
            ifindex: 7,
            name: "r1".into(),
            kind: Some("veth".into()),
            mac: Some([2, 0, 0, 0, 0, 1]),
            mtu: 1500,
            admin_up: true,
            carrier: true,
            master: None,
            master_kind: None,
            loopback: false,
            peer: None,
            xdp: None,
            rx_queues: 1,
            tx_queues: 1,
        }
    }

    fn report(native_xdp: Support, features: &[&'static str]) -> DeviceReport {
        DeviceReport {
            ifindex: 7,
            name: "r1".into(),
            driver: "veth".into(),
            mtu: 1500,
            rx_queues: 1,
            tx_queues: 1,
            xdp_features: features.to_vec(),
            native_xdp,
            tcx: Support::Yes,
            tcx_egress: Support::Yes,
            attached: None,
        }
    }

    #[test]
    fn a_port_of_a_running_router_is_no_problem_and_one_of_another_program_is() {
        let attached =
            |ours| millrace_offload::AttachedProgram { id: 9, name: "p".into(), native: true, ours };
        let view = |ours| {
            let report = DeviceReport { attached: Some(attached(ours)), ..report(Support::Yes, &["basic"]) };
            DeviceView::new(&link(), Ok(&report), true)
        };
        let own = view(true);
        assert!(own.problems.is_empty() && own.choice.is_some(), "{own:?}");
        assert!(
            own.to_string().contains(
                "in use         as a port of a running Millrace, with its XDP program p (id 9, native)"
            ),
            "{own}"
        );
        let theirs = view(false);
        assert!(
            theirs.problems.iter().any(|problem| problem.contains("of another application")),
            "{theirs:?}"
        );
        assert!(!theirs.to_string().contains("of a Millrace"), "{theirs}");
    }

    fn chosen(
        native_xdp: Support,
        features: &[&'static str],
        has_af_xdp: bool,
    ) -> Option<(&'static str, &'static str)> {
        choose(&report(native_xdp, features), has_af_xdp).map(|choice| (choice.driver, choice.mode))
    }

    #[test]
    fn the_best_that_works_is_chosen() {
        assert_eq!(chosen(Support::Yes, &["basic", "xsk-zerocopy"], true), Some(("af_xdp", "zero-copy")));
        assert_eq!(chosen(Support::Yes, &["basic"], true), Some(("af_xdp", "native")));
        assert_eq!(chosen(Support::No("no".into()), &[], true), Some(("af_xdp", "generic")));
        assert_eq!(chosen(Support::Yes, &[], false), Some(("af_packet", "ring")));
        assert_eq!(chosen(Support::Unknown("not root".into()), &[], true), None);
    }

    #[test]
    fn reasons_against_a_port_are_named() {
        let down = HostLink { admin_up: false, ..link() };
        let view = DeviceView::new(&down, Err("not root"), true);
        assert_eq!(view.problems, ["it is down: ip link set r1 up"]);
        let loopback = HostLink { loopback: true, mac: None, ..link() };
        let view = DeviceView::new(&loopback, Ok(&report(Support::Yes, &[])), true);
        assert_eq!(view.choice, None);
        assert!(view.problems[0].contains("can't be a port"));
    }

    #[test]
    fn driver_without_tests_is_marked_untested() {
        let ice = DeviceReport { driver: "ice".into(), ..report(Support::Yes, &[]) };
        let text = DeviceView::new(&link(), Ok(&ice), true).to_string();
        assert!(text.contains("no: test this driver"), "{text}");
        let text = DeviceView::new(&link(), Ok(&report(Support::Yes, &[])), true).to_string();
        assert!(text.contains("tests run on this driver") && text.contains("af_xdp, native"), "{text}");
    }

    #[test]
    fn offload_support_of_a_device_is_reported() {
        let takes = report(Support::Yes, &["basic", "ndo-xmit"]);
        assert_eq!((flows_in(&takes).works, flows_out(&takes).works), (Some(true), Some(true)));
        let alone = report(Support::Yes, &["basic"]);
        assert!(flows_out(&alone).why.is_some_and(|why| why.contains("gro on")));
        let generic = report(Support::No("no".into()), &[]);
        assert_eq!(flows_in(&generic).works, Some(false));
        let many = DeviceReport { rx_queues: 4, ..report(Support::Yes, &["basic"]) };
        assert!(flows_in(&many).why.is_some_and(|why| why.contains("the device has 4")));
        let mut shaped = DeviceView::new(&link(), Ok(&takes), true);
        shaped.passes_by("tbf");
        assert!(
            shaped.to_string().contains("offload out    does not work: the kernel has the qdisc"),
            "{shaped}"
        );
        let text = DeviceView::new(&link(), Ok(&alone), true).to_string();
        assert!(text.contains("offload in     works\n    offload out    does not work: a veth"), "{text}");
    }

    #[test]
    fn more_queues_than_workers_is_advice() {
        let many = DeviceReport { rx_queues: 8, ..report(Support::Yes, &[]) };
        assert!(faster(&many, None).iter().any(|line| line.contains("ethtool -L r1 combined 1")));
    }
}
