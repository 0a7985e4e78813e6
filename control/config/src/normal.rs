//! Normal form of configurations: equivalent configurations become equal.

use crate::schema::scheduler::Scheduler;
use crate::schema::{
    Bind, Config, Filter, Gate, GateTable, OnDeath, OnFault, Port, Principal, Router, Service, ServiceLevel,
};
use crate::values::action::FilterAction;
use crate::values::{Named, Text};

/// Default time limit of a call, in microseconds.
const USUAL_BUDGET: u64 = 100_000;

impl Config {
    /// Returns the configuration in normal form. Addresses, prefixes and filters have the router's spelling,
    /// implied settings are explicit, and defaults are left out.
    #[must_use]
    pub fn normalized(mut self) -> Self {
        self.router.on_death = self.router.on_death.or(Some(OnDeath::Kernel));
        self.port = self.port.into_iter().map(Port::normalized).collect();
        for route in &mut self.route {
            route.to = Text::of(*route.to.value());
        }
        for neighbour in &mut self.neighbour {
            neighbour.mac = Text::of(*neighbour.mac.value());
        }
        for instance in &mut self.instance {
            instance.service = instance.service.take().and_then(Service::normalized);
        }
        self.gate = self.gate.into_iter().filter_map(Gate::normalized).collect();
        self.bind = self.bind.into_iter().map(Bind::normalized).collect();
        let (bound, filters): (Vec<_>, Vec<_>) =
            self.filter.into_iter().map(Filter::normalized).partition(|filter| filter.bound().is_some());
        self.bind.extend(bound.iter().filter_map(Filter::bound));
        self.filter = filters;
        for place in &mut self.place {
            place.flow = Text::of(place.flow.value().clone());
        }
        for principal in &mut self.principal {
            principal.weight = principal.weight.filter(|weight| *weight != Principal::USUAL_WEIGHT);
            principal.queue = principal.queue.filter(|queue| queue.bytes() != Principal::USUAL_QUEUE);
        }
        self
    }
}

impl Port {
    fn normalized(mut self) -> Self {
        self.address = self.address.iter().map(|net| Text::of(*net.value())).collect();
        self.mac = self.mac.map(|mac| Text::of(*mac.value()));
        self.scheduler =
            self.scheduler.filter(|scheduler| !scheduler.node.is_empty()).map(Scheduler::normalized);
        self
    }
}

impl Scheduler {
    fn normalized(mut self) -> Self {
        self.flow.sort_by(|a, b| (&a.queue, &a.flow).cmp(&(&b.queue, &b.flow)));
        self
    }
}

impl Gate {
    /// Returns the gate in normal form; `None` if all its settings are defaults.
    fn normalized(mut self) -> Option<Self> {
        self.position = self.position.map(|position| Text::of(*position.value()));
        if self.table == GateTable::TupleSpace {
            self.table = GateTable::Auto;
        }
        Some(self).filter(|gate| gate.position.is_some() || gate.table != GateTable::Auto)
    }
}

impl Service {
    /// Returns the service in normal form; `None` if all its keys are defaults.
    fn normalized(mut self) -> Option<Self> {
        self.size = self.size.filter(|size| size.bytes() != Self::USUAL_SIZE);
        // A worker implies its level.
        self.level = self.level.filter(|level| self.worker.is_none() || *level != ServiceLevel::Worker);
        Some(self).filter(|service| *service != Self::default())
    }
}

impl Bind {
    fn normalized(mut self) -> Self {
        self.filter = Text::of(self.filter.value().clone());
        self.principal = self.principal.filter(|principal| **principal != *Principal::DEFAULT);
        self.budget = self.budget.filter(|budget| budget.microseconds() != USUAL_BUDGET);
        self.queue_weight = self.queue_weight.filter(|weight| *weight != Self::USUAL_QUEUE_WEIGHT);
        self
    }
}

impl Filter {
    fn normalized(mut self) -> Self {
        self.r#match = Text::of(self.r#match.value().clone());
        self.action = Text::of(self.action.value().clone());
        self.gate = self.gate.or_else(|| self.action.value().default_gate().map(Named::from));
        self
    }

    /// Returns the binding that is equivalent to the filter. Returns `None` unless the action passes packets,
    /// or copies, to an instance.
    fn bound(&self) -> Option<Bind> {
        let (FilterAction::Instance(instance) | FilterAction::Copy(instance)) = self.action.value() else {
            return None;
        };
        Some(Bind {
            instance: Named::from(instance.as_str()),
            gate: self.gate.clone()?,
            filter: self.r#match.clone(),
            priority: self.priority,
            on_fault: OnFault::default(),
            principal: None,
            budget: None,
            packet_budget: None,
            queue: false,
            queue_weight: None,
        })
    }
}

impl Router {
    /// Copies from `from` the settings that can't change while the router runs.
    pub(crate) fn keep_fixed(&mut self, from: &Self) {
        self.mode = from.mode;
        self.workers = from.workers;
        self.worker_processors.clone_from(&from.worker_processors);
        self.worker_policy = from.worker_policy;
        self.frames = from.frames;
        self.on_death = from.on_death;
        self.flows_max = from.flows_max;
        self.flow_idle = from.flow_idle;
        self.offloaded_flows = from.offloaded_flows;
    }
}
