//! What would happen to a packet, and why: the journey of a packet that nobody sent.

use std::net::IpAddr;

use millrace_classify::Candidate;
use millrace_forward::{NeighbourKey, NeighbourState, NeighbourTable, Route};
use millrace_packet::Exceptions;
use millrace_plugin::BindingTable;
use millrace_units::PortId;

use crate::command::Question;
use crate::fib::Fib;
use crate::gates::Gates;
use crate::parse::flow_hash;
use crate::ports::PortTable;

/// One stage of the journey.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// The stage's name.
    pub stage: &'static str,
    /// What happens there, and why. Control puts names in for what stands in braces: `{gate 3}`, `{binding 5}`,
    /// `{prefix 192.0.2.1}` for the prefix by which an address is routed.
    pub text: String,
}

/// The journey, and where it ends.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Explanation {
    /// Stage by stage.
    pub steps: Vec<Step>,
    /// What becomes of the packet in the end.
    pub verdict: String,
}

/// The tables that decide.
pub(crate) struct Tables<'a> {
    pub ports: &'a PortTable,
    pub fib: &'a Fib,
    pub neighbours: &'a NeighbourTable,
    pub gates: &'a Gates,
    pub seed: u64,
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
        self.explain_gates(question, &mut explanation);
        let destination = key.destination();
        let Some(index) = self.fib.lookup(destination) else {
            explanation.step("route", format!("no route to {destination}"));
            return explanation.end("dropped: no_route; the source is told");
        };
        let route = self.fib.route(index);
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
        self.explain_next_hop(question, hop.port, hop.neighbour(destination), explanation)
    }

    fn explain_gates(&self, question: &Question, explanation: &mut Explanation) {
        let candidate = Candidate {
            key: question.key,
            tcp_flags: question.tcp_flags,
            tag: question.tag,
            exceptions: Exceptions::NONE,
            dscp: question.dscp,
        };
        let gates = self.gates.plugins();
        for gate in gates.gates().iter().filter(|gate| gate.bindings() > 0) {
            let text = match gate.table().lookup(&candidate) {
                Some(binding) => format!("{{gate {}}}: bound to {{binding {binding}}}", gate.id()),
                None => format!("{{gate {}}}: no filter of {} matches", gate.id(), gate.bindings()),
            };
            explanation.step("gate", text);
        }
    }

    fn explain_next_hop(
        &self,
        question: &Question,
        port: PortId,
        neighbour: IpAddr,
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
                explanation.step("queue", format!("first in, first out, at port {name}"));
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

    fn name(&self, port: PortId) -> String {
        self.ports.get(port).map_or_else(|| "-".to_owned(), |entry| entry.settings.name.clone())
    }

    fn describe(&self, route: &Route) -> String {
        let Route::Forward(hops) = route else { return route.to_string() };
        let hop = |port: PortId, gateway: Option<IpAddr>| match gateway {
            Some(gateway) => format!("via {gateway} port {}", self.name(port)),
            None => format!("on the link at port {}", self.name(port)),
        };
        let hops: Vec<_> = hops.iter().map(|next| hop(next.port, next.gateway)).collect();
        hops.join(", or ")
    }
}
