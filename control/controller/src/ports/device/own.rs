//! Devices of ports without a kernel device: TAP devices, packet files, memory.

use std::collections::HashMap;

use millrace_config::PortKind;
use millrace_packet::Pool;
use millrace_pipeline::{DeviceId, OpenDevice, OpenedDevice};
use millrace_port::pcap::Pace;
use millrace_port::{Capabilities, Memory, Pcap, PcapFiles, PcapOptions, Port, Tap};
use millrace_wire::MacAddr;

use super::{Wrapping, open_error, open_on_worker, time_of_day};
use crate::ControlError;
use crate::model::PortPlan;
use crate::workers::Workers;

/// Device of a port without a kernel device, before a worker gets it.
pub(crate) struct OwnDevice {
    plan: PortPlan,
    open: OpenDevice,
    /// MAC address of the device.
    mac: MacAddr,
}

impl OwnDevice {
    /// Opens the devices of all ports without a kernel device, and stores the MAC addresses of the devices in
    /// `ports`. Everything that needs privileges or files happens here. No packet is received before
    /// [`give_all`](Self::give_all).
    pub fn prepare(ports: &mut [PortPlan]) -> Result<Vec<Self>, ControlError> {
        let own = ports.iter_mut().filter(|plan| !plan.is_kernel() && plan.config.vlan.is_none());
        let device = |plan: &mut PortPlan| {
            let device = Self::of(plan)?;
            plan.settings.mac = device.mac;
            Ok(device)
        };
        own.map(device).collect()
    }

    fn of(plan: &PortPlan) -> Result<Self, ControlError> {
        let wrap = Wrapping::of(plan)?;
        let (config, settings) = (&plan.config, plan.settings.clone());
        let files = (config.kind == PortKind::Pcap).then(|| {
            let pace = if config.fast { Pace::Fast } else { Pace::Recorded };
            let (input, output) = (config.input.clone(), config.output.clone());
            PcapFiles::open(PcapOptions { input, output, pace, origin: time_of_day() })
        });
        let files = files.transpose().map_err(|error| open_error(plan, error))?;
        let tap = (config.kind == PortKind::Tap).then(|| Tap::open(&settings.name, settings.mtu));
        let tap = tap.transpose().map_err(|error| open_error(plan, error))?;
        let mac = tap.as_ref().map_or(settings.mac, |tap| tap.capabilities().mac);
        let open: OpenDevice = Box::new(move |_: &Pool| {
            let port: Box<dyn Port> = match (tap, files) {
                (Some(tap), _) => Box::new(tap),
                (None, Some(files)) => Box::new(Pcap::new(settings.mac, settings.mtu, files)?),
                (None, None) => Box::new(Memory::new(settings.mac, settings.mtu).0),
            };
            Ok(OpenedDevice { port: wrap.around(port)?, sockets: Vec::new() })
        });
        Ok(Self { plan: plan.clone(), open, mac })
    }

    /// Gives the device to the worker that owns it. The worker receives packets from it at once.
    fn give(self, workers: &mut Workers) -> Result<Capabilities, ControlError> {
        open_on_worker(&self.plan, self.open, workers).map(|report| report.capabilities)
    }

    /// Gives all devices to their workers, and stores their capabilities in `known`. Ports, filters and
    /// routes must be complete before this call, because packets arrive at once.
    pub fn give_all(
        devices: Vec<Self>,
        known: &mut HashMap<DeviceId, Capabilities>,
        workers: &mut Workers,
    ) -> Result<(), ControlError> {
        for device in devices {
            let id = device.plan.settings.device;
            known.insert(id, device.give(workers)?);
        }
        Ok(())
    }
}
