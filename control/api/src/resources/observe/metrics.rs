//! Resource `/metrics`: metrics for Prometheus, in OpenMetrics text.
//!
//! Labels name ports, queues, instances and reasons, since a router has few of them. No label names a flow or
//! a filter, of which there may be millions.

mod principals;

use std::collections::BTreeMap;
use std::fmt;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use millrace_controller::operation::{
    GetControlPlane, GetPromises, GetStatus, GetSummary, ListDrops, ListInstances, ListPorts, ListPrincipals,
    ListSchedulers,
};
use millrace_controller::view::{
    ConnectionCountsView, ControlPlaneView, DropView, InstanceView, PortView, SchedulerView, StatusView,
    SummaryView,
};
use millrace_controller::{Caller, ControlError, Router};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::http::problem::Problem;
use crate::served::Session;
use principals::{
    of_core_functions, of_core_inputs, of_links, of_principals, of_processes, of_promises, of_thread_groups,
};

/// Media type of OpenMetrics text, as the OpenMetrics standard names it.
pub(crate) const MEDIA: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Prefix of all metric names.
const PREFIX: &str = "millrace";

/// Answers with all current metrics.
pub(crate) async fn metrics(session: Session) -> Result<Response, Problem> {
    let page = page(&session.served.control, &session.call).await?;
    Ok(([(header::CONTENT_TYPE, MEDIA)], page).into_response())
}

/// Returns all metrics of a router, as text.
///
/// # Errors
/// The errors of reading the router's state.
async fn page(control: &Router, caller: &impl Caller) -> Result<String, ControlError> {
    let families = families(control, caller).await?;
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(Families(families)));
    let mut page = String::new();
    text::encode(&mut page, &registry).map_err(|error| ControlError::System(error.to_string()))?;
    Ok(page)
}

async fn families(control: &Router, caller: &impl Caller) -> Result<Vec<Family>, ControlError> {
    let (status, summary) =
        (control.execute(caller, GetStatus).await?, control.execute(caller, GetSummary).await?);
    let mut families = of_router(&status, &summary);
    families.extend(of_ports(&control.execute(caller, ListPorts).await?));
    families.push(of_drops(&control.execute(caller, ListDrops).await?));
    families.push(of_control_plane(&control.execute(caller, GetControlPlane).await?));
    families.extend(of_instances(&control.execute(caller, ListInstances).await?));
    families.extend(of_principals(&control.execute(caller, ListPrincipals).await?));
    let promises = control.execute(caller, GetPromises).await?;
    families.extend(of_promises(&promises.promises));
    families.push(of_core_inputs(&promises.core_inputs));
    families.push(of_core_functions(&promises.core_functions));
    families.extend(of_links(&promises.links));
    families.extend(of_processes(&promises.processes));
    families.push(of_thread_groups(&promises.thread_groups));
    families.extend(of_schedulers(&control.execute(caller, ListSchedulers).await?));
    Ok(families)
}

/// OpenMetrics metric family: a metric with its samples.
#[derive(Debug)]
struct Family {
    name: &'static str,
    help: &'static str,
    samples: Vec<Sample>,
    kind: MetricType,
}

/// Sample of a metric: labels and value.
type Sample = (Labels, f64);
type Labels = Vec<(&'static str, String)>;

/// Returns a counter metric. Its name in the text ends in `_total`.
fn counter(name: &'static str, help: &'static str, samples: Vec<Sample>) -> Family {
    Family { name, help, samples, kind: MetricType::Counter }
}

/// Returns a gauge.
fn gauge(name: &'static str, help: &'static str, samples: Vec<Sample>) -> Family {
    Family { name, help, samples, kind: MetricType::Gauge }
}

/// Returns a single sample without labels.
fn one(value: f64) -> Vec<Sample> {
    vec![(Vec::new(), value)]
}

/// Returns a single sample without labels; no sample if the router has no such value.
fn some(value: Option<u64>) -> Vec<Sample> {
    value.map(|value| (Vec::new(), count(value))).into_iter().collect()
}

/// Converts a count to a sample value, exact up to 2^53.
#[allow(
    clippy::cast_precision_loss,
    reason = "2^53 packets of the smallest size take a 100 Gb/s link 700 days"
)]
fn count(value: u64) -> f64 {
    value as f64
}

/// Returns the counters of control-plane policing, by class and port.
fn of_control_plane(view: &ControlPlaneView) -> Family {
    let mut samples = Vec::new();
    for class in &view.classes {
        for (port, counts) in &class.ports {
            for (outcome, packets) in [("passed", counts.passed), ("dropped", counts.dropped)] {
                let name = |label, value: &str| (label, value.to_owned());
                let labels = vec![name("port", port), name("class", class.class), name("outcome", outcome)];
                samples.push((labels, count(packets)));
            }
        }
    }
    counter("control_plane_packets", "Packets addressed to the router, by class and outcome", samples)
}

fn of_router(status: &StatusView, summary: &SummaryView) -> Vec<Family> {
    let outcomes = [
        ("received", summary.received),
        ("created", summary.created),
        ("transmitted", summary.transmitted),
        ("to_host", summary.to_host),
        ("consumed", summary.consumed),
        ("dropped", summary.dropped),
    ];
    let by_outcome =
        outcomes.map(|(outcome, packets)| (vec![("outcome", outcome.to_owned())], count(packets)));
    let version = vec![("version", status.version.to_owned())];
    let flows = &status.flows;
    let cpu = status.worker_cpu.iter().enumerate();
    let cpu = cpu.map(|(number, &seconds)| (vec![("worker", number.to_string())], seconds));
    let mut families = vec![
        gauge("build_info", "Version of the router; always 1", vec![(version, 1.0)]),
        gauge("uptime_seconds", "Seconds since the router started", one(status.uptime)),
        gauge("workers", "Worker threads", one(count(status.workers as u64))),
        counter("worker_cpu_seconds", "Processor time of a worker, in seconds", cpu.collect()),
        counter("packets", "Packets by outcome", by_outcome.to_vec()),
        gauge("held_packets", "Packets that the router holds", one(count(summary.held))),
        gauge("routes", "Routes in the forwarding table", one(count(status.routes as u64))),
        gauge(
            "missing_routes",
            "Configured routes that are missing in the kernel",
            one(count(status.missing_routes.as_ref().map_or(0, |missing| missing.count as u64))),
        ),
        gauge("frames_used", "Frames of packet memory in use", one(status.memory.used.into())),
        gauge("frames", "Frames of packet memory", one(status.memory.frames.into())),
        gauge("flows", "Flow records", one(flows.known.into())),
        gauge("flows_limit", "Maximum number of flow records", one(flows.limit.into())),
        counter("flow_hits", "Packets whose flow had a record", one(count(flows.hits))),
        counter("flow_misses", "Packets whose flow had no record", one(count(flows.misses))),
        counter("flows_expired", "Flow records that expired", one(count(flows.expired))),
        counter("flows_displaced", "Flow records that new flows displaced", one(count(flows.displaced))),
        counter(
            "busy_iterations",
            "Iterations of the workers that found packets",
            one(count(status.iterations.busy)),
        ),
        counter(
            "idle_iterations",
            "Iterations of the workers without packets",
            one(count(status.iterations.idle)),
        ),
        counter("sleeps", "Times that a worker slept", one(count(status.sleeps))),
    ];
    families.extend(of_parts(status));
    families.extend(of_connections(&status.connections));
    families
}

/// Returns the metrics of the connections that the workers track.
fn of_connections(connections: &ConnectionCountsView) -> [Family; 6] {
    let refused = [("full", connections.refused_full), ("source", connections.refused_source)];
    let refused = refused.map(|(reason, count)| (vec![("reason", reason.to_owned())], self::count(count)));
    [
        gauge("connections", "Connections that the router tracks", one(count(connections.known))),
        gauge("connections_limit", "Maximum number of connections", one(count(connections.limit))),
        counter("connection_packets", "Packets of tracked connections", one(count(connections.packets))),
        counter(
            "connection_packets_invalid",
            "Packets without a connection, or against its state",
            one(count(connections.invalid)),
        ),
        counter(
            "connections_expired",
            "Connections that ended for lack of packets",
            one(count(connections.expired)),
        ),
        counter("connections_refused", "New connections refused, by reason", refused.to_vec()),
    ]
}

/// Returns the metrics of the offload and of the mirror of the kernel. They have no samples in a router
/// without these parts.
fn of_parts(status: &StatusView) -> [Family; 6] {
    let offload = status.offloaded_flows.as_ref();
    let mirror = status.mirror.as_ref();
    [
        gauge("offloaded_flows", "Offloaded flows", some(offload.map(|flows| flows.flows))),
        gauge(
            "offloaded_flows_limit",
            "Maximum number of offloaded flows",
            some(offload.map(|flows| flows.limit)),
        ),
        counter(
            "offloaded_flows_evicted",
            "Offloaded flows evicted for heavier flows",
            some(offload.map(|flows| flows.evicted)),
        ),
        counter(
            "offloaded_flows_refused",
            "Flows not offloaded because the flow cache was full",
            some(offload.map(|flows| flows.refused)),
        ),
        counter(
            "mirror_overruns",
            "Overruns of the mirror's netlink socket",
            some(mirror.map(|mirror| mirror.overruns)),
        ),
        counter(
            "mirror_repairs",
            "Repaired differences between the mirror and the kernel's tables",
            some(mirror.map(|mirror| mirror.divergences_repaired)),
        ),
    ]
}

/// Counter that each port has: name, description, and function that returns its value.
type OfPort = (&'static str, &'static str, fn(&PortView) -> u64);

fn of_ports(ports: &[PortView]) -> Vec<Family> {
    const COUNTED: [OfPort; 8] = [
        ("port_receive_packets", "Frames received, including those passed to the kernel", |port| {
            port.rx_packets
        }),
        ("port_receive_bytes", "Bytes of the frames received", |port| port.rx_bytes),
        ("port_transmit_packets", "Frames sent", |port| port.tx_packets),
        ("port_transmit_bytes", "Bytes of the frames sent", |port| port.tx_bytes),
        ("port_offloaded_packets", "Received frames that the XDP program forwarded", |port| {
            port.offloaded_packets
        }),
        ("port_device_drops", "Frames that the device accepted but did not send", |port| port.device_drops),
        ("port_batched_packets", "Frames sent by batch sending, past the socket", |port| {
            port.batched_packets
        }),
        (
            "port_to_host_packets",
            "Received frames passed to the kernel or to the router's own stack",
            |port| port.to_host,
        ),
    ];
    const MEASURED: [OfPort; 3] = [
        ("port_up", "1 if the port is up", |port| (port.state == "up").into()),
        ("port_held_packets", "Frames queued in the port", |port| port.held),
        ("port_mtu_bytes", "MTU of the port, in bytes", |port| port.mtu.into()),
    ];
    let samples = |value: fn(&PortView) -> u64| {
        let sample = |port: &PortView| (vec![("port", port.name.clone())], count(value(port)));
        ports.iter().map(sample).collect()
    };
    let counted = COUNTED.into_iter().map(|(name, help, value)| counter(name, help, samples(value)));
    let measured = MEASURED.into_iter().map(|(name, help, value)| gauge(name, help, samples(value)));
    counted.chain(measured).collect()
}

fn of_drops(drops: &[DropView]) -> Family {
    let by_port = |drop: &DropView| {
        let labels = |port: &str| vec![("reason", drop.reason.clone()), ("port", port.to_owned())];
        drop.ports.iter().map(|(port, &packets)| (labels(port), count(packets))).collect::<Vec<_>>()
    };
    let samples = drops.iter().flat_map(by_port).collect();
    counter("dropped_packets", "Packets dropped, by reason and port; - stands for none", samples)
}

/// Returns the percentiles of the cycles per packet of each instance.
fn packet_cycles(instances: &[InstanceView]) -> Vec<Sample> {
    let of_instance = |one: &InstanceView| {
        let measured = one.calls.packet_cycles;
        let percentiles =
            measured.map(|cycles| [("0.5", cycles.median), ("0.95", cycles.p95), ("0.99", cycles.p99)]);
        let sample = |(quantile, value): (&str, f64)| {
            let instance = [("plugin_instance", one.name.clone()), ("plugin", one.plugin.to_owned())];
            (instance.into_iter().chain([("quantile", quantile.to_owned())]).collect(), value)
        };
        percentiles.into_iter().flatten().map(sample).collect::<Vec<_>>()
    };
    instances.iter().flat_map(of_instance).collect()
}

fn of_instances(instances: &[InstanceView]) -> Vec<Family> {
    let labels =
        |one: &InstanceView| vec![("plugin_instance", one.name.clone()), ("plugin", one.plugin.to_owned())];
    let sum = |value: fn(&InstanceView) -> u64| {
        instances.iter().map(|one| (labels(one), count(value(one)))).collect::<Vec<_>>()
    };
    let packets = sum(|one| one.bindings.iter().map(|binding| binding.packets).sum());
    let bytes = sum(|one| one.bindings.iter().map(|binding| binding.bytes).sum());
    let drops = sum(|one| one.drops.values().sum());
    let well = sum(|one| (one.health == "well").into());
    let suspensions = sum(|one| one.calls.suspensions);
    let misjudged = sum(|one| one.calls.misjudged);
    let used = instances.iter().map(|one| (labels(one), one.calls.cpu_seconds)).collect();
    let faults = instances.iter().flat_map(|one| {
        one.calls.faults.iter().map(move |(kind, &faults)| {
            let mut labels = labels(one);
            labels.push(("kind", (*kind).to_owned()));
            (labels, count(faults))
        })
    });
    let counters = instances.iter().flat_map(|one| {
        one.counters.iter().map(move |(name, &number)| {
            let mut labels = labels(one);
            labels.push(("counter", (*name).to_owned()));
            (labels, count(number))
        })
    });
    vec![
        counter(
            "instance_counter",
            "Counters that a plugin defines, by instance and name",
            counters.collect(),
        ),
        counter("instance_packets", "Packets delivered to an instance", packets),
        counter("instance_bytes", "Bytes delivered to an instance", bytes),
        counter("instance_dropped_packets", "Packets that an instance dropped", drops),
        counter("instance_faults", "Faults of an instance", faults.collect()),
        counter(
            "instance_suspensions",
            "Suspensions of an instance at the end of its time slice",
            suspensions,
        ),
        counter(
            "instance_misjudged_calls",
            "Calls of an instance cut because the router had misjudged them as short",
            misjudged,
        ),
        counter(
            "instance_cpu_seconds",
            "Processor time of an instance's packets that principals paid for",
            used,
        ),
        gauge(
            "instance_packet_cycles",
            "Cycles per packet of an instance's calls that principals paid for",
            packet_cycles(instances),
        ),
        gauge("instance_healthy", "1 if an instance is healthy, 0 during a pause or quarantine", well),
    ]
}

fn of_schedulers(schedulers: &[SchedulerView]) -> Vec<Family> {
    let nodes = || schedulers.iter().flat_map(|one| one.nodes.iter().map(move |node| (&one.port, node)));
    let labels = |port: &str, node: &str| vec![("port", port.to_owned()), ("node", node.to_owned())];
    let (mut packets, mut bytes, mut held, mut held_bytes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut drops, mut marks) = (Vec::new(), Vec::new());
    let (mut promised, mut delivered) = (Vec::new(), Vec::new());
    for (port, node) in nodes() {
        let labels = labels(port, &node.name);
        packets.push((labels.clone(), count(node.sent_packets)));
        bytes.push((labels.clone(), count(node.sent_bytes)));
        held.push((labels.clone(), node.held_packets.into()));
        held_bytes.push((labels.clone(), node.held_bytes.into()));
        promised.extend(node.promised.map(|bits| (labels.clone(), count(bits))));
        delivered.push((labels.clone(), count(node.delivered)));
        marks.push((labels.clone(), count(node.marked_packets)));
        let by_cause: &BTreeMap<&str, u64> = &node.drops;
        drops.extend(by_cause.iter().map(|(cause, &packets)| {
            let cause = ("cause", (*cause).to_owned());
            (labels.iter().cloned().chain([cause]).collect(), count(packets))
        }));
    }
    let link_rate = schedulers
        .iter()
        .filter_map(|one| one.rate.map(|rate| (vec![("port", one.port.clone())], count(rate))));
    vec![
        gauge(
            "scheduler_rate_bits",
            "Rate limit of a port's scheduler, in bits per second",
            link_rate.collect(),
        ),
        counter("queue_packets", "Packets sent by a node of a scheduler", packets),
        counter("queue_bytes", "Bytes sent by a node of a scheduler", bytes),
        gauge("queue_held_packets", "Packets queued at or below a node", held),
        gauge("queue_held_bytes", "Bytes queued at or below a node", held_bytes),
        counter("queue_dropped_packets", "Packets dropped at or below a node", drops),
        counter("queue_marked_packets", "Packets marked (ECN) at or below a node", marks),
        gauge(
            "queue_promised_bits",
            "Rate of a node when all nodes send, in bits per second on the wire",
            promised,
        ),
        gauge(
            "queue_delivered_bits",
            "Rate of a node since the previous request, in bits per second on the wire",
            delivered,
        ),
    ]
}

/// Adapter that passes metric families to the encoder.
#[derive(Debug)]
struct Families(Vec<Family>);

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for Family { name, help, samples, kind } in &self.0 {
            let mut metric = encoder.encode_descriptor(name, help, None, *kind)?;
            for (labels, value) in samples {
                if labels.is_empty() {
                    sample(&mut metric, *kind, *value)?;
                } else {
                    sample(&mut metric.encode_family(labels)?, *kind, *value)?;
                }
            }
        }
        Ok(())
    }
}

fn sample(encoder: &mut MetricEncoder<'_>, kind: MetricType, value: f64) -> fmt::Result {
    match kind {
        MetricType::Counter => encoder.encode_counter::<NoLabelSet, f64, f64>(&value, None),
        _ => encoder.encode_gauge(&value),
    }
}

#[cfg(test)]
mod tests;
