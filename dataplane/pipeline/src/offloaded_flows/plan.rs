//! Plans: treatment that the XDP program would give to a flow, decided by the tables of the worker's stages.

use std::net::IpAddr;

use millrace_classify::FlowAnswer;
use millrace_forward::{NeighbourKey, NeighbourState, Route};
use millrace_packet::{FlowKey, OffloadAction, OffloadEgress};
use millrace_plugin::OffloadSteps;
use millrace_units::{NextHopIndex, PortId};
use millrace_wire::Protocol;

use super::OffloadedFlows;
use super::budget::{BUDGET, cost};
use super::level::{Level, StaysUp};
use crate::forward::filter_route::FilterRoute;
use crate::forward::routing::{RouteOf, Routing, alive};
use crate::forward::tables::ForwardingTables;
use crate::gates::Gates;
use crate::observe::Observation;
use crate::parse::tags::Tags;
use crate::ports::{PortEntry, PortTable};

/// Port and IP address of a neighbour.
pub(super) type Neighbour = (PortId, IpAddr);

/// Treatment that the XDP program gives to a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Plan {
    pub action: OffloadAction,
    /// Steps of the flow's path that the XDP program executes.
    pub steps: OffloadSteps,
    /// Neighbour that receives the packets; `None` if they are dropped.
    pub neighbour: Option<Neighbour>,
    /// Route number that the packets are accounted to.
    pub route: NextHopIndex,
}

/// Protocols whose flows the XDP program looks up.
const PROTOCOLS: [Protocol; 4] = [Protocol::TCP, Protocol::UDP, Protocol::ICMP, Protocol::ICMPV6];

/// Tables that determine the plan of a flow.
pub(crate) struct Planner<'a> {
    pub offload: &'a OffloadedFlows,
    pub gates: &'a Gates,
    pub forwarding: &'a ForwardingTables,
    pub ports: &'a PortTable,
    pub observation: &'a Observation,
}

impl Planner<'_> {
    /// Returns the plan of a classified flow, or the reason why it stays at the worker. `hash`: flow hash.
    pub fn plan_of(&self, key: &FlowKey, hash: u32, answer: &FlowAnswer) -> Result<Plan, StaysUp> {
        if self.offload.placements.of(key) == Some(Level::Worker) {
            return Err(StaysUp::Placed);
        }
        if self.observation.trace.as_ref().is_some_and(|tracer| tracer.wants(key)) {
            return Err(StaysUp::Traced);
        }
        if !PROTOCOLS.contains(&Protocol(key.protocol)) {
            return Err(StaysUp::Protocol);
        }
        if answer.varying_mask != 0 {
            return Err(StaysUp::Varying);
        }
        let arrival = self.ports.get(key.port).ok_or(StaysUp::NotForwarded)?;
        may_pass(arrival, key.port, false)?;
        if !self.offload.port(key.port).receives {
            return Err(StaysUp::Arrival(key.port));
        }
        let steps = self.gates.plugins().offload_steps(answer.path).map_err(StaysUp::Path)?;
        if cost(&steps) > BUDGET {
            return Err(StaysUp::Budget);
        }
        let (action, neighbour) = match steps.drops() {
            true => (OffloadAction::Drop { mtu: arrival.settings.mtu }, None),
            false => self
                .way_of((key, arrival.settings.mtu), hash, answer.next_hop)
                .map(|(way, neighbour)| (OffloadAction::Send(way), Some((way.out, neighbour))))?,
        };
        let leaves_by = neighbour.map(|(port, _)| port);
        if self.observation.captures.iter().any(|capture| capture.wants(key, leaves_by)) {
            return Err(StaysUp::Captured);
        }
        Ok(Plan { action, steps, neighbour, route: answer.next_hop })
    }

    /// Returns the egress (port, MTU and link header) and the neighbour of a flow. `longest`: MTU of the
    /// ingress port in bytes.
    fn way_of(
        &self,
        (key, longest): (&FlowKey, u16),
        hash: u32,
        route: NextHopIndex,
    ) -> Result<(OffloadEgress, IpAddr), StaysUp> {
        let (fib, filter_routes, ports) = (&self.forwarding.fib, self.gates.routes(), self.ports);
        let hop = match (Routing { fib, filter_routes, ports }).route(route) {
            RouteOf::Fib(Route::Forward(hops)) => alive(hops, hash, ports),
            RouteOf::Filter(FilterRoute::Forward(_)) => return Err(StaysUp::Sent),
            RouteOf::None | RouteOf::Fib(_) | RouteOf::Filter(_) => return Err(StaysUp::NotForwarded),
        };
        let (port, neighbour) = (hop.port, hop.neighbour(key.destination()));
        let out = self.ports.get(port).ok_or(StaysUp::NotForwarded)?;
        may_pass(out, port, true)?;
        if self.offload.port(port).queues {
            return Err(StaysUp::Scheduler(port));
        }
        if port == key.port {
            return Err(StaysUp::SamePort);
        }
        if !self.offload.port(port).sends {
            return Err(StaysUp::Departure(port));
        }
        match self.forwarding.neighbours.get(NeighbourKey { port, address: neighbour }) {
            Some(NeighbourState::Reachable(destination)) => {
                let (mtu, source) = (out.settings.mtu.min(longest), out.settings.mac);
                Ok((OffloadEgress { out: port, mtu, destination, source }, neighbour))
            }
            _ => Err(StaysUp::Neighbour),
        }
    }
}

/// Checks that a port is up and has no VLAN tag. If `leaves` is set, the port is the egress port, and must
/// also have no scheduler.
fn may_pass(entry: &PortEntry, port: PortId, leaves: bool) -> Result<(), StaysUp> {
    match entry {
        entry if !entry.settings.up => Err(StaysUp::Down(port)),
        entry if entry.settings.tags != Tags::NONE => Err(StaysUp::Tagged(port)),
        entry if leaves && entry.scheduler.as_ref().is_some_and(|own| own.takes_packets()) => {
            Err(StaysUp::Scheduler(port))
        }
        _ => Ok(()),
    }
}
