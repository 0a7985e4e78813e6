//! Kernel queueing disciplines at ports. The router's packets bypass them at every level, and an event
//! reports this.

use millrace_host::policy;
use millrace_telemetry::EventKind;
use millrace_units::PortId;
use serde_json::json;

use crate::ControlError;
use crate::events::Events;
use crate::model::Model;
use crate::ports::devices::Devices;
use crate::ports::redirects::why_bypassed;
use crate::router::Inner;

impl Inner {
    /// Reads the kernel's queueing disciplines of the ports again. No offloaded flow leaves by a port whose
    /// discipline is more than a plain queue. As at a port with a scheduler of the router, only workers send.
    pub fn follow_queueing(&mut self) -> Result<(), ControlError> {
        match note_queueing(&mut self.devices, &self.model, &self.observation.events) {
            true => self.offload.refresh_ports(&mut self.devices, &self.model, &mut self.workers),
            false => Ok(()),
        }
    }
}

/// Stores the current queueing disciplines, and notes an event for each change. Returns whether there was a
/// change.
pub(super) fn note_queueing(devices: &mut Devices, model: &Model, events: &Events) -> bool {
    let changed = store_queueing(devices);
    for (port, now) in &changed {
        say_queueing(*port, now.as_deref(), model, events);
    }
    !changed.is_empty()
}

/// Stores the current queueing disciplines of all kernel devices. Returns the changed disciplines by port;
/// `None` means a plain queue.
pub(crate) fn store_queueing(devices: &mut Devices) -> Vec<(PortId, Option<String>)> {
    let indexes: Vec<u32> = devices.kernel.values().map(|device| device.ifindex).collect();
    if indexes.is_empty() {
        return Vec::new();
    }
    let mut found = match policy::queueing(&indexes) {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!("can't read the kernel's queueing disciplines: {error}");
            return Vec::new();
        }
    };
    let mut changed: Vec<(PortId, Option<String>)> = Vec::new();
    for (port, device) in &mut devices.kernel {
        let now = found.remove(&device.ifindex);
        if device.queueing != now {
            device.queueing.clone_from(&now);
            changed.push((*port, now));
        }
    }
    changed.sort_by_key(|(port, _)| *port);
    changed
}

/// Logs the changed queueing discipline of a port, and notes an event.
fn say_queueing(port: PortId, discipline: Option<&str>, model: &Model, events: &Events) {
    let name = model.port_name(port);
    let details = json!({"port": name, "discipline": discipline});
    match discipline {
        Some(discipline) => {
            let text = format!("port {name}: {}", why_bypassed(discipline));
            tracing::warn!(port = %name, "{text}");
            events.note(EventKind::QdiscBypassed, name, text, details);
        }
        None => {
            let text =
                format!("port {name}: the kernel removed the qdisc that packets of the router bypassed");
            tracing::info!(port = %name, "{text}");
            events.note(EventKind::QdiscRemoved, name, text, details);
        }
    }
}
