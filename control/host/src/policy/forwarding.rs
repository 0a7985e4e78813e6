//! Advice on forwarding switches that are off.

use crate::{Family, HostState};

/// Use of the namespace's forwarding switches by the router.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SwitchUse {
    /// Unknown: no router runs, or it can't be asked.
    #[default]
    Unknown,
    /// The router forwards regardless of the switches.
    Ignored,
    /// The router follows the kernel's switches: `forwarding = "kernel"`.
    Followed,
}

/// Forwarding switch that is off, with advice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForwardingAdvice {
    /// Argument of `sysctl -w` that turns the switch on.
    pub sysctl: String,
    /// Consequence of the switch being off, in one sentence.
    pub consequence: String,
}

/// Returns the switches that stop the kernel from forwarding packets received on the given devices. The
/// advice depends on `use_made`, the router's own use of the switches.
pub fn forwarding_advice(state: &HostState, ports: &[u32], use_made: SwitchUse) -> Vec<ForwardingAdvice> {
    let mut advice: Vec<ForwardingAdvice> = Vec::new();
    for (ifindex, family) in ports.iter().flat_map(|port| [(*port, Family::Ipv4), (*port, Family::Ipv6)]) {
        let forwarding = state.forwarding();
        let Some(link) = state.link(ifindex) else { continue };
        // A device on which the address family is disabled has no switch, and forwards nothing.
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
            "forwarding of {name} is off at {device} alone, so neither the kernel nor Millrace forwards packets received there"
        );
        (device_sysctl, consequence)
    } else {
        let stops = "so forwarding stops when the router ends or dies, also with on-death = \"kernel\"";
        let then = match use_made {
            SwitchUse::Unknown => format!("Millrace does (unless [router] forwarding = \"kernel\"), {stops}"),
            SwitchUse::Ignored => format!("the router does, {stops}"),
            SwitchUse::Followed => {
                "the router follows the kernel ([router] forwarding = \"kernel\"), so it drops these packets as forwarding_off"
                    .to_owned()
            }
        };
        let consequence = format!("the kernel does not forward {name} in this network namespace; {then}");
        (sysctl.to_owned(), consequence)
    };
    ForwardingAdvice { sysctl, consequence }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_describes_the_router_where_the_kernel_does_not_forward() {
        let told = |switch, use_made| advice_for("r1", switch, use_made);
        let off = (Family::Ipv4, false);
        for (use_made, words) in [
            (
                SwitchUse::Unknown,
                "Millrace does (unless [router] forwarding = \"kernel\"), so forwarding stops",
            ),
            (
                SwitchUse::Ignored,
                "namespace; the router does, so forwarding stops when the router ends or dies",
            ),
            (
                SwitchUse::Followed,
                "the router follows the kernel ([router] forwarding = \"kernel\"), so it drops",
            ),
        ] {
            let advice = told(off, use_made);
            assert_eq!(advice.sysctl, "net.ipv4.ip_forward=1");
            assert!(advice.consequence.contains(words), "{advice:?}");
            // The router respects the switch of a single device with any value of its setting `forwarding`.
            let device = told((Family::Ipv4, true), use_made);
            assert_eq!(device.sysctl, "net.ipv4.conf.r1.forwarding=1");
            let text = "forwarding of IPv4 is off at r1 alone, so neither the kernel nor Millrace forwards packets received there";
            assert_eq!(device.consequence, text);
        }
    }
}
