//! Renewal of ports whose devices changed.

use crate::ControlError;
use crate::ports::claim::Claim;
use crate::ports::device::{AttachedDevice, KernelOptions, mtu_of, vlan_stack};
use crate::router::Inner;
use crate::show::KernelShare;
use crate::start::{complete, warn_of_forwarding};
use millrace_host::local_addresses;
use millrace_pipeline::{DeviceCommand, PortCommand};
use millrace_telemetry::EventKind;
use millrace_wire::MacAddr;

impl Inner {
    /// Sends changed port settings to the workers, and opens devices that came back.
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
                self.note_link(&plan.settings.name, plan.settings.up);
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

    /// Reopens devices whose set of receive queues has changed: packets of a queue without a socket would
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

    /// Releases devices that are gone or have other receive queues, and opens the available ones.
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
                self.note_device(&plan, EventKind::DeviceGone, what);
                self.counters.share_gone.insert(plan.id, self.share(plan.id));
                // The count of packets sent by the driver continues, so its current value becomes the offset.
                let sent = self.share_now(plan.id).sent;
                self.counters.share_offset.insert(plan.id, KernelShare { sent, ..KernelShare::default() });
                self.devices.kernel.remove(&plan.id);
                if !is_other {
                    // The next device of this name counts from zero.
                    self.counters.device_drops_before.remove(&plan.id);
                }
                if let Err(error) = self.forget_driver_port(plan.id) {
                    tracing::error!("{error}");
                }
                // Closing the sockets of this device must not look to the other ports like the end of the
                // router.
                if let Err(error) = self.set_witness().and_then(|()| self.set_host_outputs()) {
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
                        self.note_device(&plan, EventKind::DeviceBack, "there again");
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
            no_cache: self.offload.flow_cache.as_ref().err().copied(),
            control_plane: self.model.options.control_plane,
        };
        let (mut device, capabilities) = AttachedDevice::attach(
            plan,
            link,
            Claim::take(link.ifindex, &link.name)?,
            options,
            self.offload.flow_cache.as_ref().ok(),
        )?
        .open(&mut self.workers)?;
        device.take_over(MacAddr(link.mac.unwrap_or_default()))?;
        self.devices.capabilities.insert(plan.settings.device, capabilities);
        self.devices.kernel.insert(plan.id, device);
        self.note_queueing(true);
        self.refresh_driver_ports()?;
        self.set_host_path()?;
        self.set_witness()?;
        self.set_host_outputs()?;
        let Some(mirror) = &self.kernel.mirror else { return Ok(()) };
        let everything = mirror.state().snapshot();
        self.apply(everything)
    }

    /// Sets the kernel's addresses and Millrace's VLANs in the XDP programs.
    pub fn refresh_programs(&mut self) -> Result<(), ControlError> {
        let Some(mirror) = &self.kernel.mirror else { return Ok(()) };
        let addresses = local_addresses(&mirror.state());
        for (port, device) in &mut self.devices.kernel {
            let vlans: Vec<_> = self
                .model
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
}
