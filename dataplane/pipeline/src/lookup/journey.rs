//! Journey of a lookup: calls the decision functions of the stages in the order of `Router::settle_from`.

use millrace_forward::{IcmpError, NeighbourKey, NextHop, Resolution, Solicited};
use millrace_packet::{DropReason, Family};
use millrace_plugin::{BindingTreatment, GateResult, Health, OnFault, Standing};
use millrace_plugin_abi::Position;
use millrace_units::{Instant, QueueId};
use millrace_wire::EtherType;

use super::example::Example;
use super::{Lookup, LookupStep, Question, Verdict};
use crate::classify::refuse_source;
use crate::egress::dispose::asks_control;
use crate::egress::errors::{ErrorSender, ErrorTables};
use crate::flow_reports::stays_up;
use crate::forward::filter_route::FilterRoute;
use crate::forward::route::admit;
use crate::forward::routing::link_address;
use crate::gates::refused_by;
use crate::ingress::receive::refusal;
use crate::observe::trace::RouteTaken;
use crate::parse::ROUTER;
use crate::punt::own_stack::{Outcome, service_for};
use crate::route_number::NO_ROUTE;
use crate::router::Router;
use crate::subject::Subject;
use crate::work::Fate;

/// State of a lookup while the described packet passes the stages.
pub(super) struct Journey<'a> {
    router: &'a Router,
    question: &'a Question,
    now: Instant,
    example: Example,
    steps: Vec<LookupStep>,
}

impl<'a> Journey<'a> {
    pub fn new(router: &'a Router, question: &'a Question, now: Instant) -> Self {
        let example = Example::new(question, router.seed);
        Self { router, question, now, example, steps: vec![LookupStep::Parsed] }
    }

    /// Runs the lookup, and returns its steps and verdict.
    pub fn run(mut self) -> Lookup {
        let fate = self.settle().err().unwrap_or(Fate::Forward);
        let verdict = self.end(fate);
        Lookup { candidate: self.question.candidate, steps: self.steps, verdict }
    }

    /// Takes the packet through all stages before dispose.
    ///
    /// # Errors
    /// The fate of the packet if a stage drops, refuses, punts or holds it.
    fn settle(&mut self) -> Result<(), Fate> {
        self.arrive()?;
        let gates = self.classify()?;
        for position in [Position::Early, Position::Route, Position::Late, Position::Copy] {
            self.pass_gates(&gates, position)?;
        }
        let forwarded = self.forward();
        if matches!(forwarded, Ok(()) | Err(Fate::Hold(_))) {
            self.pass_gates(&gates, Position::Queue)?;
        }
        forwarded
    }

    /// Runs the receive and parse stages.
    fn arrive(&mut self) -> Result<(), Fate> {
        let (router, key) = (self.router, self.question.key());
        if let Some(handover) = router.handover.as_ref() {
            self.steps.push(LookupStep::Owner { worker: handover.me(), workers: handover.workers() });
        }
        if let Some(entry) = router.ports.get(key.port) {
            // The source is any unicast address, and the destination is the port's own.
            let (sender, own) = (millrace_wire::MacAddr([2, 0, 0, 0, 0, 1]), entry.settings.mac);
            let refused = refusal(entry, sender, own, self.ether_type(), self.example.network_len());
            refused.map_or(Ok(()), |reason| Err(Fate::Drop(reason)))?;
        }
        let hidden = router.gates.refuse_hidden(self.question.hides_transport());
        hidden.map_or(Ok(()), |reason| Err(Fate::Drop(reason)))
    }

    fn ether_type(&self) -> EtherType {
        match self.question.key().family() {
            Family::V4 => EtherType::IPV4,
            Family::V6 => EtherType::IPV6,
        }
    }

    /// Runs the classify stage: checks the addresses, and sets the route. Returns the winning binding of each
    /// gate.
    fn classify(&mut self) -> Result<Vec<GateResult>, Fate> {
        let (router, key) = (self.router, self.question.key());
        if key.port != ROUTER {
            let fate = admit(&router.ports, &self.example, key, router.options.martians);
            if !fate.is_open() {
                return Err(fate);
            }
            if let Some(reason) = refuse_source(&router.forwarding, &router.ports, key.port, key.source()) {
                return Err(Fate::Drop(reason));
            }
        }
        self.note_offload();
        let route = router.forwarding.fib.lookup(key.destination());
        let priority = route.map(|_| router.options.route_priority);
        let gates = router.gates.plugins().gate_results(&self.question.candidate, priority);
        let replaces = |result: &GateResult| {
            let (binding, standing) = result.winner?;
            (standing == Standing::Route).then_some(binding)
        };
        let prescribed = gates.iter().find_map(replaces).and_then(|binding| router.gates.route_of(binding));
        self.example.annotations_mut().next_hop = prescribed.or(route).unwrap_or(NO_ROUTE);
        Ok(gates)
    }

    /// Adds a step with the level of the flow, if the flow has a record and the router has an offload.
    fn note_offload(&mut self) {
        let (router, key) = (self.router, self.question.key());
        let flows = &router.classifier.flows;
        if router.offload.is_none() || !router.classifier.remembers() {
            return;
        }
        if let Some(flow) = flows.find(key, flows.hash(key), 0) {
            let stays_up = stays_up(router, flow, flows.record(flow), self.now);
            self.steps.push(LookupStep::Offload(stays_up));
        }
    }

    /// Passes the gates of a position. Calls no instance, but assumes that each instance passes the packet.
    /// If the health of an instance makes it drop packets, the packet is dropped.
    fn pass_gates(&mut self, gates: &[GateResult], position: Position) -> Result<(), Fate> {
        gates.iter().filter(|result| result.position == position).try_for_each(|result| self.pass(result))
    }

    fn pass(&mut self, result: &GateResult) -> Result<(), Fate> {
        let GateResult { gate, position, bindings, winner, .. } = *result;
        let Some((binding, standing)) = winner else {
            self.steps.push(LookupStep::NoMatch { gate, bindings });
            return Ok(());
        };
        let plugins = self.router.gates.plugins();
        let treatment = plugins.treatment(result, self.now);
        let step = match (standing, treatment) {
            (Standing::Route, _) => LookupStep::Redirected { gate, binding, drops: self.route_drops() },
            (Standing::Stage, Some(treatment)) => {
                LookupStep::Bound { gate, binding, treatment, copies: position == Position::Copy }
            }
            (Standing::Stage, None) => LookupStep::NoEffect { gate, binding, standing: Standing::Inert },
            (standing, _) => LookupStep::NoEffect { gate, binding, standing },
        };
        self.steps.push(step);
        let LookupStep::Bound { treatment, copies, .. } = step else { return Ok(()) };
        match treatment {
            BindingTreatment::Refuse(refusal) => return Err(refused_by(refusal)),
            BindingTreatment::Queue(queue) => self.example.annotations_mut().queue = queue,
            BindingTreatment::Instance { health, on_fault: OnFault::Drop, .. }
                if health != Health::Well && !copies =>
            {
                return Err(Fate::Drop(DropReason::PluginFailed));
            }
            BindingTreatment::Instance { link_queue: queue, .. } | BindingTreatment::Principal(_, queue)
                if self.example.queue == QueueId(0) =>
            {
                self.example.annotations_mut().queue = queue;
            }
            BindingTreatment::Instance { .. }
            | BindingTreatment::Principal(..)
            | BindingTreatment::Police { .. }
            | BindingTreatment::Count => {}
        }
        Ok(())
    }

    /// Returns whether the packet's route is a filter route that drops it.
    fn route_drops(&self) -> bool {
        let route = self.router.gates.routes().route(self.example.next_hop);
        matches!(route, Some(FilterRoute::Drop | FilterRoute::Reject))
    }

    /// Runs the forward stage: route, next hop, MTU, neighbour.
    fn forward(&mut self) -> Result<(), Fate> {
        let (routing, key) = (self.router.routing(), self.question.key());
        let taken = RouteTaken::of(&routing, &self.example, key, (None, false));
        self.steps.push(LookupStep::Routed(taken));
        let hop = routing.hop(&self.example, key)?;
        if let Some(fate) = routing.refusal_at(&hop, &self.example, key) {
            return Err(fate);
        }
        self.note_length(&hop);
        self.example.annotations_mut().out_port = hop.port;
        let neighbour = hop.neighbour(key.destination());
        let known =
            self.router.forwarding.neighbours.get(NeighbourKey { port: hop.port, address: neighbour });
        let destination = link_address(Resolution::from(known), neighbour)?;
        if let Some(out) = self.router.ports.get(hop.port) {
            self.steps.push(LookupStep::Link { source: out.settings.mac, destination, neighbour });
        }
        Ok(())
    }

    fn note_length(&mut self, hop: &NextHop) {
        let length = self.question.length;
        if let Some(out) = self.router.ports.get(hop.port).filter(|out| length > out.settings.mtu) {
            self.steps.push(LookupStep::Fragmented { port: hop.port, length, mtu: out.settings.mtu });
        }
    }

    /// Returns the verdict that corresponds to a fate, as the dispose stage would carry it out.
    fn end(&mut self, fate: Fate) -> Verdict {
        match fate {
            Fate::Drop(reason) => Verdict::Dropped(reason),
            Fate::Refuse(error, reason) => self.refuse(error, reason),
            Fate::Host => Verdict::Host,
            Fate::Own => self.deliver(),
            Fate::Hold(address) => {
                let key = NeighbourKey { port: self.example.out_port, address };
                match self.is_given_up(key) {
                    true => self.refuse(IcmpError::HostUnreachable, DropReason::NeighbourFailed),
                    false => Verdict::Held(key.port, address),
                }
            }
            // Only calls of instances lead to the other fates, and a lookup makes none.
            Fate::Forward
            | Fate::Queue
            | Fate::Resume
            | Fate::Consumed
            | Fate::Kept(_)
            | Fate::Again
            | Fate::HandOver(_) => self.send(),
        }
    }

    fn send(&mut self) -> Verdict {
        let (port, queue): (_, QueueId) = (self.example.out_port, self.example.queue);
        self.steps.push(LookupStep::Queued { port, queue });
        Verdict::Sent(port)
    }

    fn refuse(&mut self, error: IcmpError, reason: DropReason) -> Verdict {
        let Router { ports, forwarding, options, .. } = self.router;
        let sender = ErrorTables { ports, forwarding, options }.sender(&self.example, &error);
        self.steps.push(LookupStep::Refused { error, sender });
        match sender {
            ErrorSender::Kernel => Verdict::Host,
            ErrorSender::Router(_) | ErrorSender::Nobody => Verdict::Dropped(reason),
        }
    }

    /// Returns the verdict for a packet that the own stack gets.
    fn deliver(&mut self) -> Verdict {
        let entry = self.router.ports.get(self.example.port);
        let Some(entry) = entry else { return Verdict::Dropped(DropReason::PortDown) };
        match service_for(self.ether_type(), self.example.network(), entry) {
            Ok(_) | Err(Outcome::Delivered) => Verdict::Own,
            Err(Outcome::Dropped(reason)) => Verdict::Dropped(reason),
            Err(Outcome::Refused(error)) => self.refuse(error, DropReason::LocalUnknown),
        }
    }

    /// Returns whether the own stack has stopped trying to resolve a neighbour.
    fn is_given_up(&self, key: NeighbourKey) -> bool {
        let (entry, handover) = (self.router.ports.get(key.port), self.router.handover.as_deref());
        let is_ours = entry.is_none_or(|entry| !asks_control(entry, handover));
        is_ours && self.router.punt.own.resolver.expected(key) == Some(Solicited::Failed)
    }
}
