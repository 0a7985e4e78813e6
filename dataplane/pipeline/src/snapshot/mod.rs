//! Snapshots of a worker's counters.

mod merge;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use millrace_forward::NeighbourState;
use millrace_packet::DropCounts;
use millrace_plugin::{FlowStateCounts, InstanceReport, Paid};
use millrace_port::PortCounters;
use millrace_units::{InstanceId, Instant, PortId, PrincipalId};
use millrace_wire::mac_addr::MacAddr;

use crate::classify::FlowCounts;
use crate::connections::ConnectionCounts;
use crate::observe::totals::Totals;
use crate::offloaded_flows::OffloadedFlowCounts;
use crate::pending::principal_counts::PrincipalCounts;
use crate::ports::scheduler::ScheduleReport;
use crate::ports::{DeviceId, PortCount};
use crate::router::Router;

/// Counters of a worker at one time.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Time of the snapshot, by the worker's clock.
    pub at: Instant,
    /// Counters of each port.
    pub ports: Vec<(PortId, PortCount)>,
    /// Packets that wait at each port.
    pub queued: Vec<(PortId, u64)>,
    /// State of each scheduler.
    pub schedulers: Vec<(PortId, ScheduleReport)>,
    /// Counters of each device.
    pub devices: Vec<(DeviceId, PortCounters)>,
    /// Counters of host output at ports with a scheduler.
    pub hosts: Vec<(PortId, PortCounters)>,
    /// Counters of all devices that were closed since the counters were cleared.
    pub closed: PortCounters,
    /// Packets inside the worker when the counters were cleared, plus packets handed over, minus packets
    /// taken over. Wraps below zero.
    pub carried: u64,
    /// Drops of packets without an ingress port.
    pub unassigned: DropCounts,
    /// Sums over all ports.
    pub totals: Totals,
    /// Counters and health of instances.
    pub instances: Vec<(InstanceId, InstanceReport)>,
    /// Frames of EtherTypes that the router doesn't support, by EtherType.
    pub ether_types: BTreeMap<u16, u64>,
    /// Neighbours of ports without a kernel stack; the MAC address is `None` if unresolved.
    pub neighbours: Vec<(PortId, IpAddr, Option<MacAddr>)>,
    /// Memory frames in use, and memory frames in total.
    pub memory: (u32, u32),
    /// Counters of the flow table.
    pub flows: FlowCounts,
    /// Counters of connections.
    pub connections: ConnectionCounts,
    /// State that instances keep for flows.
    pub flow_states: FlowStateCounts,
    /// Counters of each principal.
    pub principals: Vec<(PrincipalId, PrincipalCounts)>,
    /// Counters of offloaded flows.
    pub offloaded_flows: OffloadedFlowCounts,
    /// Iterations of the worker with packets, and iterations without.
    pub iterations: (u64, u64),
    /// Number of sleeps of the worker.
    pub sleeps: u64,
    /// Longest duration of an iteration that carried out a command; such iterations delay packets.
    pub longest_change: Duration,
}

impl Snapshot {
    /// Returns the counters of a router at `now`. Counters of devices, which the worker owns, are missing.
    pub(crate) fn of(router: &Router, now: Instant) -> Self {
        let neighbours = router.forwarding.neighbours.iter().filter_map(|(key, state, _)| {
            let own = !router.ports.get(key.port)?.is_kernel();
            let mac = match state {
                NeighbourState::Reachable(mac) => Some(mac),
                NeighbourState::Incomplete | NeighbourState::Failed => None,
            };
            own.then_some((key.port, key.address, mac))
        });
        let schedulers =
            router.ports.iter().filter_map(|(id, entry)| Some((id, entry.scheduler.as_ref()?.report())));
        Self {
            schedulers: schedulers.collect(),
            ether_types: router.observation.ether_types.clone(),
            neighbours: neighbours.collect(),
            ..Self::counters_of(router, now)
        }
    }

    /// Returns the counters as [`of`](Self::of) does, without the lists that may be long: schedulers,
    /// EtherTypes and neighbours.
    pub(crate) fn counters_of(router: &Router, now: Instant) -> Self {
        let waiting = router.pending.for_processor.get().into_iter();
        let memory = Paid::memory(router.gates.plugins());
        let connections = router.gates.connections.as_ref();
        let with_handover = |(id, mut counts): (PrincipalId, PrincipalCounts)| {
            let load = router.handover.as_ref().map(|handover| handover.load(id)).unwrap_or_default();
            (counts.handover_bytes, counts.drops.handover) = (load.bytes, load.dropped);
            (id, counts)
        };
        Self {
            at: now,
            ports: router.ports.counts(),
            queued: router.ports.iter().map(|(id, entry)| (id, entry.held() as u64)).collect(),
            unassigned: router.ports.unassigned.clone(),
            totals: Totals { held: held(router), ..router.observation.totals.clone() },
            instances: router.gates.plugins().instances().reports().collect(),
            flows: router.classifier.flow_counts(),
            principals: waiting.flat_map(|waiting| waiting.counts(memory, now)).map(with_handover).collect(),
            connections: connections.map(|connections| connections.counts()).unwrap_or_default(),
            flow_states: router.gates.plugins().flow_states().counts(),
            offloaded_flows: router.offload.as_ref().map(|offload| offload.counts()).unwrap_or_default(),
            ..Self::default()
        }
    }
}

/// Clears the counters of a router, except those of routes and bindings.
pub(crate) fn clear_counters(router: &mut Router) {
    // Packets inside the router will be counted when they end. So the cleared counters count them as
    // received.
    let Totals { handed, taken, .. } = router.observation.totals;
    router.observation.totals = Totals { received: carried(router), handed, taken, ..Totals::default() };
    router.observation.ether_types.clear();
    router.gates.plugins_mut().instances_mut().clear_counts();
    router.ports.unassigned = DropCounts::default();
    router.ports.clear_counts();
    router.gates.connections.iter_mut().for_each(|connections| connections.clear_counts());
}

/// Returns the number of packets inside the router, plus packets handed over, less packets taken over.
pub(crate) fn carried(router: &Router) -> u64 {
    (held(router) + router.observation.totals.handed).wrapping_sub(router.observation.totals.taken)
}

/// Returns the number of packets inside the router.
fn held(router: &Router) -> u64 {
    let queued: usize = router.ports.iter().map(|(_, entry)| entry.held()).sum();
    let pending = router.pending.held() + router.punt.held() + router.forwarding.hold.len();
    (queued + pending + router.gates.plugins().waiting()) as u64
}
