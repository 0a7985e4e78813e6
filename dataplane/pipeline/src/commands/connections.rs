//! Commands to the connections of a worker.

use millrace_connection::ConnectionTable;
use millrace_units::Instant;

use super::{ReplyTo, answer};
use crate::connections::{ConnectionPage, ConnectionScan};
use crate::offloaded_flows::Invalidation;
use crate::router::Router;

/// Command to the connections of a worker.
#[derive(Debug)]
pub enum ConnectionCommand {
    /// Gives the worker an empty table, before the first instance whose state belongs to connections. A worker with a
    /// table keeps it.
    Begin(Box<ConnectionTable>),
    /// Asks for the connections in a bounded part of the table.
    Scan(ConnectionScan, ReplyTo<ConnectionPage>),
}

impl ConnectionCommand {
    pub(super) fn invalidation(&self) -> Invalidation<'_> {
        match self {
            Self::Begin(_) | Self::Scan(..) => Invalidation::Nothing,
        }
    }

    /// Carries out the command.
    pub(crate) fn carry_out(self, router: &mut Router, now: Instant) {
        match self {
            Self::Begin(table) => router.gates.begin_connections(table, now),
            Self::Scan(scan, reply) => {
                let connections = router.gates.connections.as_deref();
                let page = connections.map(|connections| scan.run(connections, now));
                answer(&reply, page.unwrap_or_default());
            }
        }
    }
}
