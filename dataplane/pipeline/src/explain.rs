//! Lookup: the stages and verdict of a hypothetical packet, with reasons.

use std::net::IpAddr;

use millrace_classify::{Candidate, flow_hash};
use millrace_forward::{MartianPolicy, NeighbourKey, NeighbourState, NeighbourTable, NextHops, Route};
use millrace_packet::{DropReason, Exceptions, Family, FlowKey};
use millrace_plugin::{Action, BindingId, Health, OnFault};
use millrace_plugin_abi::Position;
use millrace_units::{GateId, NextHopIndex, PortId, QueueId};
use millrace_wire::Protocol;

use crate::classify::comes_from_there;
use crate::forward::alive;
use crate::forward::fib::Fib;
use crate::forward::filter_route::FilterRoute;
use crate::forward::own_addresses::OwnAddresses;
use crate::forward::route::admit_addresses;
use crate::gates::Gates;
use crate::ports::PortTable;
use crate::router::Router;
use crate::work::Fate;

/// Packet for a lookup: control asks how the worker would forward it.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// Flow key.
    pub key: FlowKey,
    /// TCP flags; `None` for other protocols, or if unknown.
    pub tcp_flags: Option<u8>,
    /// Differentiated services code point.
    pub dscp: u8,
    /// Plugin tag.
    pub tag: u8,
    /// Exceptions of the packet.
    pub exceptions: Exceptions,
    /// Length in bytes, from the network header on.
    pub length: u16,
}

impl Question {
    /// Returns whether the IPv6 extension headers can't be read up to the transport header. In that case,
    /// `protocol` is the header at which reading ended.
    pub fn hides_transport(&self) -> bool {
        let is_extension = matches!(
            Protocol(self.key.protocol),
            Protocol::HOP_BY_HOP
                | Protocol::ROUTING
                | Protocol::FRAGMENT
                | Protocol::AH
                | Protocol::DESTINATION_OPTIONS
        );
        self.key.family() == Family::V6 && is_extension && self.exceptions.contains(Exceptions::CUT)
    }
}

/// Stage of the journey.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// Name of the stage.
    pub stage: &'static str,
    /// Result of the stage, and its reason. Control replaces placeholders in braces by names: `{gate 3}`,
    /// `{binding 5}`, `{prefix 192.0.2.1}` (the prefix that routes an address), `{leaf}` (the leaf that the
    /// packet enters).
    pub text: String,
}

/// Journey of a packet, and its verdict.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Explanation {
    /// Stages in their order.
    pub steps: Vec<Step>,
    /// Final fate of the packet.
    pub verdict: String,
    /// Egress port, and the queue that the packet names; control resolves the queue to the name of `{leaf}`.
    pub queue: Option<(PortId, QueueId)>,
}

/// Tables of the stages.
pub(crate) struct Tables<'a> {
    pub ports: &'a PortTable,
    pub fib: &'a Fib,
    pub neighbours: &'a NeighbourTable,
    pub gates: &'a Gates,
    pub route_priority: i32,
    pub martians: MartianPolicy,
    pub own_addresses: &'a OwnAddresses,
    pub seed: u64,
    /// Number of this worker, and number of workers; `None` for a single worker.
    pub worker: Option<(usize, usize)>,
}

impl Explanation {
    fn step(&mut self, stage: &'static str, text: String) {
        self.steps.push(Step { stage, text });
    }

    fn end(mut self, verdict: impl Into<String>) -> Self {
        self.verdict = verdict.into();
        self
    }
}

/// Departure of a packet with a next hop.
enum Leaving {
    /// Immediate departure.
    Sent,
    /// Departure once the link address of the neighbour is known.
    Held,
}

/// Decisions of the gates so far.
struct Prescribed<'a> {
    /// Whether a gate of position `route` has chosen the route.
    is_chosen: bool,
    /// Route that the gate has chosen.
    filter: Option<FilterRoute<'a>>,
    queue: QueueId,
}

/// Gate with bindings, its winner, and whether the route outranks the winner.
struct Met {
    gate: GateId,
    position: Position,
    bindings: u32,
    winner: Option<(BindingId, bool)>,
}

impl<'a> Tables<'a> {
    /// Returns the tables of a router.
    pub fn of(router: &'a Router) -> Self {
        Self {
            ports: &router.ports,
            fib: &router.forwarding.fib,
            neighbours: &router.forwarding.neighbours,
            gates: &router.gates,
            route_priority: router.options.route_priority,
            martians: router.options.martians,
            own_addresses: &router.forwarding.own_addresses,
            seed: router.seed,
            worker: router.handover.as_ref().map(|handover| (handover.me(), handover.workers())),
        }
    }
}

impl Tables<'_> {
    /// Returns the journey of a packet, in the order of `Router::settle_from`, up to where the packet ends.
    pub fn explain(&self, question: &Question) -> Explanation {
        let mut explanation = Explanation::default();
        let verdict = self.journey(question, &mut explanation);
        explanation.end(verdict)
    }

    fn journey(&self, question: &Question, explanation: &mut Explanation) -> String {
        if let Some(verdict) = self.arrival(question, explanation) {
            return verdict;
        }
        let destination = question.key.destination();
        let index = self.fib.lookup(destination);
        let gates = self.gates_of(question, index.map(|_| self.route_priority));
        let mut prescribed = Prescribed { is_chosen: false, filter: None, queue: QueueId(0) };
        for position in [Position::Early, Position::Route, Position::Late, Position::Copy] {
            if let Some(verdict) = self.pass_gates(position, &gates, &mut prescribed, explanation) {
                return verdict;
            }
        }
        let way = match self.way(question, index, prescribed.filter, explanation) {
            Ok(way) => way,
            Err(verdict) => return verdict,
        };
        let leaving = match self.next_hop(question, way, explanation) {
            Ok(leaving) => leaving,
            Err(verdict) => return verdict,
        };
        if let Some(verdict) = self.pass_gates(Position::Queue, &gates, &mut prescribed, explanation) {
            return verdict;
        }
        let name = self.name(way.0);
        match leaving {
            Leaving::Sent => {
                explanation.queue = Some((way.0, prescribed.queue));
                explanation.step("queue", format!("{{leaf}} at port {name}"));
                format!("sent out of port {name}")
            }
            Leaving::Held => format!("held until {} is resolved, then sent out of port {name}", way.1),
        }
    }

    /// Explains the stages before the gates. Returns the verdict if the packet ends there.
    fn arrival(&self, question: &Question, explanation: &mut Explanation) -> Option<String> {
        let key = &question.key;
        let from = self.name(key.port);
        explanation.step(
            "parse",
            format!("{} to {}, protocol {}, from port {from}", key.source(), key.destination(), key.protocol),
        );
        if let Some((worker, workers)) = self.worker {
            explanation.step("worker", format!("worker {worker} of {workers} forwards the flow"));
        }
        if question.hides_transport() && self.gates.judges() {
            let reason = DropReason::Ip6HeaderChain;
            return Some(format!("dropped: {}; {}", reason.name(), reason.meaning()));
        }
        self.martian(question).or_else(|| self.own_source(key)).or_else(|| self.wrong_way(question))
    }

    /// Returns port and neighbour of a packet that has passed the gates before the route, or the verdict if
    /// it ends.
    fn way(
        &self,
        question: &Question,
        index: Option<NextHopIndex>,
        filter: Option<FilterRoute<'_>>,
        explanation: &mut Explanation,
    ) -> Result<(PortId, IpAddr), String> {
        let destination = question.key.destination();
        let route = filter.is_none().then_some(index).flatten();
        if let Some(verdict) = self.forwarding_off(question, route) {
            return Err(verdict);
        }
        let route = match (filter, index) {
            (Some(FilterRoute::Drop), _) => return Err("dropped: filter".to_owned()),
            (Some(FilterRoute::Reject), _) => {
                return Err("dropped: filter; an ICMP error goes to the source".to_owned());
            }
            (Some(FilterRoute::Host), _) => return Err("delivered to the router itself".to_owned()),
            (Some(FilterRoute::Forward(hops)), _) => {
                explanation.step("route", format!("route of the filter: {}", self.describe_hops(hops)));
                let hop = *hops.select(0);
                return Ok((hop.port, hop.neighbour(destination)));
            }
            (None, Some(index)) => self.fib.route(index),
            (None, None) => {
                explanation.step("route", format!("no route to {destination}"));
                return Err("dropped: no_route; an ICMP error goes to the source".to_owned());
            }
        };
        explanation.step("route", format!("{{prefix {destination}}}: {}", self.describe(route)));
        let ends = match route {
            Route::Forward(hops) => return Ok(self.hop_of_flow(question, hops, explanation)),
            Route::Local => "delivered to the router itself",
            Route::Kernel => "punted to the kernel: the egress device is no port of this router",
            Route::Broadcast => "dropped: broadcast",
            Route::Blackhole => "dropped: blackhole",
            Route::Unreachable => "dropped: unreachable; an ICMP error goes to the source",
            Route::Prohibit => "dropped: prohibited; an ICMP error goes to the source",
        };
        Err(ends.to_owned())
    }

    /// Returns port and neighbour of the next hop that a flow takes.
    fn hop_of_flow(
        &self,
        question: &Question,
        hops: &NextHops,
        explanation: &mut Explanation,
    ) -> (PortId, IpAddr) {
        let hop = alive(hops, flow_hash(&question.key, self.seed), self.ports);
        if hops.len() > 1 {
            explanation.step(
                "forward",
                format!("one of {} next hops: the flow leaves by port {}", hops.len(), self.name(hop.port)),
            );
        }
        (hop.port, hop.neighbour(question.key.destination()))
    }

    /// Returns the verdict on a packet whose addresses forbid forwarding.
    fn martian(&self, question: &Question) -> Option<String> {
        Some(match admit_addresses(self.ports, &question.key, self.martians)? {
            Fate::Drop(reason) => format!("dropped: {}; {}", reason.name(), reason.meaning()),
            _ => "delivered to the router itself: link-local addresses are not forwarded".to_owned(),
        })
    }

    /// Returns the verdict on a received packet whose source is an address of the router itself.
    fn own_source(&self, key: &FlowKey) -> Option<String> {
        let reason = DropReason::MartianSource;
        let is_own = key.port != PortId::NONE && self.own_addresses.contains(&key.source());
        is_own.then(|| format!("dropped: {}; {}", reason.name(), reason.meaning()))
    }

    /// Returns the verdict on a packet that fails the reverse path check.
    fn wrong_way(&self, question: &Question) -> Option<String> {
        let mode = self.ports.get(question.key.port)?.settings.reverse_path;
        let fits = comes_from_there(mode, self.fib, question.key.port, question.key.source());
        (!fits).then(|| {
            let (source, port) = (question.key.source(), self.name(question.key.port));
            format!(
                "dropped: reverse_path; no route to {source} leads out of port {port}, which checks sources"
            )
        })
    }

    /// Returns the gates with bindings, in their order, each with its winner.
    fn gates_of(&self, question: &Question, route: Option<i32>) -> Vec<Met> {
        let candidate = Candidate {
            key: question.key,
            tcp_flags: question.tcp_flags,
            tag: question.tag,
            exceptions: question.exceptions,
            dscp: question.dscp,
        };
        let winners = self.gates.plugins().bindings.winners(&candidate, route);
        let met = winners.map(|(gate, winner)| Met {
            gate: gate.id(),
            position: gate.position(),
            bindings: gate.bindings(),
            winner,
        });
        met.collect()
    }

    /// Explains the gates of a position. Returns the verdict if the packet ends at one of them; later gates
    /// are left out.
    fn pass_gates<'a>(
        &'a self,
        position: Position,
        gates: &[Met],
        prescribed: &mut Prescribed<'a>,
        explanation: &mut Explanation,
    ) -> Option<String> {
        gates
            .iter()
            .filter(|met| met.position == position)
            .find_map(|met| self.pass_gate(met, prescribed, explanation))
    }

    fn pass_gate<'a>(
        &'a self,
        met: &Met,
        prescribed: &mut Prescribed<'a>,
        explanation: &mut Explanation,
    ) -> Option<String> {
        let Met { gate, position, .. } = *met;
        let Some((binding, loses)) = met.winner else {
            explanation.step("gate", format!("{{gate {gate}}}: no filter of {} matches", met.bindings));
            return None;
        };
        let plugins = self.gates.plugins();
        let action = plugins.bindings.action(binding)?;
        let is_route = position == Position::Route && action.is_route();
        let aside = match loses {
            true => Some("; the route has a higher priority"),
            false if is_route && prescribed.is_chosen => Some("; an earlier gate has chosen the route"),
            false => None,
        };
        let bound = format!("{{gate {gate}}}: bound to {{binding {binding}}}");
        if let Some(aside) = aside {
            explanation.step("gate", bound + aside);
            return None;
        }
        if is_route {
            prescribed.is_chosen = true;
            let routes = self.gates.routes();
            prescribed.filter = routes.index(action).and_then(|index| routes.route(index));
            let behind = match action {
                Action::Drop | Action::Reject => "; the drop takes effect after the gates at position late",
                _ => "",
            };
            explanation.step("gate", bound + behind);
            return None;
        }
        if let Some((health, on_fault)) =
            plugins.health(binding).filter(|(health, _)| *health != Health::Well)
        {
            return unwell(position, health, on_fault, bound, explanation);
        }
        explanation.step("gate", bound);
        match action {
            Action::Drop => return Some("dropped: filter".to_owned()),
            Action::Reject => return Some("dropped: filter; an ICMP error goes to the source".to_owned()),
            Action::Queue(named) => prescribed.queue = *named,
            Action::Police(policer) => {
                let (rate, burst) = (policer.rate(), policer.burst());
                let text = format!(
                    "{{gate {gate}}}: police to {rate} bit/s, burst {burst} bytes; drop the excess (policer)"
                );
                explanation.step("gate", text);
            }
            Action::Instance(_) | Action::Accept | Action::Send(_) | Action::Host | Action::Copy(_) => {}
        }
        None
    }

    /// Explains the path to a neighbour. Returns the departure of the packet, or the verdict if it ends.
    fn next_hop(
        &self,
        question: &Question,
        (port, neighbour): (PortId, IpAddr),
        explanation: &mut Explanation,
    ) -> Result<Leaving, String> {
        if question.exceptions.contains(Exceptions::TTL) && question.key.port != PortId::NONE {
            return Err("dropped: ttl_expired; an ICMP error goes to the source".to_owned());
        }
        let name = self.name(port);
        let Some(entry) = self.ports.get(port).filter(|entry| entry.settings.up) else {
            explanation.step("forward", format!("port {name} is down"));
            return Err("dropped: port_down; an ICMP error goes to the source".to_owned());
        };
        let (mtu, mac) = (entry.settings.mtu, entry.settings.mac);
        if question.length > mtu {
            explanation.step(
                "forward",
                format!("{} bytes exceed the MTU of port {name}, {mtu} bytes", question.length),
            );
        }
        match self.neighbours.get(NeighbourKey { port, address: neighbour }) {
            Some(NeighbourState::Reachable(destination)) => {
                explanation.step("forward", format!("link header {mac} to {destination} ({neighbour})"));
                Ok(Leaving::Sent)
            }
            Some(NeighbourState::Failed) => {
                explanation.step("forward", format!("{neighbour} does not answer at port {name}"));
                Err("dropped: neighbour_failed; an ICMP error goes to the source".to_owned())
            }
            Some(NeighbourState::Incomplete) | None => {
                explanation.step(
                    "forward",
                    format!("the MAC address of {neighbour} at port {name} is not resolved yet"),
                );
                Ok(Leaving::Held)
            }
        }
    }

    /// Returns the verdict on a packet of a port where forwarding is off, unless it is for this host.
    fn forwarding_off(&self, question: &Question, index: Option<NextHopIndex>) -> Option<String> {
        let key = &question.key;
        let entry = self.ports.get(key.port).filter(|entry| !entry.forwards(key.family()))?;
        let is_for_host =
            index.is_some_and(|index| matches!(self.fib.route(index), Route::Local | Route::Broadcast));
        let family = if key.source().is_ipv4() { "IPv4" } else { "IPv6" };
        let name = &entry.settings.name;
        (!is_for_host)
            .then(|| format!("dropped: forwarding_off: forwarding of {family} is off at port {name}"))
    }

    fn name(&self, port: PortId) -> String {
        self.ports.get(port).map_or_else(|| "-".to_owned(), |entry| entry.settings.name.clone())
    }

    fn describe(&self, route: &Route) -> String {
        let Route::Forward(hops) = route else { return route.to_string() };
        self.describe_hops(hops)
    }

    fn describe_hops(&self, hops: &NextHops) -> String {
        let hop = |port: PortId, gateway: Option<IpAddr>| match gateway {
            Some(gateway) => format!("via {gateway} port {}", self.name(port)),
            None => format!("on the link at port {}", self.name(port)),
        };
        let hops: Vec<_> = hops.iter().map(|next| hop(next.port, next.gateway)).collect();
        hops.join(", or ")
    }
}

/// Explains a binding of an instance that is not healthy. Returns the verdict if packets end there.
fn unwell(
    position: Position,
    health: Health,
    on_fault: OnFault,
    bound: String,
    explanation: &mut Explanation,
) -> Option<String> {
    let (health, copies) = (health.name(), position == Position::Copy);
    let text = match on_fault {
        OnFault::Bypass => format!("{bound}, which is {health}: packets pass it by"),
        OnFault::Drop if copies => format!("{bound}, which is {health}: its copies are dropped"),
        OnFault::Drop => format!("{bound}, which is {health}"),
    };
    explanation.step("gate", text);
    let ends = on_fault == OnFault::Drop && !copies;
    ends.then(|| {
        let reason = DropReason::PluginFailed;
        format!("dropped: {}; {}", reason.name(), reason.meaning())
    })
}
