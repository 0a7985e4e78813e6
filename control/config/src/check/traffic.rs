//! Checks of routes, gates, bindings, filters and placements.

use std::collections::HashSet;
use std::net::IpAddr;
use std::ops::Range;

use millrace_classify::FilterExpression;
use millrace_units::{Message, count, here};

use super::{At, Checked, Checker, MOST_PLACED_COMPARISONS, MOST_PLACEMENTS, is_default};
use crate::schema::{
    Bind, Config, Filter, Gate, GateTable, Instance, OnDeath, Placeable, Placement, Port, PortKind, Route,
    RouteKind,
};
use crate::values::Text;

impl Checker<'_> {
    pub(super) fn routes(&self) {
        let mut seen = HashSet::new();
        for (index, route) in self.config.route.iter().enumerate() {
            self.at("route", Some(index)).note(self.route(route));
            self.note(self.require(seen.insert(route.to.value()), route.to.span(), || {
                format!(
                    "route {} is given twice: for several next hops, write one route with a list in `via`",
                    route.to.value()
                )
            }));
        }
    }

    fn route(&self, route: &Route) -> Checked {
        route.port.as_ref().map_or(Ok(()), |port| self.known("port", port))?;
        route.check().map_err(|problem| (route.to.span(), problem.into()))
    }

    pub(super) fn service(&self, instance: &Instance) -> Checked {
        // With faulty router settings, the number of workers is unknown.
        let workers = match self.left_out.is_wrong("router") {
            true => usize::MAX,
            false => self.config.router.workers,
        };
        let problem = instance.service.and_then(|service| service.worker_problem(workers));
        self.require(problem.is_none(), instance.name.span(), || {
            format!("instance {:?}: {}", &*instance.name, problem.unwrap_or_default())
        })
    }

    pub(super) fn gate(&self, gate: &Gate) -> Checked {
        let (name, span) = (&*gate.name, gate.name.span());
        match (&gate.position, is_default(name)) {
            (None, false) => Err((
                span,
                format!("gate {name:?} needs a `position`: early, route, late, queue or copy").into(),
            )),
            (Some(_), true) => {
                Err((span, format!("gate {name:?} is a default gate: remove its `position`").into()))
            }
            (None, true) => self.require(gate.table != GateTable::Auto, span, || {
                format!("gate {name:?} is a default gate: set its `table`, or remove this entry")
            }),
            (Some(_), false) => Ok(()),
        }
    }

    pub(super) fn binding(&self, bind: &Bind) -> Checked {
        self.known("instance", &bind.instance)?;
        self.known("gate", &bind.gate)?;
        bind.principal.as_ref().map_or(Ok(()), |principal| self.known("principal", principal))?;
        let named = || Message::from(format!("binding of instance {:?}: ", &*bind.instance));
        Bind::stage_queue(bind.queue, bind.queue_weight)
            .map_err(|problem| (bind.instance.span(), named().append(problem)))?;
        self.incoming(&bind.filter)
    }

    /// Checks that the ingress ports in a filter exist.
    fn incoming(&self, filter: &Text<FilterExpression>) -> Checked {
        let wrong = |(span, problem)| {
            (span, Message::from(format!("filter {:?}: ", filter.written())).append(problem))
        };
        let ports = filter.value().alternatives().iter().filter_map(millrace_classify::Filter::incoming);
        self.incoming_at(filter.span(), ports).map_err(wrong)
    }

    fn incoming_at<'a>(
        &self,
        span: Option<Range<usize>>,
        mut ports: impl Iterator<Item = &'a str>,
    ) -> Checked {
        ports.try_for_each(|port| self.known_at(span.clone(), "port", port))
    }

    pub(super) fn filter(&self, filter: &Filter) -> Checked {
        self.require(!filter.r#match.written().trim().is_empty(), filter.r#match.span(), || {
            "the filter is empty: to match all packets, write \"*\"".to_owned()
        })?;
        self.incoming(&filter.r#match)?;
        let (span, action) = (|| filter.action.span(), filter.action.value());
        action.ways().iter().try_for_each(|way| self.known_at(span(), "port", &way.port))?;
        if let Some(instance) = action.instance() {
            self.known_at(span(), "instance", instance)?;
        }
        if let Some(principal) = filter.named_principal() {
            self.known_at(span(), "principal", principal)?;
        }
        match &filter.gate {
            Some(gate) => self.known("gate", gate),
            None => self.require(action.default_gate().is_some(), span(), || {
                let (action, gates) = (filter.action.written(), here("gate", self.names("gate")));
                format!("a filter with the action {action:?} needs a gate; {gates}")
            }),
        }
    }

    pub(super) fn places(&self) {
        let places = &self.config.place;
        self.at("place", Some(MOST_PLACEMENTS));
        let beyond = At::Entry("place", MOST_PLACEMENTS, &[]);
        self.note(self.require(places.len() <= MOST_PLACEMENTS, beyond, || {
            format!("{} exceed the limit {MOST_PLACEMENTS}: remove some", count(places.len(), "placement"))
        }));
        let mut comparisons = 0;
        for (index, place) in places.iter().enumerate().take(MOST_PLACEMENTS) {
            let before = comparisons;
            comparisons += place.flow.value().comparisons();
            let is_full = comparisons > MOST_PLACED_COMPARISONS && before <= MOST_PLACED_COMPARISONS;
            let checks = self.at("place", Some(index));
            checks.note(self.place(place, &places[..index]));
            checks.note(self.require(!is_full, place.flow.span(), || {
                format!(
                    "this placement and the ones before it take {} per flow, and the limit is \
                     {MOST_PLACED_COMPARISONS}: write wider prefixes or ranges, or fewer `not`",
                    count(comparisons, "comparison")
                )
            }));
        }
    }

    fn place(&self, place: &Placement, before: &[Placement]) -> Checked {
        let (span, written) = (|| place.flow.span(), place.flow.written());
        self.require(!written.trim().is_empty(), span(), || {
            "the filter is empty: to match all flows, write \"*\"".to_owned()
        })?;
        let same = before.iter().any(|other| other.flow.value() == place.flow.value());
        self.require(!same, span(), || format!("placement {written:?} is given twice: remove one"))?;
        let known = match place.flow.value() {
            Placeable::Flows(filter) => self.incoming_at(span(), filter.incoming()),
            Placeable::Instance(name) => self.known_at(span(), "instance", name),
        };
        known.map_err(|(span, problem)| {
            (span, Message::from(format!("placement {written:?}: ")).append(problem))
        })
    }

    /// Checks that a configuration with bindings or filters sets `on-death`, because the kernel ignores
    /// bindings and filters.
    pub(super) fn death(&self) -> Checked {
        let config = self.config;
        let binding = config.bind.first().map(|bind| ("bindings need", bind.instance.span()));
        let filter = config.filter.first().map(|filter| ("filters need", filter.r#match.span()));
        let Some((need, span)) = binding.or(filter) else { return Ok(()) };
        let is_set = config.router.on_death.is_some() || self.left_out.is_wrong("router");
        match config.silent_on_death().filter(|_| !is_set) {
            Some(port) => {
                let port = &*port.name;
                let problem = Message::from(need)
                    .text(" ")
                    .key("on-death")
                    .text(format!(
                        " for port {port:?}, because the kernel ignores them after the router's death: set "
                    ))
                    .key("on-death")
                    .text(" = \"kernel\" or \"drop\" in [router] or at the port");
                Err((span, problem))
            }
            None => Ok(()),
        }
    }
}

impl Route {
    /// Checks that the route is complete and consistent.
    ///
    /// # Errors
    /// The problem and its remedy.
    pub fn check(&self) -> Result<(), String> {
        let (to, written) = (self.to.value(), self.to.written());
        if to.trunc() != *to {
            return Err(format!("route {written:?} has host bits set: write {}", to.trunc()));
        }
        if self.kind == RouteKind::Forward && self.via.is_empty() && self.port.is_none() {
            return Err(format!(
                "route {written:?} has no next hop and no port: name its next hop with `via`, or its `port`"
            ));
        }
        if self.kind != RouteKind::Forward
            && let Some(said) = self.via.first().map(|_| "via").or(self.port.as_ref().map(|_| "port"))
        {
            let kind = self.kind.name();
            return Err(format!("route {written:?}: kind {kind} takes no next hop or port: remove `{said}`"));
        }
        if let Some(via) = self.via.iter().find(|via| is_link_local(via)).filter(|_| self.port.is_none()) {
            return Err(format!(
                "route {written:?}: next hop {via} is link-local, so the route needs its port: set `port`"
            ));
        }
        if to.addr().is_ipv6() && self.via.iter().any(|via| via.is_ipv4()) {
            return Err(format!("route {written:?}: an IPv6 prefix needs IPv6 next hops"));
        }
        Ok(())
    }
}

fn is_link_local(address: &IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

impl Config {
    /// Returns the first port that has a kernel device but sets no `on-death`. Ignores sub-interfaces.
    pub(crate) fn silent_on_death(&self) -> Option<&Port> {
        let device = |port: &&Port| port.kind == PortKind::Device && port.vlan.is_none();
        self.port.iter().filter(device).find(|port| port.on_death.is_none())
    }

    /// Returns the treatment of a port's packets after the router has died.
    pub fn on_death(&self, port: &Port) -> OnDeath {
        port.on_death.or(self.router.on_death).unwrap_or(OnDeath::Kernel)
    }
}
