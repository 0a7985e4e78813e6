//! What a worker is told at its start, and in which pieces.

use millrace_pipeline::{Command, GateTables};

use crate::ControlError;
use crate::model::Model;
use crate::routes::OwnRoutes;

/// Routes that a worker takes up between two batches: more would make packets wait.
pub(crate) const ROUTES_AT_ONCE: usize = 256;

/// The commands that make a worker the planned router, devices and ports left out.
pub(crate) fn start_commands(model: &Model, tables: &mut GateTables) -> Result<Vec<Command>, ControlError> {
    let mut commands = vec![Command::SetOptions(model.options.clone())];
    commands.push(Command::Plugins(tables.publish(model.plugins.populate()?)));
    commands.extend(own_routes(&model.own_routes));
    commands.push(Command::SetNeighbours(model.neighbours.clone()));
    Ok(commands)
}

fn own_routes(routes: &OwnRoutes) -> impl Iterator<Item = Command> {
    let changes: Vec<_> = routes.iter().map(|(prefix, route)| (*prefix, Some(route.clone()))).collect();
    in_pieces(changes).into_iter()
}

/// Route changes as commands.
pub(crate) fn in_pieces(changes: Vec<(ipnet::IpNet, Option<millrace_forward::Route>)>) -> Vec<Command> {
    changes.chunks(ROUTES_AT_ONCE).map(|piece| Command::SetRoutes(piece.to_vec())).collect()
}
