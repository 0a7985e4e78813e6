//! Ports: devices, neighbours, hardware and views.

pub(crate) mod batch_sending;
pub(crate) mod claim;
pub(crate) mod control_plane;
pub(crate) mod device;
pub(crate) mod devices;
pub(crate) mod hardware;
pub(crate) mod headers;
pub(crate) mod host_output;
pub(crate) mod kernel_settings;
pub(crate) mod neighbours;
pub(crate) mod packet_file;
pub(crate) mod redirects;
pub(crate) mod topology;

use std::collections::HashMap;

use millrace_config::OnDeath;
use millrace_pipeline::Snapshot;
use millrace_telemetry::Rate;
use millrace_units::PortId;

use crate::model::{Model, PortPlan};
use crate::ports::devices::Devices;
use crate::show::{self, KernelShare};
use crate::view::{PortCountersView, PortView};

/// Returns the transmit drops of each kernel port's device since the device was created, as counted by the
/// kernel.
pub(crate) fn device_drops_now(model: &Model) -> HashMap<PortId, u64> {
    // Without /proc, no counts are known.
    let counts = millrace_host::transmit_drops().unwrap_or_default();
    let own = |plan: &PortPlan| {
        let device = plan.config.device.as_deref().filter(|_| plan.is_kernel())?;
        Some((plan.id, *counts.get(device)?))
    };
    model.ports.iter().filter_map(own).collect()
}

/// Parts of the router from which the view of a port is made.
pub(crate) struct PortParts<'a> {
    pub devices: &'a Devices,
    /// Counters of the port's XDP programs since the last clearing.
    pub share: KernelShare,
    /// Treatment of the port's packets after the router's death; `None` without a kernel device.
    pub on_death: Option<OnDeath>,
}

impl PortParts<'_> {
    pub fn counters(&self, plan: &PortPlan, snapshot: &Snapshot) -> PortCountersView {
        let count = snapshot.ports.iter().find(|(id, _)| *id == plan.id).map(|(_, count)| count);
        let share = &self.share;
        // As in Linux, the port of the device also counts frames of its sub-interfaces.
        let (rx_packets, rx_bytes) = match self.devices.kernel.contains_key(&plan.id) {
            true => (share.seen, share.seen_bytes),
            false => count.map_or((0, 0), |count| (count.rx_packets, count.rx_bytes)),
        };
        let (tx_packets, tx_bytes) = count.map_or((0, 0), |count| (count.tx_packets, count.tx_bytes));
        let main = plan.config.vlan.is_none();
        let device = snapshot.devices.iter().find(|(id, _)| *id == plan.settings.device && main);
        let drops = count.into_iter().flat_map(|count| count.drops.iter());
        let drops = drops.chain(device.into_iter().flat_map(|(_, device)| device.drops.iter()));
        PortCountersView {
            name: plan.settings.name.clone(),
            rx_packets,
            rx_bytes,
            tx_packets: tx_packets + share.sent.packets,
            tx_bytes: tx_bytes + share.sent.bytes,
            dropped: drops.map(|(_, packets)| packets).sum(),
        }
    }

    pub fn view(&self, plan: &PortPlan, snapshot: &Snapshot, rates: &mut Rate) -> PortView {
        let settings = &plan.settings;
        let count = snapshot.ports.iter().find(|(id, _)| *id == plan.id).map(|(_, count)| count.clone());
        let count = count.unwrap_or_default();
        let mut held = snapshot.queued.iter().find(|(id, _)| *id == plan.id).map_or(0, |(_, queued)| *queued);
        let main = plan.config.vlan.is_none();
        let device =
            snapshot.devices.iter().find(|(id, _)| *id == settings.device && main).map(|(_, count)| count);
        let Self { devices, share, .. } = self;
        let mut drops = show::by_name(&count.drops);
        if let Some(device) = device {
            held += device.held;
            for (reason, packets) in device.drops.iter() {
                *drops.entry(reason.name().to_owned()).or_default() += packets;
            }
        }
        let capabilities = devices.capabilities.get(&settings.device);
        let driver = if main { capabilities.map_or("", |found| found.driver) } else { "vlan" };
        let (mode, why) = capabilities
            .map_or((String::new(), String::new()), |found| (found.mode.to_string(), found.why.clone()));
        let PortCountersView { rx_packets, rx_bytes, tx_packets, tx_bytes, .. } =
            self.counters(plan, snapshot);
        let name = settings.name.clone();
        let mut rate = |what: &str, value: u64| rates.read(&format!("{name} {what}"), value, snapshot.at);
        PortView {
            rx_rate: rate("rx", rx_packets),
            tx_rate: rate("tx", tx_packets),
            rx_bits: 8.0 * rate("rx bytes", rx_bytes),
            tx_bits: 8.0 * rate("tx bytes", tx_bytes),
            device: plan.config.device.clone(),
            driver: driver.to_owned(),
            mode,
            why,
            state: if settings.up { "up" } else { "down" },
            mac: settings.mac.to_string(),
            mtu: settings.mtu,
            addresses: settings.addresses.iter().map(ToString::to_string).collect(),
            on_death: self.on_death.map(show::on_death),
            reverse_path: show::reverse_path(settings.reverse_path),
            queueing_discipline: devices.kernel.get(&plan.id).and_then(|device| device.queueing.clone()),
            input_weight: settings.input_weight,
            output_weight: settings.output_weight,
            rx_packets,
            rx_bytes,
            tx_packets,
            tx_bytes,
            offloaded_packets: share.forwarded,
            batched_packets: device.map_or(0, |device| device.batched),
            device_drops: 0,
            to_host: count.to_host + share.passed,
            held,
            drops,
            name: settings.name.clone(),
        }
    }
}
