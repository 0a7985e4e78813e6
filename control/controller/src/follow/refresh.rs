//! Follows changes of ports' devices.

use millrace_host::HostLink;
use millrace_pipeline::{DeviceCommand, PortCommand, PortSettings};
use millrace_telemetry::EventKind;
use millrace_wire::MacAddr;

use crate::ControlError;
use crate::follow::kernel_path::{set_host_path, set_witness};
use crate::follow::kernel_queueing::note_queueing;
use crate::follow::pace::{is_silent, worse};
use crate::model::PortPlan;
use crate::ports::claim::Claim;
use crate::ports::device::{AttachedDevice, mtu_of};
use crate::ports::kernel_settings::{complete, warn_of_forwarding};
use crate::router::Inner;

impl Inner {
    /// Reopens devices that came back, and sends changed port settings to the workers.
    pub(super) fn refresh_ports(&mut self) -> Result<(), ControlError> {
        self.replace_devices();
        let before: Vec<_> = self.model.ports.iter().map(|plan| plan.settings.clone()).collect();
        let Some(mirror) = &self.kernel.mirror else { return Ok(()) };
        complete(&mut self.model, &mirror.state());
        self.tell_ports(before)
    }

    /// Sends the settings of ports that differ from `before`. If sending the settings of a port fails, the
    /// model gets the port's earlier settings back. So the next comparison finds the difference again.
    pub(super) fn tell_ports(&mut self, before: Vec<PortSettings>) -> Result<(), ControlError> {
        let mut done = Ok(());
        for (index, before) in before.into_iter().enumerate() {
            if self.model.ports[index].settings == before {
                continue;
            }
            if !is_silent(&done) {
                match self.tell_port(index, before.up) {
                    Ok(()) => continue,
                    failed => done = worse(done, failed),
                }
            }
            self.model.ports[index].settings = before;
        }
        done
    }

    fn tell_port(&mut self, index: usize, was_up: bool) -> Result<(), ControlError> {
        let PortPlan { id, settings, .. } = &self.model.ports[index];
        if let Some(device) = self.devices.kernel.get_mut(id) {
            device.take_over(settings.mac)?;
        }
        self.workers.tell(|| PortCommand::Set(*id, settings.clone()))?;
        if settings.up != was_up {
            self.observation.note_link(&settings.name, settings.up);
        }
        tracing::info!(port = %settings.name, up = settings.up, mtu = settings.mtu, "port changed");
        warn_of_forwarding(settings);
        Ok(())
    }

    /// Reopens devices whose set of receive queues in use has changed. Otherwise packets of a queue without a
    /// socket would bypass the router.
    pub(super) fn follow_queues(&mut self) {
        let Some(mirror) = &self.kernel.mirror else { return };
        let state = mirror.state();
        let mut links = self
            .devices
            .kernel
            .values()
            .filter_map(|own| Some((own, state.links().find(|link| link.ifindex == own.ifindex)?)));
        let is_other = links.any(|(device, link)| device.has_other_queues(&link.name));
        drop(state);
        if is_other {
            self.replace_devices();
        }
    }

    /// Releases devices that are gone, and devices whose set of receive queues has changed. Then opens the
    /// devices that exist.
    fn replace_devices(&mut self) {
        let Some(mirror) = &self.kernel.mirror else { return };
        let kernel_ports = self.model.ports.iter().filter(|plan| plan.is_kernel());
        let link = |plan: &PortPlan| {
            let name = plan.config.device.as_deref().unwrap_or_default();
            (plan.clone(), mirror.state().link_by_name(name).cloned())
        };
        let links: Vec<_> = kernel_ports.map(link).collect();
        for (plan, link) in links {
            let held = self.devices.kernel.get(&plan.id);
            let is_other = held.zip(link.as_ref());
            let is_other = is_other.is_some_and(|(device, link)| device.has_other_queues(&link.name));
            let is_same =
                held.map(|device| device.ifindex) == link.as_ref().map(|link| link.ifindex) && !is_other;
            if is_same || (held.is_none() && !link.as_ref().is_some_and(|link| link.admin_up)) {
                continue;
            }
            if held.is_some() {
                self.release_device(&plan, is_other);
            }
            if let Some(link) = link.filter(|link| link.admin_up) {
                match self.reopen(&plan, &link) {
                    Ok(()) => {
                        tracing::info!(port = %plan.settings.name, "device is back");
                        self.observation.note_device(&plan, EventKind::DeviceBack, "back");
                    }
                    Err(error) => tracing::error!(port = %plan.settings.name, "{error}"),
                }
            }
        }
    }

    /// Releases the device of a port, because the device is gone, or because its receive queues have changed
    /// (`is_other`).
    fn release_device(&mut self, plan: &PortPlan, is_other: bool) {
        let what = if is_other { "released: its receive queues changed" } else { "gone" };
        tracing::warn!(port = %plan.settings.name, "device is {what}");
        self.observation.note_device(plan, EventKind::DeviceGone, what);
        let share = self.devices.share(plan.id, self.offload.sent(plan.id));
        self.counters.device_gone(plan.id, &share);
        self.devices.kernel.remove(&plan.id);
        if !is_other {
            // A new device with the same name starts its counters at zero.
            self.counters.device_drops_before.remove(&plan.id);
        }
        let forgotten = self.offload.forget_port(plan.id, &mut self.workers);
        // The witness may be a socket of this device. When it closes, all port programs would see the router
        // as dead, so the other ports need another witness.
        let queues = self.principals.queues_of_packets(&self.model);
        let others = set_witness(&mut self.devices)
            .and_then(|()| self.devices.set_host_outputs(&self.model, &queues, &mut self.workers));
        for error in [forgotten, others].into_iter().filter_map(Result::err) {
            tracing::error!("{error}");
        }
        // The result doesn't matter here: the next important command detects a worker that does not answer.
        let _ = self.workers.ask(|reply| DeviceCommand::Remove(plan.settings.device, reply));
    }

    fn reopen(&mut self, plan: &PortPlan, link: &HostLink) -> Result<(), ControlError> {
        let claim = Claim::take(link.ifindex, &link.name)?;
        let options = self.kernel_options(plan.id, mtu_of(link));
        let attached = AttachedDevice::attach(plan, link, claim, options, self.offload.cache())?;
        let opened = attached.open(&mut self.workers).and_then(|(mut device, capabilities)| {
            device.take_over(MacAddr(link.mac.unwrap_or_default()))?;
            Ok((device, capabilities))
        });
        let (device, capabilities) = opened.inspect_err(|_| {
            // Sockets that stay open at some workers would keep the device from being opened again. A worker that does
            // not answer is found by the next important command.
            let _ = self.workers.ask(|reply| DeviceCommand::Remove(plan.settings.device, reply));
        })?;
        self.devices.capabilities.insert(plan.settings.device, capabilities);
        self.devices.kernel.insert(plan.id, device);
        note_queueing(&mut self.devices, &self.model, &self.observation.events);
        self.offload.refresh_ports(&mut self.devices, &self.model, &mut self.workers)?;
        set_host_path(&mut self.devices, &mut self.workers)?;
        set_witness(&mut self.devices)?;
        let queues = self.principals.queues_of_packets(&self.model);
        self.devices.set_host_outputs(&self.model, &queues, &mut self.workers)?;
        let Some(mirror) = &self.kernel.mirror else { return Ok(()) };
        let everything = mirror.state().snapshot();
        self.apply(everything)
    }
}
