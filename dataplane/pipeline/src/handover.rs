//! Hand-over of packets between workers.
//!
//! Each flow and each port has one worker as owner. A packet whose flow or egress port belongs to another
//! worker goes there through a ring. Packet memory belongs to one thread, so the packet is copied into a
//! *parcel*, and from there into the other worker's memory. Each ordered pair of workers has a ring for
//! parcels, and a second ring that returns empty parcels. Threads write shared memory once per parcel, not
//! per packet, and each ring keeps the order of packets.
//!
//! A worker also announces its *step* in the grace periods of the offload to all others, as a record among
//! the packets. A worker that has received the step has received all packets sent before it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use millrace_packet::{Exceptions, FlowKey, Packet};
use millrace_units::{NextHopIndex, PortId, QueueId};
use rtrb::{Consumer, Producer, RingBuffer};

use crate::ports::DeviceId;
use crate::wake::Wake;

/// Number of parcels for each ordered pair of workers.
const PARCELS: usize = 32;
/// Length in bytes at which a parcel is full, and takes no further packet.
const FULL: usize = 32 << 10;
/// Room in bytes of a parcel beyond [`FULL`], enough for the longest frame.
const LONGEST: usize = (64 << 10) + 64;
/// Number of unread parcels from which on only full parcels are sent, because the receiver is busy. With
/// fewer unread parcels, a partly filled parcel is sent at once.
const UNDER_WAY: usize = 8;

/// Task of the receiving worker for a handed-over packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Errand {
    /// Take the packet through the stages, as the owner of its flow.
    Flow,
    /// Put the finished frame into the queue of its egress port.
    Transmit,
    /// Punt the packet to the kernel, as if its ingress port had just received it.
    Host,
}

/// Fields of a packet's transport header, as known to the worker that received the packet. A later fragment
/// lacks these fields, and its next header may be wrong. Only the worker that has received the first fragment
/// knows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Transport {
    /// Protocol of the header.
    pub protocol: u8,
    /// Source and destination port.
    pub ports: (u16, u16),
    /// TCP flags, if known.
    pub tcp_flags: Option<u8>,
}

impl Transport {
    /// Returns the fields from a flow key and TCP flags.
    pub fn of(key: &FlowKey, tcp_flags: Option<u8>) -> Self {
        let ports = (key.source_port, key.destination_port);
        Self { protocol: key.protocol, ports, tcp_flags }
    }
}

/// Packet handed over by another worker.
#[derive(Debug)]
pub(crate) struct Handed<'a> {
    pub errand: Errand,
    /// Offset of the network header in the frame, in bytes.
    pub network: usize,
    /// Ingress port.
    pub port: PortId,
    /// Egress port, for [`Errand::Transmit`].
    pub out_port: PortId,
    /// Transport header fields, as parsed by the worker that received the packet, for [`Errand::Flow`].
    pub transport: Transport,
    /// Flow hash and, in the next field, queue at the egress port; for [`Errand::Transmit`].
    pub hash: u32,
    pub queue: QueueId,
    /// Route number, for [`Errand::Transmit`].
    pub next_hop: NextHopIndex,
    /// Filters that account for the packet: an account word of eight bytes for each.
    pub counts_for: &'a [u8],
    /// Exceptions, as found by the worker that received the packet from a device.
    pub exceptions: Exceptions,
    /// Trace number; 0 for an untraced packet.
    pub trace: u16,
    pub bytes: &'a [u8],
}

/// Code of a step record, in place of an errand. The record announces the sender's step, and follows all
/// earlier packets.
const STEP: u8 = u8::MAX;
const HEADER: usize = 32;
/// Length in bytes of a filter's account word; these words follow the header.
const FILTER: usize = 8;
/// Maximum number of account words handed over with a packet; no path has more filters.
const FILTERS: usize = 255;

type Parcel = Vec<u8>;

/// Sending end of the rings to another worker.
#[derive(Debug)]
struct Outgoing {
    parcels: Producer<Parcel>,
    empty: Consumer<Parcel>,
    open: Option<Parcel>,
    /// Number of parcels sent since the last [`publish`](Handover::publish).
    sent: usize,
    /// Step announced last.
    announced: u64,
}

impl Outgoing {
    /// Returns a parcel with room; `None` if all parcels are in use.
    fn with_room(&mut self) -> Option<&mut Parcel> {
        if self.open.as_ref().is_some_and(|open| open.len() >= FULL) {
            self.send();
        }
        if self.open.is_none() {
            self.open = self.empty.pop().ok();
        }
        self.open.as_mut()
    }

    fn put(&mut self, header: [u8; HEADER], filters: &[u64], packet: &Packet) -> bool {
        let Some(open) = self.with_room() else { return false };
        open.extend_from_slice(&header);
        filters.iter().for_each(|filter| open.extend_from_slice(&filter.to_le_bytes()));
        packet.frames().for_each(|bytes| open.extend_from_slice(bytes));
        true
    }

    /// Announces a step after all packets put so far. If no parcel has room, a later call announces it.
    fn announce(&mut self, step: u64) {
        if self.announced == step {
            return;
        }
        let Some(open) = self.with_room() else { return };
        let mut header = [0; HEADER];
        header[0] = STEP;
        header[16..24].copy_from_slice(&step.to_le_bytes());
        open.extend_from_slice(&header);
        self.announced = step;
    }

    fn send(&mut self) {
        if let Some(parcel) = self.open.take() {
            // Can't fail: the ring has a slot for each parcel.
            let _ = self.parcels.push(parcel);
            self.sent += 1;
        }
    }

    /// Sends the open parcel if fewer than [`UNDER_WAY`] parcels are unread. Otherwise the parcel stays open
    /// until it is full.
    fn publish(&mut self) {
        if self.open.is_some() && PARCELS - self.parcels.slots() < UNDER_WAY {
            self.send();
        }
    }
}

/// Receiving end of the rings from another worker.
#[derive(Debug)]
struct Incoming {
    parcels: Consumer<Parcel>,
    empty: Producer<Parcel>,
    /// Parcel that is being read, and the offset of its next record.
    open: Option<(Parcel, usize)>,
    /// Step received last.
    step: u64,
}

impl Incoming {
    /// Opens the next parcel if the open parcel has been read to its end. Returns whether a parcel is open.
    fn advance(&mut self) -> bool {
        if let Some((parcel, at)) = &mut self.open {
            if *at < parcel.len() {
                return true;
            }
            let mut parcel = std::mem::take(parcel);
            parcel.clear();
            // Can't fail: the ring has a slot for each parcel.
            let _ = self.empty.push(parcel);
        }
        self.open = self.parcels.pop().ok().map(|parcel| (parcel, 0));
        self.open.is_some()
    }

    /// Returns the header of the next record, if there is one.
    fn header(&mut self) -> Option<[u8; HEADER]> {
        if !self.advance() {
            return None;
        }
        let (parcel, at) = self.open.as_ref()?;
        parcel.get(*at..)?.first_chunk().copied()
    }

    fn next(&mut self) -> Option<Handed<'_>> {
        let mut header = self.header()?;
        while header[0] == STEP {
            self.step = u64::from_le_bytes(header[16..24].try_into().unwrap_or_default());
            self.open.iter_mut().for_each(|(_, at)| *at += HEADER);
            header = self.header()?;
        }
        let half = |from: usize| u16::from_le_bytes([header[from], header[from + 1]]);
        let word = |from: usize| u32::from(half(from)) | u32::from(half(from + 2)) << 16;
        let (parcel, at) = self.open.as_mut()?;
        let length = word(12) as usize;
        let filters = *at + HEADER;
        let start = filters + usize::from(header[22]) * FILTER;
        *at = start + length;
        Some(Handed {
            errand: match header[0] {
                0 => Errand::Flow,
                1 => Errand::Transmit,
                _ => Errand::Host,
            },
            exceptions: Exceptions::from_bits(header[1]),
            network: half(2).into(),
            port: PortId(half(4)),
            out_port: PortId(half(6)),
            transport: Transport {
                protocol: header[23],
                ports: (half(8), half(10)),
                tcp_flags: (header[31] != 0).then_some(header[30]),
            },
            hash: word(16),
            queue: QueueId(half(20)),
            next_hop: NextHopIndex(word(24)),
            trace: half(28),
            counts_for: parcel.get(filters..start)?,
            bytes: parcel.get(start..start + length)?,
        })
    }

    fn is_empty(&self) -> bool {
        self.open.as_ref().is_none_or(|(parcel, at)| *at >= parcel.len()) && self.parcels.is_empty()
    }
}

#[derive(Debug)]
struct Peer {
    outgoing: Outgoing,
    incoming: Incoming,
    asleep: Arc<AtomicBool>,
    wake: Option<Wake>,
}

/// Rings of a worker to and from all other workers.
#[derive(Debug)]
pub struct Handover {
    me: usize,
    /// Rings to and from each worker, by worker number; `None` for this worker.
    peers: Vec<Option<Peer>>,
    /// Whether this worker sleeps or is about to sleep. The other workers read it.
    asleep: Arc<AtomicBool>,
    step: u64,
}

impl Handover {
    /// Creates the rings between all workers. Returns an item for each worker. `wakes` holds each worker's
    /// wake-up signal; `None` for a worker that never sleeps.
    pub fn mesh(wakes: &[Option<Wake>]) -> Vec<Self> {
        let count = wakes.len();
        let asleep: Vec<Arc<AtomicBool>> = wakes.iter().map(|_| Arc::default()).collect();
        let mut all: Vec<Self> = Vec::new();
        for own in &asleep {
            let peers = (0..count).map(|_| None).collect();
            all.push(Self { me: all.len(), peers, asleep: Arc::clone(own), step: 0 });
        }
        for from in 0..count {
            for to in 0..from {
                let (forth, back) = (way(), way());
                for (me, peer, outgoing, incoming) in
                    [(from, to, forth.0, back.1), (to, from, back.0, forth.1)]
                {
                    let (asleep, wake) = (Arc::clone(&asleep[peer]), wakes[peer].clone());
                    all[me].peers[peer] = Some(Peer { outgoing, incoming, asleep, wake });
                }
            }
        }
        all
    }

    /// Returns the number of workers.
    pub fn workers(&self) -> usize {
        self.peers.len()
    }

    /// Returns the owner of a device: devices are assigned to the workers round robin, by device number.
    pub fn owner(device: DeviceId, workers: usize) -> usize {
        usize::from(device.0) % workers
    }

    /// Returns whether this worker owns a device.
    #[inline]
    pub(crate) fn owns(&self, device: DeviceId) -> bool {
        Self::owner(device, self.workers()) == self.me
    }

    /// Returns the owner of the flow with this hash; `None` if this worker owns it.
    #[inline]
    pub(crate) fn owner_of_flow(&self, hash: u32) -> Option<usize> {
        let owner = Self::owner_of_hash(hash, self.workers());
        (owner != self.me).then_some(owner)
    }

    /// Returns the owner of a flow among `workers` workers, by the [flow hash](crate::flow_hash).
    #[inline]
    pub fn owner_of_hash(hash: u32, workers: usize) -> usize {
        // Each worker owns an equal part of the range of hashes.
        ((u64::from(hash) * workers as u64) >> 32) as usize
    }

    /// Returns the number of this worker.
    pub(crate) fn me(&self) -> usize {
        self.me
    }

    /// Copies a packet, with its filters' account words, into a parcel for a worker. Returns whether there
    /// was room. If so, the caller can release the packet.
    pub(crate) fn put(
        &mut self,
        to: usize,
        errand: Errand,
        packet: &Packet,
        transport: Transport,
        filters: &[u64],
    ) -> bool {
        let Some(Some(peer)) = self.peers.get_mut(to) else { return false };
        let Transport { protocol, ports, tcp_flags } = transport;
        let mut header = [0; HEADER];
        header[0] = errand as u8;
        header[1] = packet.exceptions.bits();
        header[2..4].copy_from_slice(&(packet.network_offset() as u16).to_le_bytes());
        header[4..6].copy_from_slice(&packet.port.0.to_le_bytes());
        header[6..8].copy_from_slice(&packet.out_port.0.to_le_bytes());
        header[8..10].copy_from_slice(&ports.0.to_le_bytes());
        header[10..12].copy_from_slice(&ports.1.to_le_bytes());
        header[12..16].copy_from_slice(&(packet.len() as u32).to_le_bytes());
        header[16..20].copy_from_slice(&packet.hash.to_le_bytes());
        header[20..22].copy_from_slice(&packet.queue.0.to_le_bytes());
        let filters = filters.get(..FILTERS).unwrap_or(filters);
        header[22] = filters.len() as u8;
        header[23] = protocol;
        header[24..28].copy_from_slice(&packet.next_hop.0.to_le_bytes());
        header[28..30].copy_from_slice(&packet.trace.to_le_bytes());
        (header[30], header[31]) = (tcp_flags.unwrap_or(0), tcp_flags.is_some().into());
        peer.outgoing.put(header, filters, packet)
    }

    /// Hands a packet over to the worker that owns `device`.
    pub(crate) fn put_to_device(
        &mut self,
        device: DeviceId,
        errand: Errand,
        packet: &Packet,
        filters: &[u64],
    ) -> bool {
        self.put(Self::owner(device, self.workers()), errand, packet, Transport::default(), filters)
    }

    /// Returns the next packet that worker `from` has handed over; `None` if there is none.
    #[inline]
    pub(crate) fn next(&mut self, from: usize) -> Option<Handed<'_>> {
        self.peers.get_mut(from)?.as_mut()?.incoming.next()
    }

    /// Sets the step that the next [`publish`](Self::publish) announces to all other workers, after all
    /// packets put so far.
    pub(crate) fn announce(&mut self, step: u64) {
        self.step = step;
    }

    /// Returns whether all other workers, and whether any of them, have announced this step or a later one.
    pub(crate) fn peers_at(&self, step: u64) -> PeersAt {
        let has = |peer: &Peer| peer.incoming.step >= step;
        let mut peers = self.peers.iter().flatten().map(has);
        PeersAt { all: peers.clone().all(|has| has), any: peers.any(|has| has) }
    }

    /// Sends parcels, and wakes sleeping receivers. Returns the number of parcels sent. If a receiver is
    /// busy, a partly filled parcel stays open for a later call (see [`is_waiting`](Self::is_waiting)).
    pub(crate) fn publish(&mut self) -> usize {
        let mut sent = 0;
        for peer in self.peers.iter_mut().flatten() {
            peer.outgoing.announce(self.step);
            peer.outgoing.publish();
            sent += peer.outgoing.sent;
            if std::mem::take(&mut peer.outgoing.sent) > 0 {
                // With the fence in `fall_asleep`, either this worker sees that the receiver sleeps, or the
                // receiver sees the parcel before it sleeps.
                fence(Ordering::SeqCst);
                if peer.asleep.load(Ordering::Relaxed)
                    && let Some(wake) = &peer.wake
                {
                    wake.signal();
                }
            }
        }
        sent
    }

    /// Returns whether a partly filled parcel or a step still has to be sent, by a later
    /// [`publish`](Self::publish).
    pub(crate) fn is_waiting(&self) -> bool {
        let waits = |outgoing: &Outgoing| outgoing.open.is_some() || outgoing.announced != self.step;
        self.peers.iter().flatten().any(|peer| waits(&peer.outgoing))
    }

    /// Announces that the worker will sleep until woken. If a parcel has arrived, withdraws the announcement
    /// and returns `false`.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let nothing = self.peers.iter().flatten().all(|peer| peer.incoming.is_empty());
        if !nothing {
            self.wake_up();
        }
        nothing
    }

    /// Announces that the worker is awake.
    pub(crate) fn wake_up(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }
}

/// Whether all other workers, and whether any of them, have announced a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PeersAt {
    pub all: bool,
    pub any: bool,
}

fn way() -> (Outgoing, Incoming) {
    let (parcels, taken) = RingBuffer::new(PARCELS);
    let (mut back, empty) = RingBuffer::new(PARCELS);
    for _ in 0..PARCELS {
        // Can't fail: the ring has a slot for each parcel. A page of a parcel takes no memory until it is
        // written.
        let _ = back.push(Parcel::with_capacity(FULL + LONGEST));
    }
    let outgoing = Outgoing { parcels, empty, open: None, sent: 0, announced: 0 };
    (outgoing, Incoming { parcels: taken, empty: back, open: None, step: 0 })
}

#[cfg(test)]
mod tests;
