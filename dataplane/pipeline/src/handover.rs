//! Hand-over of packets between workers.
//!
//! Each flow and each port has one worker as owner. A packet whose flow or egress port belongs to another
//! worker goes there by ring. Packet memory belongs to one thread, so the packet is copied into a *parcel*,
//! and from there into the other worker's memory. Each ordered pair of workers has a ring for parcels, and
//! another ring returns empty parcels. Threads write shared memory once per parcel, not per packet, and each
//! ring keeps the order of packets.
//!
//! Between packets, a worker announces its *step* in the grace periods of the offload to all others. A worker
//! that has received the step has received all earlier packets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use millrace_packet::{Exceptions, FlowKey, Packet};
use millrace_units::{NextHopIndex, PortId, QueueId};
use rtrb::{Consumer, Producer, RingBuffer};

use crate::ports::DeviceId;
use crate::wake::Wake;

/// Number of parcels of each ordered pair of workers.
const PARCELS: usize = 32;
/// Length in bytes from which on a parcel takes no further packet.
const FULL: usize = 32 << 10;
/// Length in bytes of the longest frame that a parcel below [`FULL`] has room for.
const LONGEST: usize = (64 << 10) + 64;
/// Number of unread parcels below which a partly filled parcel is sent at once. With more, the receiver is
/// busy, and the parcel is filled first.
const UNDER_WAY: usize = 8;

/// Task of the receiving worker for a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Errand {
    /// Take the packet through the stages, as the owner of its flow.
    Flow,
    /// Put the finished frame into the queue of its `out_port`.
    Transmit,
    /// Punt the packet to the kernel, as received on its port.
    Host,
}

/// Fields of a packet's transport header. A later fragment lacks these fields, and its next header may be
/// wrong: only the worker that has seen the first fragment knows them.
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
    /// Returns the fields of a packet with this flow key and these flags.
    pub fn of(key: &FlowKey, tcp_flags: Option<u8>) -> Self {
        let ports = (key.source_port, key.destination_port);
        Self { protocol: key.protocol, ports, tcp_flags }
    }
}

/// Packet handed over by another worker.
#[derive(Debug)]
pub(crate) struct Handed<'a> {
    pub errand: Errand,
    /// Offset of the network header in bytes.
    pub network: usize,
    /// Ingress port.
    pub port: PortId,
    /// Egress port, for [`Errand::Transmit`].
    pub out_port: PortId,
    /// Transport header fields, as parsed by the worker that received the packet, for [`Errand::Flow`].
    pub transport: Transport,
    /// Flow hash, followed by the queue at the egress port, for [`Errand::Transmit`].
    pub hash: u32,
    pub queue: QueueId,
    /// Route number, for [`Errand::Transmit`].
    pub next_hop: NextHopIndex,
    /// Filters that account for the packet: a word of eight bytes for each.
    pub counts_for: &'a [u8],
    /// Exceptions, as found by the worker that received the packet from a device.
    pub exceptions: Exceptions,
    /// Mark of a traced packet; 0 for none.
    pub trace: u16,
    pub bytes: &'a [u8],
}

/// Code that a step record has in place of an errand. Such a record announces the sender's step after all
/// earlier packets.
const STEP: u8 = u8::MAX;
const HEADER: usize = 32;
/// Length in bytes of each filter account after the header.
const FILTER: usize = 8;
/// Maximum number of filter accounts handed over with a packet; no path has more filters.
const FILTERS: usize = 255;

type Parcel = Vec<u8>;

/// Sending end of the rings to another worker.
#[derive(Debug)]
struct Outgoing {
    parcels: Producer<Parcel>,
    empty: Consumer<Parcel>,
    open: Option<Parcel>,
    /// Number of parcels sent since the other worker was last woken.
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

    /// Announces a step after all packets put so far. Without room, a later call announces it.
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
            // Never fails: the ring has room for all parcels.
            let _ = self.parcels.push(parcel);
            self.sent += 1;
        }
    }

    /// Sends the open parcel, unless [`UNDER_WAY`] parcels are unread: then only full parcels are sent.
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
    /// Parcel in reading, with the offset of the next record.
    open: Option<(Parcel, usize)>,
    /// Step received last.
    step: u64,
}

impl Incoming {
    /// Opens the next parcel if the open one has no further record. Returns whether a parcel is open.
    fn advance(&mut self) -> bool {
        if let Some((parcel, at)) = &mut self.open {
            if *at < parcel.len() {
                return true;
            }
            let mut parcel = std::mem::take(parcel);
            parcel.clear();
            // Never fails: the ring has room for all parcels.
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

/// Rings of a worker to and from all others.
#[derive(Debug)]
pub struct Handover {
    me: usize,
    /// Peers by worker number; `None` for the worker itself.
    peers: Vec<Option<Peer>>,
    /// Whether this worker sleeps or is about to sleep.
    asleep: Arc<AtomicBool>,
    step: u64,
}

impl Handover {
    /// Returns the rings between workers, one item for each worker. `wakes` holds each worker's wake-up
    /// handle; `None` for a worker that never sleeps.
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
        // Each worker owns an equal part of the range of hashes; the top bits are as random as the others.
        ((u64::from(hash) * workers as u64) >> 32) as usize
    }

    /// Returns the number of this worker.
    pub(crate) fn me(&self) -> usize {
        self.me
    }

    /// Hands a packet over to a worker, with the words of its filter accounts. Returns whether there was
    /// room. If so, the caller no longer needs the packet.
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

    /// Returns the next packet handed over by a worker.
    #[inline]
    pub(crate) fn next(&mut self, from: usize) -> Option<Handed<'_>> {
        self.peers.get_mut(from)?.as_mut()?.incoming.next()
    }

    /// Sets the step that the next [`publish`](Self::publish) announces to all other workers, after all
    /// packets put until then.
    pub(crate) fn announce(&mut self, step: u64) {
        self.step = step;
    }

    /// Returns whether all others, and whether any, have announced this step or a later one.
    pub(crate) fn peers_at(&self, step: u64) -> PeersAt {
        let has = |peer: &Peer| peer.incoming.step >= step;
        let mut peers = self.peers.iter().flatten().map(has);
        PeersAt { all: peers.clone().all(|has| has), any: peers.any(|has| has) }
    }

    /// Sends parcels, and wakes sleeping receivers. Returns the number of parcels sent. A parcel stays open
    /// if enough parcels are unread; a later call sends it: see [`is_waiting`](Self::is_waiting).
    pub(crate) fn publish(&mut self) -> usize {
        let mut sent = 0;
        for peer in self.peers.iter_mut().flatten() {
            peer.outgoing.announce(self.step);
            peer.outgoing.publish();
            sent += peer.outgoing.sent;
            if std::mem::take(&mut peer.outgoing.sent) > 0 {
                // Either this worker sees that the peer sleeps, or the peer sees the parcel before it sleeps:
                // see `fall_asleep`.
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

    /// Returns whether an open parcel or a step waits until other workers have read parcels.
    pub(crate) fn is_waiting(&self) -> bool {
        let waits = |outgoing: &Outgoing| outgoing.open.is_some() || outgoing.announced != self.step;
        self.peers.iter().flatten().any(|peer| waits(&peer.outgoing))
    }

    /// Announces that the worker will sleep until woken. Returns `false`, and withdraws the announcement, if
    /// a packet has arrived.
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
        // Never fails: the ring has a slot for each parcel. Pages of a parcel take memory once they are
        // written.
        let _ = back.push(Parcel::with_capacity(FULL + LONGEST));
    }
    let outgoing = Outgoing { parcels, empty, open: None, sent: 0, announced: 0 };
    (outgoing, Incoming { parcels: taken, empty: back, open: None, step: 0 })
}

#[cfg(test)]
mod tests;
