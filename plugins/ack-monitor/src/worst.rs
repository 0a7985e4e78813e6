//! Ended flows with the most duplicates.

use std::cmp::Reverse;

use millrace_plugin_abi::{Family, FlowKey};
use millrace_units::PortId;
use serde_json::{Value, json};

use crate::flow::{Flow, WORDS};

/// Maximum number of ended flows to keep.
pub(crate) const MOST_WORST: usize = 64;

/// Saved flow: source and destination address, ports, protocol, family, ingress port, and words of its flow
/// state.
pub(crate) type Saved = ([u8; 16], [u8; 16], [u16; 2], u8, u8, u16, [u64; WORDS]);

/// Ended flows with the most duplicates, the worst first. The constructor allocates all memory that the limit
/// allows.
pub(crate) struct Worst {
    pub limit: usize,
    flows: Vec<(FlowKey, Flow)>,
}

impl Worst {
    pub fn new(limit: usize) -> Self {
        Self { limit, flows: Vec::with_capacity(limit) }
    }

    /// Sets the number of flows to keep. Drops flows beyond it.
    pub fn set_limit(&mut self, limit: usize) {
        self.flows.truncate(limit);
        self.flows.reserve_exact(limit - self.flows.len());
        self.limit = limit;
    }

    /// Adds an ended flow if it has duplicates and is among the worst. Of two flows with equal numbers of
    /// duplicates, the one that ended earlier ranks higher.
    pub fn add(&mut self, key: FlowKey, flow: Flow) {
        let place = self.flows.partition_point(|(_, other)| other.duplicates >= flow.duplicates);
        if flow.duplicates == 0 || place >= self.limit {
            return;
        }
        self.flows.truncate(self.limit - 1);
        self.flows.insert(place, (key, flow));
    }

    pub fn save(&self) -> Vec<Saved> {
        let save = |(key, flow): &(FlowKey, Flow)| {
            let (ports, family) = ([key.source_port, key.destination_port], key.family() as u8);
            let addresses = (*key.source_bytes(), *key.destination_bytes());
            (addresses.0, addresses.1, ports, key.protocol, family, key.port.0, flow.words())
        };
        self.flows.iter().map(save).collect()
    }

    /// Restores saved flows, up to the limit.
    pub fn restore(&mut self, saved: &[Saved]) {
        for (source, destination, [from, to], protocol, family, port, words) in saved {
            let (ports, port) = ((*from, *to), PortId(*port));
            let key = if *family == Family::V6 as u8 {
                FlowKey::v6((*source).into(), (*destination).into(), *protocol, ports, port)
            } else {
                let [source, destination] = [source, destination]
                    .map(|bytes| bytes.first_chunk::<4>().copied().unwrap_or_default().into());
                FlowKey::v4(source, destination, *protocol, ports, port)
            };
            self.add(key, Flow::from_words(*words));
        }
    }

    pub fn read(&self) -> Vec<Value> {
        let read = |(key, flow): &(FlowKey, Flow)| {
            json!({
                "flow": key.to_string(),
                "acks": flow.acks,
                "duplicates": flow.duplicates,
                "fast": flow.fast,
                "longest_run": flow.longest_run,
                "acks_per_second": flow.rate(),
            })
        };
        self.flows.iter().map(read).collect()
    }
}

/// Merges the lists of worst flows in the replies of several workers, up to the limit of one worker.
pub(crate) fn joined(replies: &[Value]) -> Value {
    let limit = replies.first().and_then(|reply| reply.pointer("/settings/worst")?.as_u64()).unwrap_or(0);
    let lists = replies.iter().filter_map(|reply| reply.get("worst")?.as_array());
    let mut flows: Vec<&Value> = lists.flatten().collect();
    flows.sort_by_key(|flow| Reverse(flow.get("duplicates").and_then(Value::as_u64)));
    flows.truncate(limit as usize);
    flows.into_iter().cloned().collect()
}
