//! Snapshots of a worker's counters.

mod merge;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use millrace_forward::NeighbourState;
use millrace_packet::DropCounts;
use millrace_plugin::{FlowStateCounts, InstanceReport};
use millrace_port::PortCounters;
use millrace_units::{InstanceId, Instant, PortId};
use millrace_wire::mac_addr::MacAddr;

use crate::classify::FlowCounts;
use crate::driver_flows::DriverFlowCounts;
use crate::observe::totals::Totals;
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
    /// Counters of host output at ports with a scheduler: packets sent by the kernel.
    pub hosts: Vec<(PortId, PortCounters)>,
    /// Counters of devices that were closed since the counters were cleared.
    pub closed: PortCounters,
    /// Packets inside the worker when the counters were cleared.
    pub carried: u64,
    /// Drops of packets without a port.
    pub unassigned: DropCounts,
    /// Totals of all ports.
    pub totals: Totals,
    /// Counters and health of instances.
    pub instances: Vec<(InstanceId, InstanceReport)>,
    /// Frames of EtherTypes that are not forwarded, by EtherType.
    pub ether_types: BTreeMap<u16, u64>,
    /// Neighbours of ports without a kernel stack; without a link address if unresolved.
    pub neighbours: Vec<(PortId, IpAddr, Option<MacAddr>)>,
    /// Frames of packet memory in use, and frames in all.
    pub memory: (u32, u32),
    /// Counters of the flow table.
    pub flows: FlowCounts,
    /// State that instances keep for flows.
    pub flow_states: FlowStateCounts,
    /// Counters of offloaded flows.
    pub driver_flows: DriverFlowCounts,
    /// Iterations of the worker with packets, and without.
    pub turns: (u64, u64),
    /// Number of sleeps of the worker.
    pub sleeps: u64,
    /// Longest duration of an iteration with a command, which delays packets.
    pub longest_change: Duration,
}

impl Router {
    /// Returns the counters at `now`, without those of the devices.
    pub(crate) fn snapshot(&self, now: Instant) -> Snapshot {
        let neighbours = self.forwarding.neighbours.iter().filter_map(|(key, state, _)| {
            let own = !self.ports.get(key.port)?.is_kernel();
            let mac = match state {
                NeighbourState::Reachable(mac) => Some(mac),
                NeighbourState::Incomplete | NeighbourState::Failed => None,
            };
            own.then_some((key.port, key.address, mac))
        });
        let schedulers =
            self.ports.iter().filter_map(|(id, entry)| Some((id, entry.scheduler.as_ref()?.report())));
        Snapshot {
            schedulers: schedulers.collect(),
            ether_types: self.observation.ether_types.clone(),
            neighbours: neighbours.collect(),
            ..self.counters(now)
        }
    }

    /// Returns the counters without the possibly long lists: schedulers, EtherTypes and neighbours.
    pub(crate) fn counters(&self, now: Instant) -> Snapshot {
        Snapshot {
            at: now,
            ports: self.ports.iter().map(|(id, entry)| (id, entry.count.clone())).collect(),
            queued: self.ports.iter().map(|(id, entry)| (id, entry.held() as u64)).collect(),
            unassigned: self.ports.unassigned.clone(),
            totals: Totals { held: self.held(), ..self.observation.totals.clone() },
            instances: self.gates.plugins().reports().collect(),
            flows: self.classifier.flow_counts(),
            flow_states: self.gates.plugins().state_counts(),
            driver_flows: self.driver.as_ref().map(|driver| driver.counts()).unwrap_or_default(),
            ..Snapshot::default()
        }
    }

    pub(crate) fn clear_counters(&mut self) {
        // Held packets will be counted at their end, so the cleared counters start with them as received.
        let Totals { handed, taken, .. } = self.observation.totals;
        self.observation.totals = Totals { received: self.carried(), handed, taken, ..Totals::default() };
        self.observation.ether_types.clear();
        self.gates.plugins_mut().clear_instances();
        self.ports.unassigned = DropCounts::default();
        self.ports.iter_mut().for_each(|(_, entry)| entry.count = PortCount::default());
    }

    /// Returns the number of packets inside the router, plus packets handed over, less packets taken over.
    pub(crate) fn carried(&self) -> u64 {
        (self.held() + self.observation.totals.handed).wrapping_sub(self.observation.totals.taken)
    }

    /// Returns the number of packets inside the router.
    fn held(&self) -> u64 {
        let queued: usize = self.ports.iter().map(|(_, entry)| entry.held()).sum();
        let pending = self.pending.held() + self.punt.held() + self.forwarding.hold.len();
        (queued + pending + self.gates.plugins().waiting()) as u64
    }
}
