//! A batch on its journey: the packets, and what the stages have found out about each.

use millrace_classify::{Candidate, FlowIndex, NearKey};
use millrace_forward::{IcmpError, NO_ADJACENCY};
use millrace_packet::{BATCH_SIZE, Batch, DropReason, Family, FlowKey, Packet};
use millrace_plugin::{EMPTY_PATH, Ticket};
use millrace_plugin_abi::Verdict;
use millrace_units::{Amount, NextHopIndex, PathId, PortId};
use millrace_wire::{MacAddr, Protocol};
use std::net::{IpAddr, Ipv4Addr};

use crate::each::Each;

/// What is to become of a packet. Stages decide; [`dispose`](crate::router::Router) carries it out at the end.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Fate {
    /// It goes on, and in the end leaves by its `out_port`.
    Forward,
    /// It is dropped.
    Drop(DropReason),
    /// It is dropped, and its source is told why.
    Refuse(IcmpError, DropReason),
    /// The kernel gets it, as received on its port.
    Host,
    /// The router's own stack gets it: it arrived on a port that has no kernel behind it.
    Own,
    /// It waits until the link address of this next hop at its `out_port` is known.
    Hold(IpAddr),
    /// A plugin has used it up.
    Consumed,
    /// It waits for a plugin.
    Kept(Ticket),
    /// It is classified anew.
    Again,
    /// It leaves by the route that is noted on it: a copy that a plugin sends.
    Resume,
    /// It goes to the queue of its `out_port` as the frame that it is.
    Queue,
    /// Another worker has it.
    HandedOver,
}

impl Fate {
    /// Whether later stages still have to look at the packet.
    #[inline]
    pub fn is_open(self) -> bool {
        matches!(self, Self::Forward)
    }
}

/// What the parse stage reads beside the flow key: the fields that filters match and that vary inside a flow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Varying {
    /// TCP flags, where there are any.
    pub tcp_flags: Option<u8>,
    /// Differentiated services code point.
    pub dscp: u8,
}

impl Varying {
    /// Those of a packet that was read as a plain one.
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

/// A bit for each packet of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Bits([u64; BATCH_SIZE / 64]);

impl Bits {
    /// Those of so many packets.
    pub fn of(count: usize) -> Self {
        let word = |at: usize| match count.saturating_sub(at * 64) {
            64.. => u64::MAX,
            rest => (1 << rest) - 1,
        };
        Self(std::array::from_fn(word))
    }

    /// Those of so many packets from one on, as those of a batch that begins with it.
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

    /// Whether no bit is set.
    pub fn is_empty(self) -> bool {
        self.0 == [0; BATCH_SIZE / 64]
    }

    /// Whether the bit is set, which it is not any more.
    #[inline(always)]
    #[expect(clippy::indexing_slicing, reason = "a word by a remainder of the number of words")]
    pub fn take(&mut self, index: usize) -> bool {
        let (word, bit) = (&mut self.0[index / 64 % (BATCH_SIZE / 64)], 1 << (index % 64));
        let was = *word & bit != 0;
        *word &= !bit;
        was
    }
}

/// What is known of all packets of a batch together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Alike {
    /// Nothing.
    #[default]
    No,
    /// They were read as plain frames without a tag, and none was changed since. Those whose fate was settled since have no flow's key
    /// among [the near ones](Work::nears).
    Plain,
    /// The same, and all are of IPv4.
    Plain4,
}

/// The route that packets count with, and the path whose filters they [count for](millrace_packet::Annotations::counts_for).
pub(crate) type Accounts = (NextHopIndex, PathId);

/// The finished frames of a batch, as they are settled on the express way: those in a row that leave by one port and count alike
/// together.
#[derive(Debug)]
pub(crate) struct Leaving(Vec<(PortId, Accounts, Amount)>);

impl Default for Leaving {
    fn default() -> Self {
        Self(Vec::with_capacity(BATCH_SIZE))
    }
}

impl Leaving {
    /// Forgets the batch before.
    pub fn begin(&mut self) {
        self.0.clear();
    }

    /// So much leaves.
    #[inline]
    pub fn add(&mut self, port: PortId, accounts: Accounts, amount: Amount) {
        if amount.packets > 0 {
            self.0.push((port, accounts, amount));
        }
    }

    /// The port that all leave by, if there is one.
    pub fn port(&self) -> Option<PortId> {
        let (first, ..) = self.0.first()?;
        self.0.iter().all(|(port, ..)| port == first).then_some(*first)
    }

    /// What counts with each route, and for the filters of each path.
    pub fn amounts(&self) -> impl Iterator<Item = (Accounts, Amount)> {
        self.0.iter().map(|(_, accounts, amount)| (*accounts, *amount))
    }

    /// How many packets leave.
    pub fn packets(&self) -> u64 {
        self.0.iter().map(|(.., amount)| amount.packets).sum()
    }
}

/// A batch and the stages' notes, index by index.
#[derive(Debug)]
pub struct Work {
    /// The packets.
    pub packets: Batch,
    /// What most of their flows are told apart by; meaningless where the fate was settled before the parse stage.
    pub(crate) nears: Each<NearKey>,
    /// Which of them were read in brief: for those the key of an IPv4 packet, and what varies inside a flow, is left to
    /// [`complete`](Self::complete), as few need it, or the key to [`note_keys`](Self::note_keys).
    pub(crate) brief: Bits,
    /// How many packets the stages leave alone because each goes by itself: their fates are not open meanwhile.
    pub(crate) aside: usize,
    /// What is known of all of them.
    pub(crate) alike: Alike,
    /// Whether keys of packets that are on a path are still to be [noted](Self::note_keys).
    pub(crate) keys_due: bool,
    /// Their flow keys; meaningless where the fate was settled before the parse stage.
    pub keys: Each<FlowKey>,
    /// Their hashes in the flow table.
    pub hashes: Each<u64>,
    /// Their flows, as far as they are known.
    pub flows: Each<Option<FlowIndex>>,
    /// Fields that vary inside a flow.
    pub varying: Each<Varying>,
    /// The instances bound to each.
    pub paths: Each<PathId>,
    /// Numbers of the adjacencies that are noted with their flows, [`NO_ADJACENCY`] where none is.
    pub adjacencies: Each<u32>,
    /// Numbers of the blocks of state of their flows, 0 for none.
    pub states: Each<u32>,
    /// Scratch for plugin calls, [`Verdict::Pass`] between them.
    pub verdicts: Each<Verdict>,
    /// What becomes of each.
    pub fates: Each<Fate>,
    /// The link address that each is sent to, if it is forwarded.
    pub destinations: Each<MacAddr>,
    /// The packets that the express way has left to the general one.
    pub(crate) left: Vec<u16>,
    /// What was settled as finished frames on the express way.
    pub(crate) leaving: Leaving,
}

impl Default for Work {
    fn default() -> Self {
        let key = FlowKey::v4(Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED, 0, (0, 0), PortId::NONE);
        Self {
            packets: Batch::new(),
            nears: Each::new(NearKey::of(&key)),
            brief: Bits::default(),
            aside: 0,
            alike: Alike::No,
            keys_due: false,
            keys: Each::new(key),
            hashes: Each::new(0),
            flows: Each::new(None),
            varying: Each::new(Varying::default()),
            paths: Each::new(PathId(0)),
            adjacencies: Each::new(NO_ADJACENCY),
            states: Each::new(0),
            verdicts: Each::new(Verdict::Pass),
            fates: Each::new(Fate::Forward),
            destinations: Each::new(MacAddr::ZERO),
            left: Vec::with_capacity(BATCH_SIZE),
            leaving: Leaving::default(),
        }
    }
}

impl Work {
    /// Opens the fate of every packet.
    pub fn begin(&mut self) {
        let count = self.packets.len();
        self.fates[..count].fill(Fate::Forward);
        self.brief = Bits::default();
        self.aside = 0;
        self.alike = Alike::No;
        self.keys_due = false;
        self.leaving.begin();
        self.begin_classified(count);
    }

    /// Notes the key of a packet.
    #[inline]
    pub(crate) fn set_key(&mut self, index: usize, key: FlowKey) {
        self.nears[index] = NearKey::of(&key);
        self.keys[index] = key;
    }

    /// Notes the keys of packets that are on a path, if that is still to be done: instances may ask for them, and who decides what
    /// becomes of packets that don't leave as most do.
    #[inline]
    pub(crate) fn note_keys(&mut self) {
        if std::mem::take(&mut self.keys_due) {
            self.note_all_keys();
        }
    }

    fn note_all_keys(&mut self) {
        let count = self.packets.len().min(BATCH_SIZE);
        let Self { paths, nears, keys, .. } = self;
        for ((path, near), key) in paths[..count].iter().zip(&nears[..count]).zip(&mut keys[..count]) {
            if *path != EMPTY_PATH
                && let Some(own) = near.key4()
            {
                *key = own;
            }
        }
    }

    /// Notes what was left out when the packet was read.
    #[inline]
    pub(crate) fn complete(&mut self, index: usize) {
        if !self.brief.take(index) {
            return;
        }
        if let Some(key) = self.nears[index].key4() {
            self.keys[index] = key;
        }
        self.varying[index] = Varying::of_plain(self.packets.at(index), &self.keys[index]);
    }

    /// The same for all packets.
    pub(crate) fn complete_all(&mut self) {
        if self.brief.is_empty() {
            return;
        }
        (0..self.packets.len().min(BATCH_SIZE)).for_each(|index| self.complete(index));
    }

    /// Forgets what the stages from classify on have noted of so many packets.
    #[inline]
    pub fn begin_classified(&mut self, count: usize) {
        self.paths[..count].fill(PathId(0));
        self.adjacencies[..count].fill(NO_ADJACENCY);
        self.states[..count].fill(0);
    }

    /// A packet that was parsed, as filters see it.
    #[inline]
    pub fn candidate(&self, index: usize) -> Candidate {
        let (packet, varying) = (self.packets.at(index), self.varying[index]);
        Candidate {
            key: self.keys[index],
            tcp_flags: varying.tcp_flags,
            tag: packet.tag,
            exceptions: packet.exceptions,
            dscp: varying.dscp,
        }
    }
}
