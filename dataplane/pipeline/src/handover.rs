//! Hand-over of packets between workers.
//!
//! Each flow and each port has one worker as owner. A packet whose flow or egress port belongs to another
//! worker goes there through a ring. Packet memory belongs to one thread, so the packet's front is copied into
//! a *parcel*, and from there into the other worker's memory. The rest is [lent](millrace_packet::Lender): it
//! stays in this worker's memory until the other worker has released the packet. Short and very long packets
//! are copied whole, and so are packets beyond the maximum number of loans. Each ordered pair of workers has a
//! ring for parcels, a second one that returns empty parcels, and a third one for ended loans. Threads write
//! shared memory once per parcel, not per packet, and each ring keeps the order of packets. Principals have
//! their [parts](division) of the parcels.
//!
//! A worker also announces its *step* in the grace periods of the offload to all others, as a record among
//! the packets. A worker that has received the step has received all packets sent before it.

mod division;
mod parcels;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use millrace_classify::connection_hash;
use millrace_packet::{Exceptions, FlowKey, Packet, Pool};
use millrace_units::{NextHopIndex, PortId, PrincipalId, QueueId};

pub(crate) use self::division::HandoverLoad;
use self::parcels::{Incoming, IncomingRings, Outgoing, OutgoingRings, way};
use crate::ports::DeviceId;
use crate::wake::Wake;

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

/// Errand of a packet for another worker, with its transport header fields, filters and payer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Note<'a> {
    pub errand: Errand,
    /// For [`Errand::Flow`].
    pub transport: Transport,
    /// Account words of the filters that account for the packet.
    pub filters: &'a [u64],
    /// Principal that pays for the path of the packet, whose part of the rings the packet takes.
    pub payer: Option<PrincipalId>,
}

impl Note<'_> {
    /// Returns a note of an errand, without filters and principal.
    pub fn of(errand: Errand) -> Self {
        Self { errand, transport: Transport::default(), filters: &[], payer: None }
    }
}

/// Packet handed over by another worker.
#[derive(Debug)]
pub(crate) struct Handed<'a> {
    pub errand: Errand,
    /// The packet, with the offset of its network header; `None` if this worker has no memory for it.
    pub packet: Option<Packet>,
    /// Ingress port.
    pub port: PortId,
    /// Egress port, for [`Errand::Transmit`].
    pub out_port: PortId,
    /// Transport header fields, as parsed by the worker that received the packet, for [`Errand::Flow`].
    pub transport: Transport,
    /// Flow hash, for [`Errand::Transmit`].
    pub hash: u32,
    /// Queue at the egress port.
    pub queue: QueueId,
    /// Route number, for [`Errand::Transmit`].
    pub next_hop: NextHopIndex,
    /// Mark of an instance, number of classifications, and whether a frame of the kernel leaves unchanged; for
    /// [`Errand::Flow`].
    pub tag: u8,
    pub passes: u8,
    pub is_framed: bool,
    /// Filters that account for the packet: an account word of eight bytes for each.
    pub counts_for: &'a [u8],
    /// Exceptions, as found by the worker that received the packet from a device.
    pub exceptions: Exceptions,
    /// Trace number; 0 for an untraced packet.
    pub trace: u16,
}

#[derive(Debug)]
struct Peer {
    outgoing: Outgoing,
    incoming: Incoming,
    asleep: Arc<AtomicBool>,
    wake: Option<Wake>,
}

#[derive(Debug)]
struct PeerRings {
    outgoing: OutgoingRings,
    incoming: IncomingRings,
    asleep: Arc<AtomicBool>,
    wake: Option<Wake>,
}

/// Rings of a worker to and from all other workers, before the worker's thread starts.
#[derive(Debug)]
pub struct HandoverRings {
    me: usize,
    peers: Vec<Option<PeerRings>>,
    asleep: Arc<AtomicBool>,
}

impl HandoverRings {
    /// Creates the rings between all workers. Returns an item for each worker. `wakes` holds each worker's
    /// wake-up signal; `None` for a worker that never sleeps.
    pub fn mesh(wakes: &[Option<Wake>]) -> Vec<Self> {
        let count = wakes.len();
        let asleep: Vec<Arc<AtomicBool>> = wakes.iter().map(|_| Arc::default()).collect();
        let mut all: Vec<Self> = Vec::new();
        for own in &asleep {
            let peers = (0..count).map(|_| None).collect();
            all.push(Self { me: all.len(), peers, asleep: Arc::clone(own) });
        }
        for from in 0..count {
            for to in 0..from {
                let (forth, back) = (way(), way());
                for (me, peer, outgoing, incoming) in
                    [(from, to, forth.0, back.1), (to, from, back.0, forth.1)]
                {
                    let (asleep, wake) = (Arc::clone(&asleep[peer]), wakes[peer].clone());
                    all[me].peers[peer] = Some(PeerRings { outgoing, incoming, asleep, wake });
                }
            }
        }
        all
    }

    /// Returns the number of workers.
    pub fn workers(&self) -> usize {
        self.peers.len()
    }
}

/// Hand-over of a worker to and from all other workers.
#[derive(Debug)]
pub struct Handover {
    me: usize,
    /// Each worker, by worker number; `None` for this worker.
    peers: Vec<Option<Peer>>,
    /// Whether this worker sleeps or is about to sleep. The other workers read it.
    asleep: Arc<AtomicBool>,
    step: u64,
}

impl Handover {
    /// Begins the hand-over by rings, on the worker's thread. The worker lends at most a quarter of its `frames`
    /// memory frames.
    pub fn new(rings: HandoverRings, frames: u32) -> Self {
        let others = rings.workers().saturating_sub(1).max(1) as u32;
        let loans = u16::try_from(frames / 4 / others).unwrap_or(u16::MAX);
        let peer = |PeerRings { outgoing, incoming, asleep, wake }| Peer {
            outgoing: Outgoing::new(outgoing, loans),
            incoming: Incoming::new(incoming),
            asleep,
            wake,
        };
        let peers = rings.peers.into_iter().map(|rings| rings.map(peer)).collect();
        Self { me: rings.me, peers, asleep: rings.asleep, step: 0 }
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

    /// Returns the owner of the flows with this [connection hash](crate::connection_hash); `None` if this worker owns them.
    #[inline]
    pub(crate) fn owner_of(&self, hash: u32) -> Option<usize> {
        let owner = Self::owner_of_hash(hash, self.workers());
        (owner != self.me).then_some(owner)
    }

    /// Returns the owner of a flow among `workers` workers. Both directions of a connection have the same owner. `seed` is
    /// the seed of the workers' hashes.
    pub fn owner_of_flow(key: &FlowKey, seed: u64, workers: usize) -> usize {
        Self::owner_of_hash(connection_hash(key, seed), workers)
    }

    #[inline]
    fn owner_of_hash(hash: u32, workers: usize) -> usize {
        // Each worker owns an equal part of the range of hashes.
        ((u64::from(hash) * workers as u64) >> 32) as usize
    }

    /// Returns the load of a principal in the rings to all other workers.
    pub(crate) fn load(&self, principal: PrincipalId) -> HandoverLoad {
        let loads = self.peers.iter().flatten().map(|peer| peer.outgoing.load(principal));
        loads.fold(HandoverLoad::default(), |sum, load| HandoverLoad {
            bytes: sum.bytes + load.bytes,
            dropped: sum.dropped + load.dropped,
        })
    }

    /// Forgets the lost packets of a removed principal.
    pub(crate) fn forget(&mut self, principal: PrincipalId) {
        self.peers.iter_mut().flatten().for_each(|peer| peer.outgoing.forget(principal));
    }

    /// Returns the number of this worker.
    pub(crate) fn me(&self) -> usize {
        self.me
    }

    /// Puts a packet with a note into a parcel for a worker.
    ///
    /// # Errors
    /// The packet, if no parcel has room for it.
    pub(crate) fn put(&mut self, to: usize, packet: Packet, note: Note<'_>) -> Result<(), Packet> {
        match self.peers.get_mut(to) {
            Some(Some(peer)) => peer.outgoing.put(packet, note),
            _ => Err(packet),
        }
    }

    /// Hands a packet with a note over to the worker that owns `device`.
    ///
    /// # Errors
    /// The packet, if no parcel has room for it.
    pub(crate) fn put_to_device(
        &mut self,
        device: DeviceId,
        packet: Packet,
        note: Note<'_>,
    ) -> Result<(), Packet> {
        self.put(Self::owner(device, self.workers()), packet, note)
    }

    /// Returns the next packet that worker `from` has handed over, in memory of `pool`; `None` if there is none.
    #[inline]
    pub(crate) fn next(&mut self, from: usize, pool: &Pool) -> Option<Handed<'_>> {
        self.peers.get_mut(from)?.as_mut()?.incoming.next(pool)
    }

    /// Returns the bytes of the records for worker `to` that are not sent yet.
    #[cfg(test)]
    pub(crate) fn bytes_to(&self, to: usize) -> usize {
        self.peers[to].as_ref().map_or(0, |peer| peer.outgoing.unsent_bytes())
    }

    /// Sets the step that the next [`publish`](Self::publish) announces to all other workers, after all
    /// packets put so far.
    pub(crate) fn announce(&mut self, step: u64) {
        self.step = step;
    }

    /// Returns whether all other workers, and whether any of them, have announced this step or a later one.
    pub(crate) fn peers_at(&self, step: u64) -> PeersAt {
        let has = |peer: &Peer| peer.incoming.step() >= step;
        let mut peers = self.peers.iter().flatten().map(has);
        PeersAt { all: peers.clone().all(|has| has), any: peers.any(|has| has) }
    }

    /// Sends parcels, and wakes sleeping receivers. Returns the number of parcels sent. If a receiver is busy, a partly
    /// filled parcel stays open for a later call (see [`is_waiting`](Self::is_waiting)).
    ///
    /// Also tells the other workers which of their packets have been released here, and releases the packets of this
    /// worker that the others have released.
    pub(crate) fn publish(&mut self) -> usize {
        let mut sent = 0;
        for peer in self.peers.iter_mut().flatten() {
            peer.incoming.return_loans();
            peer.outgoing.take_back();
            peer.outgoing.announce(self.step);
            peer.outgoing.publish();
            let parcels = peer.outgoing.take_sent();
            sent += parcels;
            if parcels > 0 {
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
        self.peers.iter().flatten().any(|peer| peer.outgoing.is_waiting(self.step))
    }

    /// Announces that the worker will sleep until woken. If a parcel has arrived, withdraws the announcement
    /// and returns `false`.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let nothing = !self.has_arrivals();
        if !nothing {
            self.wake_up();
        }
        nothing
    }

    /// Whether other workers have sent parcels.
    pub(crate) fn has_arrivals(&self) -> bool {
        self.peers.iter().flatten().any(|peer| !peer.incoming.is_empty())
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

#[cfg(test)]
mod tests;
