//! Sums the counters of several workers, by port, device and instance.

use millrace_classify::FlowTableCounts;
use millrace_packet::DropCounts;
use millrace_plugin::FlowStateCounts;

use super::Snapshot;
use crate::classify::{ClassifyCounts, FlowCounts};
use crate::connections::ConnectionCounts;
use crate::observe::totals::{Created, Totals};
use crate::offloaded_flows::OffloadedFlowCounts;
use crate::pending::principal_counts::{DeadlineCounts, PrincipalCounts, PrincipalDrops};
use crate::ports::PortCount;

impl Snapshot {
    /// Adds the counters of another worker.
    pub fn merge(&mut self, other: Self) {
        self.at = self.at.max(other.at);
        merge_by_key(&mut self.ports, other.ports, add_port);
        merge_by_key(&mut self.queued, other.queued, |sum, more| *sum += more);
        self.schedulers.extend(other.schedulers);
        self.schedulers.sort_by_key(|(port, _)| *port);
        merge_by_key(&mut self.devices, other.devices, |sum, more| sum.add(&more));
        merge_by_key(&mut self.hosts, other.hosts, |sum, more| sum.add(&more));
        merge_by_key(&mut self.instances, other.instances, |sum, more| sum.add(more));
        merge_by_key(&mut self.principals, other.principals, add_principal);
        self.closed.add(&other.closed);
        // The sum wraps: the value of a worker is below zero if it took over more packets than it holds and
        // has handed over.
        self.carried = self.carried.wrapping_add(other.carried);
        add_drops(&mut self.unassigned, &other.unassigned);
        add_totals(&mut self.totals, &other.totals);
        for (ether_type, count) in other.ether_types {
            *self.ether_types.entry(ether_type).or_default() += count;
        }
        let by_key = |(port, address, mac)| ((port, address), mac);
        let mut neighbours = std::mem::take(&mut self.neighbours).into_iter().map(by_key).collect();
        let more = other.neighbours.into_iter().map(by_key).collect();
        merge_by_key(&mut neighbours, more, |known, mac| *known = known.or(mac));
        self.neighbours = neighbours.into_iter().map(|((port, address), mac)| (port, address, mac)).collect();
        self.memory = (self.memory.0 + other.memory.0, self.memory.1 + other.memory.1);
        add_flows(&mut self.flows, &other.flows);
        add_connections(&mut self.connections, other.connections);
        add_flow_states(&mut self.flow_states, other.flow_states);
        add_offloaded_flows(&mut self.offloaded_flows, other.offloaded_flows);
        self.iterations = (self.iterations.0 + other.iterations.0, self.iterations.1 + other.iterations.1);
        self.sleeps += other.sleeps;
        self.longest_change = self.longest_change.max(other.longest_change);
    }
}

fn merge_by_key<K: Ord + Copy, V>(into: &mut Vec<(K, V)>, from: Vec<(K, V)>, add: impl Fn(&mut V, V)) {
    let mut all = std::mem::take(into);
    all.extend(from);
    all.sort_by_key(|(key, _)| *key);
    for (key, value) in all {
        match into.last_mut() {
            Some((last, sum)) if *last == key => add(sum, value),
            _ => into.push((key, value)),
        }
    }
}

fn add_drops(sum: &mut DropCounts, more: &DropCounts) {
    more.iter().for_each(|(reason, count)| sum.add(reason, count));
}

/// Adds counters of a struct to `sum`. The fields after the semicolon are left to the caller. The pattern
/// names all fields, so a new counter doesn't compile until it is listed.
macro_rules! add_fields {
    ($sum:expr, $more:expr, $type:ident { $($field:ident),*; $($other:ident),* }) => {
        let $type { $($field,)* $($other),* } = $more;
        $($sum.$field += $field;)*
    };
}

fn add_port(sum: &mut PortCount, more: PortCount) {
    add_fields!(sum, more, PortCount { rx_packets, rx_bytes, tx_packets, tx_bytes, to_host, core; classes, drops });
    sum.classes.add(&classes);
    add_drops(&mut sum.drops, &drops);
}

fn add_principal(sum: &mut PrincipalCounts, more: PrincipalCounts) {
    add_fields!(
        sum,
        more,
        PrincipalCounts { used, backlogged_sum, periods, throttled, packets, waiting, waiting_bytes, handover_bytes,
            state_bytes, plugin_bytes, memory_refusals; backlogged, deadlines, longest_wait, drops }
    );
    sum.backlogged = sum.backlogged.max(backlogged);
    sum.longest_wait = sum.longest_wait.max(longest_wait);
    add_fields!(sum.deadlines, deadlines, DeadlineCounts { met, missed; });
    add_fields!(sum.drops, drops, PrincipalDrops { queue, memory, core_ceiling, handover; });
}

fn add_offloaded_flows(sum: &mut OffloadedFlowCounts, more: OffloadedFlowCounts) {
    add_fields!(sum, more, OffloadedFlowCounts { flows, room, inserted, renewed, idle, evicted, refused; });
}

fn add_flow_states(sum: &mut FlowStateCounts, more: FlowStateCounts) {
    add_fields!(sum, more, FlowStateCounts { flows, bytes, refused; });
}

fn add_connections(sum: &mut ConnectionCounts, more: ConnectionCounts) {
    add_fields!(sum, more, ConnectionCounts {
        connections, maximum, sources, packets, expired, recycled, reopened, invalid, refused_full, refused_source;
    });
}

fn add_totals(sum: &mut Totals, more: &Totals) {
    add_fields!(sum, more, Totals {
        from_host, transmitted, to_host, consumed, dropped, held, handed, taken; received, created
    });
    sum.received = sum.received.wrapping_add(*received);
    add_fields!(sum.created, created, Created { errors, fragments, copies, own, plugins; });
}

fn add_flows(sum: &mut FlowCounts, more: &FlowCounts) {
    add_fields!(sum, *more, FlowCounts { records, on_probation, capacity, maximum; packets, table });
    add_fields!(sum.packets, packets, ClassifyCounts { hits, misses, checked, rerouted, reclassified; });
    add_fields!(sum.table, table, FlowTableCounts {
        inserted, recycled_on_probation, recycled, expired, removed, refused_protected, refused_unread,
        refused_collisions;
    });
}

#[cfg(test)]
mod tests {
    use millrace_packet::DropReason;
    use millrace_units::PortId;

    use super::*;

    fn snapshot(port: u16, packets: u64) -> Snapshot {
        let mut count = PortCount { rx_packets: packets, ..PortCount::default() };
        count.drops.add(DropReason::NoRoute, packets);
        Snapshot {
            ports: vec![(PortId(port), count.clone()), (PortId(7), count)],
            totals: Totals { received: 2 * packets, dropped: packets, ..Totals::default() },
            ..Snapshot::default()
        }
    }

    #[test]
    fn counters_are_merged_by_meaning() {
        let mut sum = snapshot(3, 5);
        let mut other = snapshot(1, 2);
        (sum.totals.handed, other.totals.taken, other.totals.transmitted) = (5, 4, 6);
        sum.merge(other);
        let counts: Vec<_> = sum.ports.iter().map(|(port, count)| (port.0, count.rx_packets)).collect();
        assert_eq!(counts, [(1, 2), (3, 5), (7, 7)]);
        assert_eq!(sum.ports[2].1.drops.get(DropReason::NoRoute), 7);
        assert_eq!((sum.totals.on_the_way(), sum.totals.unaccounted()), (1, 0));
    }
}
