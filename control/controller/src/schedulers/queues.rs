//! Queues of ports and of single flows: their counters and settings.

use std::collections::{HashMap, HashSet};

use millrace_classify::CompiledSelection;
use millrace_config::{Bits, FlowQueue, QueueSize, SchedulerKind};
use millrace_packet::FlowKey;
use millrace_pipeline::{
    FlowCommand, FlowQueueReport, FlowReport, FlowTreatment, ScheduleChange, SchedulerCommand,
};
use millrace_schedule::Rate;
use millrace_units::{PortId, QueueId};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::ControlError;
use crate::flows::lookup::parse_packet;
use crate::flows::selector;
use crate::model::Model;
use crate::request::reading::read;
use crate::router::{Inner, Router};
use crate::schedulers::owner_of;
use crate::view::{FlowQueueView, QueueView, SchedulerNodeView, SchedulerView};
use crate::workers::Workers;

/// Error text for a flow with a quantum of 0.
pub(super) const NO_QUANTUM: &str = "its quantum is 0, with which the flow would never send: give 1 to 1073741824 bytes, or none for the default of all flows";

/// Changes of the settings of a flow's queue. An absent setting stays as it is.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct FlowSettings {
    /// Quantum in bytes per round; `null` for the default of all flows.
    #[serde(default, deserialize_with = "said")]
    quantum: Option<Option<QueueSize>>,
    /// Discard threshold in bytes; `null` for the default of all flows.
    #[serde(default, deserialize_with = "said")]
    threshold: Option<Option<QueueSize>>,
    /// Reserved rate; `null` for no reservation.
    #[serde(default, deserialize_with = "said")]
    rate: Option<Option<Bits>>,
}

/// Deserializes a value that is present but may be `null`.
fn said<'de, T: Deserialize<'de>, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

impl FlowSettings {
    fn parse(changes: &Map<String, Value>) -> Result<Self, ControlError> {
        read("what is asked for", Value::Object(changes.clone())).map_err(|error| {
            ControlError::Invalid(format!(
                "queue of a flow: {error}; it has a quantum, a threshold and a rate"
            ))
        })
    }

    /// Returns the settings of a flow after these changes; `None` if all have defaults. A new rate replaces
    /// the quantum, and a new quantum replaces the rate.
    fn after(
        self,
        before: Option<&FlowQueue>,
        queue: &str,
        flow: &str,
    ) -> Result<Option<FlowQueue>, ControlError> {
        let Self { rate, quantum, threshold } = self;
        if quantum.flatten().is_some_and(|quantum| quantum.bytes() == 0) {
            return Err(ControlError::Invalid(format!("queue of a flow: {NO_QUANTUM}")));
        }
        let (has_rate, has_quantum) = (rate.flatten().is_some(), quantum.flatten().is_some());
        if has_rate && has_quantum {
            return Err(ControlError::Invalid(
                "a flow with a rate gets the quantum that follows from it: give either a rate or a quantum"
                    .into(),
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

/// Returns the treatment of a flow with these settings.
fn treatment(said: Option<&FlowQueue>) -> FlowTreatment {
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

impl Inner {
    /// Returns the views of all queues, without the queues of single flows.
    pub(crate) fn queue_views(&mut self) -> Result<Vec<QueueView>, ControlError> {
        let leaves = |scheduler: SchedulerView| {
            let leaf = |node: &SchedulerNodeView| {
                node.kind.parse::<SchedulerKind>().is_ok_and(SchedulerKind::is_leaf)
            };
            let port = scheduler.port;
            let nodes = scheduler.nodes.into_iter().filter(leaf);
            nodes.map(move |node| QueueView {
                port: port.clone(),
                offered_packets: node.sent_packets
                    + u64::from(node.held_packets)
                    + node.drops.values().sum::<u64>(),
                offered_bytes: node.sent_bytes + u64::from(node.held_bytes) + node.dropped_bytes,
                flows: Vec::new(),
                node,
            })
        };
        Ok(self.scheduler_views()?.into_iter().flat_map(leaves).collect())
    }

    /// Returns the view of a queue of a port, without the queues of single flows.
    ///
    /// # Errors
    /// Returns an error for an unknown port or queue, or if the data plane does not answer.
    pub(crate) fn queue_view(&mut self, port: &str, queue: &str) -> Result<QueueView, ControlError> {
        self.model.port(port)?;
        let mut of_port: Vec<QueueView> =
            self.queue_views()?.into_iter().filter(|view| view.port == port).collect();
        match of_port.iter().position(|view| view.node.name == queue) {
            Some(index) => Ok(of_port.swap_remove(index)),
            None => Err(ControlError::unknown("queue", queue, of_port.iter().map(|view| &*view.node.name))),
        }
    }
}

/// Returns the queues of flows in a leaf of a port.
pub(crate) async fn flow_queues(
    router: &Router,
    port: &str,
    queue: &str,
    leaf: u16,
) -> Result<Vec<FlowQueueView>, ControlError> {
    let id = router.lock().model.port(port)?.id;
    let mut reports = Vec::new();
    loop {
        let more = {
            let mut guard = router.lock();
            let inner = &mut *guard;
            flow_queue_reports(&inner.model, &mut inner.workers, id, QueueId(leaf), reports.len())?
        };
        if more.is_empty() {
            break;
        }
        reports.extend(more);
        tokio::task::yield_now().await;
    }
    let mut keys: HashMap<u32, FlowKey> = {
        let inner = router.lock();
        inner.queueing.former_flows().map(|key| (inner.workers.hash_of(key), *key)).collect()
    };
    let note = |_, flow: FlowReport| {
        keys.insert(flow.hash, flow.key);
    };
    router.scan(FlowCommand::Scan, &CompiledSelection::any(), note).await?;
    let inner = router.lock();
    // A flow with settings keeps its name even while it sends no packets.
    let said = inner.model.schedulers.of(id).into_iter().flat_map(|own| &own.flow);
    let said = said
        .filter(|flow| flow.queue == queue)
        .filter_map(|flow| parse_packet(&flow.flow, &inner.model).ok());
    keys.extend(said.map(|packet| (inner.workers.hash_of(&packet.key), packet.key)));
    let view = |FlowQueueReport { hash, reserved, queue }: FlowQueueReport| FlowQueueView {
        flow: hash.and_then(|hash| keys.get(&hash)).map(|key| selector(key, &inner.model)),
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
    };
    Ok(reports.into_iter().map(view).collect())
}

/// Returns the error text for a flow whose queue belongs to another flow that has settings.
pub(crate) fn same_queue(other: &str) -> String {
    format!(
        "its queue is that of {other:?}: a queue takes what comes by any port of one source, destination, protocol and ports; \
         name the flow as it stands there, or let it be like all others first"
    )
}

impl Model {
    /// Returns the flows with a reserved rate, at all ports.
    pub(crate) fn reserved_flows(&self) -> Vec<FlowKey> {
        let reserved = self.schedulers.flows().filter(|flow| flow.rate.is_some());
        // The stored texts were parsed before, so parsing succeeds.
        reserved.filter_map(|flow| parse_packet(&flow.flow, self).ok()).map(|packet| packet.key).collect()
    }

    /// Returns the changes that create the schedulers of all ports, with the settings of single flows.
    pub(crate) fn begin_schedulers(&self) -> Result<Vec<(PortId, Vec<ScheduleChange>)>, ControlError> {
        let mut all = Vec::new();
        for (port, mut changes) in self.schedulers.begin()? {
            let flows = self.schedulers.of(port).map_or(&[][..], |own| &own.flow);
            changes.extend(self.flow_changes(self.port_name(port), &[], flows)?);
            all.push((port, changes));
        }
        Ok(all)
    }

    /// Stores changed settings of a flow, and returns the change of the port's scheduler. `flow` is spelled
    /// as by [`one_flow`].
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
            return Err(ControlError::Conflict(same_queue(&other.flow)));
        }
        let said = FlowSettings::parse(changes)?.after(known, queue, flow)?;
        let change = self.flow_change(port, queue, flow, said.as_ref())?;
        self.schedulers.note_flow(id, queue, flow, said);
        Ok(change)
    }

    /// Returns the scheduler change that sets all settings of a flow; `None` resets them to the defaults.
    fn flow_change(
        &self,
        port: &str,
        queue: &str,
        flow: &str,
        said: Option<&FlowQueue>,
    ) -> Result<ScheduleChange, ControlError> {
        let id = self.port(port)?.id;
        let (leaf, node) = self.schedulers.leaf(id, port, queue)?;
        let key = parse_packet(flow, self)?.key;
        if node.kind != SchedulerKind::FlowQueues {
            return Err(ControlError::Invalid("only flow-queues have a queue for each flow".into()));
        }
        if said.is_some_and(|said| said.rate.is_some()) && node.rate.is_none() {
            return Err(ControlError::Invalid(format!(
                "queue {queue:?} has no rate of which a part could be reserved: say what it is served with, \
                 `queue set {port} {queue} rate=RATE`"
            )));
        }
        Ok(ScheduleChange::Flow(leaf, key, treatment(said)))
    }

    /// Returns the changes that turn the flow settings `before` of a port's scheduler into `after`. The
    /// leaves that both name must exist.
    pub fn flow_changes(
        &self,
        port: &str,
        before: &[FlowQueue],
        after: &[FlowQueue],
    ) -> Result<Vec<ScheduleChange>, ControlError> {
        let left: HashSet<_> = after.iter().map(FlowQueue::of_queue).collect();
        let gone = before.iter().filter(|own| !left.contains(&own.of_queue()));
        // A removed leaf has removed its flow settings.
        let released = gone.filter_map(|own| self.flow_change(port, &own.queue, &own.flow, None).ok());
        let there: HashMap<_, _> = before.iter().map(|own| (own.of_queue(), own)).collect();
        let new = after.iter().filter(|own| there.get(&own.of_queue()) != Some(own));
        let set = new.map(|own| self.flow_change(port, &own.queue, &own.flow, Some(own)));
        released.map(Ok).chain(set).collect()
    }
}

/// Sends the flows with reservations to the workers.
pub(crate) fn tell_reserved(model: &Model, workers: &mut Workers) -> Result<(), ControlError> {
    let flows = model.reserved_flows();
    workers.tell(|| FlowCommand::Reserve(flows.clone()))
}

/// Returns a piece of the reports of flows' queues in a leaf, beginning with the report of index `first`.
fn flow_queue_reports(
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
    use serde_json::json;

    use super::*;
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
    fn a_flow_whose_settings_are_taken_back_is_listed_by_its_name() {
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
                // The announcement of the port's address belongs to no flow, but to the shared queue.
                let names: Vec<_> = flows.iter().filter_map(|flow| flow.flow.as_deref()).collect();
                assert_eq!(names, [FLOW], "threshold {threshold}");
            }
            router.shutdown().await.unwrap();
        });
    }
}
