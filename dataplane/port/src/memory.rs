//! Port without a device: it receives frames from this process, and gives transmitted frames to this process.
//! Tests, benches and the API use it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use millrace_packet::{Batch, DropReason, Packet, Pool};
use millrace_units::Instant;
use millrace_wire::MacAddr;

use crate::longest_frame::longest_frame;
use crate::{Arrivals, Capabilities, Mode, Port, PortCounters, Progress};

mod generator;

pub use generator::Generator;

/// Port whose other end is a [`MemoryHandle`].
///
/// The port receives frames of any length. It drops outgoing frames above the MTU (with an Ethernet header
/// and two VLAN tags) as [`LinkOversize`](DropReason::LinkOversize).
#[derive(Debug)]
pub struct Memory {
    wire: Rc<RefCell<Wire>>,
    capabilities: Capabilities,
}

/// Far end of a [`Memory`] port, on the same thread. Clones refer to the same port.
#[derive(Clone, Debug)]
pub struct MemoryHandle {
    wire: Rc<RefCell<Wire>>,
}

#[derive(Debug)]
struct Wire {
    queues: Vec<ReceiveQueue>,
    /// Queue that the next `receive` reads first.
    first: usize,
    transmitted: Vec<Vec<u8>>,
    count_only: bool,
    counters: PortCounters,
}

#[derive(Debug, Default)]
struct ReceiveQueue {
    arriving: VecDeque<Arriving>,
    arrivals: Arrivals,
}

#[derive(Debug)]
enum Arriving {
    Bytes(Vec<u8>),
    Packet(Packet),
}

impl Memory {
    /// Creates a port with this address and MTU (bytes of the network-layer packet), and the handle of its
    /// far end.
    pub fn new(mac: MacAddr, mtu: u16) -> (Self, MemoryHandle) {
        let wire = Rc::new(RefCell::new(Wire {
            queues: vec![ReceiveQueue::default()],
            first: 0,
            transmitted: Vec::new(),
            count_only: false,
            counters: PortCounters::default(),
        }));
        let handle = MemoryHandle { wire: Rc::clone(&wire) };
        (Self { wire, capabilities: capabilities(mac, mtu) }, handle)
    }
}

fn capabilities(mac: MacAddr, mtu: u16) -> Capabilities {
    let (driver, mode, why) = ("memory", Mode::InProcess, String::new());
    Capabilities { driver, mode, why, mac, mtu, ifindex: None }
}

impl MemoryHandle {
    /// Injects a frame. Until the port receives the frame, it counts as `held`.
    pub fn inject(&self, frame: &[u8]) {
        self.inject_by(0, frame);
    }

    /// Injects a frame into the receive queue `queue`, counted from 0. If the port has too few queues, adds
    /// queues up to this one.
    pub fn inject_by(&self, queue: usize, frame: &[u8]) {
        self.arrive(queue, Arriving::Bytes(frame.to_vec()));
    }

    /// Adds receive queues until the port has at least `queues`.
    pub fn add_queues(&self, queues: usize) {
        let mut wire = self.wire.borrow_mut();
        let there = wire.queues.len();
        wire.queues.resize_with(queues.max(there), ReceiveQueue::default);
    }

    /// Injects a packet without a copy. The packet's memory should belong to the pool that the port uses.
    pub fn inject_packet(&self, packet: Packet) {
        self.arrive(0, Arriving::Packet(packet));
    }

    /// Returns the number of receive queues of the port.
    pub fn queues(&self) -> usize {
        self.wire.borrow().queues.len()
    }

    fn arrive(&self, queue: usize, arriving: Arriving) {
        self.add_queues(queue + 1);
        let mut wire = self.wire.borrow_mut();
        wire.counters.received += 1;
        wire.counters.held += 1;
        wire.queues[queue].arriving.push_back(arriving);
    }

    /// Returns the frames transmitted since the last call, in order.
    pub fn take_transmitted(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.wire.borrow_mut().transmitted)
    }

    /// Sets whether transmitted frames are only counted (`true`), or also kept (`false`, the default).
    pub fn count_only(&self, yes: bool) {
        self.wire.borrow_mut().count_only = yes;
    }

    /// Returns the port's counters.
    pub fn counters(&self) -> PortCounters {
        self.wire.borrow().counters.clone()
    }
}

impl Wire {
    fn next(&mut self, queue: usize, pool: &Pool) -> Option<Packet> {
        let ReceiveQueue { arriving, arrivals } = &mut self.queues[queue];
        let arriving = arriving.pop_front()?;
        arrivals.read += 1;
        self.counters.held -= 1;
        let packet = match arriving {
            Arriving::Packet(packet) => Some(packet),
            Arriving::Bytes(bytes) => pool.packet_from(&bytes),
        };
        match &packet {
            Some(packet) => self.counters.received_bytes += packet.len() as u64,
            None => self.counters.drops.add(DropReason::NoMemory, 1),
        }
        packet
    }

    fn take(&mut self, packet: &Packet, longest: usize) {
        let length = packet.len();
        if length > longest {
            self.counters.drops.add(DropReason::LinkOversize, 1);
            return;
        }
        self.counters.transmitted += 1;
        self.counters.transmitted_bytes += length as u64;
        if !self.count_only {
            self.transmitted.push(packet.to_vec());
        }
    }
}

impl Port for Memory {
    fn receive(&mut self, pool: &Pool, _now: Instant, batch: &mut Batch) {
        let mut wire = self.wire.borrow_mut();
        let (queues, first) = (wire.queues.len(), wire.first);
        for queue in (first..queues).chain(0..first) {
            while batch.room() > 0 && !wire.queues[queue].arriving.is_empty() {
                if let Some(packet) = wire.next(queue, pool) {
                    // The loop condition ensures that there is room.
                    let _ = batch.push(packet);
                }
            }
            wire.queues[queue].arrivals.drained = wire.queues[queue].arriving.is_empty();
        }
        wire.first = (first + 1) % queues;
    }

    fn transmit(&mut self, _pool: &Pool, _now: Instant, batch: &mut Batch) {
        let longest = longest_frame(self.capabilities.mtu);
        let mut wire = self.wire.borrow_mut();
        for packet in batch.drain() {
            wire.take(&packet, longest);
        }
    }

    fn flush(&mut self, _pool: &Pool, _now: Instant) {}

    fn progress(&mut self) -> Option<Progress> {
        Some(Progress::default())
    }

    fn receive_queues(&self) -> usize {
        self.wire.borrow().queues.len()
    }

    fn arrivals(&self, queue: usize) -> Arrivals {
        self.wire.borrow().queues.get(queue).map(|queue| queue.arrivals).unwrap_or_default()
    }

    fn has_arrivals(&self) -> Option<bool> {
        Some(self.wire.borrow().queues.iter().any(|queue| !queue.arriving.is_empty()))
    }

    fn counters(&mut self) -> PortCounters {
        self.wire.borrow().counters.clone()
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn descriptor(&self) -> Option<i32> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

    fn received(port: &mut Memory, pool: &Pool) -> Vec<Vec<u8>> {
        let mut batch = Batch::new();
        port.receive(pool, Instant::ZERO, &mut batch);
        batch.iter().map(Packet::to_vec).collect()
    }

    #[test]
    fn injected_frames_are_received_in_order() {
        let pool = Pool::new(16).unwrap();
        let (mut port, wire) = Memory::new(MAC, 1500);
        wire.inject(b"first");
        wire.inject_packet(pool.packet_from(b"second").unwrap());
        assert_eq!(wire.counters().held, 2);
        assert_eq!(received(&mut port, &pool), [b"first".to_vec(), b"second".to_vec()]);
        let counters = port.counters();
        assert_eq!((counters.received, counters.received_bytes, counters.held), (2, 11, 0));
    }

    #[test]
    fn frames_beyond_the_batch_stay_on_the_wire() {
        let pool = Pool::new(512).unwrap();
        let (mut port, wire) = Memory::new(MAC, 1500);
        (0..300).for_each(|_| wire.inject(b"x"));
        assert_eq!(received(&mut port, &pool).len(), 256);
        assert_eq!(wire.counters().held, 44);
        assert_eq!(received(&mut port, &pool).len(), 44);
    }

    #[test]
    fn frames_without_packet_memory_are_counted() {
        let pool = Pool::new(1).unwrap();
        let (mut port, wire) = Memory::new(MAC, 1500);
        (0..3).for_each(|_| wire.inject(b"x"));
        assert_eq!(received(&mut port, &pool).len(), 1);
        let counters = port.counters();
        assert_eq!((counters.received, counters.held, counters.drops.get(DropReason::NoMemory)), (3, 0, 2));
    }

    #[test]
    fn transmitted_frames_reach_the_handle_unless_only_counted() {
        let pool = Pool::new(16).unwrap();
        let (mut port, wire) = Memory::new(MAC, 100);
        let mut batch = Batch::new();
        for length in [60, 122, 123] {
            batch.push(pool.packet_from(&vec![7; length]).unwrap()).unwrap();
        }
        port.transmit(&pool, Instant::ZERO, &mut batch);
        assert_eq!(wire.take_transmitted(), [vec![7; 60], vec![7; 122]]);
        assert_eq!(port.counters().drops.get(DropReason::LinkOversize), 1);
        wire.count_only(true);
        batch.push(pool.packet_from(b"x").unwrap()).unwrap();
        port.transmit(&pool, Instant::ZERO, &mut batch);
        assert!(wire.take_transmitted().is_empty());
        assert_eq!((port.counters().transmitted, port.counters().transmitted_bytes), (3, 183));
        assert_eq!(pool.in_use(), 0);
    }
}
