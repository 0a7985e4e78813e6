//! Settings of kernel ports that depend on the kernel's state.

use millrace_config::Forwarding;
use millrace_host::{Family, HostLink, HostState};
use millrace_pipeline::{PortSettings, Stack};
use millrace_wire::MacAddr;

use crate::model::Model;
use crate::ports::device::mtu_of;

/// Updates the settings of ports with a kernel device from the kernel's state.
pub(crate) fn complete(model: &mut Model, state: &HostState) {
    let forwarding = model.router.forwarding;
    for plan in &mut model.ports {
        let Some(device) = plan.config.device.as_deref() else { continue };
        plan.settings = match (state.link_by_name(device), plan.is_kernel()) {
            (Some(link), true) => kernel_settings(&plan.settings, link, state, forwarding),
            (Some(link), false) => PortSettings {
                mac: match &plan.config.mac {
                    Some(mac) => *mac.value(),
                    None => MacAddr(link.mac.unwrap_or_default()),
                },
                mtu: plan.config.mtu.unwrap_or_else(|| mtu_of(link)),
                up: link.usable(),
                ..plan.settings.clone()
            },
            (None, _) => PortSettings { up: false, ..plan.settings.clone() },
        };
    }
}

fn kernel_settings(
    old: &PortSettings,
    link: &HostLink,
    state: &HostState,
    forwarding: Forwarding,
) -> PortSettings {
    let switches = state.forwarding();
    let forwards = |family| match forwarding {
        Forwarding::On => !switches.is_off_at_device(link.ifindex, family),
        Forwarding::Kernel => switches.enabled(link.ifindex, family),
    };
    let addresses = state.addresses().filter(|address| address.ifindex == link.ifindex && !address.tentative);
    PortSettings {
        stack: Stack::Kernel { ifindex: link.ifindex },
        mac: MacAddr(link.mac.unwrap_or_default()),
        mtu: mtu_of(link),
        up: link.usable(),
        forwards4: forwards(Family::Ipv4),
        forwards6: forwards(Family::Ipv6),
        addresses: addresses.map(|address| address.net()).collect(),
        ..old.clone()
    }
}

/// Warns for each address family that the kernel does not forward at the port.
pub(crate) fn warn_of_forwarding(settings: &PortSettings) {
    let families = [("IPv4", settings.forwards4), ("IPv6", settings.forwards6)];
    for (family, _) in families.into_iter().filter(|(_, forwards)| !forwards) {
        tracing::warn!(
            port = %settings.name,
            "forwarding of {family} is off in the kernel: packets received at this port are dropped as forwarding_off; `millrace doctor` \
             shows the sysctl to set"
        );
    }
}
