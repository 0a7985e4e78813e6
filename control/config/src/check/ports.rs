//! Checks of ports.

use std::collections::HashMap;

use millrace_units::Message;

use super::{At, Checked, Checker};
use crate::schema::{Port, PortKind};
use crate::values::VlanIds;

impl Checker<'_> {
    pub(super) fn port(&self, index: usize, port: &Port) -> Checked {
        let (span, name) = (port.name.span(), &*port.name);
        let key = |key: &'static [&'static str]| At::Entry("port", index, key);
        let own = port.kind != PortKind::Device || port.vlan.is_some();
        self.require(port.device.is_some() == (port.kind == PortKind::Device), span.clone(), || match port
            .kind
        {
            PortKind::Device => {
                format!("port {name:?} has no device: set `device`, or set `kind` to tap, pcap or memory")
            }
            _ => {
                format!("port {name:?} has a `device`, but its `kind` uses none: remove one of them")
            }
        })?;
        let wrong = port.vlan.and_then(VlanIds::invalid);
        self.require(wrong.is_none(), key(&["vlan"]), || {
            let id = wrong.unwrap_or_default();
            format!("port {name:?}: a VLAN id must be 1 to 4094, not {id}")
        })?;
        self.require(port.kind != PortKind::Tap || port.mac.is_none(), key(&["mac"]), || {
            format!("port {name:?}: the MAC address of a tap port is derived from its name: remove `mac`")
        })?;
        self.require(own || port.address.is_empty(), key(&["address"]), || {
            format!("port {name:?}: the kernel holds the addresses of its devices: use `ip address` instead")
        })?;
        let given: &[&str] = if port.mac.is_some() { &["mac"] } else { &["mtu"] };
        self.require(own || (port.mac.is_none() && port.mtu.is_none()), key(given), || {
            format!("port {name:?}: the kernel holds MAC address and MTU of its devices: use `ip link`")
        })?;
        let least = if port.address.iter().any(|net| net.value().addr().is_ipv6()) { 1280 } else { 68 };
        self.require(port.mtu.is_none_or(|mtu| mtu >= least), key(&["mtu"]), || {
            let mtu = port.mtu.unwrap_or_default();
            format!(
                "port {name:?}: mtu = {mtu} is too small: give at least {least} (IPv4 needs 68, IPv6 1280)"
            )
        })?;
        let files = port.input.is_some() || port.output.is_some();
        self.require(files == (port.kind == PortKind::Pcap), span, || {
            format!("port {name:?}: kind = \"pcap\" needs `input` or `output`, and other kinds take neither")
        })?;
        self.impairment(index, port)
    }

    fn impairment(&self, index: usize, port: &Port) -> Checked {
        let Some(impair) = &port.impair else { return Ok(()) };
        let (share, time) = ((1.0, ""), (60_000.0, " milliseconds"));
        for (key, value, (most, unit)) in [
            ("loss", impair.loss, share),
            ("duplicate", impair.duplicate, share),
            ("reorder", impair.reorder, share),
            ("corrupt", impair.corrupt, share),
            ("delay-ms", impair.delay_ms, time),
            ("jitter-ms", impair.jitter_ms, time),
        ] {
            self.require((0.0..=most).contains(&value), At::Entry("port", index, &["impair", key]), || {
                Message::from(format!("port {:?}: impair.", &*port.name))
                    .key(key)
                    .text(format!(" must be 0 to {most}{unit}, not {value}"))
            })?;
        }
        let jitter = At::Entry("port", index, &["impair", "jitter-ms"]);
        self.require(impair.jitter_ms <= impair.delay_ms, jitter, || {
            Message::from(format!("port {:?}: impair.", &*port.name))
                .key("jitter-ms")
                .text(" exceeds impair.")
                .key("delay-ms")
                .text(": give at most the value of ")
                .key("delay-ms")
        })
    }

    /// Checks that no two ports use the same device.
    pub(super) fn devices(&self) {
        let mut seen = HashMap::new();
        for (index, port) in self.config.port.iter().enumerate() {
            // Sub-interfaces share the device of a port.
            let Some(device) = port.device.as_deref().filter(|_| port.vlan.is_none()) else { continue };
            if let Some(other) = seen.insert(device, &*port.name) {
                self.at("port", Some(index));
                let name = &*port.name;
                self.note(self.require(false, At::Entry("port", index, &["device"]), || {
                    format!(
                        "ports {other:?} and {name:?} use the same device {device:?}: change one, or set its \
                         `vlan`"
                    )
                }));
            }
        }
    }
}
