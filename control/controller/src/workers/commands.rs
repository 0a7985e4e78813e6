//! Commands to workers: at the start, and after changes of plugins, gates and filter tables.

use std::hash::{BuildHasher, Hasher, RandomState};

use millrace_connection::{ConnectionConfig, ConnectionTable, Timeouts};
use millrace_pipeline::{
    Command, ConnectionCommand, FilterCommand, FlowCommand, GateTables, NeighbourCommand, PluginCommand,
};
use millrace_plugin::ConnectionStates;
use millrace_plugin_abi::{Instance, StateScope};
use millrace_units::{GateId, InstanceId, Instant};

use crate::ControlError;
use crate::model::{Model, PluginChange, Plugins};

/// Returns the commands that configure the workers at the start, except for devices, ports, schedulers and
/// routes. Each inner list holds one command for each worker.
pub(crate) fn start_commands(
    model: &Model,
    tables: &mut GateTables,
    workers: usize,
) -> Result<Vec<Vec<Command>>, ControlError> {
    for (gate, kind) in &model.gate_tables {
        tables.set_kind(*gate, *kind);
    }
    let options = all(workers, || model.options.clone());
    let plugins = plugin_commands(model, tables, model.plugins.populate()?, workers)?;
    let neighbours: Vec<_> =
        model.neighbours.iter().map(|one| model.known_for_good(one)).collect::<Result<_, _>>()?;
    let neighbours = all(workers, || NeighbourCommand::Set(neighbours.clone()));
    let connections = connections(&model.fixed.connections, workers)?;
    let reserved = model.reserved_flows();
    let reserved = all(workers, || FlowCommand::Reserve(reserved.clone()));
    Ok(vec![options, connections, plugins, neighbours, reserved])
}

/// Returns the commands that give each worker its table of connections. An empty table takes hardly any memory: the kernel
/// allocates pages as connections come.
fn connections(config: &millrace_config::Connections, workers: usize) -> Result<Vec<Command>, ControlError> {
    let own = ConnectionConfig {
        maximum: connections_at_worker(config, workers),
        per_source: config.per_source,
        timeouts: timeouts(config),
        adopts: config.adopt,
        seed: RandomState::new().build_hasher().finish(),
    };
    let table = |_| match ConnectionTable::new(&own, Instant::ZERO) {
        Ok(table) => Ok(ConnectionCommand::Begin(Box::new(table)).into()),
        Err(error) => {
            Err(ControlError::System(format!("connections: {error}; lower `maximum` in [connections]")))
        }
    };
    (0..workers).map(table).collect()
}

/// Returns the idle times of connections.
fn timeouts(config: &millrace_config::Connections) -> Timeouts {
    Timeouts {
        opening: config.opening.duration(),
        established: config.established.duration(),
        closing: config.closing.duration(),
        closed: config.closed.duration(),
        udp_unanswered: config.udp_unanswered.duration(),
        udp: config.udp.duration(),
        query: config.icmp.duration(),
        other: config.other.duration(),
    }
}

/// Returns the maximum number of connections of each worker.
pub(crate) fn connections_at_worker(config: &millrace_config::Connections, workers: usize) -> u32 {
    config.maximum.div_ceil(workers as u32)
}

/// Maps the states of an instance at a worker that tracks up to `connections` connections. Returns the change that gives
/// them to the instance; `None` if its state does not belong to connections.
///
/// # Errors
/// The kernel has no memory.
pub(crate) fn states_for<F>(
    id: InstanceId,
    instance: &dyn Instance,
    connections: u32,
) -> Result<Option<millrace_plugin::PluginChange<F>>, ControlError> {
    if instance.state_scope() != StateScope::Connection {
        return Ok(None);
    }
    match ConnectionStates::new(instance.flow_state(), connections) {
        Ok(states) => Ok(Some(millrace_plugin::PluginChange::GiveStates { id, states })),
        Err(error) => Err(ControlError::System(format!(
            "{error}, for the states of {connections} connections at each worker; lower `maximum` in [connections]"
        ))),
    }
}

/// Adds to changes the states of the new instances whose state belongs to connections.
fn with_states<F>(
    changes: Vec<millrace_plugin::PluginChange<F>>,
    connections: u32,
) -> Result<Vec<millrace_plugin::PluginChange<F>>, ControlError> {
    let mut all = Vec::with_capacity(changes.len());
    for change in changes {
        if let millrace_plugin::PluginChange::AddInstance { id, instance } = &change {
            all.extend(states_for(*id, &**instance, connections)?);
        }
        all.push(change);
    }
    Ok(all)
}

/// Returns the same command once for each worker.
fn all<C: Into<Command>>(workers: usize, command: impl Fn() -> C) -> Vec<Command> {
    (0..workers).map(|_| command().into()).collect()
}

/// Returns the commands that make plugin changes, one for each worker. Each worker gets instances and states of its own.
pub(crate) fn plugin_commands(
    model: &Model,
    tables: &mut GateTables,
    changes: Vec<PluginChange>,
    workers: usize,
) -> Result<Vec<Command>, ControlError> {
    let connections = connections_at_worker(&model.fixed.connections, workers);
    let further: Vec<_> = (0..workers - 1)
        .map(|worker| model.plugins.instance_registry().further(&changes, worker))
        .collect::<Result<_, _>>()?;
    let changes = tables.publish(changes);
    let mut commands = Vec::new();
    for instances in further {
        let mut instances = instances.into_iter();
        let again = changes.iter().filter_map(|change| change.again(&mut instances));
        commands.push(PluginCommand::Change(with_states(again.collect(), connections)?).into());
    }
    commands.push(PluginCommand::Change(with_states(changes, connections)?).into());
    Ok(commands)
}

/// Links the filter tables of neighbouring gates after changes of their filters. Returns a command for each
/// table that changed.
pub(crate) fn links(
    plugins: &Plugins,
    tables: &mut GateTables,
) -> impl Iterator<Item = impl Fn() -> FilterCommand> {
    let order: Vec<GateId> = plugins.gates_in_order().iter().map(|gate| gate.id).collect();
    let linked = tables.link(&order).into_iter();
    linked.map(|(gate, table)| move || FilterCommand::SetTable(gate, table.clone()))
}

/// Returns the changes that add the routes that only the workers hold to an empty FIB.
pub(crate) fn own_routes(model: &Model) -> Vec<(ipnet::IpNet, Option<millrace_forward::Route>)> {
    model.own_routes.iter().map(|(prefix, route)| (prefix, Some(route.clone()))).collect()
}

#[cfg(test)]
mod tests {
    use millrace_plugin_abi::{Message, Packets, Progress, Reply};

    use super::*;

    #[test]
    fn idle_times_of_the_configuration_are_those_of_the_table_by_default() {
        assert_eq!(timeouts(&millrace_config::Connections::default()), Timeouts::default());
    }

    /// Instance with so many bytes of state.
    struct Keeps(usize);

    impl Instance for Keeps {
        fn process(&mut self, _packets: &mut Packets<'_>, _now: Instant) -> Progress {
            Progress::Done
        }

        fn control(&mut self, _message: &Message) -> Reply {
            Ok(Default::default())
        }

        fn flow_state(&self) -> usize {
            self.0
        }

        fn state_scope(&self) -> StateScope {
            StateScope::Connection
        }
    }

    #[test]
    fn instance_whose_states_have_no_memory_is_refused_with_the_remedy() {
        let id = InstanceId(1);
        let given = states_for::<()>(id, &Keeps(16), 8).unwrap();
        assert!(matches!(given, Some(millrace_plugin::PluginChange::GiveStates { id: InstanceId(1), .. })));
        let error = states_for::<()>(id, &Keeps(1 << 60), 1 << 20).unwrap_err().to_string();
        assert!(error.contains("connection states") && error.contains("lower `maximum`"), "{error}");
        let changes =
            vec![millrace_plugin::PluginChange::<()>::AddInstance { id, instance: Box::new(Keeps(8)) }];
        let changes = with_states(changes, 8).unwrap();
        assert_eq!(format!("{changes:?}"), "[give instance 1 states for connections, add instance 1]");
    }
}
