//! Plans of flows in the offload, decided by the tables that the worker's stages read.

use std::net::IpAddr;

use millrace_classify::FlowAnswer;
use millrace_forward::{NeighbourKey, NeighbourState, Route};
use millrace_packet::{FlowKey, OffloadAction, OffloadEgress};
use millrace_plugin::OffloadForm;
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

/// A neighbour: its port and its address.
pub(super) type Neighbour = (PortId, IpAddr);

/// Treatment of a flow in the offload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Plan {
    pub action: OffloadAction,
    /// Actions of the filters on the path.
    pub form: OffloadForm,
    /// Neighbour that receives the packets; `None` if they are dropped.
    pub neighbour: Option<Neighbour>,
    /// Route that forwards the packets.
    pub route: NextHopIndex,
}

/// Protocols whose flows the XDP program looks up.
const PROTOCOLS: [Protocol; 4] = [Protocol::TCP, Protocol::UDP, Protocol::ICMP, Protocol::ICMPV6];

/// Tables that determine the plans of flows.
pub(crate) struct Planner<'a> {
    pub offload: &'a OffloadedFlows,
    pub gates: &'a Gates,
    pub forwarding: &'a ForwardingTables,
    pub ports: &'a PortTable,
    pub observation: &'a Observation,
}

impl Planner<'_> {
    /// Returns the plan of a flow by its classification, or the reason that it stays at the worker.
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
        let form = self.gates.plugins().offload_form(answer.path).map_err(StaysUp::Form)?;
        if cost(&form) > BUDGET {
            return Err(StaysUp::Budget);
        }
        let (action, neighbour) = match form.drops() {
            true => (OffloadAction::Drop { mtu: arrival.settings.mtu }, None),
            false => self
                .way_of((key, arrival.settings.mtu), hash, answer.next_hop)
                .map(|(way, neighbour)| (OffloadAction::Send(way), Some((way.out, neighbour))))?,
        };
        let leaves_by = neighbour.map(|(port, _)| port);
        if self.observation.captures.iter().any(|capture| capture.wants(key, leaves_by)) {
            return Err(StaysUp::Captured);
        }
        Ok(Plan { action, form, neighbour, route: answer.next_hop })
    }

    /// Returns the egress port, link header and neighbour of a flow. `longest`: the MTU of the ingress port,
    /// in bytes.
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

/// Checks that a port is up and has no VLAN tag. With `leaves`, the port is the egress port, which must have
/// no scheduler either.
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
