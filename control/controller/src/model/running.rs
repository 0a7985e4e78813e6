//! Running configuration, generated from the model.

use millrace_classify::prefix_match::PrefixMatchKind;
use millrace_config::{
    Bind, Bits, Budget, Config, Filter, FilterAction, Gate, GateTable, Instance, OnFault, Policing, Port,
    Text, WayOut,
};
use millrace_pipeline::{GateTables, TableKind};
use millrace_plugin::{Action, CallLimits, Policer, Way};
use millrace_plugin_abi::DEFAULT_GATES;
use millrace_units::{GateId, InstanceId};

use crate::ControlError;
use crate::model::placements::Placed;
use crate::model::principals::Owners;
use crate::model::{Bound, Model};

impl Model {
    /// Returns the running configuration in normal form.
    pub fn running(&self, tables: &GateTables) -> Config {
        self.as_written(tables).normalized()
    }

    /// Returns the running configuration before normalization.
    pub fn as_written(&self, tables: &GateTables) -> Config {
        let mut config = Config {
            router: self.router.clone(),
            control_plane: self.control_plane.clone(),
            connections: self.fixed.connections.clone(),
            admission: self.admission.clone(),
            port: self.ports.iter().map(|plan| running_port(self, plan)).collect(),
            route: self.routes.values().cloned().collect(),
            neighbour: self.neighbours.clone(),
            gate: self.plugins.gates_in_order().iter().map(|gate| running_gate(gate, tables)).collect(),
            plugins: self.fixed.plugins.clone(),
            api: self.fixed.api.clone(),
            plugin: self.files.iter().map(|(_, file)| file.clone()).collect(),
            instance: running_instances(self),
            bind: Vec::new(),
            filter: Vec::new(),
            place: self.placements.pinned.iter().map(Placed::written).collect(),
            principal: self.principals.clone(),
            origin: Default::default(),
        };
        for (_, bound) in self.plugins.bindings_by_age() {
            match bound.action {
                Action::Instance(id) => {
                    config.bind.push(running_bind(self, bound, self.plugins.instance_name(id)))
                }
                _ => config.filter.push(self.running_filter(bound)),
            }
        }
        config
    }

    pub(crate) fn running_filter(&self, bound: &Bound) -> Filter {
        Filter {
            r#match: Text::of(bound.filter.clone()),
            action: Text::of(written_action(self, &bound.action)),
            gate: Some(self.plugins.gate_name(bound.gate).into()),
            priority: bound.priority,
        }
    }
}

fn written_action(model: &Model, action: &Action) -> FilterAction {
    let ways = |ways: &[Way]| {
        let way = |way: &Way| WayOut { port: model.port_name(way.port).to_owned(), via: way.via };
        ways.iter().map(way).collect()
    };
    match action {
        Action::Instance(id) => FilterAction::Instance(model.plugins.instance_name(*id).to_owned()),
        Action::Drop => FilterAction::Drop,
        Action::Accept => FilterAction::Accept,
        Action::Reject => FilterAction::Reject,
        Action::Host => FilterAction::Host,
        Action::Send(to) => FilterAction::Ports(ways(to)),
        Action::Copy(to) => FilterAction::CopyTo(ways(to)),
        Action::Queue(queue) => FilterAction::Queue(model.schedulers.name(*queue).to_owned()),
        Action::Police(policer) => FilterAction::Police(policing(policer)),
        Action::Principal(principal) => {
            FilterAction::Principal(model.principal_ids.name(*principal).to_owned())
        }
    }
}

pub(crate) fn running_bind(model: &Model, bound: &Bound, instance: &str) -> Bind {
    let CallLimits { on_fault, call, packet, queue, .. } = bound.call_limits;
    // The call limits of a binding are always within the range of the configured value, so clamping changes
    // nothing.
    let budget = |time: std::time::Duration| Some(Budget::clamped(time.as_micros() as u64));
    Bind {
        instance: instance.into(),
        gate: model.plugins.gate_name(bound.gate).into(),
        filter: Text::of(bound.filter.clone()),
        priority: bound.priority,
        on_fault: match on_fault {
            millrace_plugin::OnFault::Drop => OnFault::Drop,
            millrace_plugin::OnFault::Bypass => OnFault::Bypass,
        },
        principal: Owners(model).named(&bound.call_limits).map(Into::into),
        budget: budget(call),
        packet_budget: packet.and_then(budget),
        queue: queue.is_some(),
        queue_weight: queue.map(u32::from),
    }
}

/// Returns the instance of this name.
pub(crate) fn running_instance(model: &Model, name: &str) -> Result<Instance, ControlError> {
    let (id, plugin) = (model.plugins.instance(name)?, model.plugins.plugin_of(name)?.name());
    Ok(written_instance(model, id, name, plugin))
}

/// Sorts instances of a model: each comes after the instances that its settings name.
pub(crate) fn put_in_creation_order(model: &Model, instances: &mut [Instance]) {
    let places = model.plugins.instance_registry().creation_order().places();
    instances.sort_by_key(|instance| places.get(&*instance.name));
}

/// Returns all instances in the order in which they can be created.
fn running_instances(model: &Model) -> Vec<Instance> {
    let names = model.plugins.instance_names();
    let mut instances: Vec<_> =
        names.map(|(id, name, plugin)| written_instance(model, id, name, plugin)).collect();
    put_in_creation_order(model, &mut instances);
    instances
}

fn written_instance(model: &Model, id: InstanceId, name: &str, plugin: &str) -> Instance {
    let owner = model.placements.owners.get(name);
    Instance {
        plugin: plugin.into(),
        name: name.into(),
        settings: model.plugins.instance_registry().settings_of(id).cloned().unwrap_or_default(),
        service: model.placements.service(name).map(|placed| placed.service),
        owner: owner.map(|owner| owner.user.clone()),
        owner_role: owner.and_then(|owner| owner.role),
    }
}

fn running_port(model: &Model, plan: &crate::model::PortPlan) -> Port {
    Port { scheduler: model.schedulers.configured(plan.id), ..plan.config.clone() }
}

/// Returns rate and burst of a policer in the form of the configuration.
pub(crate) fn policing(policer: &Policer) -> Policing {
    Policing { rate: Bits(policer.rate()), burst: policer.burst() }
}

fn running_gate(gate: &millrace_plugin::Gate, tables: &GateTables) -> Gate {
    let usual = DEFAULT_GATES.iter().any(|(name, _)| *name == gate.name);
    Gate {
        name: gate.name.as_str().into(),
        position: (!usual).then(|| Text::of(gate.position)),
        table: gate_table(gate.id, tables),
    }
}

/// Returns the table kind of a gate in the form of the configuration.
pub(crate) fn gate_table(gate: GateId, tables: &GateTables) -> GateTable {
    written_table(tables.table(gate).map(|table| table.kind()).unwrap_or_default())
}

/// Returns a table kind in the form of the configuration.
pub(crate) fn written_table(kind: TableKind) -> GateTable {
    match kind {
        TableKind::Linear => GateTable::Linear,
        TableKind::TupleSpace => GateTable::TupleSpace,
        TableKind::CuttingTree => GateTable::CuttingTree,
        TableKind::Dag(PrefixMatchKind::BinarySearchOnLengths) => GateTable::Dag,
        TableKind::Dag(PrefixMatchKind::Patricia) => GateTable::DagPatricia,
        TableKind::Dag(PrefixMatchKind::TreeBitmap) => GateTable::DagTreeBitmap,
    }
}
