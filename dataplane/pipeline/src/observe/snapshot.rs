//! Snapshots of a worker's counters.

mod merge;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use millrace_classify::FlowTableCounts;
use millrace_forward::NeighbourState;
use millrace_packet::DropCounts;
use millrace_plugin::{FlowStateCounts, InstanceReport};
use millrace_port::PortCounters;
use millrace_units::{InstanceId, Instant, PortId};
use millrace_wire::mac_addr::MacAddr;

use crate::classify::ClassifyCounts;
use crate::driver_flows::DriverFlowCounts;
use crate::egress::port_scheduler::ScheduleReport;
use crate::egress::ports::{DeviceId, PortCount};
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

/// State and counters of the flow table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounts {
    /// Number of records.
    pub records: u32,
    /// Number of records on probation, whose second packet has not arrived.
    pub on_probation: u32,
    /// Number of records at which the table grows or recycles.
    pub capacity: u32,
    /// Maximum number of records.
    pub maximum: u32,
    /// Counters of flow lookups.
    pub packets: ClassifyCounts,
    /// Counters of inserted and removed records.
    pub table: FlowTableCounts,
}

/// Packets of all ports, by their origin and fate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Packets received from devices.
    pub received: u64,
    /// Host output among these: packets sent by the kernel at ports with a scheduler.
    pub from_host: u64,
    /// Packets made by the router, by reason.
    pub created: Created,
    /// Packets given to devices.
    pub transmitted: u64,
    /// Packets punted to the kernel or delivered to the router's own stack.
    pub to_host: u64,
    /// Packets consumed by plugins.
    pub consumed: u64,
    /// Packets dropped in the pipeline.
    pub dropped: u64,
    /// Packets inside the pipeline: queued, held for a neighbour, kept by a plugin, or between two stages.
    pub held: u64,
    /// Packets handed over to other workers since the start; never cleared.
    pub handed: u64,
    /// Packets taken over from other workers since the start; never cleared.
    pub taken: u64,
}

/// Packets made by the router, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Created {
    /// ICMP errors.
    pub errors: u64,
    /// Fragments beyond the first.
    pub fragments: u64,
    /// Copies.
    pub copies: u64,
    /// ARP, neighbour discovery and echo replies of the router's own stack.
    pub own: u64,
    /// Packets made by plugins.
    pub plugins: u64,
}

impl Created {
    /// Returns the sum of all reasons.
    pub fn total(&self) -> u64 {
        wrapping_sum([self.errors, self.fragments, self.copies, self.own, self.plugins])
    }
}

/// Returns the sum of wrapping counters, which wraps as well.
pub fn wrapping_sum(counters: impl IntoIterator<Item = u64>) -> u64 {
    counters.into_iter().fold(0, u64::wrapping_add)
}

impl Totals {
    /// Returns the number of packets between workers. If the workers' snapshots are of different times, the
    /// number may be off by the packets handed over in between.
    pub fn on_the_way(&self) -> u64 {
        self.handed.saturating_sub(self.taken)
    }

    /// Returns the unaccounted packets: packets received and created, less packets with a fate. Zero if no
    /// packet was lost or invented.
    pub fn imbalance(&self) -> i64 {
        let into = wrapping_sum([self.received, self.created.total(), self.taken]);
        let ends = [self.transmitted, self.to_host, self.consumed, self.dropped, self.held, self.handed];
        into.wrapping_sub(wrapping_sum(ends)) as i64
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_39_counters_near_their_wrap_still_add_up() {
        for start in [u64::from(u32::MAX) - 9, u64::MAX - 9] {
            for packets in 0..20 {
                let totals = Totals {
                    received: start.wrapping_add(packets),
                    taken: 5,
                    transmitted: start.wrapping_sub(1000).wrapping_add(packets),
                    dropped: 1000,
                    handed: 5,
                    ..Totals::default()
                };
                assert_eq!(totals.imbalance(), 0, "{packets} packets after {start}");
                let lost = Totals { received: totals.received.wrapping_add(3), ..totals };
                assert_eq!(lost.imbalance(), 3, "{packets} packets after {start}");
            }
        }
        let created = Created { errors: u64::MAX - 9, copies: 10, own: 2, ..Created::default() };
        assert_eq!(created.total(), 2);
    }
}
