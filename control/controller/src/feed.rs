//! What a worker is told at its start, and in which pieces.

use millrace_pipeline::{Command, GateTables};

use crate::ControlError;
use crate::model::Model;

/// The commands that make a worker the planned router, devices, ports and routes left out.
pub(crate) fn start_commands(model: &Model, tables: &mut GateTables) -> Result<Vec<Command>, ControlError> {
    let mut commands = vec![Command::SetOptions(model.options.clone())];
    for (gate, kind) in &model.gate_tables {
        tables.set_kind(*gate, *kind);
    }
    commands.push(Command::Plugins(tables.publish(model.plugins.populate()?)));
    commands.push(Command::SetNeighbours(model.neighbours.clone()));
    Ok(commands)
}

/// The router's own routes, as changes of a table that has none of them.
pub(crate) fn own_routes(model: &Model) -> Vec<(ipnet::IpNet, Option<millrace_forward::Route>)> {
    model.own_routes.iter().map(|(prefix, route)| (*prefix, Some(route.clone()))).collect()
}
