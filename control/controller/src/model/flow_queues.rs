//! Scheduler settings of single flows, and the scheduler changes that put them in force.

use std::collections::{HashMap, HashSet};

use millrace_config::{Bits, FlowQueue, QueueSize, SchedulerKind};
use millrace_packet::FlowKey;
use millrace_pipeline::{FlowTreatment, ScheduleChange};
use millrace_schedule::Rate;
use millrace_units::PortId;

use crate::ControlError;
use crate::model::Model;
use crate::model::packets::parse_packet;

/// Returns the treatment of a flow with these settings.
pub(crate) fn treatment(said: Option<&FlowQueue>) -> FlowTreatment {
    match said {
        None => FlowTreatment::Common,
        Some(FlowQueue { rate: Some(Bits(bits)), threshold, .. }) => {
            FlowTreatment::Reserved(Rate(*bits), threshold.map(QueueSize::bytes_u32))
        }
        Some(FlowQueue { quantum, threshold, .. }) => {
            let bytes = |size: &Option<QueueSize>| size.map(QueueSize::bytes_u32);
            FlowTreatment::BestEffort(bytes(quantum).unwrap_or(0), bytes(threshold))
        }
    }
}

impl Model {
    /// Returns the flows with a reserved rate, at all ports.
    pub(crate) fn reserved_flows(&self) -> Vec<FlowKey> {
        let reserved = self.schedulers.flows().filter(|flow| flow.rate.is_some());
        // The stored texts were parsed before, so parsing succeeds.
        reserved.filter_map(|flow| parse_packet(&flow.flow, self).ok()).map(|packet| *packet.key()).collect()
    }

    /// Returns the changes that create the schedulers of all ports, including the settings of single flows.
    pub(crate) fn begin_schedulers(&self) -> Result<Vec<(PortId, Vec<ScheduleChange>)>, ControlError> {
        let mut all = Vec::new();
        for (port, mut changes) in self.schedulers.begin()? {
            let flows = self.schedulers.of(port).map_or(&[][..], |own| &own.flow);
            changes.extend(self.flow_changes(self.port_name(port), &[], flows)?);
            all.push((port, changes));
        }
        Ok(all)
    }

    /// Returns the scheduler change that sets all settings of a flow. The settings `None` mean the defaults.
    pub(crate) fn flow_change(
        &self,
        port: &str,
        queue: &str,
        flow: &str,
        said: Option<&FlowQueue>,
    ) -> Result<ScheduleChange, ControlError> {
        let id = self.port(port)?.id;
        let (leaf, node) = self.schedulers.leaf(id, port, queue)?;
        let key = *parse_packet(flow, self)?.key();
        if node.kind != SchedulerKind::FlowQueues {
            return Err(ControlError::invalid(format!(
                "queue {queue:?} is a {}, and only flow-queues has a queue for each flow: leave out the flow",
                node.kind.name()
            )));
        }
        if said.is_some_and(|said| said.rate.is_some()) && node.rate.is_none() {
            return Err(ControlError::invalid(format!(
                "queue {queue:?} has no rate, so none can be reserved for a flow: set the rate of the queue first with \
                 `queue set {port} {queue} rate=RATE`"
            )));
        }
        Ok(ScheduleChange::Flow(leaf, key, treatment(said)))
    }

    /// Returns the changes that turn the flow settings `before` of a port's scheduler into `after`. The
    /// leaves that `after` names must exist.
    pub fn flow_changes(
        &self,
        port: &str,
        before: &[FlowQueue],
        after: &[FlowQueue],
    ) -> Result<Vec<ScheduleChange>, ControlError> {
        let left: HashSet<_> = after.iter().map(FlowQueue::of_queue).collect();
        let gone = before.iter().filter(|own| !left.contains(&own.of_queue()));
        // If a leaf was removed, its flow settings are gone with it.
        let released = gone.filter_map(|own| self.flow_change(port, &own.queue, &own.flow, None).ok());
        let there: HashMap<_, _> = before.iter().map(|own| (own.of_queue(), own)).collect();
        let new = after.iter().filter(|own| there.get(&own.of_queue()) != Some(own));
        let set = new.map(|own| self.flow_change(port, &own.queue, &own.flow, Some(own)));
        released.map(Ok).chain(set).collect()
    }
}
