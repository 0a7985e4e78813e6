//! Queues of ports and of single flows: their counters and settings.

use std::collections::HashMap;

use millrace_config::{Bits, FlowQueue, QueueSize, SchedulerKind};
use millrace_packet::FlowKey;
use millrace_pipeline::{FlowCommand, FlowQueueReport, ScheduleChange, SchedulerCommand};
use millrace_units::{Message, PortId, QueueId};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::ControlError;
use crate::model::Model;
use crate::model::packets::selector;
use crate::model::schedulers::tree::{NO_QUANTUM, same_queue};
use crate::request::reading::read_settings;
use crate::view::{FlowQueueView, QueueView, SchedulerNodeView, SchedulerView};
use crate::workers::{Workers, owner_of};

/// Changes of a flow's settings at a leaf. An omitted setting stays unchanged.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct FlowSettings {
    /// Quantum in bytes per round; `null` resets it to the default of all flows.
    #[serde(default, deserialize_with = "said")]
    quantum: Option<Option<QueueSize>>,
    /// Discard threshold in bytes; `null` resets it to the default of all flows.
    #[serde(default, deserialize_with = "said")]
    threshold: Option<Option<QueueSize>>,
    /// Reserved rate; `null` removes the reservation.
    #[serde(default, deserialize_with = "said")]
    rate: Option<Option<Bits>>,
}

/// Deserializes a setting that the request contains; its value may be `null`.
fn said<'de, T: Deserialize<'de>, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

impl FlowSettings {
    fn parse(changes: &Map<String, Value>) -> Result<Self, ControlError> {
        read_settings("the request", changes.clone()).map_err(|error| {
            let message = Message::from("flow queue: ").append(error.message());
            ControlError::invalid(message.text("; its settings are quantum, threshold and rate"))
        })
    }

    /// Returns the settings of a flow after the changes; `None` if all settings have their defaults. A new
    /// rate replaces the quantum, and a new quantum replaces the rate.
    fn after(
        self,
        before: Option<&FlowQueue>,
        queue: &str,
        flow: &str,
    ) -> Result<Option<FlowQueue>, ControlError> {
        let Self { rate, quantum, threshold } = self;
        if quantum.flatten().is_some_and(|quantum| quantum.bytes() == 0) {
            return Err(ControlError::invalid(format!("flow queue: {NO_QUANTUM}")));
        }
        let (has_rate, has_quantum) = (rate.flatten().is_some(), quantum.flatten().is_some());
        if has_rate && has_quantum {
            return Err(ControlError::invalid(
                "flow queue: the rate determines the quantum, so give either a rate or a quantum",
            ));
        }
        let (queue, flow) = (queue.to_owned(), flow.to_owned());
        let none = FlowQueue { queue, flow, rate: None, quantum: None, threshold: None };
        let before = before.unwrap_or(&none);
        let after = FlowQueue {
            rate: rate.unwrap_or(before.rate.filter(|_| !has_quantum)),
            quantum: quantum.unwrap_or(before.quantum.filter(|_| !has_rate)),
            threshold: threshold.unwrap_or(before.threshold),
            ..none.clone()
        };
        Ok(Some(after).filter(|after| *after != none))
    }
}

/// Returns the leaves of a scheduler as views of queues. The views omit the queues of single flows.
pub(crate) fn queues_of(scheduler: SchedulerView) -> impl Iterator<Item = QueueView> {
    let leaf =
        |node: &SchedulerNodeView| node.kind.parse::<SchedulerKind>().is_ok_and(SchedulerKind::is_leaf);
    let port = scheduler.port;
    let nodes = scheduler.nodes.into_iter().filter(leaf);
    nodes.map(move |node| QueueView {
        port: port.clone(),
        offered_packets: node.sent_packets + u64::from(node.held_packets) + node.drops.values().sum::<u64>(),
        offered_bytes: node.sent_bytes + u64::from(node.held_bytes) + node.dropped_bytes,
        flows: Vec::new(),
        node,
    })
}

/// Returns the view of a flow's queue. `keys` holds the keys of known flows, by flow hash.
pub(crate) fn flow_queue_view(
    FlowQueueReport { hash, reserved, queue }: FlowQueueReport,
    keys: &HashMap<u32, FlowKey>,
    model: &Model,
) -> FlowQueueView {
    FlowQueueView {
        flow: hash.and_then(|hash| keys.get(&hash)).map(|key| selector(key, model)),
        shared: hash.is_none(),
        quantum: queue.quantum,
        threshold: queue.threshold,
        rate: reserved.map(|rate| rate.0),
        offered_packets: queue.offered_packets,
        offered_bytes: queue.offered_bytes,
        sent_packets: queue.sent_packets,
        sent_bytes: queue.sent_bytes,
        moved_packets: queue.moved_packets,
        moved_bytes: queue.moved_bytes,
        held_packets: queue.held_packets,
        held_bytes: queue.held_bytes,
        peak_bytes: queue.peak_bytes,
        peak_packets: queue.peak_packets,
        drops: queue.drops.iter().map(|(cause, packets)| (cause.name(), packets)).collect(),
        dropped_bytes: queue.drops.bytes(),
        marked_packets: queue.drops.marked(),
    }
}

impl Model {
    /// Stores changed settings of a flow, and returns the resulting change of the port's scheduler. `flow`
    /// must have the spelling that [`one_flow`] returns.
    pub(crate) fn change_flow(
        &mut self,
        port: &str,
        queue: &str,
        flow: &str,
        changes: &Map<String, Value>,
    ) -> Result<ScheduleChange, ControlError> {
        let id = self.port(port)?.id;
        let mut there = self.schedulers.of(id).into_iter().flat_map(|scheduler| &scheduler.flow);
        let known = there.find(|own| own.is_queue_of(queue, flow));
        if let Some(other) = known.filter(|own| own.flow != *flow) {
            return Err(ControlError::conflict(same_queue(&other.flow)));
        }
        let said = FlowSettings::parse(changes)?.after(known, queue, flow)?;
        let change = self.flow_change(port, queue, flow, said.as_ref())?;
        self.schedulers.note_flow(id, queue, flow, said);
        Ok(change)
    }

    /// Returns the settings of a port's flows after a change of those of one flow, as
    /// [`change_flow`](Self::change_flow) would store them.
    pub(crate) fn changed_flows(
        &mut self,
        port: &str,
        queue: &str,
        flow: &str,
        changes: &Map<String, Value>,
    ) -> Result<Vec<FlowQueue>, ControlError> {
        let id = self.port(port)?.id;
        let before = self.schedulers.clone();
        let changed = self.change_flow(port, queue, flow, changes);
        let after = std::mem::replace(&mut self.schedulers, before);
        changed.map(|_| after.configured(id).unwrap_or_default().flow)
    }
}

/// Sends the flows with reservations to the workers.
pub(crate) fn tell_reserved(model: &Model, workers: &mut Workers) -> Result<(), ControlError> {
    let flows = model.reserved_flows();
    workers.tell(|| FlowCommand::Reserve(flows.clone()))
}

/// Returns reports of flow queues in a leaf, beginning with report number `first`. A single answer of the
/// worker has a limited number of reports.
pub(crate) fn flow_queue_reports(
    model: &Model,
    workers: &mut Workers,
    port: PortId,
    leaf: QueueId,
    first: usize,
) -> Result<Vec<FlowQueueReport>, ControlError> {
    let reports = owner_of(port, model, workers)?
        .ask(|reply| SchedulerCommand::ShowQueues(port, leaf, first, reply))?;
    reports.map_err(|error| model.schedulers.refusal(error))
}

#[cfg(test)]
mod tests {
    use millrace_pipeline::FlowTreatment;
    use millrace_schedule::Rate;
    use serde_json::json;

    use super::*;
    use crate::model::flow_queues::treatment;
    use crate::operation::{GetQueue, Principal, SetQueue};
    use crate::{StartOptions, start};

    const FLOW: &str = "src 10.0.0.2 dst 10.1.0.2 proto udp sport 4 dport 5 in lan";

    fn after(before: Option<&FlowQueue>, changes: Value) -> Result<Option<FlowQueue>, ControlError> {
        FlowSettings::parse(changes.as_object().unwrap())?.after(before, "q", FLOW)
    }

    #[test]
    fn a_flow_has_a_rate_or_a_quantum_and_a_threshold_beside() {
        let mut said = None;
        for (changes, rate, quantum, threshold) in [
            (json!({"threshold": "9000B"}), None, None, Some(9000)),
            (json!({"rate": "1mbit"}), Some(1_000_000), None, Some(9000)),
            (json!({"threshold": "5000B"}), Some(1_000_000), None, Some(5000)),
            (json!({"quantum": null}), Some(1_000_000), None, Some(5000)),
            (json!({"quantum": "3000B"}), None, Some(3000), Some(5000)),
            (json!({"rate": null}), None, Some(3000), Some(5000)),
            (json!({"rate": "2mbit", "threshold": null}), Some(2_000_000), None, None),
        ] {
            said = after(said.as_ref(), changes.clone()).unwrap();
            let now = said.clone().unwrap();
            assert_eq!(
                (
                    now.rate.map(|rate| rate.0),
                    now.quantum.map(QueueSize::bytes),
                    now.threshold.map(QueueSize::bytes)
                ),
                (rate, quantum, threshold),
                "{changes}"
            );
        }
        assert_eq!(treatment(said.as_ref()), FlowTreatment::Reserved(Rate(2_000_000), None));
        said = after(said.as_ref(), json!({"rate": null})).unwrap();
        assert_eq!((said.is_none(), treatment(said.as_ref())), (true, FlowTreatment::Common));
        for (wrong, why) in [
            (json!({"rate": "1mbit", "quantum": "1B"}), "either a rate"),
            (json!({"quantum": "0B"}), "its quantum is 0"),
            (json!({"rate": "fast"}), "is no rate"),
            (json!({"weight": 3}), "weight"),
        ] {
            let refused = after(None, wrong).unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn flow_without_settings_is_listed_by_its_name() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let text = "[[port]]\nname = \"lan\"\nkind = \"memory\"\naddress = [\"10.1.0.1/24\"]\n\
                        [[port.scheduler.node]]\nname = \"flows\"\nkind = \"flow-queues\"\n";
            let config = millrace_config::Config::parse(text, "test").unwrap();
            let router = start(config, StartOptions::default()).await.unwrap();
            let caller = Principal::router();
            for threshold in [Value::from("9000B"), Value::Null] {
                let [port, queue] = ["lan", "flows"].map(str::to_owned);
                let set = SetQueue {
                    port: port.clone(),
                    queue: queue.clone(),
                    flow: Some(FLOW.to_owned()),
                    changes: Map::from_iter([("threshold".to_owned(), threshold.clone())]),
                };
                router.execute(&caller, set).await.unwrap();
                let flows = router.execute(&caller, GetQueue { port, queue }).await.unwrap().flows;
                // The announcement of the port's address belongs to no flow, so it is in the shared queue.
                let names: Vec<_> = flows.iter().filter_map(|flow| flow.flow.as_deref()).collect();
                assert_eq!(names, [FLOW], "threshold {threshold}");
            }
            router.shutdown().await.unwrap();
        });
    }
}
