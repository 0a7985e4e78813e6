//! Converts counters and tables to views.

mod plugin_views;

pub(crate) use plugin_views::{instances, plugin, plugins};

use std::collections::{BTreeMap, HashMap};

use ipnet::IpNet;
use millrace_config::{FilterAction, OnDeath, RouteKind};
use millrace_forward::Route;
use millrace_host::PROTOCOL_MILLRACE;
use millrace_offload::OffloadSent;
use millrace_packet::{ClassCounts, DropCounts, DropReason};
use millrace_pipeline::{
    ConnectionCounts, FlowCounts, GateTable, GateTables, OffloadedFlowCounts, ReversePath, Snapshot,
    wrapping_sum,
};
use millrace_plugin::{
    Action, BindingCounts, BindingCountsPage, BindingDescription, BindingId, FlowStateCounts, ProcessorWait,
    Way,
};
use millrace_telemetry::Rate;
use millrace_units::{GateId, Instant, PortId, PrincipalId, QueueAccount};

use crate::model::running::policing;
use crate::model::{Bound, Model};
use crate::view::{
    BindingView, CallsView, ConnectionCountsView, DropView, FlowStatesView, FlowTableView, GateLinksView,
    GateView, NextHopView, OffloadedFlowsView, QueuesView, RouteView, SummaryView,
};

/// Counters of a port's XDP program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KernelShare {
    /// Frames received.
    pub seen: u64,
    pub seen_bytes: u64,
    /// Frames that the program passed to the kernel.
    pub passed: u64,
    /// Frames that the program dropped for reasons that have no counter of their own below.
    pub dropped: u64,
    /// Frames received at this port that the offload forwarded.
    pub forwarded: u64,
    /// Frames received at this port that the offload dropped because of a filter.
    pub filtered: u64,
    /// Frames received at this port that the offload dropped because a policer's token bucket was empty.
    pub policed: u64,
    /// Frames received at this port that the eBPF variant of a plugin dropped.
    pub variant_dropped: u64,
    /// Frames to the router itself that were passed to the kernel or dropped, by class of control-plane
    /// policing.
    pub classes: ClassCounts,
    /// Packets and bytes that the offload sent out of this port.
    pub sent: OffloadSent,
}

impl KernelShare {
    /// Returns the drops of the XDP program for which workers use the same drop reasons.
    pub fn drops(&self) -> [(DropReason, u64); 4] {
        [
            (DropReason::Filter, self.filtered),
            (DropReason::Policer, self.policed),
            (DropReason::Plugin, self.variant_dropped),
            (DropReason::ControlPlane, self.classes.all_dropped()),
        ]
    }
}

/// Adds the drops of a port's XDP program to the workers' drops, by drop reason.
pub(crate) fn add_offload_drops(snapshot: &mut Snapshot, port: PortId, share: &KernelShare) {
    let Snapshot { ports, unassigned, .. } = snapshot;
    let known = ports.iter_mut().find(|(id, _)| *id == port);
    let drops = known.map_or(unassigned, |(_, count)| &mut count.drops);
    for (reason, packets) in share.drops().into_iter().filter(|(_, packets)| *packets > 0) {
        drops.add(reason, packets);
    }
}

/// Returns the drop counters by name of the drop reason.
pub(crate) fn by_name(drops: &DropCounts) -> BTreeMap<String, u64> {
    drops.iter().map(|(reason, count)| (reason.name().to_owned(), count)).collect()
}

/// Returns the sum of all drops: of the pipeline, the devices and the host outputs.
fn all_drops(snapshot: &Snapshot) -> DropCounts {
    let mut all = snapshot.unassigned.clone();
    let pipeline = snapshot.ports.iter().map(|(_, count)| &count.drops);
    let devices = snapshot.devices.iter().map(|(_, count)| &count.drops);
    let hosts = snapshot.hosts.iter().map(|(_, count)| &count.drops);
    for counts in pipeline.chain(devices).chain(hosts).chain([&snapshot.closed.drops]) {
        counts.iter().for_each(|(reason, count)| all.add(reason, count));
    }
    all
}

/// Returns the packet totals over the pipeline, the devices and the XDP programs.
///
/// The pipeline counts the packets that it takes from devices and gives to devices. Devices count all other
/// packets: frames lost before they were read, and frames that the device holds, creates or fails to send.
pub(crate) fn summary(snapshot: &Snapshot, kernel: &[KernelShare]) -> SummaryView {
    let totals = &snapshot.totals;
    let passed: u64 = kernel.iter().map(|share| share.passed).sum();
    let passed_drops: u64 = kernel.iter().map(|share| share.dropped).sum();
    let forwarded: u64 = kernel.iter().map(|share| share.forwarded).sum();
    // The drop counters of the snapshot already contain these packets, so here they are added only to the
    // received packets.
    let dropped_there: u64 = kernel.iter().flat_map(KernelShare::drops).map(|(_, packets)| packets).sum();
    let hosts = || snapshot.hosts.iter().map(|(_, count)| count);
    let devices = || snapshot.devices.iter().map(|(_, count)| count).chain(hosts()).chain([&snapshot.closed]);
    let arrived = devices().map(|count| count.received);
    let beside = [snapshot.carried, passed, passed_drops, dropped_there, forwarded];
    let received = wrapping_sum(arrived.chain(beside));
    let device_created: u64 = devices().map(|count| count.created).sum();
    let transmitted = wrapping_sum(devices().map(|count| count.transmitted).chain([forwarded]));
    let device_held: u64 = devices().map(|count| count.held).sum();
    let created = totals.created.total().wrapping_add(device_created);
    let dropped_by = all_drops(snapshot);
    let dropped = dropped_by.total().wrapping_add(passed_drops);
    let held = totals.held + totals.on_the_way() + device_held;
    let (to_host, consumed) = (totals.to_host.wrapping_add(passed), totals.consumed);
    let out = wrapping_sum([transmitted, to_host, consumed, dropped, held]);
    SummaryView {
        received,
        received_from_host: totals.from_host,
        created,
        transmitted,
        to_host,
        consumed,
        dropped,
        held,
        unaccounted: received.wrapping_add(created).wrapping_sub(out) as i64,
        created_by: BTreeMap::from([
            ("error", totals.created.errors),
            ("fragment", totals.created.fragments),
            ("copy", totals.created.copies),
            ("host", totals.created.own),
            ("plugin", totals.created.plugins),
            ("port", device_created),
        ]),
        dropped_by: by_name(&dropped_by),
    }
}

/// Returns the drops by reason and port.
pub(crate) fn drops(snapshot: &Snapshot, model: &Model) -> Vec<DropView> {
    let mut ports: BTreeMap<&'static str, BTreeMap<String, u64>> = BTreeMap::new();
    let mut note = |name: &str, counts: &DropCounts| {
        for (reason, count) in counts.iter() {
            *ports.entry(reason.name()).or_default().entry(name.to_owned()).or_default() += count;
        }
    };
    note("-", &snapshot.unassigned);
    snapshot.ports.iter().for_each(|(id, count)| note(model.port_name(*id), &count.drops));
    snapshot.hosts.iter().for_each(|(id, count)| note(model.port_name(*id), &count.drops));
    for (device, count) in &snapshot.devices {
        let name = model.ports.iter().find(|plan| plan.settings.device == *device);
        note(name.map_or("-", |plan| &plan.settings.name), &count.drops);
    }
    let ether_types: BTreeMap<String, u64> = snapshot
        .ether_types
        .iter()
        .map(|(ether_type, count)| (format!("{ether_type:#06x}"), *count))
        .collect();
    let view = |(name, ports): (&str, BTreeMap<String, u64>)| DropView {
        reason: name.to_owned(),
        meaning: DropReason::from_name(name).map_or("", DropReason::meaning).to_owned(),
        packets: ports.values().sum(),
        rate: 0.0,
        ports,
        ether_types: if name == DropReason::EtherType.name() { ether_types.clone() } else { BTreeMap::new() },
    };
    let mut views: Vec<DropView> = ports.into_iter().map(view).collect();
    views.sort_by_key(|view| std::cmp::Reverse(view.packets));
    views
}

/// Returns the kernel's name for the protocol of a route, or its number (rtnetlink(7); iproute2's
/// `rt_protos`).
pub(crate) fn protocol(number: u8) -> String {
    let name = match number {
        PROTOCOL_MILLRACE => "millrace",
        1 => "redirect",
        2 => "kernel",
        3 => "boot",
        4 => "static",
        9 => "ra",
        11 => "zebra",
        12 => "bird",
        16 => "dhcp",
        42 => "babel",
        186 => "bgp",
        187 => "isis",
        188 => "ospf",
        189 => "rip",
        192 => "eigrp",
        other => return other.to_string(),
    };
    name.to_owned()
}

/// Returns the view of a route. `kernel` is the protocol number of a kernel route, and `None` for other
/// routes.
pub(crate) fn route(to: &IpNet, route: &Route, kernel: Option<u8>, model: &Model) -> RouteView {
    let view = |hop: &millrace_forward::NextHop| NextHopView {
        via: hop.gateway.map(|via| via.to_string()),
        port: model.port_name(hop.port).to_owned(),
        weight: hop.weight.max(1),
    };
    let next_hops = match route {
        Route::Forward(hops) => hops.iter().map(view).collect(),
        _ => Vec::new(),
    };
    let kind = route.kind();
    let protocol = protocol(kernel.unwrap_or(PROTOCOL_MILLRACE));
    let source = if kernel.is_none_or(|kernel| kernel == PROTOCOL_MILLRACE) { "millrace" } else { "kernel" };
    RouteView { to: to.to_string(), kind, next_hops, source, protocol, missing: None, queues: None }
}

/// Returns the view of a configured route, in the form of the configuration.
pub(crate) fn wanted_route(route: &millrace_config::Route, model: &Model) -> RouteView {
    let hop = |via: Option<std::net::IpAddr>| {
        let is_towards = |net: &ipnet::IpNet| via.is_some_and(|via| net.contains(&via));
        let mut plans = model.ports.iter().map(|plan| &plan.settings);
        let towards = plans.find(|settings| settings.addresses.iter().any(is_towards));
        let port = route.port.as_deref().or_else(|| Some(&*towards?.name)).unwrap_or("-").to_owned();
        NextHopView { via: via.map(|via| via.to_string()), port, weight: 1 }
    };
    let next_hops = match (route.kind, route.via.as_slice()) {
        (RouteKind::Forward, []) => vec![hop(None)],
        (_, via) => via.iter().map(|via| hop(Some(*via))).collect(),
    };
    RouteView {
        to: route.to.value().to_string(),
        kind: route.kind.name(),
        next_hops,
        source: "millrace",
        protocol: protocol(PROTOCOL_MILLRACE),
        missing: None,
        queues: None,
    }
}

pub(crate) fn action(action: &Action, model: &Model) -> String {
    let ways = |ways: &[Way]| {
        let way = |way: &Way| match way.via {
            Some(via) => format!("{} via {via}", model.port_name(way.port)),
            None => model.port_name(way.port).to_owned(),
        };
        ways.iter().map(way).collect::<Vec<_>>().join(",")
    };
    match action {
        Action::Instance(id) => format!("instance {}", model.plugins.instance_name(*id)),
        Action::Accept => "accept".to_owned(),
        Action::Drop => "drop".to_owned(),
        Action::Reject => "reject".to_owned(),
        Action::Host => "host".to_owned(),
        Action::Send(to) if to.len() == 1 => format!("port {}", ways(to)),
        Action::Send(to) => format!("ports {}", ways(to)),
        Action::Copy(to) => format!("copy-to {}", ways(to)),
        Action::Queue(queue) => format!("queue {}", model.schedulers.name(*queue)),
        Action::Police(policer) => FilterAction::Police(policing(policer)).to_string(),
        Action::Principal(principal) => format!("principal {}", model.principal_ids.name(*principal)),
    }
}

/// Counters by binding id. A binding without an entry has counters of zero.
#[derive(Default)]
pub(crate) struct Counts(HashMap<BindingId, BindingCounts>);

impl Counts {
    pub fn add(&mut self, page: BindingCountsPage) {
        for (id, counts) in page.counts {
            *self.0.entry(id).or_default() += counts;
        }
    }

    pub fn of(&self, id: BindingId) -> BindingCounts {
        self.0.get(&id).copied().unwrap_or_default()
    }
}

/// Returns the view of the queue account of a route or a filter.
pub(crate) fn queues(account: &QueueAccount) -> QueuesView {
    let QueueAccount { queued, waiting, dropped } = *account;
    let sent = account.sent();
    QueuesView {
        queued_packets: queued.packets,
        queued_bytes: queued.bytes,
        sent_packets: sent.packets,
        sent_bytes: sent.bytes,
        lost_packets: dropped.packets,
        lost_bytes: dropped.bytes,
        waiting_packets: waiting.packets,
        waiting_bytes: waiting.bytes,
    }
}

pub(crate) fn binding(id: BindingId, bound: &Bound, counts: &Counts, model: &Model) -> BindingView {
    let counts = counts.of(id);
    let instance = bound.action.instance().map(|id| model.plugins.instance_name(id).to_owned());
    BindingView {
        id: bound.number,
        action: action(&bound.action, model),
        gate: model.plugins.gate_name(bound.gate).to_owned(),
        filter: bound.filter.to_string(),
        priority: bound.priority,
        calls: CallsView {
            on_fault: instance.is_some().then(|| bound.call_limits.on_fault.name()),
            budget: instance.is_some().then_some(bound.call_limits.call.as_micros() as u64),
            packet_budget: bound.call_limits.packet.map(|budget| budget.as_micros() as u64),
            principal: model.payer_name(&bound.call_limits),
            queue_weight: bound.call_limits.queue,
        },
        instance,
        packets: counts.packets,
        bytes: counts.bytes,
        drops: counts.drops,
        queues: queues(&counts.queues),
        shadowed_by: None,
        unreached: None,
    }
}

/// Returns the text of a wait for the processor.
pub(crate) fn processor_wait(ProcessorWait { payer, queue }: ProcessorWait, model: &Model) -> String {
    let place = |gate| format!(", in a queue of their own before gate {}", model.plugins.gate_name(gate));
    let payer = model.principal_ids.name(payer);
    format!("for the processor, which principal {payer} pays for{}", queue.map(place).unwrap_or_default())
}

/// Returns the text of a call in line that a principal pays for.
pub(crate) fn in_line(payer: PrincipalId, model: &Model) -> String {
    format!("in line, charged to principal {}", model.principal_ids.name(payer))
}

/// Returns the views of the bindings with these ids.
pub(crate) fn binding_views(ids: &[BindingId], counts: &Counts, model: &Model) -> Vec<BindingView> {
    let view = |id: &BindingId| Some(binding(*id, model.plugins.binding(*id)?, counts, model));
    ids.iter().filter_map(view).collect()
}

fn described(bindings: Vec<BindingDescription>, counts: &Counts, model: &Model) -> Vec<BindingView> {
    let bound = |described: BindingDescription| Some((described.id, model.plugins.binding(described.id)?));
    bindings.into_iter().filter_map(bound).map(|(id, bound)| binding(id, bound, counts, model)).collect()
}

pub(crate) fn bindings(counts: &Counts, model: &Model) -> Vec<BindingView> {
    described(model.plugins.bindings(), counts, model)
}

pub(crate) fn gates(counts: &Counts, model: &Model, tables: &GateTables) -> Vec<GateView> {
    let view = |gate: millrace_plugin::GateDescription| {
        let id = model.plugins.gate(&gate.name).ok().map(|gate| gate.id);
        let table = id.and_then(|id| tables.table(id));
        GateView {
            position: gate.position,
            table: table.map(GateTable::kind).unwrap_or_default().name(),
            table_reason: table.and_then(GateTable::moved),
            memory: table.map_or(0, GateTable::memory),
            links: id.and_then(|id| links(id, model, tables)),
            bindings: described(gate.bindings, counts, model),
            name: gate.name,
        }
    };
    model.plugins.gates().into_iter().map(view).collect()
}

/// Returns the view of the links into a gate's filter table; `None` if there are none.
fn links(gate: GateId, model: &Model, tables: &GateTables) -> Option<GateLinksView> {
    let found = tables.links(gate)?;
    let (filters, ahead) = (found.links().filters(), found.links().ahead());
    let from = model.plugins.gate_name(found.previous()).to_owned();
    Some(GateLinksView { from, filters, ahead, bytes: found.links().memory() })
}

pub(crate) fn flow_table(counts: &FlowCounts) -> FlowTableView {
    FlowTableView {
        known: counts.records,
        new: counts.on_probation,
        limit: counts.maximum,
        hits: counts.packets.hits,
        misses: counts.packets.misses,
        rerouted: counts.packets.rerouted,
        reclassified: counts.packets.reclassified,
        expired: counts.table.expired,
        displaced: counts.table.recycled + counts.table.recycled_on_probation,
    }
}

/// Returns the view of the connections that the workers track.
pub(crate) fn connections(counts: ConnectionCounts) -> ConnectionCountsView {
    ConnectionCountsView {
        known: counts.connections,
        limit: counts.maximum,
        sources: counts.sources,
        packets: counts.packets,
        invalid: counts.invalid,
        expired: counts.expired,
        recycled: counts.recycled,
        refused_full: counts.refused_full,
        refused_source: counts.refused_source,
    }
}

/// Returns the view of the flow state that plugins keep.
pub(crate) fn flow_states(counts: FlowStateCounts) -> FlowStatesView {
    let FlowStateCounts { flows, bytes, refused } = counts;
    FlowStatesView { flows, bytes, refused }
}

/// Returns the view of the flow cache, including its rates.
pub(crate) fn offloaded_flows(
    counts: OffloadedFlowCounts,
    rates: &mut Rate,
    at: Instant,
) -> OffloadedFlowsView {
    let OffloadedFlowCounts { flows, room, inserted, renewed, idle, evicted, refused } = counts;
    let mut rate = |what: &str, count| rates.read(&format!("offloaded flows, {what}"), count, at);
    OffloadedFlowsView {
        inserted_rate: rate("inserted", inserted),
        idle_rate: rate("idle", idle),
        evicted_rate: rate("evicted", evicted),
        refused_rate: rate("refused", refused),
        flows,
        limit: flows + room,
        inserted,
        renewed,
        idle,
        evicted,
        refused,
    }
}

/// Returns the name of an `on-death` setting.
pub(crate) fn on_death(on_death: OnDeath) -> &'static str {
    match on_death {
        OnDeath::Kernel => "kernel",
        OnDeath::Drop => "drop",
    }
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn reverse_path(mode: ReversePath) -> &'static str {
    match mode {
        ReversePath::Off => "off",
        ReversePath::Strict => "strict",
        ReversePath::Loose => "loose",
    }
}

#[cfg(test)]
mod tests {
    use millrace_pipeline::Totals;
    use millrace_port::PortCounters;

    use super::*;

    #[test]
    fn fault_39_a_summary_of_counters_near_their_wrap_adds_up() {
        for start in [u64::from(u32::MAX) - 9, u64::MAX - 9] {
            for packets in 0..20_u64 {
                let port = PortCounters {
                    received: start.wrapping_add(packets),
                    transmitted: start.wrapping_sub(60).wrapping_add(packets),
                    ..PortCounters::default()
                };
                let totals = Totals { to_host: 60, ..Totals::default() };
                let snapshot = Snapshot { totals, closed: port, ..Snapshot::default() };
                let shown = summary(&snapshot, &[]);
                let expected = (start.wrapping_add(packets), 0);
                assert_eq!((shown.received, shown.unaccounted), expected, "{packets} packets after {start}");
            }
        }
    }
}
