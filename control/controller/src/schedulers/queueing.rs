//! State of schedulers beside their settings: measured rates of nodes, and flows whose settings were removed.

use std::collections::{HashSet, VecDeque};

use millrace_config::{Fate, Fates, FlowQueue, Scheduler, SchedulerNode};
use millrace_packet::FlowKey;
use millrace_pipeline::thread;
use millrace_telemetry::Rate;

use super::view::rate_key;
use crate::model::Model;
use crate::model::packets::parse_packet;

/// Maximum number of remembered flows whose settings were removed.
const MOST_FORMER: usize = 1024;

/// Rates of scheduler nodes, and flows whose settings were removed.
pub(crate) struct Queueing {
    /// Measured rates of scheduler nodes, beginning when each node was added.
    pub rates: Rate,
    /// Flows whose settings were removed, the latest first. The queue of such a flow may still exist, and a
    /// view of the queue needs the flow key.
    pub former_flows: VecDeque<FlowKey>,
}

impl Default for Queueing {
    fn default() -> Self {
        Self { rates: Rate::since(thread::now()), former_flows: VecDeque::new() }
    }
}

impl Queueing {
    /// Remembers the flows whose settings were removed.
    pub fn remember_flows(&mut self, model: &Model, before: &[FlowQueue], after: &[FlowQueue]) {
        let left: HashSet<_> = after.iter().map(FlowQueue::of_queue).collect();
        for own in before.iter().filter(|own| !left.contains(&own.of_queue())) {
            if let Ok(packet) = parse_packet(&own.flow, model) {
                self.add_former(*packet.key());
            }
        }
    }

    fn add_former(&mut self, key: FlowKey) {
        self.former_flows.retain(|known| *known != key);
        self.former_flows.truncate(MOST_FORMER - 1);
        self.former_flows.push_front(key);
    }

    /// Starts to measure the rates of new nodes. Forgets the rates of removed nodes, because a new node may
    /// have the same name.
    pub fn begin_rates(&mut self, port: &str, fates: &Fates<'_>, before: &Scheduler, after: &Scheduler) {
        let is_other = |node: &&SchedulerNode| fates.get(&node.name) == Fate::Goes;
        for gone in before.node.iter().filter(is_other) {
            self.rates.forget(&rate_key(port, &gone.name));
        }
        let now = thread::now();
        for new in after.node.iter().filter(is_other) {
            self.rates.begin(&rate_key(port, &new.name), now);
        }
    }
}

#[cfg(test)]
mod tests {
    use millrace_units::PortId;

    use super::*;

    #[test]
    fn no_more_flows_are_remembered_than_there_is_room_for() {
        let key =
            |number: u16| FlowKey::v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 17, (number, 9), PortId(0));
        let mut queueing = Queueing::default();
        for number in [0..1500, 1490..1500].into_iter().flatten() {
            queueing.add_former(key(number));
        }
        let former = &queueing.former_flows;
        assert_eq!((former.len(), former[0], former[1023]), (1024, key(1499), key(476)));
    }
}
