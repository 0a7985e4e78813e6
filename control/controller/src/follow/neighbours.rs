//! Neighbours: resolution for the workers, and refresh of the neighbours in use.

use std::net::IpAddr;

use millrace_host::{HostNeighbour, NeighbourState};
use millrace_pipeline::{DeviceId, NeighbourChange, NeighbourCommand, NeighbourKnowledge};
use millrace_units::PortId;
use millrace_wire::MacAddr;

use crate::ControlError;
use crate::kernel::Kernel;
use crate::model::Model;
use crate::ports::devices::Devices;
use crate::router::Inner;
use crate::workers::Workers;
use crate::workers::ask::Ask;

/// Parts of the router that handle neighbours.
pub(super) struct Neighbours<'a> {
    model: &'a Model,
    devices: &'a Devices,
    kernel: &'a mut Kernel,
    workers: &'a mut Workers,
}

impl Inner {
    pub(super) fn neighbours(&mut self) -> Neighbours<'_> {
        let Self { model, devices, kernel, workers, .. } = self;
        Neighbours { model, devices, kernel, workers }
    }
}

impl Neighbours<'_> {
    /// Starts the resolution of a neighbour that a worker needs. If the kernel knows the neighbour already,
    /// sends the neighbour's MAC address to the workers.
    pub fn resolve(&mut self, port: PortId, address: IpAddr) -> Result<(), ControlError> {
        if let Some(device) = self.own_device(port) {
            let change = NeighbourChange { port, address, state: NeighbourKnowledge::Wanted };
            return self.workers.owner(device).tell(NeighbourCommand::Set(vec![change]));
        }
        let (Some(device), Some(mirror)) = (self.devices.kernel.get(&port), &self.kernel.mirror) else {
            return Ok(());
        };
        let ifindex = device.ifindex;
        let known = mirror.state().neighbour(ifindex, address).copied();
        if let Some(change) = knowledge(port, address, known.as_ref())
            && matches!(change.state, NeighbourKnowledge::Known(_))
        {
            return self.workers.tell(|| NeighbourCommand::Set(vec![change]));
        }
        if let Some(actions) = &mut self.kernel.actions
            && let Err(error) = actions.resolve(ifindex, address)
        {
            tracing::debug!(%address, "the kernel can't resolve the neighbour: {error}");
            let state = NeighbourKnowledge::Failed;
            let failed = NeighbourChange { port, address, state };
            return self.workers.tell(|| NeighbourCommand::Set(vec![failed]));
        }
        Ok(())
    }

    /// Returns the device of a port without a kernel device, whose worker resolves neighbours itself. Returns
    /// `None` for a kernel port.
    fn own_device(&self, port: PortId) -> Option<DeviceId> {
        let plan = self.model.ports.iter().find(|plan| plan.id == port)?;
        (!plan.is_kernel()).then_some(plan.settings.device)
    }

    /// Refreshes the neighbours that workers use. At kernel ports, asks the kernel to confirm stale
    /// neighbours, because the kernel sees no traffic to these neighbours and would remove them. At other
    /// ports, notifies the worker that owns the device.
    pub fn refresh(&mut self) -> Result<(), ControlError> {
        let used = self.workers.take_used_neighbours()?;
        for (port, address) in &used {
            if let Some(device) = self.own_device(*port) {
                let state = NeighbourKnowledge::Used;
                let change = NeighbourChange { port: *port, address: *address, state };
                self.workers.owner(device).tell(NeighbourCommand::Set(vec![change]))?;
            }
        }
        let (Some(mirror), Some(actions)) = (&self.kernel.mirror, &mut self.kernel.actions) else {
            return Ok(());
        };
        for (port, address) in used {
            let Some(device) = self.devices.kernel.get(&port) else { continue };
            let stale = mirror
                .state()
                .neighbour(device.ifindex, address)
                .is_none_or(|neighbour| neighbour.state == NeighbourState::Stale);
            if stale {
                // On a failure, the next refresh tries again.
                let _ = actions.resolve(device.ifindex, address);
            }
        }
        Ok(())
    }
}

/// Returns the update for the workers from the kernel's entry of a neighbour; `None` while the kernel
/// resolves it.
pub(super) fn knowledge(
    port: PortId,
    address: IpAddr,
    neighbour: Option<&HostNeighbour>,
) -> Option<NeighbourChange> {
    let state = match neighbour {
        None => NeighbourKnowledge::Forgotten,
        Some(HostNeighbour { state: NeighbourState::Failed, .. }) => NeighbourKnowledge::Failed,
        Some(HostNeighbour { state, mac: Some(mac), .. }) if state.valid() => {
            NeighbourKnowledge::Known(MacAddr(*mac))
        }
        Some(_) => return None,
    };
    Some(NeighbourChange { port, address, state })
}
