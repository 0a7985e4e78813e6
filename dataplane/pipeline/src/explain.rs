//! What would happen to a packet, and why: the journey of a packet that nobody sent.

use std::net::IpAddr;

use millrace_classify::{Candidate, flow_hash};
use millrace_forward::{MartianPolicy, NeighbourKey, NeighbourState, NeighbourTable, NextHops, Route};
use millrace_packet::DropReason;
use millrace_plugin::Action;
use millrace_plugin_abi::Position;
use millrace_units::{NextHopIndex, PortId, QueueId};

use crate::classify::comes_from_there;
use crate::commands::Question;
use crate::fib::Fib;
use crate::filter_route::FilterRoute;
use crate::gates::Gates;
use crate::ports::PortTable;
use crate::route::admit_addresses;
use crate::work::Fate;

/// One stage of the journey.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// The stage's name.
    pub stage: &'static str,
    /// What happens there, and why. Control puts names in for what stands in braces: `{gate 3}`, `{binding 5}`,
    /// `{prefix 192.0.2.1}` for the prefix by which an address is routed, `{leaf}` for where it waits.
    pub text: String,
}

/// The journey, and where it ends.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Explanation {
    /// Stage by stage.
    pub steps: Vec<Step>,
    /// What becomes of the packet in the end.
    pub verdict: String,
    /// The port whose queues it is given to, and the queue that it names; control says by `{leaf}` which that is.
    pub queue: Option<(PortId, QueueId)>,
}

/// The tables that decide.
pub(crate) struct Tables<'a> {
    pub ports: &'a PortTable,
    pub fib: &'a Fib,
    pub neighbours: &'a NeighbourTable,
    pub gates: &'a Gates,
    pub route_priority: i32,
    pub martians: MartianPolicy,
    pub seed: u64,
    /// The number of the worker that is asked, and how many there are, if several.
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

impl Tables<'_> {
    pub fn explain(&self, question: &Question) -> Explanation {
        let mut explanation = Explanation::default();
        let key = &question.key;
        let from = self.name(key.port);
        explanation.step(
            "parse",
            format!("{} to {}, protocol {}, from port {from}", key.source(), key.destination(), key.protocol),
        );
        if let Some((worker, workers)) = self.worker {
            explanation.step("worker", format!("the flow is worker {worker}'s, of {workers}"));
        }
        if question.hides_transport() && self.gates.judges() {
            let reason = DropReason::Ip6HeaderChain;
            return explanation.end(format!("dropped: {}; {}", reason.name(), reason.meaning()));
        }
        if let Some(verdict) = self.martian(question) {
            return explanation.end(verdict);
        }
        if let Some(verdict) = self.wrong_way(question) {
            return explanation.end(verdict);
        }
        let destination = key.destination();
        let index = self.fib.lookup(destination);
        if let Some(verdict) = self.forwarding_off(question, index) {
            return explanation.end(verdict);
        }
        let asked = self.explain_gates(question, index.map(|_| self.route_priority), &mut explanation);
        let (filter, queue) = match asked {
            Ok(found) => found,
            Err(verdict) => return explanation.end(verdict),
        };
        let route = match (filter, index) {
            (Some(FilterRoute::Drop), _) => return explanation.end("dropped: filter"),
            (Some(FilterRoute::Reject), _) => return explanation.end("dropped: filter; the source is told"),
            (Some(FilterRoute::Host), _) => return explanation.end("delivered to the router itself"),
            (Some(FilterRoute::Forward(hops)), _) => {
                explanation.step("route", format!("the filter's: {}", self.describe_hops(hops)));
                let hop = *hops.select(0);
                let way = (hop.port, hop.neighbour(destination));
                return self.explain_next_hop(question, way, queue, explanation);
            }
            (None, Some(index)) => self.fib.route(index),
            (None, None) => {
                explanation.step("route", format!("no route to {destination}"));
                return explanation.end("dropped: no_route; the source is told");
            }
        };
        explanation.step("route", format!("{{prefix {destination}}}: {}", self.describe(route)));
        let hops = match route {
            Route::Forward(hops) => hops,
            Route::Local => return explanation.end("delivered to the router itself"),
            Route::Kernel => {
                return explanation.end("handed to the kernel: the way out is no port of this router");
            }
            Route::Broadcast => return explanation.end("dropped: broadcast"),
            Route::Blackhole => return explanation.end("dropped: blackhole"),
            Route::Unreachable => return explanation.end("dropped: unreachable; the source is told"),
            Route::Prohibit => return explanation.end("dropped: prohibited; the source is told"),
        };
        let hop = *hops.select(flow_hash(key, self.seed));
        if hops.len() > 1 {
            explanation.step(
                "forward",
                format!("{} next hops; this flow's is via port {}", hops.len(), self.name(hop.port)),
            );
        }
        self.explain_next_hop(question, (hop.port, hop.neighbour(destination)), queue, explanation)
    }

    /// What becomes of a packet that may not be forwarded for its addresses.
    fn martian(&self, question: &Question) -> Option<String> {
        Some(match admit_addresses(self.ports, &question.key, self.martians)? {
            Fate::Drop(reason) => format!("dropped: {}; {}", reason.name(), reason.meaning()),
            _ => "delivered to the router itself: such addresses are of its own links".to_owned(),
        })
    }

    /// Why a packet of this source can't come in by its port.
    fn wrong_way(&self, question: &Question) -> Option<String> {
        let mode = self.ports.get(question.key.port)?.settings.reverse_path;
        let fits = comes_from_there(mode, self.fib, question.key.port, question.key.source());
        (!fits).then(|| {
            let (source, port) = (question.key.source(), self.name(question.key.port));
            format!("dropped: reverse_path; port {port} checks that {source} is reached by it")
        })
    }

    /// What gates do; the route and the queue that filters prescribe, or how the packet ends at a gate.
    fn explain_gates(
        &self,
        question: &Question,
        route: Option<i32>,
        explanation: &mut Explanation,
    ) -> Result<(Option<FilterRoute<'_>>, QueueId), &'static str> {
        let candidate = Candidate {
            key: question.key,
            tcp_flags: question.tcp_flags,
            tag: question.tag,
            exceptions: question.exceptions,
            dscp: question.dscp,
        };
        let plugins = self.gates.plugins();
        let (mut filter, mut refused, mut queue) = (None, None, QueueId(0));
        for (gate, found) in plugins.winners(&candidate, route) {
            let id = gate.id();
            let Some((binding, loses)) = found else {
                explanation.step("gate", format!("{{gate {id}}}: no filter of {} matches", gate.bindings()));
                continue;
            };
            let less = if loses { "; the route has a higher priority" } else { "" };
            explanation.step("gate", format!("{{gate {id}}}: bound to {{binding {binding}}}{less}"));
            let action = plugins.action(binding).filter(|_| !loses && refused.is_none());
            match (gate.position(), action) {
                (Position::Route, Some(action)) if filter.is_none() => {
                    filter =
                        self.gates.routes().index(action).and_then(|index| self.gates.routes().route(index));
                }
                (_, Some(Action::Drop)) => refused = Some("dropped: filter"),
                (_, Some(Action::Queue(named))) => queue = *named,
                (_, Some(Action::Police(policer))) => {
                    let (rate, burst) = (policer.rate(), policer.burst());
                    let text = format!(
                        "{{gate {id}}}: at most {rate} bits a second, {burst} bytes at once; more is dropped: policer"
                    );
                    explanation.step("gate", text);
                }
                (_, Some(Action::Reject)) => refused = Some("dropped: filter; the source is told"),
                _ => {}
            }
        }
        refused.map_or(Ok((filter, queue)), Err)
    }

    fn explain_next_hop(
        &self,
        question: &Question,
        (port, neighbour): (PortId, IpAddr),
        queue: QueueId,
        mut explanation: Explanation,
    ) -> Explanation {
        let name = self.name(port);
        let Some(entry) = self.ports.get(port).filter(|entry| entry.settings.up) else {
            explanation.step("forward", format!("port {name} is down"));
            return explanation.end("dropped: port_down; the source is told");
        };
        let (mtu, mac) = (entry.settings.mtu, entry.settings.mac);
        if question.length > mtu {
            explanation.step(
                "forward",
                format!("{} bytes are more than port {name}'s MTU of {mtu}", question.length),
            );
        }
        match self.neighbours.get(NeighbourKey { port, address: neighbour }) {
            Some(NeighbourState::Reachable(destination)) => {
                explanation.step("forward", format!("link header {mac} to {destination} ({neighbour})"));
                explanation.queue = Some((port, queue));
                explanation.step("queue", format!("{{leaf}} at port {name}"));
                explanation.end(format!("sent by port {name}"))
            }
            Some(NeighbourState::Failed) => {
                explanation.step("forward", format!("{neighbour} does not answer at port {name}"));
                explanation.end("dropped: neighbour_failed; the source is told")
            }
            Some(NeighbourState::Incomplete) | None => {
                explanation.step(
                    "forward",
                    format!("the link address of {neighbour} at port {name} is not known yet"),
                );
                explanation.end(format!("held until {neighbour} is resolved, then sent by port {name}"))
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
