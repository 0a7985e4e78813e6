//! Planned ports of a configuration.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use millrace_config::{Config, Step, VlanIds};
use millrace_pipeline::{DeviceId, PortSettings, Stack, Tags};
use millrace_units::PortId;
use millrace_wire::MacAddr;

use super::{PortPlan, reverse_path};
use crate::ControlError;

pub(crate) fn plan_ports(config: &Config) -> Result<Vec<PortPlan>, ControlError> {
    let mut plans: Vec<PortPlan> = Vec::new();
    // Ports with a device of their own come first, because sub-interfaces share these devices.
    let ports = config.port.iter().enumerate();
    let (subs, mains): (Vec<_>, Vec<_>) = ports.partition(|(_, port)| port.vlan.is_some());
    for (_, port) in mains {
        let id = PortId(plans.len() as u16);
        let settings = settings(port, DeviceId(id.0), Tags::NONE);
        plans.push(PortPlan { id, config: port.clone(), settings });
    }
    for (index, port) in subs {
        let wrong = |key: &str, problem: String| {
            let at = [Step::Key("port"), Step::Entry(index), Step::Key(key)];
            Err(ControlError::invalid(format!("port {:?}{problem}", &*port.name)).placed(config, &at))
        };
        let parent =
            plans.iter().find(|plan| plan.config.vlan.is_none() && plan.config.device == port.device);
        let Some(device) = parent.map(|plan| plan.settings.device) else {
            let device = port.device.as_deref().unwrap_or("nothing");
            let problem =
                format!("is a VLAN sub-interface of {device}, which is not a port: add a port for {device}");
            return wrong("device", format!(" {problem}"));
        };
        let tags = match port.vlan {
            Some(VlanIds::Single(id)) => Tags::single(id),
            Some(VlanIds::Double([outer, inner])) => Tags::double(outer, inner),
            None => Tags::NONE,
        };
        let id = PortId(plans.len() as u16);
        if plans.iter().any(|plan| plan.settings.device == device && plan.settings.tags == tags) {
            return wrong("vlan", format!(": another port already has VLAN {tags} of the same device"));
        }
        plans.push(PortPlan { id, config: port.clone(), settings: settings(port, device, tags) });
    }
    Ok(plans)
}

fn settings(port: &millrace_config::Port, device: DeviceId, tags: Tags) -> PortSettings {
    PortSettings {
        name: port.name.to_string(),
        device,
        tags,
        stack: Stack::Own,
        mac: port.mac.as_ref().map_or_else(|| made_mac(&port.name), |mac| *mac.value()),
        mtu: port.mtu.unwrap_or(1500),
        up: true,
        forwards4: true,
        forwards6: true,
        input_weight: port.input_weight.0,
        output_weight: port.output_weight.0,
        reverse_path: reverse_path(port.reverse_path),
        addresses: port.address.iter().map(|net| *net.value()).collect(),
    }
}

/// Returns a locally administered MAC address that depends only on a name.
fn made_mac(name: &str) -> MacAddr {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    let [a, b, c, d, e, ..] = hasher.finish().to_be_bytes();
    MacAddr([0x02, a, b, c, d, e])
}
