//! Commands to workers: at the start, and after changes of plugins, gates and filter tables.

use millrace_pipeline::{Command, FilterCommand, FlowCommand, GateTables, NeighbourCommand, PluginCommand};
use millrace_units::GateId;

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
    let plugins = plugin_commands(&model.plugins, tables, model.plugins.populate()?, workers)?;
    let neighbours: Vec<_> =
        model.neighbours.iter().map(|one| model.known_for_good(one)).collect::<Result<_, _>>()?;
    let neighbours = all(workers, || NeighbourCommand::Set(neighbours.clone()));
    let reserved = model.reserved_flows();
    let reserved = all(workers, || FlowCommand::Reserve(reserved.clone()));
    Ok(vec![options, plugins, neighbours, reserved])
}

/// Returns the same command once for each worker.
fn all<C: Into<Command>>(workers: usize, command: impl Fn() -> C) -> Vec<Command> {
    (0..workers).map(|_| command().into()).collect()
}

/// Returns the commands that make plugin changes, one for each worker. Each worker gets instances of its own.
pub(crate) fn plugin_commands(
    plugins: &Plugins,
    tables: &mut GateTables,
    changes: Vec<PluginChange>,
    workers: usize,
) -> Result<Vec<Command>, ControlError> {
    let further: Vec<_> = (0..workers - 1)
        .map(|worker| plugins.instance_registry().further(&changes, worker))
        .collect::<Result<_, _>>()?;
    let changes = tables.publish(changes);
    let mut commands = Vec::new();
    for instances in further {
        let mut instances = instances.into_iter();
        let again = changes.iter().filter_map(|change| change.again(&mut instances));
        commands.push(PluginCommand::Change(again.collect()).into());
    }
    commands.push(PluginCommand::Change(changes).into());
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
