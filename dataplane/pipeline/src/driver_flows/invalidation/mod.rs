//! Invalidation of flow records and offloaded flows by commands.
//!
//! A command declares its [`Invalidation`] by a method with an exhaustive match, and the worker records it
//! here before the command takes effect. So a new command can't leave stale flows: without a declaration it
//! does not compile. A flow record goes stale with its generation in the change log; its entry in the flow
//! cache goes stale as well, for the generation of the cache includes that of the log.
//!
//! Two things change without a command and are recorded where they change: neighbours of ports without a
//! kernel ([`Router::neighbour_moved`]), and instances whose replacement waits for the end of a call
//! ([`Router::after_succession`]).

use millrace_forward::Route;
use millrace_plugin::PluginChange;
use millrace_units::NextHopIndex;

use super::DriverFlows;
use crate::forward::changes::RouteChange;
use crate::gate_tables::Published;
use crate::router::Router;

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
    /// [`Router::neighbour_moved`] records it with that change.
    Neighbours,
    /// Records and entries of flows that the filters of these bindings may match; entries of all flows, if a
    /// change is a quarantine.
    Plugins(&'a [PluginChange<Published>]),
}

impl Router {
    /// Records an invalidation and publishes it to the flow cache, before the command that declares it is
    /// carried out and answered.
    pub(crate) fn invalidate(&mut self, invalidation: Invalidation<'_>) {
        let changes = &mut self.classifier.changes;
        match invalidation {
            Invalidation::Nothing | Invalidation::Neighbours => {}
            Invalidation::Entries => self.end_entries(),
            Invalidation::Records => changes.everything_changed(),
            Invalidation::Prefixes(prefixes) => {
                changes.begin_routes();
                prefixes.iter().for_each(|change| changes.route_changed(change.prefix));
            }
            Invalidation::Routes(routes) => {
                // Only routes used by an entry matter.
                let has_one =
                    |driver: &DriverFlows| routes.iter().any(|(route, _)| driver.uses.route(*route));
                if self.driver.as_deref().is_some_and(has_one) {
                    self.end_entries();
                }
            }
            Invalidation::Plugins(changes) => changes.iter().for_each(|change| self.record_plugin(change)),
        }
        self.publish_generation();
    }

    /// Records a change of instances, gates or bindings.
    fn record_plugin(&mut self, change: &PluginChange<Published>) {
        match change {
            PluginChange::Bind { filter, .. } | PluginChange::Unbind { filter, .. } => {
                let changes = &mut self.classifier.changes;
                filter.filter.alternatives().iter().for_each(|filter| changes.filter_changed(*filter));
            }
            PluginChange::Quarantine { .. } => self.end_entries(),
            // A new instance or gate has no bindings yet, and a removed one has none any more.
            PluginChange::AddInstance { .. } | PluginChange::RemoveInstance { .. } => {}
            PluginChange::AddGate { .. } | PluginChange::RemoveGate { .. } => {}
        }
    }

    /// Invalidates the flow cache entries of all flows; flow records stay valid.
    fn end_entries(&mut self) {
        if let Some(driver) = &mut self.driver {
            driver.other_change();
        }
    }
}

#[cfg(test)]
mod tests;
