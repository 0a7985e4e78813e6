//! Follows changes of ports' devices.

use crate::ControlError;
use crate::follow::kernel_path::{set_host_path, set_witness};
use crate::follow::kernel_queueing::note_queueing;
use crate::ports::claim::Claim;
use crate::ports::device::{AttachedDevice, KernelOptions, mtu_of};
use crate::ports::kernel_settings::{complete, warn_of_forwarding};
use crate::router::Inner;
use millrace_pipeline::{DeviceCommand, PortCommand};
use millrace_telemetry::EventKind;
use millrace_wire::MacAddr;

impl Inner {
    /// Reopens devices that came back, and sends changed port settings to the workers.
    pub(super) fn refresh_ports(&mut self) -> Result<(), ControlError> {
        self.replace_devices();
        let before: Vec<_> = self.model.ports.iter().map(|plan| plan.settings.clone()).collect();
        let Some(mirror) = &self.kernel.mirror else { return Ok(()) };
        if !complete(&mut self.model, &mirror.state()) {
            return Ok(());
        }
        let changed: Vec<_> = self
            .model
            .ports
            .iter()
            .zip(before)
            .filter(|(plan, before)| plan.settings != *before)
            .map(|(plan, before)| (plan.clone(), before.up))
            .collect();
        for (plan, was_up) in changed {
            if plan.settings.up != was_up {
                self.observation.note_link(&plan.settings.name, plan.settings.up);
            }
            tracing::info!(port = %plan.settings.name, up = plan.settings.up, mtu = plan.settings.mtu, "port changed");
            warn_of_forwarding(&plan.settings);
            if let Some(device) = self.devices.kernel.get_mut(&plan.id) {
                device.take_over(plan.settings.mac)?;
            }
            self.workers.tell(|| PortCommand::Set(plan.id, plan.settings.clone()))?;
        }
        Ok(())
    }

    /// Reopens devices whose receive queues in use have changed, since packets of a queue without a socket
    /// bypass the router.
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

    /// Releases devices that are gone or have other receive queues, and opens the devices that are there.
    pub(super) fn replace_devices(&mut self) {
        let Some(mirror) = &self.kernel.mirror else { return };
        let links: Vec<_> = self
            .model
            .ports
            .iter()
            .filter(|plan| plan.is_kernel())
            .map(|plan| {
                (
                    plan.clone(),
                    mirror.state().link_by_name(plan.config.device.as_deref().unwrap_or_default()).cloned(),
                )
            })
            .collect();
        for (plan, link) in links {
            let held = self.devices.kernel.get(&plan.id).map(|device| device.ifindex);
            let there = link.as_ref().map(|link| link.ifindex);
            let is_other = self.devices.kernel.get(&plan.id).zip(link.as_ref());
            let is_other = is_other.is_some_and(|(device, link)| device.has_other_queues(&link.name));
            if (held == there && !is_other)
                || (held.is_none() && !link.as_ref().is_some_and(|link| link.admin_up))
            {
                continue;
            }
            if self.devices.kernel.contains_key(&plan.id) {
                let what = if is_other { "released: its receive queues changed" } else { "gone" };
                tracing::warn!(port = %plan.settings.name, "device is {what}");
                self.observation.note_device(&plan, EventKind::DeviceGone, what);
                let share = self.devices.share(plan.id, self.offload.sent(plan.id));
                self.counters.device_gone(plan.id, &share);
                self.devices.kernel.remove(&plan.id);
                if !is_other {
                    self.counters.forget_device_drops(plan.id);
                }
                if let Err(error) = self.offload.forget_port(plan.id, &mut self.workers) {
                    tracing::error!("{error}");
                }
                // The other ports must not take the closing of this device's sockets for the death of the
                // router, so they need another witness.
                if let Err(error) = set_witness(&mut self.devices)
                    .and_then(|()| self.devices.set_host_outputs(&self.model, &mut self.workers))
                {
                    tracing::error!("{error}");
                }
                let device = plan.settings.device;
                // The next important command detects a worker that does not answer.
                let _ = self.workers.ask(|reply| DeviceCommand::Remove(device, reply));
            }
            if let Some(link) = link.filter(|link| link.admin_up) {
                match self.reopen(&plan, &link) {
                    Ok(()) => {
                        tracing::info!(port = %plan.settings.name, "device is back");
                        self.observation.note_device(&plan, EventKind::DeviceBack, "there again");
                    }
                    Err(error) => tracing::error!(port = %plan.settings.name, "{error}"),
                }
            }
        }
    }

    pub(super) fn reopen(
        &mut self,
        plan: &crate::model::PortPlan,
        link: &millrace_host::HostLink,
    ) -> Result<(), ControlError> {
        let on_death = self.supervision.death.of_port(plan.id).unwrap_or(millrace_config::OnDeath::Kernel);
        let options = KernelOptions {
            on_death,
            segment_mtu: mtu_of(link),
            no_cache: self.offload.why_no_cache(),
            control_plane: self.model.options.control_plane,
        };
        let (mut device, capabilities) = AttachedDevice::attach(
            plan,
            link,
            Claim::take(link.ifindex, &link.name)?,
            options,
            self.offload.cache(),
        )?
        .open(&mut self.workers)?;
        device.take_over(MacAddr(link.mac.unwrap_or_default()))?;
        self.devices.capabilities.insert(plan.settings.device, capabilities);
        self.devices.kernel.insert(plan.id, device);
        note_queueing(&mut self.devices, &self.model, &self.observation.events);
        self.offload.refresh_ports(&mut self.devices, &self.model, &mut self.workers)?;
        set_host_path(&mut self.devices, &mut self.workers)?;
        set_witness(&mut self.devices)?;
        self.devices.set_host_outputs(&self.model, &mut self.workers)?;
        let Some(mirror) = &self.kernel.mirror else { return Ok(()) };
        let everything = mirror.state().snapshot();
        self.apply(everything)
    }
}
