//! Invalidation of flow records and offloaded flows by commands.
//!
//! A command declares its [`Invalidation`] in a method with an exhaustive match, and the worker records it
//! here before it carries the command out. A new command can't leave stale flows: without a declaration it
//! does not compile. A change in the change log makes flow records stale, and flow cache entries too, because
//! the generation of the flow cache includes that of the log.
//!
//! Two changes happen without a command, and are recorded where they happen. The first is a new MAC address
//! of a neighbour at a port without a kernel stack ([`OffloadedFlows::neighbour_moved`]). The second is the
//! replacement of an instance that had to wait for the end of a call
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
    /// Entries of all flows. Flow records stay valid.
    Entries,
    /// Records and entries of all flows.
    Records,
    /// Records and entries of flows whose source or destination shares an address region with one of these
    /// prefixes. The change log records route changes by region, a block of addresses.
    Prefixes(&'a [RouteChange]),
    /// Entries of all flows, but only if some entry uses one of these routes.
    Routes(&'a [(NextHopIndex, Route)]),
    /// Entries of all flows, if the command changes the MAC address of a neighbour that some entry uses.
    /// [`OffloadedFlows::neighbour_moved`] records this when the address changes.
    Neighbours,
    /// Records and entries of flows that the filters of these bindings may match. If a change is a
    /// quarantine: entries of all flows.
    Plugins(&'a [PluginChange<Published>]),
}

impl Invalidation<'_> {
    /// Records the invalidation and publishes it to the flow cache, before the worker carries out and answers
    /// the command. `offload`: the offloaded flows, if the router has an offload.
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
                // Changes of routes that no entry uses are ignored.
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
        PluginChange::Bind { filter, .. }
        | PluginChange::Unbind { filter, .. }
        | PluginChange::Rebind { filter, .. } => {
            filter.filter.alternatives().iter().for_each(|filter| changes.filter_changed(*filter));
        }
        PluginChange::Quarantine { .. } => end_entries(offload),
        // Control adds instances and gates before their bindings, and removes them after their bindings.
        PluginChange::GiveStates { .. }
        | PluginChange::AddInstance { .. }
        | PluginChange::AddContext { .. }
        | PluginChange::RemoveInstance { .. } => {}
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
