//! Devices of the ports.

use std::collections::{BTreeMap, HashMap};

use millrace_host::local_addresses;
use millrace_offload::OffloadSent;
use millrace_pipeline::{ClassLimits, DeviceId, OffloadCommand, OffloadPort};
use millrace_port::Capabilities;
use millrace_units::{PortId, QueueId};

use crate::ControlError;
use crate::kernel::Kernel;
use crate::model::Model;
use crate::ports::control_plane::class_rates;
use crate::ports::device::{KernelDevice, vlan_stack};
use crate::ports::host_output::HostOutputs;
use crate::show::KernelShare;
use crate::workers::Workers;

/// Ports by the index of their kernel device.
pub(crate) type PortsByDevice = HashMap<u32, PortId>;

#[derive(Default)]
pub(crate) struct Devices {
    pub kernel: HashMap<PortId, KernelDevice>,
    /// Host outputs, by egress port.
    pub host_outputs: HostOutputs,
    pub capabilities: HashMap<DeviceId, Capabilities>,
}

impl Devices {
    /// Returns the ports by the index of their kernel device.
    pub fn by_index(&self) -> PortsByDevice {
        self.kernel.iter().map(|(port, device)| (device.ifindex, *port)).collect()
    }

    /// Returns the counters of a port's XDP program since the program was loaded. `sent` counts the packets
    /// that the offload has sent out of the port.
    pub fn share(&self, port: PortId, sent: OffloadSent) -> KernelShare {
        let Some(device) = self.kernel.get(&port) else {
            return KernelShare { sent, ..KernelShare::default() };
        };
        let counters = device.programs.counters().unwrap_or_default();
        let cache = counters.cache;
        KernelShare {
            seen: counters.seen,
            seen_bytes: counters.seen_bytes,
            passed: counters.passed(),
            dropped: counters.fallback.dropped + cache.undeliverable + cache.made_way,
            forwarded: cache.forwarded,
            filtered: cache.filtered,
            policed: cache.policed,
            variant_dropped: cache.variant_dropped,
            classes: counters.control,
            sent,
        }
    }

    /// Sets the limits of control-plane policing in all XDP programs.
    pub fn police(&mut self, limits: &ClassLimits) -> Result<(), ControlError> {
        let rates = class_rates(limits);
        let mut devices = self.kernel.values_mut();
        devices
            .try_for_each(|device| device.programs.set_control_plane(&rates))
            .map_err(ControlError::refused)
    }

    /// Starts host output at the ports whose schedulers are configured for it, and stops it at all other
    /// ports. `queues`: queues of packets, by the
    /// control groups of their processes.
    pub fn set_host_outputs(
        &mut self,
        model: &Model,
        queues: &BTreeMap<u64, QueueId>,
        workers: &mut Workers,
    ) -> Result<(), ControlError> {
        self.host_outputs.set(&self.kernel, model, workers)?;
        self.host_outputs.set_queues(queues, model);
        Ok(())
    }

    /// Sets the kernel's local addresses and the sub-interfaces' VLANs in all XDP programs.
    pub fn refresh_programs(&mut self, model: &Model, kernel: &Kernel) -> Result<(), ControlError> {
        let Some(mirror) = &kernel.mirror else { return Ok(()) };
        let addresses = local_addresses(&mirror.state());
        for (port, device) in &mut self.kernel {
            let vlans: Vec<_> = model
                .ports
                .iter()
                .filter(|plan| plan.settings.device == device.device && plan.id != *port)
                .filter_map(|plan| vlan_stack(plan.settings.tags))
                .collect();
            let set = device
                .programs
                .set_local_addresses(&addresses)
                .and_then(|()| device.programs.set_vlans(&vlans));
            set.map_err(ControlError::refused)?;
        }
        Ok(())
    }

    /// Tells all workers whether a port has a scheduler: flows of any worker may be offloaded to leave by the
    /// port. When this returns, no packet bypasses the scheduler.
    pub fn tell_scheduler(
        &mut self,
        port: PortId,
        model: &Model,
        workers: &mut Workers,
    ) -> Result<(), ControlError> {
        let queues = has_queues(model, port);
        let device = self.kernel.get_mut(&port).and_then(|device| device.offload.as_mut());
        let Some(can) = device.filter(|can| can.queues != queues) else { return Ok(()) };
        let told = OffloadPort { queues, ..*can };
        workers.tell(|| OffloadCommand::SetPort(port, told))?;
        // Stored only after the command was sent: if sending fails, the next call sends the command again.
        *can = told;
        workers.barrier()
    }
}

/// Whether a port has a scheduler in which packets wait: a planned scheduler with at least one node.
pub(crate) fn has_queues(model: &Model, port: PortId) -> bool {
    model.schedulers.of(port).is_some_and(|scheduler| !scheduler.node.is_empty())
}
