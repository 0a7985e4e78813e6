//! Invalidation of flow records and offloaded flows by commands.
//!
//! A command declares its [`Invalidation`] by a method with an exhaustive match, and the worker records it
//! here before the command takes effect. So a new command can't leave stale flows: without a declaration it
//! does not compile. A flow record goes stale with its generation in the change log; its entry in the flow
//! cache goes stale as well, for the generation of the cache includes that of the log.
//!
//! Two things change without a command and are recorded where they change: neighbours of ports without a
//! kernel ([`OffloadedFlows::neighbour_moved`]), and instances whose replacement waits for the end of a call
//! ([`Router::after_succession`](crate::router::Router::after_succession)).

use millrace_classify::ChangeLog;
use millrace_forward::Route;
use millrace_plugin::PluginChange;
use millrace_units::NextHopIndex;

use super::OffloadedFlows;
use crate::forward::changes::RouteChange;
use crate::gate_tables::Published;

/// Flow records and entries of the flow cache that a command makes stale.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Invalidation<'a> {
    /// No record or entry.
    Nothing,
    /// Entries of all flows; the records stay valid.
    Entries,
    /// Records and entries of all flows.
    Records,
    /// Records and entries of flows from or to the regions of these prefixes.
    Prefixes(&'a [RouteChange]),
    /// Entries of all flows, if a flow of one of these routes has an entry.
    Routes(&'a [(NextHopIndex, Route)]),
    /// Entries of all flows, if an entry uses a neighbour whose link address changes.
    /// [`OffloadedFlows::neighbour_moved`] records it with that change.
    Neighbours,
    /// Records and entries of flows that the filters of these bindings may match; entries of all flows, if a
    /// change is a quarantine.
    Plugins(&'a [PluginChange<Published>]),
}

impl Invalidation<'_> {
    /// Records the invalidation and publishes it to the flow cache, before the command that declares it is
    /// carried out and answered. `offload`: the offloaded flows, if the router has an offload.
    pub fn record(self, changes: &mut ChangeLog, mut offload: Option<&mut OffloadedFlows>) {
        match self {
            Self::Nothing | Self::Neighbours => {}
            Self::Entries => end_entries(offload.as_deref_mut()),
            Self::Records => changes.everything_changed(),
            Self::Prefixes(prefixes) => {
                changes.begin_routes();
                prefixes.iter().for_each(|change| changes.route_changed(change.prefix));
            }
            Self::Routes(routes) => {
                // Only routes used by an entry matter.
                let has_one = |offload: &&mut OffloadedFlows| {
                    routes.iter().any(|(route, _)| offload.uses.route(*route))
                };
                end_entries(offload.as_deref_mut().filter(has_one));
            }
            Self::Plugins(of_plugins) => {
                for change in of_plugins {
                    record_plugin(change, changes, offload.as_deref_mut());
                }
            }
        }
        if let Some(offload) = offload {
            offload.publish_generation(changes);
        }
    }
}

/// Records a change of instances, gates or bindings.
fn record_plugin(
    change: &PluginChange<Published>,
    changes: &mut ChangeLog,
    offload: Option<&mut OffloadedFlows>,
) {
    match change {
        PluginChange::Bind { filter, .. } | PluginChange::Unbind { filter, .. } => {
            filter.filter.alternatives().iter().for_each(|filter| changes.filter_changed(*filter));
        }
        PluginChange::Quarantine { .. } => end_entries(offload),
        // A new instance or gate has no bindings yet, and a removed one has none any more.
        PluginChange::AddInstance { .. } | PluginChange::RemoveInstance { .. } => {}
        PluginChange::AddGate { .. } | PluginChange::RemoveGate { .. } => {}
    }
}

/// Invalidates the flow cache entries of all flows; flow records stay valid.
fn end_entries(offload: Option<&mut OffloadedFlows>) {
    if let Some(offload) = offload {
        offload.other_change();
    }
}

#[cfg(test)]
mod tests;
