//! Queueing disciplines of the kernel at ports. No packet of the router passes them, at any level, and an
//! event reports this.

use millrace_host::{HostChange, policy};
use millrace_telemetry::EventKind;
use millrace_units::PortId;
use serde_json::json;

use crate::ControlError;
use crate::router::Inner;

/// Returns the reason why no offloaded flow leaves by a port with this queueing discipline, and the remedy.
pub(crate) fn why_passed_by(discipline: &str) -> String {
    format!(
        "it has the queueing discipline {discipline} of the kernel, which no packet of the router passes: a scheduler of the router's \
         shapes and orders them (`millrace scheduler`, [port.scheduler])"
    )
}

/// Whether a change may concern a queueing discipline.
pub(crate) fn concerns_queueing(changes: &[HostChange]) -> bool {
    changes.iter().any(|change| matches!(change, HostChange::Queueing(_)))
}

impl Inner {
    /// Updates the kernel's queueing disciplines of the ports. Flows leave by a port with more than a plain
    /// queue only from a worker, as for ports with a scheduler.
    pub fn follow_queueing(&mut self) -> Result<(), ControlError> {
        if !self.note_queueing(true) {
            return Ok(());
        }
        self.refresh_driver_ports()
    }

    /// Stores the current queueing disciplines. Returns whether any has changed. `says` is whether to report
    /// changes as events.
    pub fn note_queueing(&mut self, says: bool) -> bool {
        let devices: Vec<u32> = self.devices.kernel.values().map(|device| device.ifindex).collect();
        if devices.is_empty() {
            return false;
        }
        let mut found = match policy::queueing(&devices) {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!("the kernel's queueing disciplines are not known: {error}");
                return false;
            }
        };
        let mut changed: Vec<(PortId, Option<String>)> = Vec::new();
        for (port, device) in &mut self.devices.kernel {
            let now = found.remove(&device.ifindex);
            if device.queueing != now {
                device.queueing.clone_from(&now);
                changed.push((*port, now));
            }
        }
        changed.sort_by_key(|(port, _)| *port);
        if says {
            changed.iter().for_each(|(port, now)| self.say_queueing(*port, now.as_deref()));
        }
        !changed.is_empty()
    }

    fn say_queueing(&self, port: PortId, discipline: Option<&str>) {
        let name = self.model.port_name(port);
        let (kind, text) = match discipline {
            Some(discipline) => {
                (EventKind::QueueingPassedBy, format!("port {name}: {}", why_passed_by(discipline)))
            }
            None => (
                EventKind::QueueingGone,
                format!(
                    "port {name} has no queueing discipline of the kernel any more that its packets pass by"
                ),
            ),
        };
        match discipline {
            Some(_) => tracing::warn!(port = %name, "{text}"),
            None => tracing::info!(port = %name, "{text}"),
        }
        self.observation.events.note(kind, name, text, json!({"port": name, "discipline": discipline}));
    }
}
