//! Offload of flows: the flow cache and the eBPF variants of plugins.

use std::collections::BTreeMap;

use millrace_offload::{FlowCache, OffloadSent};
use millrace_pipeline::{OffloadCommand, OffloadPort, Placement};
use millrace_plugin_abi::Plugin;
use millrace_units::{InstanceId, PortId};

use super::ebpf_variants::{InstanceVariant, Terms, load, why_not_asked};
use super::flow_cache::WorkerCache;
use crate::ControlError;
use crate::model::Model;
use crate::ports::devices::{Devices, has_queues};
use crate::workers::Workers;

pub(crate) struct Offload {
    /// Flow cache of offloaded flows, or the reason why there is none.
    flow_cache: Result<FlowCache, &'static str>,
    /// eBPF variants of plugins, by instance.
    variants: BTreeMap<InstanceId, InstanceVariant>,
}

impl Offload {
    /// Creates the offload of a router with the given flow cache.
    pub fn new(flow_cache: Result<FlowCache, &'static str>) -> Self {
        Self { flow_cache, variants: BTreeMap::new() }
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

    /// Publishes the offload capabilities of each port to the workers and the flow cache, if the capabilities
    /// have changed. They may change at any time: the peer of a veth can start or stop accepting redirected
    /// frames.
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
            let can = OffloadPort { receives: looks_up, sends, receive_queues, queues };
            if device.offload == Some(can) {
                continue;
            }
            // This fails if the device has vanished. The port is then no egress of offloaded flows until the
            // device is back.
            let set = cache.set_device(port.0, can.sends.then_some(device.ifindex), takes_long);
            let can = match set {
                Ok(()) => can,
                Err(error) => {
                    tracing::warn!("flows out of port {} are not offloaded: {error}", port.0);
                    OffloadPort { sends: false, ..can }
                }
            };
            workers.tell(|| OffloadCommand::SetPort(*port, can))?;
            // Stored only after the command was sent: if sending fails, the next call sends the command
            // again.
            device.offload = Some(can);
        }
        Ok(())
    }

    /// Removes the vanished device of a port from the flow cache, so that no offloaded flow leaves by the
    /// port.
    pub fn forget_port(&mut self, port: PortId, workers: &mut Workers) -> Result<(), ControlError> {
        let Ok(cache) = &mut self.flow_cache else { return Ok(()) };
        let unset = cache.set_device(port.0, None, false);
        unset.map_err(|error| ControlError::system("remove a port from the flow cache", error))?;
        workers.tell(|| OffloadCommand::SetPort(port, OffloadPort::default()))
    }

    pub fn cache(&self) -> Option<&FlowCache> {
        self.flow_cache.as_ref().ok()
    }

    /// Returns the reason why there is no flow cache; `None` if there is one.
    pub fn why_no_cache(&self) -> Option<&'static str> {
        self.flow_cache.as_ref().err().copied()
    }

    /// Returns the packets and bytes that the offload has sent out of a port.
    pub fn sent(&self, port: PortId) -> OffloadSent {
        self.cache().and_then(|cache| cache.sent(port.0).ok()).unwrap_or_default()
    }

    /// Loads the eBPF variants of all existing instances.
    pub fn load_variants(&mut self, model: &Model, workers: &mut Workers) -> Result<(), ControlError> {
        model.plugins.instance_names().try_for_each(|(id, ..)| self.load_variant(id, model, workers))
    }

    /// Loads the eBPF variant of an instance, if the plugin has a variant and there is a flow cache. A
    /// failure is only logged: the packets of the instance then stay at the workers.
    pub fn load_variant(
        &mut self,
        id: InstanceId,
        model: &Model,
        workers: &mut Workers,
    ) -> Result<(), ControlError> {
        let name = model.plugins.instance_name(id).to_owned();
        let Some(variant) = model.plugins.plugin_of(&name)?.ebpf_variant() else { return Ok(()) };
        let Ok(cache) = &mut self.flow_cache else { return Ok(()) };
        let loaded = load(cache, &variant, workers.len());
        if let Err(problem) = &loaded {
            tracing::warn!(instance = name, "the instance's packets are not offloaded: {problem}");
        }
        if loaded.iter().flatten().any(|one| one.time().is_zero()) {
            tracing::warn!(
                instance = name,
                "the kernel can't measure its eBPF variant: its packets cost nobody time"
            );
        }
        let variant = InstanceVariant { loaded, terms: Terms::of(model, &name) };
        let told = variant.told(id, workers.len());
        self.variants.insert(id, variant);
        workers.tell_each(told)
    }

    /// Unloads the eBPF variant of an instance, if one is loaded. The counters of the variant are kept.
    pub fn unload_variant(&mut self, id: InstanceId, workers: &mut Workers) -> Result<(), ControlError> {
        let Some(variant) = self.variants.remove(&id) else { return Ok(()) };
        workers.tell(|| OffloadCommand::SetVariant(id, None))?;
        // After the barrier, no valid flow cache entry refers to the variant.
        workers.barrier()?;
        if let (Ok(loaded), Ok(cache)) = (variant.loaded, &mut self.flow_cache) {
            loaded.into_iter().for_each(|one| cache.unload_variant(one));
        }
        Ok(())
    }

    /// Prepares the replacement of a plugin by a new version. If the new version has another eBPF variant,
    /// unloads the variants of all instances, and returns these instances. Otherwise returns none.
    pub fn unload_other_variants(
        &mut self,
        (old, new): (&dyn Plugin, &dyn Plugin),
        model: &Model,
        workers: &mut Workers,
    ) -> Result<Vec<InstanceId>, ControlError> {
        if old.ebpf_variant() == new.ebpf_variant() {
            return Ok(Vec::new());
        }
        let own = model.plugins.instance_names().filter(|(.., plugin)| *plugin == old.name());
        let ids: Vec<_> = own.map(|(id, ..)| id).collect();
        ids.iter().try_for_each(|id| self.unload_variant(*id, workers))?;
        Ok(ids)
    }

    /// Sends the placements of flows and instances to the workers, and waits until they are in force.
    pub fn place(
        &mut self,
        flows: &[Placement],
        model: &Model,
        workers: &mut Workers,
    ) -> Result<(), ControlError> {
        workers.tell(|| OffloadCommand::Place(flows.to_vec()))?;
        for (id, variant) in &mut self.variants {
            let terms = Terms::of(model, model.plugins.instance_name(*id));
            if variant.terms != terms {
                variant.terms = terms;
                workers.tell_each(variant.told(*id, workers.len()))?;
            }
        }
        workers.barrier()
    }

    /// Returns the reason why packets of an instance aren't offloaded and stay at the workers; `None` if they
    /// may be offloaded.
    pub fn stays_up(&self, id: InstanceId, model: &Model) -> Option<String> {
        let name = model.plugins.instance_name(id);
        if model.plugins.plugin_of(name).ok()?.ebpf_variant().is_none() {
            return Some("its plugin has no eBPF variant".to_owned());
        }
        if let Some(why) = self.why_no_cache() {
            return Some(format!("there is no flow cache: {why}"));
        }
        match self.variants.get(&id) {
            Some(InstanceVariant { loaded: Err(problem), .. }) => Some(problem.clone()),
            Some(InstanceVariant { terms: Terms { is_asked: false, .. }, .. }) => {
                Some(why_not_asked(model, name).unwrap_or_else(|| "its placement changes".to_owned()))
            }
            Some(_) => None,
            None => Some("its eBPF variant is not loaded".to_owned()),
        }
    }
}
