//! Whether the kernel forwards: the `forwarding` switches of the namespace and of each device.

use std::collections::BTreeMap;

use crate::state::message::SwitchesUpdate;
use crate::{HostChange, HostState};

/// An address family.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl Family {
    /// The kernel's `AF_*` number.
    pub const fn number(self) -> u8 {
        match self {
            Self::Ipv4 => libc::AF_INET as u8,
            Self::Ipv6 => libc::AF_INET6 as u8,
        }
    }

    /// The family named by the kernel's `AF_*` number.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number as i32 {
            libc::AF_INET => Some(Self::Ipv4),
            libc::AF_INET6 => Some(Self::Ipv6),
            _ => None,
        }
    }
}

/// The switches of one device, or of the whole namespace, for one family.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct DeviceSwitches {
    /// `forwarding`.
    pub forwarding: bool,
    /// `force_forwarding` (IPv6, Linux 6.17 and up): forwards though the namespace's switch is off.
    pub force_forwarding: bool,
    /// `rp_filter` (IPv4): 0 off, 1 strict, 2 loose.
    pub rp_filter: u8,
    /// `mc_forwarding`: a multicast routing daemon is active.
    pub multicast_forwarding: bool,
}

impl DeviceSwitches {
    fn forwards(&self) -> bool {
        self.forwarding || self.force_forwarding
    }
}

/// The forwarding switches of a namespace.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Forwarding {
    /// `conf.all`, by family.
    pub all: BTreeMap<Family, DeviceSwitches>,
    /// `conf.DEVICE`, by device index and family.
    pub devices: BTreeMap<(u32, Family), DeviceSwitches>,
}

impl Forwarding {
    /// Whether the kernel would forward a packet that came in by the device.
    ///
    /// IPv4 asks the device's switch alone, IPv6 the namespace's.
    pub fn enabled(&self, ifindex: u32, family: Family) -> bool {
        let device = self.devices.get(&(ifindex, family)).copied().unwrap_or_default();
        match family {
            Family::Ipv4 => device.forwarding,
            Family::Ipv6 => {
                device.force_forwarding || self.all.get(&family).is_some_and(|all| all.forwarding)
            }
        }
    }
}

impl Forwarding {
    /// Whether forwarding is switched off at this very device: the namespace forwards, the device does not.
    ///
    /// IPv6 has no such switch: `forwarding` of a device says there whether the kernel is a host on that link.
    pub fn is_off_at_device(&self, ifindex: u32, family: Family) -> bool {
        let namespace = self.all.get(&family).is_some_and(|all| all.forwarding);
        let device = self.devices.get(&(ifindex, family));
        family == Family::Ipv4 && namespace && device.is_some_and(|device| !device.forwarding)
    }
}

/// Use that a router makes of the forwarding switches of the namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SwitchUse {
    /// No router runs, or it can't be asked.
    #[default]
    Unknown,
    /// It forwards whatever they say.
    Ignored,
    /// It forwards where the kernel does: `forwarding = "kernel"`.
    Followed,
}

/// A forwarding switch that is off.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForwardingAdvice {
    /// The sysctl, as `sysctl -w` takes it.
    pub sysctl: String,
    /// Which family it concerns.
    pub family: Family,
    /// What follows from its being off, in one sentence.
    pub consequence: String,
}

impl Forwarding {
    /// Takes over what a message says and appends what changed by it.
    pub(crate) fn update(
        &mut self,
        ifindex: Option<u32>,
        family: Family,
        update: SwitchesUpdate,
        changes: &mut Vec<HostChange>,
    ) {
        let switches = match ifindex {
            None => self.all.entry(family).or_default(),
            Some(ifindex) => self.devices.entry((ifindex, family)).or_default(),
        };
        let before = switches.forwards();
        switches.forwarding = update.forwarding.unwrap_or(switches.forwarding);
        switches.force_forwarding = update.force_forwarding.unwrap_or(switches.force_forwarding);
        switches.rp_filter = update.rp_filter.unwrap_or(switches.rp_filter);
        switches.multicast_forwarding = update.multicast_forwarding.unwrap_or(switches.multicast_forwarding);
        let enabled = switches.forwards();
        if enabled != before {
            changes.push(HostChange::Forwarding { ifindex, family, enabled });
        }
    }

    pub(crate) fn remove(&mut self, ifindex: u32, family: Family, changes: &mut Vec<HostChange>) {
        let gone = self.devices.remove(&(ifindex, family));
        if gone.is_some_and(|switches| switches.forwards()) {
            changes.push(HostChange::Forwarding { ifindex: Some(ifindex), family, enabled: false });
        }
    }

    pub(crate) fn remove_device(&mut self, ifindex: u32, changes: &mut Vec<HostChange>) {
        for family in [Family::Ipv4, Family::Ipv6] {
            self.remove(ifindex, family, changes);
        }
    }

    pub(crate) fn as_changes(&self) -> impl Iterator<Item = HostChange> + '_ {
        let all = self.all.iter().map(|(family, switches)| (None, *family, switches));
        let devices =
            self.devices.iter().map(|((ifindex, family), switches)| (Some(*ifindex), *family, switches));
        all.chain(devices).map(|(ifindex, family, switches)| HostChange::Forwarding {
            ifindex,
            family,
            enabled: switches.forwards(),
        })
    }
}

/// Names the switches that keep the kernel from forwarding what comes in by the given devices, for a router that makes `use_made`
/// of them.
pub fn forwarding_advice(state: &HostState, ports: &[u32], use_made: SwitchUse) -> Vec<ForwardingAdvice> {
    let mut advice: Vec<ForwardingAdvice> = Vec::new();
    for (ifindex, family) in ports.iter().flat_map(|port| [(*port, Family::Ipv4), (*port, Family::Ipv6)]) {
        let forwarding = state.forwarding();
        let Some(link) = state.link(ifindex) else { continue };
        // A device without the protocol has no switch, and nothing to forward.
        if !forwarding.devices.contains_key(&(ifindex, family)) || forwarding.enabled(ifindex, family) {
            continue;
        }
        let all = forwarding.all.get(&family).is_some_and(|all| all.forwarding);
        let found = advice_for(&link.name, (family, all), use_made);
        if !advice.contains(&found) {
            advice.push(found);
        }
    }
    advice
}

fn advice_for(device: &str, (family, all): (Family, bool), use_made: SwitchUse) -> ForwardingAdvice {
    let (name, sysctl, device_sysctl) = match family {
        Family::Ipv4 => ("IPv4", "net.ipv4.ip_forward=1", format!("net.ipv4.conf.{device}.forwarding=1")),
        Family::Ipv6 => ("IPv6", "net.ipv6.conf.all.forwarding=1", String::new()),
    };
    let (sysctl, consequence) = if family == Family::Ipv4 && all {
        let consequence = format!(
            "forwarding of {name} is off at {device} alone, so neither the kernel nor Millrace forwards what comes in there"
        );
        (device_sysctl, consequence)
    } else {
        let stops = "so packets stop when it ends or dies, also with on-death = \"kernel\"";
        let then = match use_made {
            SwitchUse::Unknown => format!("Millrace does (unless [router] forwarding = \"kernel\"), {stops}"),
            SwitchUse::Ignored => format!("the router does, {stops}"),
            SwitchUse::Followed => {
                "the router follows it ([router] forwarding = \"kernel\"), so it drops these packets as forwarding_off"
                    .to_owned()
            }
        };
        let consequence = format!("the kernel does not forward {name} in this network namespace; {then}");
        (sysctl.to_owned(), consequence)
    };
    ForwardingAdvice { sysctl, family, consequence }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_says_what_the_router_does_where_the_kernel_does_not_forward() {
        let told = |switch, use_made| advice_for("r1", switch, use_made);
        let off = (Family::Ipv4, false);
        for (use_made, words) in [
            (SwitchUse::Unknown, "Millrace does (unless [router] forwarding = \"kernel\"), so packets stop"),
            (SwitchUse::Ignored, "namespace; the router does, so packets stop when it ends or dies"),
            (SwitchUse::Followed, "the router follows it ([router] forwarding = \"kernel\"), so it drops"),
        ] {
            let advice = told(off, use_made);
            assert_eq!(advice.sysctl, "net.ipv4.ip_forward=1");
            assert!(advice.consequence.contains(words), "{advice:?}");
            // A switch of one device is followed whatever the router's setting.
            let device = told((Family::Ipv4, true), use_made);
            assert_eq!(device.sysctl, "net.ipv4.conf.r1.forwarding=1");
            let text = "forwarding of IPv4 is off at r1 alone, so neither the kernel nor Millrace forwards what comes in there";
            assert_eq!(device.consequence, text);
        }
    }
}
