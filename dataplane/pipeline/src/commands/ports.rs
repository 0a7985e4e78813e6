//! Commands to the ports of a router.

use millrace_forward::NeighbourKey;
use millrace_port::PortError;
use millrace_units::{Instant, PortId};

use super::{DeviceReport, OpenDevice, ReplyTo};
use crate::offloaded_flows::Invalidation;
use crate::ports::host_output::HostSettings;
use crate::ports::{PortSettings, Stack};
use crate::router::Router;

/// Command to a port.
pub enum PortCommand {
    /// Adds a port or changes its settings.
    Set(PortId, PortSettings),
    /// Opens the device from which the worker receives the host output of a port.
    AddHostOutput(PortId, HostSettings, OpenDevice, ReplyTo<Result<DeviceReport, PortError>>),
    /// Changes the settings of a port's host output.
    SetHostOutput(PortId, HostSettings),
    /// Closes the device of a port's host output, after the worker has taken the packets that wait in the
    /// device.
    RemoveHostOutput(PortId, ReplyTo<()>),
}

impl PortCommand {
    pub(super) fn invalidation(&self) -> Invalidation<'_> {
        match self {
            // Flow records depend on the port's stack (kernel or own) and its source address checks.
            Self::Set(..) => Invalidation::Records,
            Self::AddHostOutput(..) | Self::SetHostOutput(..) | Self::RemoveHostOutput(..) => {
                Invalidation::Nothing
            }
        }
    }

    pub(super) fn is_small(&self) -> bool {
        match self {
            Self::SetHostOutput(..) => true,
            Self::Set(..) | Self::AddHostOutput(..) | Self::RemoveHostOutput(..) => false,
        }
    }
}

/// Adds a port or changes its settings. If the port's device is open, announces its new addresses; otherwise
/// the worker announces them when it opens the device.
pub(crate) fn set_port(router: &mut Router, id: PortId, settings: PortSettings, is_open: bool, now: Instant) {
    router.forwarding.forget_adjacencies(&mut router.classifier.changes);
    let before = router.ports.get(id).map(|entry| (entry.settings.up, entry.settings.addresses.clone()));
    // The worker that owns the device runs the own stack of a port without a kernel stack.
    let is_here = router.queueing().owns(settings.device);
    let elsewhere = matches!(settings.stack, Stack::Kernel { .. }) || !is_here;
    let up = settings.up;
    let addresses = settings.addresses.clone();
    router.gates.plugins_mut().set_port(id, true);
    router.ports.set(id, settings);
    if let Some(entry) = router.ports.get_mut(id) {
        entry.is_here = is_here;
    }
    if elsewhere {
        return;
    }
    if !up {
        router.punt.own.resolver.link_down(id);
    }
    let old = before.filter(|(was_up, _)| *was_up && up).map(|(_, addresses)| addresses).unwrap_or_default();
    for net in old.iter().filter(|net| !addresses.contains(net)) {
        router.punt.own.resolver.remove_own(NeighbourKey { port: id, address: net.addr() });
    }
    for net in addresses.iter().filter(|net| up && !old.contains(net)) {
        let key = NeighbourKey { port: id, address: net.addr() };
        router.punt.own.resolver.add_own(key);
        if is_open {
            router.punt_stage().with_own(now, |own, context| own.announce(key, context));
        }
    }
    router.follow_up(now);
}
