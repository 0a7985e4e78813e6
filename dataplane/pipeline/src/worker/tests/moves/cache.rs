//! Simulated flow cache with the XDP program that reads it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use millrace_packet::{FlowKey, OffloadTotals, OffloadedFlow};
use millrace_plugin::Policer;
use millrace_units::{Amount, PortId};

use crate::offloaded_flows::WorkerFlowCache;

/// Way of a packet that the XDP program receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// The XDP program has sent it.
    Offloaded,
    /// It goes up to the worker.
    Worker,
}

/// Entry of a flow: its generation, and the number of upcalls of its port that must be done before.
#[derive(Debug)]
struct Entry {
    key: FlowKey,
    begun: Option<(u64, u64)>,
    totals: OffloadTotals,
}

/// A worker's part: its published generation, and its entries by slot.
#[derive(Debug, Default)]
struct Part {
    published: u64,
    entries: Vec<Option<Entry>>,
}

/// Receive queue of a port and parity of the epoch.
type Noted = (PortId, usize, u64);

#[derive(Debug, Default)]
struct Contents {
    parts: Vec<Part>,
    up: BTreeMap<PortId, u64>,
    done: BTreeMap<PortId, u64>,
    noted: BTreeMap<Noted, u64>,
    /// Number of the last upcall of each flow.
    last: Vec<(FlowKey, u64)>,
    /// Number of packets that the XDP program has sent.
    sent: u64,
}

/// Flow cache of all workers.
#[derive(Clone, Debug)]
pub(super) struct Offload(Arc<Mutex<Contents>>);

impl Offload {
    pub fn new(workers: usize) -> Self {
        let parts = (0..workers).map(|_| Part::default()).collect();
        Self(Arc::new(Mutex::new(Contents { parts, ..Contents::default() })))
    }

    /// Receives a packet of a flow: sends it by the flow's entry if the entry may be used, or counts an upcall.
    pub fn receive(&self, key: &FlowKey) -> Way {
        let Contents { parts, up, done, last, sent, .. } = &mut *self.0.lock().unwrap();
        let done = done.get(&key.port).copied().unwrap_or_default();
        let earlier = last.iter().find(|(flow, _)| flow == key).map_or(0, |(_, number)| *number);
        for Part { published, entries } in parts {
            for entry in entries.iter_mut().flatten().filter(|entry| entry.key == *key) {
                let is_used =
                    |(generation, mark): (u64, u64)| generation == *published && done >= mark.max(earlier);
                if entry.begun.is_some_and(is_used) {
                    *sent += 1;
                    entry.totals.sent += Amount { packets: 1, bytes: 60 };
                    return Way::Offloaded;
                }
            }
        }
        Self::count_upcall(up, last, key);
        Way::Worker
    }

    /// Counts an upcall of a flow, such as a packet that the XDP program can't treat.
    pub fn pass_up(&self, key: &FlowKey) {
        let Contents { up, last, .. } = &mut *self.0.lock().unwrap();
        Self::count_upcall(up, last, key);
    }

    fn count_upcall(up: &mut BTreeMap<PortId, u64>, last: &mut Vec<(FlowKey, u64)>, key: &FlowKey) {
        let up = up.entry(key.port).or_default();
        *up += 1;
        last.retain(|(flow, _)| flow != key);
        last.push((*key, *up));
    }

    /// Returns the number of packets that the XDP program has sent.
    pub fn offloaded(&self) -> u64 {
        self.0.lock().unwrap().sent
    }
}

/// A worker's access to its part.
#[derive(Debug)]
pub(super) struct Cache {
    contents: Offload,
    worker: usize,
}

impl Cache {
    pub fn of(offload: &Offload, worker: usize) -> Self {
        Self { contents: offload.clone(), worker }
    }

    fn with<T>(&self, access: impl FnOnce(&mut Contents, usize) -> T) -> T {
        access(&mut self.contents.0.lock().unwrap(), self.worker)
    }

    fn set_generation(&self, slot: u32, generation: u64, mark: Option<PortId>) {
        self.with(|contents, worker| {
            let mark = mark.map(|port| contents.up.get(&port).copied().unwrap_or_default());
            let entry = contents.parts[worker].entries[slot as usize].as_mut().unwrap();
            let before = entry.begun.map_or(0, |(_, mark)| mark);
            entry.begun = Some((generation, mark.unwrap_or(before)));
        });
    }
}

impl WorkerFlowCache for Cache {
    fn room(&self) -> usize {
        1 << 16
    }

    fn publish(&mut self, generation: u64) {
        self.with(|contents, worker| contents.parts[worker].published = generation);
    }

    fn police(&mut self, _policer: &Policer) -> Option<u16> {
        None
    }

    fn insert(&mut self, key: &FlowKey, _flow: &OffloadedFlow) -> Option<u32> {
        self.with(|contents, worker| {
            let entries = &mut contents.parts[worker].entries;
            entries.push(Some(Entry { key: *key, begun: None, totals: OffloadTotals::default() }));
            Some(entries.len() as u32 - 1)
        })
    }

    fn begin(&mut self, slot: u32, port: PortId, generation: u64) {
        self.set_generation(slot, generation, Some(port));
    }

    fn renew(&mut self, slot: u32, _flow: &OffloadedFlow, generation: u64) {
        self.set_generation(slot, generation, None);
    }

    fn remove(&mut self, _key: &FlowKey, slot: u32) -> OffloadTotals {
        let removed = self.with(|contents, worker| contents.parts[worker].entries[slot as usize].take());
        removed.unwrap().totals
    }

    fn totals(&self, slot: u32) -> OffloadTotals {
        self.with(|contents, worker| contents.parts[worker].entries[slot as usize].as_ref().unwrap().totals)
    }

    fn up(&self, port: PortId) -> u64 {
        self.with(|contents, _| contents.up.get(&port).copied().unwrap_or_default())
    }

    fn up_by(&self, port: PortId, _queue: usize) -> u64 {
        self.up(port)
    }

    fn note_read(&self, (port, queue): (PortId, usize), epoch: u64, read: u64) {
        self.with(|contents, _| contents.noted.insert((port, queue, epoch % 2), read));
    }

    fn noted_read(&self, (port, queue): (PortId, usize), epoch: u64) -> u64 {
        self.with(|contents, _| contents.noted.get(&(port, queue, epoch % 2)).copied().unwrap_or_default())
    }

    fn set_done(&mut self, port: PortId, done: u64) {
        self.with(|contents, _| contents.done.insert(port, done));
    }

    fn set_overloaded(&self, _queue: (PortId, usize), _overloaded: bool) {}

    fn is_overloaded(&self, _port: PortId) -> bool {
        false
    }
}
