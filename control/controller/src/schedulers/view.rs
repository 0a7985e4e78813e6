//! Views of ports' schedulers: promised and delivered rate of each node, and the link speed.

use std::collections::HashMap;

use millrace_config::{Bits, Nodes, Scheduler, SchedulerNode};
use millrace_pipeline::{ScheduleReport, SchedulerCommand, Snapshot};
use millrace_schedule::{NodeView, in_tree};
use millrace_telemetry::Rate;
use millrace_units::{BitRate, Instant, PortId, QueueId, count};
use serde_json::{Map, Value};

use crate::ControlError;
use crate::kernel::Kernel;
use crate::model::Model;
use crate::model::schedulers::Schedulers;
use crate::ports::devices::Devices;
use crate::view::{SchedulerNodeView, SchedulerView};
use crate::workers::{Workers, owner_of};

/// Promised rates in bit/s, by node number. A node without a bounded rate has no entry.
type Promises = HashMap<QueueId, u64>;

impl Schedulers {
    /// Returns the promised rates of nodes on a link of rate `link`; `None` means an unlimited link. If the
    /// promises exceed the link's rate, returns an error that names the node.
    fn promises(&self, scheduler: &Scheduler, link: Option<Bits>) -> Result<Promises, ControlError> {
        let nodes = self.build(scheduler, link)?.report().tree();
        let promised = |view: NodeView| Some((QueueId(view.node.0 as u16), view.promised?.0));
        Ok(nodes.into_iter().filter_map(promised).collect())
    }
}

/// Returns a warning about promised rates, or a scheduler rate, above the speed of the link. Returns `None`
/// if the link can keep both.
fn beyond_link(schedulers: &Schedulers, scheduler: &Scheduler, link: Bits) -> Option<String> {
    let speed = BitRate(link.0 as f64);
    if let Err(error) = schedulers.promises(scheduler, Some(link)) {
        return Some(format!("the speed of the link is {speed}: {error}"));
    }
    let Bits(rate) = scheduler.rate.filter(|rate| rate.0 > link.0)?;
    Some(format!(
        "the scheduler's rate of {} exceeds the link's speed of {speed}: packets wait in the device, where the scheduler can't order \
         them; lower the rate",
        BitRate(rate as f64)
    ))
}

/// Returns a warning about the first node whose packet limit or number of queues exceeds the packet memory.
/// `room` is the number of packets that all queues of the port can hold. A single leaf gets at most half of
/// `room`, so that other leaves keep some.
fn beyond_room(scheduler: &Scheduler, room: u32) -> Option<String> {
    let beyond = scheduler.node.iter().find_map(|node| {
        let limit = node.limit.filter(|limit| *limit > room / 2).map(|limit| {
            let limit = count(limit, "packet");
            format!("node {:?} has a limit of {limit}, but can hold only {}", node.name, room / 2)
        });
        let queues = || {
            let queues = node.queues.filter(|queues| *queues > room)?;
            Some(format!(
                "node {:?} has {}, but at most {room} of them can hold a packet",
                node.name,
                count(queues, "queue")
            ))
        };
        limit.or_else(queues)
    })?;
    Some(format!(
        "packet memory has room for {} in the port's queues: {beyond}; further packets are dropped as buffer_full; \
         raise `frames` in [router] for more room",
        count(room, "packet")
    ))
}

/// Joins two optional warnings.
fn warning(one: Option<String>, other: Option<String>) -> Option<String> {
    match (one, other) {
        (Some(one), Some(other)) => Some(format!("{one}; {other}")),
        (one, other) => one.or(other),
    }
}

/// Returns the speed of a port's link. Returns `None` if the kernel doesn't know the speed, and for virtual
/// devices, whose speed is only nominal.
pub(crate) fn link_speed(port: PortId, devices: &Devices, kernel: &Kernel) -> Option<Bits> {
    let ifindex = devices.kernel.get(&port)?.ifindex;
    let state = kernel.mirror.as_ref()?.state();
    let link = state.links().find(|link| link.ifindex == ifindex).filter(|link| link.kind.is_none())?;
    millrace_offload::link_speed(&link.name).map(Bits)
}

/// Logs the promised rates that a port's link can't keep. They cause no error, because a temporarily slow
/// cable or peer must not prevent a start.
pub(crate) fn say_beyond_link(port: PortId, model: &Model, devices: &Devices, kernel: &Kernel) {
    let (Some(scheduler), Some(link)) = (model.schedulers.of(port), link_speed(port, devices, kernel)) else {
        return;
    };
    if let Some(beyond) = beyond_link(&model.schedulers, scheduler, link) {
        tracing::warn!(port = model.port_name(port), "{beyond}");
    }
}

/// Logs the limits of a port's leaves that exceed the packet memory.
pub(crate) fn say_beyond_room(port: PortId, model: &Model, workers: &mut Workers) {
    let says_it = |scheduler: &Scheduler| {
        scheduler.node.iter().any(|node| node.limit.is_some() || node.queues.is_some())
    };
    if !model.schedulers.of(port).is_some_and(says_it) {
        return;
    }
    let Ok(snapshot) = workers.snapshot() else { return };
    let report = snapshot.schedulers.iter().find(|(own, _)| *own == port);
    let room = report.map(|(_, report)| report.room.packets);
    let beyond = model.schedulers.of(port).zip(room).and_then(|(own, room)| beyond_room(own, room));
    if let Some(beyond) = beyond {
        tracing::warn!(port = model.port_name(port), "{beyond}");
    }
}

/// Returns the nodes of a port's scheduler in tree order, each with the time of its reading. The worker
/// returns a long list in several answers.
pub(crate) fn nodes_of(
    port: PortId,
    model: &Model,
    workers: &mut Workers,
) -> Result<Vec<(NodeView, Instant)>, ControlError> {
    let (mut nodes, mut moments, mut first) = (Vec::new(), HashMap::new(), Some(0));
    while let Some(from) = first {
        let page =
            owner_of(port, model, workers)?.ask(|reply| SchedulerCommand::ShowNodes(port, from, reply))?;
        moments.extend(page.nodes.iter().map(|view| (view.node, page.at)));
        nodes.extend(page.nodes);
        first = page.next;
    }
    let with_moment = |view: NodeView| Some((moments.get(&view.node).copied()?, view));
    let all = in_tree(nodes).into_iter().filter_map(with_moment);
    Ok(all.map(|(at, view)| (view, at)).collect())
}

/// Parts of the router from which the views of schedulers are made.
pub(crate) struct SchedulerViews<'a> {
    pub model: &'a Model,
    pub devices: &'a Devices,
    pub kernel: &'a Kernel,
    pub workers: &'a mut Workers,
    /// Rates of scheduler nodes.
    pub rates: &'a mut Rate,
}

impl SchedulerViews<'_> {
    pub fn of(&mut self, port: PortId, snapshot: &Snapshot) -> Result<SchedulerView, ControlError> {
        let report = snapshot.schedulers.iter().find(|(own, _)| *own == port).map(|(_, report)| report);
        let Some(report) = report else {
            return Err(ControlError::System(format!(
                "internal error: no worker reports the scheduler of port {:?}",
                self.model.port_name(port)
            )));
        };
        self.view_of(port, report, snapshot)
    }

    pub fn all(&mut self, snapshot: &Snapshot) -> Result<Vec<SchedulerView>, ControlError> {
        let planned = |port: &PortId| self.model.schedulers.of(*port).is_some();
        let there: Vec<_> = snapshot.schedulers.iter().filter(|(port, _)| planned(port)).collect();
        there.into_iter().map(|(port, report)| self.view_of(*port, report, snapshot)).collect()
    }

    fn view_of(
        &mut self,
        port: PortId,
        report: &ScheduleReport,
        snapshot: &Snapshot,
    ) -> Result<SchedulerView, ControlError> {
        let nodes = nodes_of(port, self.model, self.workers)?;
        let is_kernel = self.devices.kernel.contains_key(&port);
        let host = is_kernel.then(|| self.devices.host_outputs.view(port, self.model, snapshot)).flatten();
        let schedulers = &self.model.schedulers;
        let name = self.model.port_name(port).to_owned();
        let settings = schedulers.of(port);
        let specs = settings.map(Nodes::of);
        let link = link_speed(port, self.devices, self.kernel);
        // If the link is slower than the configured rate, the promises depend on the link's speed.
        let slower =
            link.filter(|link| settings.is_some_and(|own| own.rate.is_none_or(|rate| rate.0 > link.0)));
        let by_link = |own| slower.and_then(|link| schedulers.promises(own, Some(link)).ok());
        let by_rate = |own: &Scheduler| schedulers.promises(own, own.rate).ok();
        let promised = settings.and_then(|own| by_link(own).or_else(|| by_rate(own))).unwrap_or_default();
        let rates = &mut *self.rates;
        let node = |(view, at): &(NodeView, Instant)| {
            let number = QueueId(view.node.0 as u16);
            let node_name = schedulers.name(number).to_owned();
            let spec = specs.as_ref().and_then(|specs| specs.get(&node_name));
            let delivered = rates.read(&rate_key(&name, &node_name), view.sent_wire_bytes, *at) * 8.0;
            node_view(view, node_name, spec, promised.get(&number).copied(), delivered.round() as u64)
        };
        Ok(SchedulerView {
            rate: settings.and_then(|settings| settings.rate).map(|Bits(bits)| bits),
            link: link.map(|Bits(bits)| bits),
            warning: warning(
                settings.zip(link).and_then(|(own, link)| beyond_link(schedulers, own, link)),
                settings.and_then(|own| beyond_room(own, report.room.packets)),
            ),
            overhead: settings.map(|settings| settings.overhead).unwrap_or_default(),
            default: Some(schedulers.name(report.default).to_owned()).filter(|_| report.default.0 > 0),
            host,
            held: report.held,
            held_bytes: report.held_bytes,
            room_packets: report.room.packets,
            room_bytes: report.room.bytes,
            queues: report.queues.0,
            queues_limit: report.queues.1,
            nodes: nodes.iter().map(node).collect(),
            port: name,
        })
    }
}

/// Returns the view of a node, with its promised and its delivered rate in bit/s.
fn node_view(
    view: &NodeView,
    name: String,
    spec: Option<&SchedulerNode>,
    promised: Option<u64>,
    delivered: u64,
) -> SchedulerNodeView {
    SchedulerNodeView {
        id: view.node.0 as u16,
        name,
        kind: spec.map_or("", |spec| spec.kind.name()),
        under: spec.and_then(|spec| spec.under.clone()),
        settings: spec.map(settings_of).unwrap_or_default(),
        promised,
        delivered,
        sent_packets: view.sent_packets,
        sent_bytes: view.sent_bytes,
        sent_wire_bytes: view.sent_wire_bytes,
        held_packets: view.held_packets,
        held_bytes: view.held_bytes,
        peak_bytes: view.peak_bytes,
        peak_packets: view.peak_packets,
        queues: view.queues,
        drops: view.drops.iter().map(|(cause, packets)| (cause.name(), packets)).collect(),
        dropped_bytes: view.drops.bytes(),
        marked_packets: view.drops.marked(),
    }
}

/// Returns the key under which the rate of a node is measured.
pub(super) fn rate_key(port: &str, node: &str) -> String {
    format!("{port} {node}")
}

/// Returns the settings of a node, except for its name, kind and parent.
fn settings_of(node: &SchedulerNode) -> Map<String, Value> {
    let Ok(Value::Object(mut settings)) = serde_json::to_value(node) else { return Map::new() };
    ["name", "kind", "under"].iter().for_each(|key| drop(settings.remove(*key)));
    settings
}

#[cfg(test)]
mod tests {
    use millrace_config::Config;

    use super::*;

    fn planned(scheduler: &str) -> (Schedulers, Scheduler) {
        let port = format!("[[port]]\nname = \"wan\"\nkind = \"memory\"\n[port.scheduler]\n{scheduler}");
        let config = Config::parse(&port, "test.toml").unwrap();
        let scheduler = config.port[0].scheduler.clone().unwrap();
        let mut schedulers = Schedulers::default();
        schedulers.plan(PortId(0), "wan", &scheduler).unwrap();
        (schedulers, scheduler)
    }

    const SHARED: &str = r#"
        node = [
            { name = "top", kind = "deficit-round-robin" },
            { name = "a", kind = "fifo", under = "top", quantum = "3000B" },
            { name = "b", kind = "fifo", under = "top", quantum = "1000B" },
        ]"#;

    #[test]
    fn limits_above_packet_memory_are_reported_with_figures() {
        let (_, scheduler) = planned(
            r#"node = [
                { name = "top", kind = "priority" },
                { name = "a", kind = "fq-codel", under = "top", level = 0, limit = 2000 },
                { name = "b", kind = "flow-queues", under = "top", level = 1, queues = 3000 },
            ]"#,
        );
        assert_eq!(beyond_room(&scheduler, 4000), None);
        let said = beyond_room(&scheduler, 3998).unwrap();
        assert!(
            said.contains("room for 3998 packets") && said.contains("\"a\"") && said.contains("1999"),
            "{said}"
        );
        let mut scheduler = scheduler;
        scheduler.node[1].limit = None;
        let said = beyond_room(&scheduler, 2999).unwrap();
        assert!(said.contains("\"b\" has 3000 queues"), "{said}");
        let both = warning(Some("a".into()), Some("b".into()));
        assert_eq!((both.as_deref(), warning(None, None)), (Some("a; b"), None));
    }

    #[test]
    fn port_without_a_rate_shares_its_link_speed() {
        let (schedulers, scheduler) = planned(SHARED);
        let promised = schedulers.promises(&scheduler, Some(Bits(100_000_000))).unwrap();
        let of = |name: &str| promised[&schedulers.known(name).unwrap()];
        assert_eq!((of("top"), of("a"), of("b")), (100_000_000, 75_000_000, 25_000_000));
        assert_eq!(beyond_link(&schedulers, &scheduler, Bits(100_000_000)), None);
    }

    #[test]
    fn rates_above_the_link_are_reported_with_figures() {
        let (schedulers, scheduler) = planned(&format!("rate = \"1gbit\"\n{SHARED}"));
        let said = beyond_link(&schedulers, &scheduler, Bits(100_000_000)).unwrap();
        assert!(said.contains("1.00 Gb/s exceeds the link's speed of 100.00 Mb/s"), "{said}");
        let (schedulers, scheduler) = planned(
            r#"node = [
                { name = "top", kind = "hfsc" },
                { name = "a", kind = "fifo", under = "top", real-time = "70mbit" },
                { name = "b", kind = "fifo", under = "top", real-time = "40mbit" },
            ]"#,
        );
        assert_eq!(beyond_link(&schedulers, &scheduler, Bits(110_000_000)), None);
        let said = beyond_link(&schedulers, &scheduler, Bits(100_000_000)).unwrap();
        assert!(said.contains("110.00 Mb/s") && said.contains("100.00 Mb/s"), "{said}");
    }
}
