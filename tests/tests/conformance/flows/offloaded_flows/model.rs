//! Simple model of the offload in memory: it treats packets as the XDP program with its flow cache does.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use millrace_packet::{FlowKey, OffloadAction, OffloadEgress, OffloadTotals, OffloadedFlow};
use millrace_pipeline::WorkerFlowCache;
use millrace_plugin::{Policer, SharedBucket};
use millrace_tests::checksum;
use millrace_units::{Amount, PortId};

#[derive(Debug, Default)]
struct State {
    /// Current generation of each worker.
    generations: HashMap<usize, u64>,
    slots: HashMap<FlowKey, u32>,
    entries: HashMap<u32, Entry>,
    up: HashMap<u16, u64>,
    /// Number of upcalls by port and receive queue.
    up_by: HashMap<(u16, usize), u64>,
    done: HashMap<u16, u64>,
    noted: HashMap<(u16, usize, u64), u64>,
    room: u32,
    forwarded: u64,
    dropped: u64,
    /// Token buckets. Each has the shared word, the ticks per byte (times 65,536), and the depth in ticks.
    buckets: Vec<(Arc<AtomicU64>, u64, u64)>,
    now: u64,
}

#[derive(Debug)]
struct Entry {
    worker: usize,
    flow: OffloadedFlow,
    generation: u64,
    last_up: u64,
    floor: u64,
    totals: OffloadTotals,
}

impl State {
    /// Returns the number of flows that a worker has in the flow cache.
    fn of(&self, worker: usize) -> usize {
        self.entries.values().filter(|entry| entry.worker == worker).count()
    }
}

/// Handle of one worker: the shared model of the offload, and the worker's number.
#[derive(Clone, Debug)]
pub struct OffloadModel(Arc<Mutex<State>>, usize);

impl OffloadModel {
    /// Returns an offload with room for `room` flows of each worker.
    pub fn new(room: u32) -> Self {
        Self(Arc::new(Mutex::new(State { room, ..State::default() })), 0)
    }

    /// Returns the handle of a worker.
    pub fn of_worker(&self, worker: usize) -> Self {
        Self(Arc::clone(&self.0), worker)
    }

    fn state<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.0.lock().unwrap())
    }

    /// Sets the model's clock, in nanoseconds.
    pub fn set_now(&self, now: u64) {
        self.state(|state| state.now = now);
    }

    /// Receives a frame at a receive queue of a port and returns its fate.
    pub fn receive(&self, (port, queue): (PortId, usize), own: [u8; 6], frame: &[u8]) -> Received {
        self.state(|state| {
            let (done, read) = (state.done.get(&port.0).copied().unwrap_or_default(), read(port, own, frame));
            let up = state.up.entry(port.0).or_default();
            let up_by = state.up_by.entry((port.0, queue)).or_default();
            let found = read.and_then(|(key, length)| Some((*state.slots.get(&key)?, length)));
            let entry = found.and_then(|(slot, length)| Some((state.entries.get_mut(&slot)?, length)));
            let Some((entry, length)) = entry else {
                (*up, *up_by) = (*up + 1, *up_by + 1);
                return Received::Up;
            };
            let drop = |entry: &mut Entry| {
                entry.totals.dropped += Amount::packet(14 + length);
                Received::Dropped
            };
            let is_right = Some(&entry.generation) == state.generations.get(&entry.worker);
            let way = match entry.flow.action {
                OffloadAction::Drop { mtu } if is_right && length <= usize::from(mtu) => {
                    state.dropped += 1;
                    return drop(entry);
                }
                OffloadAction::Send(way) if is_right && length <= usize::from(way.mtu) => Some(way),
                _ => None,
            };
            let Some(way) = way.filter(|_| done >= entry.last_up && done >= entry.floor) else {
                (*up, *up_by) = (*up + 1, *up_by + 1);
                entry.last_up = *up;
                return Received::Up;
            };
            let bucket = entry.flow.policer.map(|place| &state.buckets[usize::from(place)]);
            if bucket.is_some_and(|bucket| !takes(bucket, 14 + length as u64, state.now)) {
                state.dropped += 1;
                return drop(entry);
            }
            entry.totals.sent += Amount::packet(14 + length);
            state.forwarded += 1;
            Received::Sent(way.out, rewritten(frame, &way))
        })
    }

    /// Returns the number of dropped frames.
    pub fn dropped(&self) -> u64 {
        self.state(|state| state.dropped)
    }

    /// Returns the number of forwarded frames.
    pub fn forwarded(&self) -> u64 {
        self.state(|state| state.forwarded)
    }
}

/// Fate of a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Received {
    /// Upcall: the frame goes to the worker.
    Up,
    /// The offload sends these bytes out of this port.
    Sent(PortId, Vec<u8>),
    /// The offload drops the frame.
    Dropped,
}

/// Token bucket that the worker and the offload share.
#[derive(Debug)]
struct Bucket(Arc<AtomicU64>, u16);

impl SharedBucket for Bucket {
    fn word(&self) -> &AtomicU64 {
        &self.0
    }

    fn place(&self) -> u16 {
        self.1
    }
}

fn takes((word, byte, depth): &(Arc<AtomicU64>, u64, u64), bytes: u64, now: u64) -> bool {
    let (now, cost) = (now * 16, (bytes * byte).div_ceil(1 << 16));
    let until = word.load(Ordering::Relaxed).max(now) + cost;
    let fits = until <= now + depth;
    if fits {
        word.store(until, Ordering::Relaxed);
    }
    fits
}

/// Returns flow key and length of a complete plain packet; `None` for any other frame.
fn read(port: PortId, own: [u8; 6], frame: &[u8]) -> Option<(FlowKey, usize)> {
    // The source MAC address must be unicast and not zero.
    let is_station = |source: &[u8]| source[0] & 1 == 0 && source != [0; 6];
    let network = frame.get(14..).filter(|_| frame[..6] == own && is_station(&frame[6..12]))?;
    let number = |at: usize| u16::from_be_bytes([network[at], network[at + 1]]);
    let ports = |protocol: u8, at: usize| match protocol {
        1 | 58 => Some((0, 0)),
        6 if network.len() >= at + 20 => Some((number(at), number(at + 2))),
        17 if network.len() >= at + 8 => Some((number(at), number(at + 2))),
        _ => None,
    };
    match (&frame[12..14], network.len()) {
        ([0x08, 0], 20..) => {
            // The packet ends where its own length field says, before any padding.
            let own = usize::from(number(2));
            let network = if frame.len() == 60 && own < network.len() { &network[..own] } else { network };
            let address = |at: usize| Ipv4Addr::from(<[u8; 4]>::try_from(&network[at..at + 4]).unwrap());
            let plain = network[0] == 0x45 && number(6) & 0x3fff == 0 && network[8] > 1;
            let whole = plain && usize::from(number(2)) == network.len() && checksum(&network[..20]) == 0;
            let ports = ports(network[9], 20).filter(|_| whole)?;
            Some((FlowKey::v4(address(12), address(16), network[9], ports, port), network.len()))
        }
        ([0x86, 0xdd], 41..) => {
            let address = |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&network[at..at + 16]).unwrap());
            let whole = network[7] > 1 && usize::from(number(4)) + 40 == network.len();
            let ports = ports(network[6], 40).filter(|_| whole && network[0] >> 4 == 6)?;
            Some((FlowKey::v6(address(8), address(24), network[6], ports, port), network.len()))
        }
        _ => None,
    }
}

fn rewritten(frame: &[u8], way: &OffloadEgress) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[..6].copy_from_slice(&way.destination.0);
    frame[6..12].copy_from_slice(&way.source.0);
    if frame[12] == 0x86 {
        frame[21] -= 1;
        return frame;
    }
    frame[22] -= 1;
    frame[24..26].fill(0);
    let sum = checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

impl WorkerFlowCache for OffloadModel {
    fn room(&self) -> usize {
        self.state(|state| state.room as usize - state.of(self.1))
    }

    fn publish(&mut self, generation: u64) {
        self.state(|state| state.generations.insert(self.1, generation));
    }

    fn police(&mut self, policer: &Policer) -> Option<u16> {
        if policer.place().is_none() {
            let (word, price) = (Arc::new(AtomicU64::new(0)), policer.price());
            let place = self.state(|state| {
                state.buckets.push((word.clone(), price.token(), price.depth()));
                state.buckets.len() as u16 - 1
            });
            policer.share(Box::new(Bucket(word, place)));
        }
        policer.place()
    }

    fn insert(&mut self, key: &FlowKey, flow: &OffloadedFlow) -> Option<u32> {
        self.state(|state| {
            if state.of(self.1) == state.room as usize {
                return None;
            }
            let slot = (0..).find(|slot| !state.entries.contains_key(slot))?;
            if state.slots.contains_key(key) {
                return None;
            }
            let totals = OffloadTotals::default();
            let entry = Entry { worker: self.1, flow: *flow, generation: 0, last_up: 0, floor: 0, totals };
            state.entries.insert(slot, entry);
            state.slots.insert(*key, slot);
            Some(slot)
        })
    }

    fn begin(&mut self, slot: u32, port: PortId, generation: u64) {
        self.state(|state| {
            let entry = state.entries.get_mut(&slot).unwrap();
            entry.floor = state.up.get(&port.0).copied().unwrap_or_default();
            entry.generation = generation;
        });
    }

    fn renew(&mut self, slot: u32, flow: &OffloadedFlow, generation: u64) {
        self.state(|state| {
            let entry = state.entries.get_mut(&slot).unwrap();
            assert!(
                entry.worker == self.1 && entry.generation != state.generations[&self.1],
                "an entry in use was changed"
            );
            (entry.flow, entry.generation) = (*flow, generation);
        });
    }

    fn remove(&mut self, key: &FlowKey, slot: u32) -> OffloadTotals {
        self.state(|state| {
            assert_eq!(state.slots.remove(key), Some(slot));
            state.entries.remove(&slot).unwrap().totals
        })
    }

    fn totals(&self, slot: u32) -> OffloadTotals {
        self.state(|state| state.entries[&slot].totals)
    }

    fn up(&self, port: PortId) -> u64 {
        self.state(|state| state.up.get(&port.0).copied().unwrap_or_default())
    }

    fn up_by(&self, port: PortId, queue: usize) -> u64 {
        self.state(|state| state.up_by.get(&(port.0, queue)).copied().unwrap_or_default())
    }

    fn note_read(&self, (port, queue): (PortId, usize), epoch: u64, read: u64) {
        self.state(|state| state.noted.insert((port.0, queue, epoch % 2), read));
    }

    fn noted_read(&self, (port, queue): (PortId, usize), epoch: u64) -> u64 {
        self.state(|state| state.noted.get(&(port.0, queue, epoch % 2)).copied().unwrap_or_default())
    }

    fn set_done(&mut self, port: PortId, done: u64) {
        self.state(|state| state.done.insert(port.0, done));
    }

    fn set_overloaded(&self, _queue: (PortId, usize), _overloaded: bool) {}

    fn is_overloaded(&self, _port: PortId) -> bool {
        false
    }
}
