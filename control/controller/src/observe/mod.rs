//! Events of the running router: links, neighbours, failing instances, full tables.

pub(crate) mod audit;
pub(crate) mod capture;
pub(crate) mod counters;
mod impacts;
pub(crate) mod last_drops;
pub(crate) mod trace;
pub(crate) mod words;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use millrace_config::Scheduler;
use millrace_host::{HostChange, HostNeighbour};
use millrace_packet::DropReason;
use millrace_pipeline::thread;
use millrace_pipeline::{NeighbourChange, NeighbourKnowledge, Snapshot};
use millrace_plugin::{Failure, Health, InstanceReport};
use millrace_telemetry::EventKind;
use millrace_units::{InstanceId, Instant, PortId};
use millrace_wire::MacAddr;
use serde_json::{Value, json};

use crate::events::Events;
use crate::model::{Model, PortPlan};
use crate::ports::devices::PortsByDevice;
use crate::workers::memory_guard::MemoryGuard;
use impacts::Impacts;

/// Maximum number of neighbours remembered to detect changes.
const MOST_NEIGHBOURS: usize = 65_536;
/// Watermarks of a table's fill level, in percent. A table counts as nearly full from the first watermark on,
/// until its level falls below the second.
const FULL: (u64, u64) = (90, 80);

/// State at the last check. The next check compares with it to detect changes.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    neighbours: HashMap<(PortId, IpAddr), MacAddr>,
    /// Paused instances, each with the number of the worker at which it failed. An entry stays until control
    /// learns that the pause has ended.
    pausing: HashSet<(usize, InstanceId)>,
    quarantined: HashSet<InstanceId>,
    /// For each port, the total of packets lost because the receive ring was full, and the number of
    /// successive checks that each found further losses.
    missed: HashMap<PortId, (u64, u32)>,
    /// Names of the values that are above their threshold.
    exceeded: HashSet<String>,
    impacts: Impacts,
}

/// Observation of the router: its events, captures and traces.
pub(crate) struct Observation {
    /// Time of the start.
    pub(crate) started: Instant,
    pub events: Events,
    /// State at the last check, from which events are derived.
    observed: Observed,
    /// Number of captures started so far.
    pub(crate) captures: u32,
    /// Number of traces started so far.
    pub(crate) traces: u32,
    pub(crate) tracing: Option<u32>,
}

impl Default for Observation {
    fn default() -> Self {
        Self {
            started: thread::now(),
            events: Events::default(),
            observed: Observed::default(),
            captures: 0,
            traces: 0,
            tracing: None,
        }
    }
}

impl Observation {
    /// Notes events for the start of forwarding, and for instances that start in quarantine.
    pub fn note_start(&mut self, model: &Model, origin: &str) {
        let version = env!("CARGO_PKG_VERSION");
        let details = json!({"version": version, "pid": std::process::id(), "origin": origin});
        self.events.note(
            EventKind::RouterStarted,
            version,
            format!("millrace {version} started forwarding"),
            details,
        );
        for held in model.repository.quarantine().all() {
            if let Ok(instance) = model.plugins.instance(&held.instance)
                && model.plugins.is_held(instance)
                && model.plugins.plugin_of(&held.instance).is_ok_and(|plugin| plugin.name() == held.plugin)
            {
                self.note_quarantine(model, instance, &held.why);
            }
        }
    }

    /// Notes an event for each neighbour that is learned, changed, lost or unresolved.
    pub fn note_neighbours(&mut self, model: &Model, changes: &[NeighbourChange]) {
        for change in changes {
            self.note_neighbour(model, change);
        }
    }

    fn note_neighbour(&mut self, model: &Model, change: &NeighbourChange) {
        let key = (change.port, change.address);
        let known = &mut self.observed.neighbours;
        let (kind, mac, text) = match change.state {
            NeighbourKnowledge::Known(mac) => {
                if known.len() >= MOST_NEIGHBOURS && !known.contains_key(&key) {
                    return;
                }
                match known.insert(key, mac) {
                    Some(before) if before == mac => return,
                    Some(before) => {
                        let text = format!("changed its MAC address from {before} to {mac}");
                        (EventKind::NeighbourChanged, Some(mac), text)
                    }
                    None => (EventKind::NeighbourLearned, Some(mac), format!("has the MAC address {mac}")),
                }
            }
            NeighbourKnowledge::Forgotten => match known.remove(&key) {
                Some(mac) => {
                    (EventKind::NeighbourLost, Some(mac), format!("was removed; its MAC address was {mac}"))
                }
                None => return,
            },
            NeighbourKnowledge::Failed => {
                let mac = known.remove(&key);
                (EventKind::NeighbourFailed, mac, "does not answer".to_owned())
            }
            NeighbourKnowledge::Static(_) | NeighbourKnowledge::Wanted | NeighbourKnowledge::Used => return,
        };
        let (port, address) = (model.port_name(change.port), change.address);
        let details = json!({"port": port, "address": address, "mac": mac.map(|mac| mac.to_string())});
        let subject = format!("{address} at {port}");
        self.events.note(kind, &subject, format!("neighbour {address} at port {port} {text}"), details);
    }

    /// Remembers the neighbours known at the start, without noting events.
    pub fn know_neighbours(&mut self, ports: &PortsByDevice, changes: &[HostChange]) {
        for change in changes {
            let HostChange::Neighbour {
                ifindex,
                ip,
                neighbour: Some(HostNeighbour { mac: Some(mac), state, .. }),
            } = change
            else {
                continue;
            };
            if let Some(port) = ports.get(ifindex).filter(|_| state.valid()) {
                self.observed.neighbours.insert((*port, *ip), MacAddr(*mac));
            }
        }
    }

    /// Notes that the link of a port went up or down.
    pub fn note_link(&self, port: &str, up: bool) {
        let (kind, text) = if up { (EventKind::LinkUp, "up") } else { (EventKind::LinkDown, "down") };
        self.events.note(kind, port, format!("port {port} is {text}"), json!({"port": port}));
    }

    /// Notes that the device of a port vanished or came back. In both cases, forgets the port's neighbours.
    pub fn note_device(&mut self, plan: &PortPlan, kind: EventKind, text: &str) {
        self.observed.neighbours.retain(|(port, _), _| *port != plan.id);
        let (port, device) = (&plan.settings.name, plan.config.device.as_deref().unwrap_or_default());
        let text = format!("device {device} of port {port} is {text}");
        self.events.note(kind, port, text, json!({"port": port, "device": device}));
    }

    /// Logs and notes that an instance failed at `worker`. If `worker` is `None`, the host companion of the
    /// instance failed.
    pub fn note_failure(
        &mut self,
        model: &Model,
        Failure { instance, fault, health }: &Failure,
        worker: Option<usize>,
    ) {
        let name = model.plugins.instance_name(*instance).to_owned();
        let key = worker.map(|worker| (worker, *instance));
        if key.is_some_and(|key| self.observed.pausing.remove(&key)) {
            // A paused instance can't fail, so the pause is over.
            self.tell_restart(&name);
        }
        let is_companion = worker.is_none();
        let plugin = model.plugins.plugin_of(&name).map_or("", |plugin| plugin.name());
        let part = if is_companion { "the host companion of instance" } else { "instance" };
        let details = json!({
            "instance": name,
            "plugin": plugin,
            "fault": fault.kind,
            "health": health.name(),
            "host_companion": is_companion,
        });
        tracing::warn!(
            instance = name,
            kind = fault.kind,
            health = health.name(),
            "{} failed: {}",
            if is_companion { "the host companion of the instance" } else { "the instance" },
            fault.text
        );
        let text = format!("{part} {name} failed, {}: {}", fault.kind, fault.text);
        self.events.note(EventKind::PluginFault, &name, text, details);
        let limits = model.options.instances;
        let (faults, window) = (limits.faults, limits.fault_window.as_secs());
        let why = format!("{faults} faults within {window} s, last fault: {}", fault.kind);
        match (health, key) {
            (Health::Quarantined, None) => {
                self.tell_quarantine(model, &name, &format!("its host companion had {why}"))
            }
            (Health::Quarantined, Some(_)) => self.note_quarantine(model, *instance, &why),
            (Health::Pausing(_), Some(key)) => drop(self.observed.pausing.insert(key)),
            _ => {}
        }
    }

    /// Notes that an instance is in quarantine, and the reason. Does nothing if this was noted before.
    pub fn note_quarantine(&mut self, model: &Model, instance: InstanceId, why: &str) {
        self.observed.pausing.retain(|(_, own)| *own != instance);
        if self.observed.quarantined.insert(instance) {
            self.tell_quarantine(model, model.plugins.instance_name(instance), why);
        }
    }

    fn tell_quarantine(&self, model: &Model, name: &str, why: &str) {
        let plugin = model.plugins.plugin_of(name).map_or("", |plugin| plugin.name());
        let text = format!("instance {name} is in quarantine: {why}");
        let details = json!({"instance": name, "plugin": plugin, "why": why});
        self.events.note(EventKind::InstanceQuarantined, name, text, details);
    }

    /// Whether an instance was in quarantine when its workers last reported it.
    pub fn is_quarantined(&self, instance: InstanceId) -> bool {
        self.observed.quarantined.contains(&instance)
    }

    /// Forgets that an instance was in quarantine, so that its next quarantine is noted.
    pub fn forget_quarantine(&mut self, instance: InstanceId) {
        self.observed.quarantined.remove(&instance);
    }

    /// Notes that an instance was released from quarantine. `exists`: whether the router has the instance.
    pub fn note_release(&self, exists: bool, name: &str) {
        let text = format!("instance {name} was released from quarantine");
        let details = json!({"instance": name, "exists": exists});
        self.events.note(EventKind::InstanceReleased, name, text, details);
    }

    /// Notes an event for each reservation that a change of a port's scheduler adds, changes or removes.
    pub fn note_reservations(&self, port: &str, before: &Scheduler, after: &Scheduler) {
        let (before, after) = (reservations(before), reservations(after));
        for (what, promise) in &after {
            if before.get(what) != Some(promise) {
                self.tell_reservation(EventKind::ReservationSet, port, what, Some(promise));
            }
        }
        for what in before.keys().filter(|what| !after.contains_key(*what)) {
            self.tell_reservation(EventKind::ReservationRemoved, port, what, None);
        }
    }

    fn tell_reservation(&self, kind: EventKind, port: &str, what: &str, promise: Option<&Value>) {
        let text = match promise {
            Some(promise) => format!("port {port} reserves {} for {what}", words(promise)),
            None => format!("port {port} no longer reserves bandwidth for {what}"),
        };
        let details = json!({"port": port, "for": what, "promise": promise});
        self.events.note(kind, &format!("{port} {what}"), text, details);
    }

    /// Checks for changes that no event reports. Control calls this about once a second.
    pub fn observe(&mut self, model: &Model, snapshot: &Snapshot) {
        self.observe_instances(model, snapshot);
        self.observe_ports(model, snapshot);
        let flows = &snapshot.flows;
        self.observe_share("flow table", flows.records.into(), flows.maximum.into());
        let (used, frames) = snapshot.memory;
        self.observe_share("packet memory", used.into(), frames.into());
    }

    fn observe_instances(&mut self, model: &Model, snapshot: &Snapshot) {
        let health: HashMap<InstanceId, Health> =
            snapshot.instances.iter().map(|(id, report)| (*id, report.health)).collect();
        // A freed instance is missing in `health`. Its id is forgotten, because another instance may get the
        // id.
        self.observed.quarantined.retain(|id| health.get(id) == Some(&Health::Quarantined));
        let is_over = |id: &InstanceId| !matches!(health.get(id), Some(Health::Pausing(_)));
        let over: HashSet<InstanceId> =
            self.observed.pausing.iter().map(|(_, id)| *id).filter(is_over).collect();
        self.observed.pausing.retain(|(_, id)| !over.contains(id));
        for id in over {
            if health.get(&id) == Some(&Health::Well) {
                self.tell_restart(model.plugins.instance_name(id));
            }
        }
    }

    fn tell_restart(&self, name: &str) {
        let text = format!("instance {name} works again");
        self.events.note(EventKind::InstanceRestarted, name, text, json!({"instance": name}));
    }

    /// Notes an event when two successive checks find losses in a port's full receive ring, and another event
    /// when a check finds no more losses.
    fn observe_ports(&mut self, model: &Model, snapshot: &Snapshot) {
        for plan in &model.ports {
            let device = snapshot.devices.iter().find(|(id, _)| *id == plan.settings.device);
            let Some((_, counters)) = device.filter(|_| plan.config.vlan.is_none()) else { continue };
            let missed = counters.drops.get(DropReason::ReceiveRingFull);
            let (before, looks) = self.observed.missed.get(&plan.id).copied().unwrap_or((missed, 0));
            let lost = missed.saturating_sub(before);
            let looks = if lost > 0 { looks.saturating_add(1) } else { 0 };
            self.observed.missed.insert(plan.id, (missed, looks));
            let what = format!("receive ring of port {}", plan.settings.name);
            let details = json!({"port": plan.settings.name, "lost": lost});
            let text = format!("{what} is full: {} lost in a second", millrace_units::count(lost, "packet"));
            self.observe_threshold(&what, looks >= 2, looks == 0, text, details);
        }
    }

    fn observe_share(&mut self, what: &str, used: u64, all: u64) {
        let percent = used.saturating_mul(100) / all.max(1);
        let details = json!({"used": used, "limit": all, "percent": percent});
        let text = format!("{what} is {percent} % full: {used} of {all}");
        self.observe_threshold(what, percent >= FULL.0, percent < FULL.1, text, details);
    }

    /// Compares the cycles of instances with those that their plugins declare. Call this about once a second.
    pub fn observe_impacts(&mut self, model: &Model, reports: &[(InstanceId, InstanceReport)]) {
        self.observed.impacts.judge(model, reports, &self.events);
    }

    /// Checks whether memory is short. Notes an event when a shortage begins or ends.
    pub fn observe_memory(&mut self, guard: Option<MemoryGuard>) {
        let Some(guard) = guard else { return };
        let is_short = !(guard.recover)();
        let text = "memory is short: the router refuses requests that need more memory, and keeps forwarding";
        if let Some(began) = self.observe_threshold("memory", is_short, !is_short, text.to_owned(), json!({}))
        {
            match began {
                true => tracing::error!("{text}"),
                false => tracing::info!("memory is sufficient again"),
            }
        }
    }

    /// Notes an event when a value rises above its threshold, or falls below its threshold again. Returns
    /// `Some(true)` or `Some(false)` in these cases, else `None`.
    pub fn observe_threshold(
        &mut self,
        what: &str,
        above: bool,
        below: bool,
        text: String,
        details: Value,
    ) -> Option<bool> {
        let is_crossed = crossed(&mut self.observed.exceeded, what, above, below);
        match is_crossed {
            Some(true) => self.events.note(EventKind::ThresholdExceeded, what, text, details),
            Some(false) => {
                let text = format!("{what} is back to normal");
                self.events.note(EventKind::ThresholdCleared, what, text, details);
            }
            None => {}
        }
        is_crossed
    }
}

/// Returns `Some(true)` when a value rises above its threshold, and `Some(false)` when it falls below its
/// threshold again. Returns `None` if the value crosses no threshold.
fn crossed(exceeded: &mut HashSet<String>, what: &str, above: bool, below: bool) -> Option<bool> {
    if above {
        return exceeded.insert(what.to_owned()).then_some(true);
    }
    (below && exceeded.remove(what)).then_some(false)
}

/// Returns the reservations of a port's scheduler, by the node or flow that has them.
fn reservations(scheduler: &Scheduler) -> BTreeMap<String, Value> {
    let nodes = scheduler.node.iter().filter_map(|node| {
        let promise = node.rate.as_ref().map(|rate| json!({"rate": rate}));
        let promise = promise.or_else(|| node.real_time.as_ref().map(|curve| json!({"real-time": curve})));
        Some((format!("node {}", node.name), promise?))
    });
    let flows = scheduler.flow.iter().filter_map(|flow| {
        Some((format!("flow {} in {}", flow.flow, flow.queue), json!({"rate": flow.rate.as_ref()?})))
    });
    nodes.chain(flows).collect()
}

/// Returns the text of a reservation.
fn words(promise: &Value) -> String {
    let said = promise.as_object().into_iter().flatten();
    let said = said.map(|(key, value)| format!("{key} {}", value.as_str().unwrap_or_default()));
    said.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threshold_is_reported_only_when_crossed() {
        let mut exceeded = HashSet::new();
        let mut look = |percent: u64| crossed(&mut exceeded, "table", percent >= FULL.0, percent < FULL.1);
        let told: Vec<_> = [10, 89, 90, 95, 85, 91, 79, 85, 20, 90].map(&mut look).into_iter().collect();
        let expected = [None, None, Some(true), None, None, None, Some(false), None, None, Some(true)];
        assert_eq!(told, expected);
    }

    #[test]
    fn reservations_are_rates_and_curves() {
        let text = r#"{"node": [{"name": "all", "kind": "hfsc"},
            {"name": "voice", "kind": "fifo", "under": "all", "real-time": "1mbit"},
            {"name": "rest", "kind": "fifo", "under": "all", "link-sharing": "1mbit"}]}"#;
        let scheduler: Scheduler = serde_json::from_str(text).unwrap();
        let found = reservations(&scheduler);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["node voice"]);
        assert!(words(&found["node voice"]).starts_with("real-time 1"), "{found:?}");
    }
}
