//! Offload of flows: the flow cache and the eBPF variants of plugins.

use millrace_offload::{DriverSent, FlowCache};
use millrace_pipeline::{DriverPort, OffloadCommand, Placement};
use millrace_plugin_abi::Plugin;
use millrace_units::{InstanceId, PortId};

use super::driver_flows::WorkerCache;
use super::driver_forms::{Cache, Forms};
use crate::ControlError;
use crate::model::{Model, Plugins};
use crate::ports::devices::{Devices, has_queues};
use crate::workers::Workers;

/// Offload of the router.
pub(crate) struct Offload {
    /// Flow cache of offloaded flows.
    flow_cache: Cache,
    /// Loaded eBPF variants of plugins.
    forms: Forms,
}

impl Offload {
    /// Creates the offload of a router with this flow cache.
    pub fn new(flow_cache: Cache) -> Self {
        Self { flow_cache, forms: Forms::default() }
    }

    /// Gives each worker its part of the flow cache.
    pub fn begin(
        &mut self,
        devices: &mut Devices,
        model: &Model,
        workers: &mut Workers,
    ) -> Result<(), ControlError> {
        let Ok(cache) = &mut self.flow_cache else { return Ok(()) };
        let part = |worker| {
            let writer = cache.writer(worker);
            let writer = writer.map_err(|error| ControlError::system("map the flow cache", error))?;
            Ok(OffloadCommand::SetCache(Box::new(WorkerCache::new(writer))))
        };
        let parts = (0..workers.len()).map(part).collect::<Result<_, ControlError>>()?;
        workers.tell_each(parts)?;
        self.refresh_ports(devices, model, workers)
    }

    /// Publishes the offload capabilities of each port to the workers and the flow cache, if they have
    /// changed. The peer of a veth may start or stop accepting redirected frames at any time.
    pub fn refresh_ports(
        &mut self,
        devices: &mut Devices,
        model: &Model,
        workers: &mut Workers,
    ) -> Result<(), ControlError> {
        for (port, device) in &mut devices.kernel {
            let (takes, takes_long) = device.programs.takes_redirects();
            let mtu = model.ports.iter().find(|plan| plan.id == *port).map_or(0, |plan| plan.settings.mtu);
            let takes = takes && device.fits_far_end(mtu);
            device.batches.set_takes_redirects(takes);
            let Ok(cache) = &mut self.flow_cache else { continue };
            let looks_up = device.stays_up.is_none();
            let sends = looks_up && takes && device.queueing.is_none();
            let (receive_queues, queues) = (device.receive_queues(), has_queues(model, *port));
            let can = DriverPort { receives: looks_up, sends, receive_queues, queues };
            if device.driver == Some(can) {
                continue;
            }
            // If the device has vanished, the offload can't send by its port until the device is back.
            let set = cache.set_device(port.0, can.sends.then_some(device.ifindex), takes_long);
            let can = match set {
                Ok(()) => can,
                Err(error) => {
                    tracing::warn!("flows out of port {} are not offloaded: {error}", port.0);
                    DriverPort { sends: false, ..can }
                }
            };
            workers.tell(|| OffloadCommand::SetPort(*port, can))?;
            // Stored only after the command was sent, so that a failed command is repeated next time.
            device.driver = Some(can);
        }
        Ok(())
    }

    /// Removes the vanished device of a port from the flow cache, so that no offloaded flow leaves by the
    /// port.
    pub fn forget_port(&mut self, port: PortId, workers: &mut Workers) -> Result<(), ControlError> {
        let Ok(cache) = &mut self.flow_cache else { return Ok(()) };
        let unset = cache.set_device(port.0, None, false);
        unset.map_err(|error| ControlError::system("remove a port from the flow cache", error))?;
        workers.tell(|| OffloadCommand::SetPort(port, DriverPort::default()))
    }

    /// Returns the flow cache, if there is one.
    pub fn cache(&self) -> Option<&FlowCache> {
        self.flow_cache.as_ref().ok()
    }

    /// Returns the reason why there is no flow cache; `None` if there is one.
    pub fn why_no_cache(&self) -> Option<&'static str> {
        self.flow_cache.as_ref().err().copied()
    }

    /// Returns the packets and bytes that the offload has sent out of a port.
    pub fn sent(&self, port: PortId) -> DriverSent {
        let sent = self.flow_cache.as_ref().ok().map(|cache| cache.sent(port.0));
        sent.and_then(Result::ok).unwrap_or_default()
    }

    /// Loads the eBPF variants of all existing instances.
    pub fn begin_forms(&mut self, model: &Model, workers: &mut Workers) -> Result<(), ControlError> {
        self.forms.begin_all(&mut self.flow_cache, model, workers)
    }

    /// Loads the eBPF variant of an instance, if its plugin has one.
    pub fn begin_form(
        &mut self,
        id: InstanceId,
        model: &Model,
        workers: &mut Workers,
    ) -> Result<(), ControlError> {
        self.forms.begin(id, &mut self.flow_cache, model, workers)
    }

    /// Unloads the eBPF variant of an instance, if there is one.
    pub fn end_form(&mut self, id: InstanceId, workers: &mut Workers) -> Result<(), ControlError> {
        self.forms.end(id, &mut self.flow_cache, workers)
    }

    /// Unloads the eBPF variants of a plugin's instances if the new version has another variant. Returns
    /// these instances.
    pub fn end_other_forms(
        &mut self,
        versions: (&dyn Plugin, &dyn Plugin),
        model: &Model,
        workers: &mut Workers,
    ) -> Result<Vec<InstanceId>, ControlError> {
        self.forms.end_others(versions, &mut self.flow_cache, model, workers)
    }

    /// Sends the placements of flows and instances to the workers, and waits until they are in force.
    pub fn place(
        &mut self,
        flows: &[Placement],
        model: &Model,
        workers: &mut Workers,
    ) -> Result<(), ControlError> {
        workers.tell(|| OffloadCommand::Place(flows.to_vec()))?;
        self.forms.tell(model, workers)?;
        workers.barrier()
    }

    /// Returns the reason why packets of an instance stay at the workers; `None` if they may be offloaded.
    pub fn stays_up(&self, id: InstanceId, plugins: &Plugins) -> Option<String> {
        self.forms.stays_up(id, &self.flow_cache, plugins)
    }
}
