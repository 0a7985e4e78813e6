//! Upkeep of the flow table and of connections: expiry and growth, marks of reserved flows, and reports of ended flows
//! and connections to instances.

use std::time::Duration;

use millrace_plugin::ConnectionKeepers;
use millrace_plugin_abi::FlowEnd;
use millrace_units::Instant;

use super::Classification;
use crate::gates::Gates;

/// Maximum number of flow records that the upkeep of the flow table (expiry and growth) visits per batch.
const UPKEEP: usize = 64;
/// Maximum number of flow records that the upkeep visits in an iteration without packets.
const IDLE_UPKEEP: usize = 1024;
/// Interval of the flow table's upkeep while no packets arrive.
const UPKEEP_INTERVAL: Duration = Duration::from_millis(250);

impl Classification<'_> {
    /// Ends connections whose idle time is over, and notifies plugins.
    fn keep_connections(&mut self, now: Instant, idle: bool) {
        let Gates { connections: Some(connections), .. } = &mut *self.gates else { return };
        let Some(mut steps) = connections.begin_upkeep(now, idle) else { return };
        while let Some(connections) = &mut self.gates.connections
            && let Some(ended) = connections.expire(now, &mut steps)
        {
            ConnectionKeepers::of(self.gates.plugins_mut()).ended(&ended);
        }
    }

    /// Expires idle flows and connections, grows the table, and notifies plugins of ended flows. `idle`: the worker has no
    /// packets.
    pub fn keep_flows(&mut self, now: Instant, idle: bool) {
        self.keep_connections(now, idle);
        let classifier = &mut *self.classifier;
        classifier.reserved.mark(&mut classifier.flows, self.seed);
        if idle && classifier.upkeep.is_some_and(|upkeep| upkeep > now) {
            return;
        }
        let more = classifier.flows.maintain(now, if idle { IDLE_UPKEEP } else { UPKEEP });
        classifier.upkeep = Some(if more { now } else { now + UPKEEP_INTERVAL });
        while let Some(removed) = self.classifier.flows.pop_removed() {
            if removed.state != 0 || self.gates.plugins().paths.hears_flow_ends(removed.answer.path) {
                let end = FlowEnd { key: removed.key, packets: removed.packets, bytes: removed.bytes };
                self.gates.plugins_mut().flow_ended(removed.answer.path, &end, removed.state);
            }
            self.gates.plugins_mut().paths.release(removed.answer.path);
        }
        let waiting = self.pending.for_processor.get().into_iter().flat_map(|waiting| waiting.paths());
        self.gates.plugins_mut().collect_paths(waiting, now);
    }
}
