//! Batch in the pipeline: the packets, and the results of the stages for each packet.

use std::net::{IpAddr, Ipv4Addr};

use millrace_classify::{Candidate, FlowIndex, NearKey};
use millrace_forward::{IcmpError, NO_ADJACENCY};
use millrace_packet::{BATCH_SIZE, Batch, DropReason, Family, FlowKey, Packet};
use millrace_plugin::{EMPTY_PATH, Ticket};
use millrace_plugin_abi::{PacketConnection, Verdict};
use millrace_units::{Amount, NextHopIndex, PathId, PortId};
use millrace_wire::{MacAddr, Protocol};

use crate::each::Each;

/// Result of the stages for a packet, which the dispose stage carries out.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Fate {
    /// The packet is open: it passes the remaining stages, and finally leaves by its `out_port`.
    Forward,
    /// The packet is dropped.
    Drop(DropReason),
    /// The packet is dropped, and its source gets an ICMP error.
    Refuse(IcmpError, DropReason),
    /// The packet is punted to the kernel, as if its ingress port had just received it.
    Host,
    /// The packet is delivered to the router's own stack, because its ingress port has no kernel stack.
    Own,
    /// The packet is held until the MAC address of this next hop at its `out_port` is known.
    Hold(IpAddr),
    /// A plugin has consumed the packet.
    Consumed,
    /// A plugin keeps the packet.
    Kept(Ticket),
    /// The packet is classified again.
    Again,
    /// The packet is a copy that an instance sends. It leaves by the route in its annotations.
    Resume,
    /// The packet is a finished frame, and is put into the queue of its `out_port` unchanged.
    Queue,
    /// The packet goes to the worker with this number, which takes it through the stages from classify on.
    HandOver(u16),
}

impl Fate {
    /// Returns whether later stages still have to treat the packet.
    #[inline]
    pub fn is_open(self) -> bool {
        matches!(self, Self::Forward)
    }
}

/// Varying fields of a packet that the parse stage reads. Filters match them, but the flow key doesn't
/// contain them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Varying {
    /// TCP flags; `None` for other protocols, or if the packet doesn't contain them.
    pub tcp_flags: Option<u8>,
    /// Differentiated services code point.
    pub dscp: u8,
}

impl Varying {
    /// Returns the fields of the packet that filters match.
    pub fn candidate(self, key: FlowKey, packet: &Packet) -> Candidate {
        let Self { tcp_flags, dscp } = self;
        Candidate { key, tcp_flags, tag: packet.tag, exceptions: packet.exceptions, dscp }
    }

    /// Returns the varying fields of a plain frame.
    fn of_plain(packet: &Packet, key: &FlowKey) -> Self {
        let bytes = |at: usize| packet.network().get(at).copied().unwrap_or_default();
        let dscp = match key.family() {
            Family::V4 => bytes(1) >> 2,
            Family::V6 => (bytes(0) & 0xf) << 2 | bytes(1) >> 6,
        };
        let is_tcp = Protocol(key.protocol) == Protocol::TCP;
        Self { tcp_flags: packet.transport().get(13).copied().filter(|_| is_tcp), dscp }
    }
}

/// Set of packets of a batch: one bit for each index.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Bits([u64; BATCH_SIZE / 64]);

impl Bits {
    /// Returns the set of the first `count` indices.
    pub fn of(count: usize) -> Self {
        let word = |at: usize| match count.saturating_sub(at * 64) {
            64.. => u64::MAX,
            rest => (1 << rest) - 1,
        };
        Self(std::array::from_fn(word))
    }

    /// Returns the `count` indices from `first` on that are in the set, each reduced by `first`.
    pub fn from(self, first: usize, count: usize) -> Self {
        let (words, bits) = (first / 64, first % 64);
        let word = |at: usize| self.0.get(at + words).copied().unwrap_or_default();
        let Self(most) = Self::of(count);
        let mut at = 0;
        Self(most.map(|most| {
            let above = if bits == 0 { 0 } else { word(at + 1) << (64 - bits) };
            at += 1;
            (word(at - 1) >> bits | above) & most
        }))
    }

    /// Returns whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == [0; BATCH_SIZE / 64]
    }

    /// Removes an index from the set. Returns whether the set contained it.
    #[inline(always)]
    #[expect(clippy::indexing_slicing, reason = "a word by a remainder of the number of words")]
    pub fn take(&mut self, index: usize) -> bool {
        let (word, bit) = (&mut self.0[index / 64 % (BATCH_SIZE / 64)], 1 << (index % 64));
        let was = *word & bit != 0;
        *word &= !bit;
        was
    }
}

/// Property that all packets of a batch have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Alike {
    /// No common property.
    #[default]
    No,
    /// All packets were read as untagged plain frames, and none was changed since. If a packet's fate was
    /// decided since, [`nears`](BriefReading::nears) lacks its flow key.
    Plain,
    /// [`Plain`](Self::Plain), and all packets are IPv4.
    Plain4,
}

/// Accounts of a packet: its route, and the path whose filters [account for
/// it](millrace_packet::Annotations::counts_for).
pub(crate) type Accounts = (NextHopIndex, PathId);

/// Packets and bytes of a batch that the fast path has made into finished frames. Successive frames with the
/// same egress port and accounts share an item.
#[derive(Debug)]
pub(crate) struct Leaving(Vec<(PortId, Accounts, Amount)>);

impl Default for Leaving {
    fn default() -> Self {
        Self(Vec::with_capacity(BATCH_SIZE))
    }
}

impl Leaving {
    /// Discards the items of the previous batch.
    pub fn begin(&mut self) {
        self.0.clear();
    }

    /// Adds packets and bytes that leave by a port, with their accounts.
    #[inline]
    pub fn add(&mut self, port: PortId, accounts: Accounts, amount: Amount) {
        if amount.packets > 0 {
            self.0.push((port, accounts, amount));
        }
    }

    /// Returns the common egress port of all frames; `None` if they have several.
    pub fn port(&self) -> Option<PortId> {
        let (first, ..) = self.0.first()?;
        self.0.iter().all(|(port, ..)| port == first).then_some(*first)
    }

    /// Returns the amount of each item, with its accounts.
    pub fn amounts(&self) -> impl Iterator<Item = (Accounts, Amount)> {
        self.0.iter().map(|(_, accounts, amount)| (*accounts, *amount))
    }

    /// Returns the number of finished frames.
    pub fn packets(&self) -> u64 {
        self.0.iter().map(|(.., amount)| amount.packets).sum()
    }
}

/// Results of reading the packets of a batch in brief.
#[derive(Debug)]
pub(crate) struct BriefReading {
    /// Compact flow keys, which distinguish most flows; meaningless for packets whose fate was decided before
    /// the parse stage.
    pub nears: Each<NearKey>,
    /// Packets read in brief, which lack their IPv4 flow key and varying fields. [`complete`](Work::complete)
    /// sets both for the few packets that need them; [`note_keys`](Work::note_keys) sets only the keys.
    pub brief: Bits,
    /// Common property of all packets.
    pub alike: Alike,
    /// Whether [`note_keys`](Work::note_keys) still has to set the flow keys of packets with a path.
    pub keys_due: bool,
}

/// States that instances keep for the packets of a batch.
#[derive(Debug)]
pub(crate) struct PacketStates {
    /// Numbers of the flow state blocks; 0 for none.
    pub flows: Each<u32>,
    /// Connections; the default for packets that are not tracked.
    connections: Each<PacketConnection>,
    /// Whether any packet may be tracked.
    is_tracked: bool,
}

impl Default for PacketStates {
    fn default() -> Self {
        let connections = Each::new(PacketConnection::default());
        Self { flows: Each::new(0), connections, is_tracked: false }
    }
}

impl PacketStates {
    /// Resets the states of the first `count` packets, and all connections.
    #[inline]
    fn begin(&mut self, count: usize) {
        self.flows[..count].fill(0);
        if std::mem::take(&mut self.is_tracked) {
            self.connections.all_mut().fill(PacketConnection::default());
        }
    }

    /// Returns the connection of a packet.
    #[inline]
    pub fn connection(&self, index: usize) -> PacketConnection {
        if self.is_tracked { self.connections[index] } else { PacketConnection::default() }
    }

    /// Sets the connection of a packet.
    #[inline]
    pub fn set_connection(&mut self, index: usize, connection: PacketConnection) {
        if self.is_tracked || connection != PacketConnection::default() {
            self.is_tracked = true;
            self.connections[index] = connection;
        }
    }

    /// Returns the numbers of all flow state blocks, and the connections of all packets, which the caller may set if it
    /// tracks packets.
    #[inline]
    pub fn all(&mut self, tracks: bool) -> (&[u32], &mut [PacketConnection]) {
        self.is_tracked |= tracks;
        (self.flows.all(), self.connections.all_mut())
    }
}

/// Batch of packets, and the results of the stages by packet index.
#[derive(Debug)]
pub struct Work {
    /// Packets of the batch.
    pub packets: Batch,
    /// Results of reading in brief.
    pub(crate) reading: BriefReading,
    /// Number of packets aside: traced packets that the stages skip here, because each passes them in a batch
    /// of its own. Their fates are not open in this batch.
    pub(crate) aside: usize,
    /// Flow keys; meaningless for packets whose fate was decided before the parse stage.
    pub keys: Each<FlowKey>,
    /// Hashes of the flow keys, by which the flow table finds records.
    pub hashes: Each<u64>,
    /// Flow records; `None` for packets without one.
    pub flows: Each<Option<FlowIndex>>,
    /// Varying fields of each packet.
    pub varying: Each<Varying>,
    /// Paths: the bindings that apply to each packet.
    pub paths: Each<PathId>,
    /// Adjacency numbers in the flow records; [`NO_ADJACENCY`] for none.
    pub adjacencies: Each<u32>,
    /// States that instances keep for the packets.
    pub(crate) states: PacketStates,
    /// Verdicts of the current plugin call; all are [`Verdict::Pass`] between calls.
    pub verdicts: Each<Verdict>,
    /// Fates of the packets.
    pub fates: Each<Fate>,
    /// Destination MAC addresses of forwarded packets.
    pub destinations: Each<MacAddr>,
    /// Indices of the packets that the fast path leaves to the general path.
    pub(crate) left: Vec<u16>,
    /// Finished frames of the fast path, by egress port and accounts.
    pub(crate) leaving: Leaving,
}

impl Default for Work {
    fn default() -> Self {
        let key = FlowKey::v4(Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED, 0, (0, 0), PortId::NONE);
        Self {
            packets: Batch::new(),
            reading: BriefReading {
                nears: Each::new(NearKey::of(&key)),
                brief: Bits::default(),
                alike: Alike::No,
                keys_due: false,
            },
            aside: 0,
            keys: Each::new(key),
            hashes: Each::new(0),
            flows: Each::new(None),
            varying: Each::new(Varying::default()),
            paths: Each::new(PathId(0)),
            adjacencies: Each::new(NO_ADJACENCY),
            states: PacketStates::default(),
            verdicts: Each::new(Verdict::Pass),
            fates: Each::new(Fate::Forward),
            destinations: Each::new(MacAddr::ZERO),
            left: Vec::with_capacity(BATCH_SIZE),
            leaving: Leaving::default(),
        }
    }
}

impl Work {
    /// Prepares the batch for the stages: opens the fate of every packet, and resets all other results.
    pub fn begin(&mut self) {
        let count = self.packets.len();
        self.fates[..count].fill(Fate::Forward);
        self.reading.brief = Bits::default();
        self.aside = 0;
        self.reading.alike = Alike::No;
        self.reading.keys_due = false;
        self.leaving.begin();
        self.begin_classified(count);
    }

    /// Sets the flow key of a packet, and its compact form.
    #[inline]
    pub(crate) fn set_key(&mut self, index: usize, key: FlowKey) {
        self.reading.nears[index] = NearKey::of(&key);
        self.keys[index] = key;
    }

    /// Sets the flow keys of packets with a path, if brief reading left them out. Instances may ask for the
    /// keys, and the forward stage needs them on the general path.
    #[inline]
    pub(crate) fn note_keys(&mut self) {
        if std::mem::take(&mut self.reading.keys_due) {
            self.note_all_keys();
        }
    }

    fn note_all_keys(&mut self) {
        let count = self.packets.len().min(BATCH_SIZE);
        let Self { paths, reading: BriefReading { nears, .. }, keys, .. } = self;
        for ((path, near), key) in paths[..count].iter().zip(&nears[..count]).zip(&mut keys[..count]) {
            if *path != EMPTY_PATH
                && let Some(own) = near.key4()
            {
                *key = own;
            }
        }
    }

    /// Sets the fields of a packet that brief reading left out.
    #[inline]
    pub(crate) fn complete(&mut self, index: usize) {
        if !self.reading.brief.take(index) {
            return;
        }
        if let Some(key) = self.reading.nears[index].key4() {
            self.keys[index] = key;
        }
        self.varying[index] = Varying::of_plain(self.packets.at(index), &self.keys[index]);
    }

    /// Sets the fields that brief reading left out, for all packets.
    pub(crate) fn complete_all(&mut self) {
        if self.reading.brief.is_empty() {
            return;
        }
        (0..self.packets.len().min(BATCH_SIZE)).for_each(|index| self.complete(index));
    }

    /// Resets the results of the stages from classify on for the first `count` packets.
    #[inline]
    pub fn begin_classified(&mut self, count: usize) {
        self.paths[..count].fill(PathId(0));
        self.adjacencies[..count].fill(NO_ADJACENCY);
        self.states.begin(count);
    }

    /// Returns the fields of a parsed packet that filters match.
    #[inline]
    pub fn candidate(&self, index: usize) -> Candidate {
        self.varying[index].candidate(self.keys[index], self.packets.at(index))
    }
}
