//! Hand-over: packets that go from one worker to another.
//!
//! Workers own flows, and ports: a packet whose flow, or whose way out, is another worker's goes there by ring. Packet
//! memory is of one thread, so the packet is copied into a *parcel* and from there into the other worker's memory. Parcels
//! go by a ring of their own for each ordered pair of workers, and come back empty by another: threads write what they
//! share once per parcel, not per packet, and each ring keeps its order.
//!
//! Between packets a worker announces to all others its *step* in the grace periods of the offload: a worker that has received the step has
//! all packets that were put before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use millrace_packet::{Exceptions, FlowKey, Packet};
use millrace_units::{NextHopIndex, PortId, QueueId};
use rtrb::{Consumer, Producer, RingBuffer};

use crate::ports::DeviceId;
use crate::thread::Wake;

/// Parcels of each ordered pair of workers.
const PARCELS: usize = 32;
/// Bytes after which a parcel takes nothing more.
const FULL: usize = 32 << 10;
/// The longest frame that finds room in a parcel that is not yet full.
const LONGEST: usize = (64 << 10) + 64;
/// Parcels under way up to which a part-filled one is sent at once. Beyond, it is filled first: who is to take them has
/// enough to do.
const UNDER_WAY: usize = 8;

/// What the other worker is to do with a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Errand {
    /// Take it through the stages: its flow is that worker's.
    Flow,
    /// Put the finished frame into the queue of its `out_port`.
    Transmit,
    /// Give it to the kernel, as received on its port.
    Host,
}

/// Fields of a packet's transport header. A fragment behind the first shows none of them, and its next header may lie: only
/// the worker that has seen the first one knows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Transport {
    /// Protocol of the header.
    pub protocol: u8,
    /// Source and destination port.
    pub ports: (u16, u16),
    /// TCP flags, where they are known.
    pub tcp_flags: Option<u8>,
}

impl Transport {
    /// The fields of a packet with this key and these flags.
    pub fn of(key: &FlowKey, tcp_flags: Option<u8>) -> Self {
        let ports = (key.source_port, key.destination_port);
        Self { protocol: key.protocol, ports, tcp_flags }
    }
}

/// A packet that was handed over.
#[derive(Debug)]
pub(crate) struct Handed<'a> {
    pub errand: Errand,
    /// Where its network header starts.
    pub network: usize,
    /// Port of arrival.
    pub port: PortId,
    /// Port to leave by, for [`Errand::Transmit`].
    pub out_port: PortId,
    /// Of [`Errand::Flow`], what the worker that received it knows of its transport header.
    pub transport: Transport,
    /// Its flow's hash, and its queue at the port to leave by, for [`Errand::Transmit`].
    pub hash: u32,
    pub queue: QueueId,
    /// The number of its route, for [`Errand::Transmit`].
    pub next_hop: NextHopIndex,
    /// The filters that it counts for: a word of eight bytes for each.
    pub counts_for: &'a [u8],
    /// What is exceptional about it, as known to the worker that received it.
    pub exceptions: Exceptions,
    /// The number under which its journey is written down.
    pub trace: u16,
    pub bytes: &'a [u8],
}

/// In place of an errand: the step of the worker that has put the packets before.
const STEP: u8 = u8::MAX;
const HEADER: usize = 32;
/// Bytes behind the header for each filter that a packet counts for.
const FILTER: usize = 8;
/// Filters that are handed over with a packet, at most: there is no path of so many.
const FILTERS: usize = 255;

type Parcel = Vec<u8>;

/// The way to another worker.
#[derive(Debug)]
struct Outgoing {
    parcels: Producer<Parcel>,
    empty: Consumer<Parcel>,
    open: Option<Parcel>,
    /// Whether parcels were sent since the other worker was last woken.
    sent: usize,
    /// The step that was announced last.
    announced: u64,
}

impl Outgoing {
    /// A parcel with room, if there is one.
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

    /// Announces a step behind all packets that were put; a later call does if there is no room.
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
            // The ring has room for as many parcels as there are.
            let _ = self.parcels.push(parcel);
            self.sent += 1;
        }
    }

    /// Sends what there is to send, unless enough is under way: then the rest of the room is for full parcels.
    fn publish(&mut self) {
        if self.open.is_some() && PARCELS - self.parcels.slots() < UNDER_WAY {
            self.send();
        }
    }
}

/// The way from another worker.
#[derive(Debug)]
struct Incoming {
    parcels: Consumer<Parcel>,
    empty: Producer<Parcel>,
    /// The parcel that is being unpacked, and how far.
    open: Option<(Parcel, usize)>,
    /// The step that was received last.
    step: u64,
}

impl Incoming {
    /// Begins a parcel if none is being unpacked; whether there is a packet in it.
    fn advance(&mut self) -> bool {
        if let Some((parcel, at)) = &mut self.open {
            if *at < parcel.len() {
                return true;
            }
            let mut parcel = std::mem::take(parcel);
            parcel.clear();
            // The ring has room for as many parcels as there are.
            let _ = self.empty.push(parcel);
        }
        self.open = self.parcels.pop().ok().map(|parcel| (parcel, 0));
        self.open.is_some()
    }

    /// The header of the next record, if there is one.
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

/// A worker's ways to and from the others.
#[derive(Debug)]
pub struct Handover {
    me: usize,
    /// By number; `None` for the worker itself.
    peers: Vec<Option<Peer>>,
    /// Whether this worker sleeps, or is about to.
    asleep: Arc<AtomicBool>,
    step: u64,
}

impl Handover {
    /// The ways between as many workers as there are entries in `wakes`, by which they are woken (`None`: they never
    /// sleep). Each takes its own.
    pub fn mesh(wakes: &[Option<Wake>]) -> Vec<Self> {
        let count = wakes.len();
        let asleep: Vec<Arc<AtomicBool>> = wakes.iter().map(|_| Arc::default()).collect();
        // By sender, then by receiver.
        let mut ways: Vec<Vec<Option<(Outgoing, Incoming)>>> =
            (0..count).map(|from| (0..count).map(|to| (from != to).then(way)).collect()).collect();
        let mut outgoing: Vec<Vec<Option<Outgoing>>> = Vec::new();
        let mut incoming: Vec<Vec<Option<Incoming>>> = (0..count).map(|_| Vec::new()).collect();
        for row in ways.drain(..) {
            let mut own = Vec::new();
            for (to, way) in row.into_iter().enumerate() {
                let (sending, receiving) = way.unzip();
                own.push(sending);
                incoming[to].push(receiving);
            }
            outgoing.push(own);
        }
        let ends = outgoing.into_iter().zip(incoming).enumerate();
        let ends = ends.map(|(me, (outgoing, incoming))| {
            let peers = outgoing.into_iter().zip(incoming).enumerate().map(|(peer, (outgoing, incoming))| {
                Some(Peer {
                    outgoing: outgoing?,
                    incoming: incoming?,
                    asleep: Arc::clone(&asleep[peer]),
                    wake: wakes[peer].clone(),
                })
            });
            Self { me, peers: peers.collect(), asleep: Arc::clone(&asleep[me]), step: 0 }
        });
        ends.collect()
    }

    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.peers.len()
    }

    /// The worker that has a device, of so many: they take turns in the order of devices.
    pub fn owner(device: DeviceId, workers: usize) -> usize {
        usize::from(device.0) % workers
    }

    /// Whether the worker has this device itself.
    #[inline]
    pub(crate) fn owns(&self, device: DeviceId) -> bool {
        Self::owner(device, self.workers()) == self.me
    }

    /// The other worker that the flow of this hash belongs to; `None` if it is this one's.
    #[inline]
    pub(crate) fn owner_of_flow(&self, hash: u32) -> Option<usize> {
        let owner = Self::owner_of_hash(hash, self.workers());
        (owner != self.me).then_some(owner)
    }

    /// The worker that a flow belongs to, of so many, by its [hash](crate::flow_hash).
    #[inline]
    pub fn owner_of_hash(hash: u32, workers: usize) -> usize {
        // The part of all hashes that it lies in: hashes are as good at the top as anywhere.
        ((u64::from(hash) * workers as u64) >> 32) as usize
    }

    /// The number of this end's worker.
    pub(crate) fn me(&self) -> usize {
        self.me
    }

    /// Hands a packet over to a worker, with the words of the filters that it counts for; whether there was room. The packet
    /// itself is no longer needed then.
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

    /// Hands a packet over to the worker that has `device`.
    pub(crate) fn put_to_device(
        &mut self,
        device: DeviceId,
        errand: Errand,
        packet: &Packet,
        filters: &[u64],
    ) -> bool {
        self.put(Self::owner(device, self.workers()), errand, packet, Transport::default(), filters)
    }

    /// The next packet that a worker handed over.
    #[inline]
    pub(crate) fn next(&mut self, from: usize) -> Option<Handed<'_>> {
        self.peers.get_mut(from)?.as_mut()?.incoming.next()
    }

    /// Announces a step of this worker to all others, behind all packets that are handed over until it is sent.
    pub(crate) fn announce(&mut self, step: u64) {
        self.step = step;
    }

    /// Returns whether all others, and whether any, have announced this step or a later one.
    pub(crate) fn peers_at(&self, step: u64) -> PeersAt {
        let has = |peer: &Peer| peer.incoming.step >= step;
        let mut peers = self.peers.iter().flatten().map(has);
        PeersAt { all: peers.clone().all(|has| has), any: peers.any(|has| has) }
    }

    /// Sends parcels, and wakes those who sleep. Returns how many were sent. What is not sent then, because there is enough
    /// under way, is to be sent by another call: see [`is_waiting`](Self::is_waiting).
    pub(crate) fn publish(&mut self) -> usize {
        let mut sent = 0;
        for peer in self.peers.iter_mut().flatten() {
            peer.outgoing.announce(self.step);
            peer.outgoing.publish();
            sent += peer.outgoing.sent;
            if std::mem::take(&mut peer.outgoing.sent) > 0 {
                // Either we see that it sleeps, or it sees the parcel before it does: see `fall_asleep`.
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

    /// Whether something waits for others to take what is under way.
    pub(crate) fn is_waiting(&self) -> bool {
        let waits = |outgoing: &Outgoing| outgoing.open.is_some() || outgoing.announced != self.step;
        self.peers.iter().flatten().any(|peer| waits(&peer.outgoing))
    }

    /// Says that the worker will sleep until it is woken; not, if something has come for it.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let nothing = self.peers.iter().flatten().all(|peer| peer.incoming.is_empty());
        if !nothing {
            self.wake_up();
        }
        nothing
    }

    /// Says that the worker does not sleep any more.
    pub(crate) fn wake_up(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }
}

/// Workers that have announced a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PeersAt {
    pub all: bool,
    pub any: bool,
}

fn way() -> (Outgoing, Incoming) {
    let (parcels, taken) = RingBuffer::new(PARCELS);
    let (mut back, empty) = RingBuffer::new(PARCELS);
    for _ in 0..PARCELS {
        // There is a place for each; memory is used as far as it is written.
        let _ = back.push(Parcel::with_capacity(FULL + LONGEST));
    }
    let outgoing = Outgoing { parcels, empty, open: None, sent: 0, announced: 0 };
    (outgoing, Incoming { parcels: taken, empty: back, open: None, step: 0 })
}

#[cfg(test)]
mod tests {
    use millrace_packet::Pool;

    use super::*;

    #[test]
    fn packets_come_out_as_they_went_in_until_all_parcels_are_full() {
        let pool = Pool::new(64).unwrap();
        let mut ends = Handover::mesh(&[None, None, None]);
        let (mut third, mut first) = (ends.pop().unwrap(), ends.swap_remove(0));
        let mut packet = pool.packet_from(&[7; 5000]).unwrap();
        packet.set_network(14);
        (packet.port, packet.out_port, packet.exceptions) = (PortId(3), PortId(4), Exceptions::TTL);
        assert!(third.next(0).is_none() && third.fall_asleep());
        let mut put = 0;
        packet.next_hop = NextHopIndex(70_000);
        let transport = Transport { protocol: 6, ports: (5, 60_000), tcp_flags: Some(0) };
        while first.put(2, Errand::Transmit, &packet, transport, &[5, u64::MAX]) {
            put += 1;
        }
        assert!(put >= PARCELS * FULL / 5020, "{put}");
        assert!(!third.fall_asleep());
        assert_eq!(first.publish(), PARCELS);
        assert!(!first.is_waiting());
        for _ in 0..put {
            first.publish();
            let handed = third.next(0).unwrap();
            assert_eq!((handed.errand, handed.network, handed.bytes), (Errand::Transmit, 14, &[7; 5000][..]));
            assert_eq!((handed.port, handed.out_port), (PortId(3), PortId(4)));
            assert_eq!((handed.exceptions, handed.next_hop), (Exceptions::TTL, NextHopIndex(70_000)));
            assert_eq!(handed.transport, transport);
            assert_eq!(handed.counts_for, [5u64, u64::MAX].map(u64::to_le_bytes).concat());
        }
        assert!(third.next(0).is_none() && third.next(1).is_none());
        assert!(first.put(2, Errand::Flow, &packet, Transport::default(), &[]), "parcels come back");
    }

    #[test]
    fn a_part_filled_parcel_is_sent_unless_many_are_under_way() {
        let pool = Pool::new(8).unwrap();
        let mut ends = Handover::mesh(&[None, None]);
        let (mut second, mut first) = (ends.pop().unwrap(), ends.pop().unwrap());
        let packet = pool.packet_from(&[1; 60]).unwrap();
        let mut sent = 0;
        for _ in 0..100 {
            assert!(first.put(1, Errand::Flow, &packet, Transport::default(), &[]));
            sent += first.publish();
        }
        assert_eq!(sent, UNDER_WAY);
        assert!(first.is_waiting());
        let mut taken = 0;
        while second.next(0).is_some() {
            taken += 1;
            sent += first.publish();
        }
        assert_eq!(sent, UNDER_WAY + 1);
        assert_eq!(taken, 100);
    }

    #[test]
    fn every_flow_and_every_device_has_one_owner() {
        let ends = Handover::mesh(&[None, None, None]);
        for hash in (0..64).map(|number| u32::wrapping_mul(number, 0x9e37_79b9)) {
            assert_eq!(ends.iter().filter(|end| end.owner_of_flow(hash).is_none()).count(), 1);
        }
        for device in 0..7 {
            assert_eq!(ends.iter().filter(|end| end.owns(DeviceId(device))).count(), 1);
        }
    }
}
