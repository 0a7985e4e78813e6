//! Copies that pass the copy gates.

use millrace_packet::{Batch, FlowKey};
use millrace_plugin::{Direction, EndedStages, Group, Place, Taken, Tracking, Watch};
use millrace_plugin_abi::{PacketConnection, Position, Verdict};
use millrace_units::{Instant, PathId};
use millrace_wire::MacAddr;

use super::{Gates, Outlet};
use crate::forward::routing::Routing;
use crate::gates::groups::PathGroup;
use crate::route_number::is_copy;
use crate::work::Work;

/// Numbers of copies made at copy gates.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CopyCounts {
    /// Copies made.
    pub made: u64,
    /// Copies that an instance keeps or sends; all other copies are consumed.
    pub kept: u64,
}

/// Scratch memory for the copies that pass the copy gates.
#[derive(Debug, Default)]
pub struct Copies {
    packets: Batch,
    keys: Vec<FlowKey>,
    states: Vec<u32>,
    connections: Vec<PacketConnection>,
    /// Indices of the originals in their batch.
    originals: Vec<usize>,
    verdicts: Vec<Verdict>,
    members: Vec<u16>,
    taken: Vec<(u16, Taken)>,
    directed: Vec<(u16, Direction)>,
    whys: Vec<Option<Taken>>,
}

impl Copies {
    /// Copies the packets that are bound at copy gates, and runs the instances there over the self. A copy
    /// is consumed unless an instance keeps or sends it.
    pub fn run(
        &mut self,
        gates: &mut Gates,
        work: &mut Work,
        outlet: &mut Outlet<'_>,
        now: Instant,
        watch: &mut impl Watch,
    ) -> CopyCounts {
        let mut counts = CopyCounts::default();
        let groups = std::mem::take(&mut gates.groups);
        for PathGroup { path, members, .. } in groups.iter() {
            if !gates.plugins.has_stages(*path, Position::Copy) {
                continue;
            }
            let counts_for = gates.plugins.paths.account_of_copies(*path);
            for member in
                members.iter().map(|member| usize::from(*member)).filter(|at| work.fates[*at].is_open())
            {
                if let Some(mut copy) = work.packets.at(member).copy(outlet.pool) {
                    copy.counts_for = counts_for;
                    if self.packets.push(copy).is_err() {
                        continue;
                    }
                    self.keys.push(work.keys[member]);
                    self.states.push(work.states.flows[member]);
                    self.connections.push(work.states.connection(member));
                    self.originals.push(member);
                    self.members.push(self.members.len() as u16);
                    counts.made += 1;
                }
            }
            self.hand_over(gates, *path, outlet, (&mut counts, &mut *watch), now);
            // Later instances need not track the originals again.
            for (original, connection) in self.originals.drain(..).zip(self.connections.drain(..)) {
                work.states.set_connection(original, connection);
            }
        }
        gates.groups = groups;
        counts
    }

    fn hand_over(
        &mut self,
        gates: &mut Gates,
        path: PathId,
        outlet: &mut Outlet<'_>,
        (counts, watch): (&mut CopyCounts, &mut impl Watch),
        now: Instant,
    ) {
        self.verdicts.clear();
        self.verdicts.resize(self.packets.len(), Verdict::Pass);
        let Self { packets, keys, states, connections, verdicts, members, taken, directed, whys, .. } = self;
        let place = Place { path, position: Position::Copy, stage: 0 };
        let has_barriers = gates.has_barriers();
        let queues = &Routing { fib: outlet.fib, filter_routes: &gates.routes, ports: outlet.ports };
        let bytes = &mut None;
        let tracker = gates.connections.as_deref_mut().filter(|_| gates.plugins.paths.tracks(path));
        let tracking = tracker.map(|tracker| Tracking { tracker, connections: &mut connections[..] });
        let mut group =
            Group { packets, keys, states, verdicts, members, bytes, taken, directed, queues, tracking };
        match has_barriers {
            false => gates.plugins.run_watched(place, &mut group, now, watch),
            true => EndedStages::of(&mut gates.plugins).run_watched(place, &mut group, now, watch),
        };
        for (member, direction) in directed.drain(..) {
            gates.direct(&mut packets[usize::from(member)], direction, place.position, outlet);
        }
        whys.clear();
        whys.resize(packets.len(), None);
        for (member, why) in taken.drain(..) {
            whys[usize::from(member)] = Some(why);
        }
        for (index, packet) in packets.drain().enumerate() {
            match whys[index] {
                Some(Taken::End(_)) => {}
                Some(Taken::Keep(ticket)) => {
                    // The original counts for the connection, not the copy.
                    let connection = PacketConnection { is_counted: false, ..connections[index] };
                    let kept = (states[index], connection);
                    let kept = gates.keep(ticket, packet, keys[index], MacAddr::ZERO, kept, outlet.pool);
                    counts.kept += u64::from(kept.is_ok());
                }
                None if is_copy(packet.next_hop) => {
                    outlet.made.push(packet);
                    counts.kept += 1;
                }
                None => {}
            }
        }
        keys.clear();
        states.clear();
        members.clear();
    }
}
