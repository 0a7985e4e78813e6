//! Adjacencies: the data for sending plain packets to a neighbour at a port, computed once and used for every
//! packet.
//!
//! A flow record holds the [number](AdjacencyTable::intern) of an adjacency. The number contains the *epoch*
//! of the table. So [`forget`](AdjacencyTable::forget) invalidates all numbers at once, wherever they are
//! stored. It must be called after a change of a port, a neighbour or the route of a route number. A packet
//! whose number is invalid takes the general path, and its flow record gets a new number.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use millrace_packet::{Family, Packet, Start};
use millrace_units::PortId;
use millrace_wire::{ipv4, ipv6};

use crate::{LinkHeader, NeighbourKey};

/// Maximum number of adjacencies of a table, a power of two. Further adjacencies get no number.
const MOST: usize = 1 << 14;
/// Maximum number of adjacencies that a call of `take_used` visits.
const LOOKED_AT: usize = 1024;
/// Number of low bits of an adjacency number that hold the index; the bits above hold the epoch.
const INDEX_BITS: u32 = MOST.trailing_zeros();
/// Number that stands for no adjacency. Epochs begin at 1, so no adjacency has the number 0.
pub const NO_ADJACENCY: u32 = 0;

/// Egress port, MTU and link header of the packets of one address family to one neighbour.
#[derive(Clone, Copy, Debug)]
pub struct Adjacency {
    header: LinkHeader,
    /// Egress port.
    pub port: PortId,
    mtu: u16,
    family: Family,
    used: bool,
}

impl Adjacency {
    /// Creates the adjacency for packets of at most `mtu` bytes that leave by `port` with the link header
    /// `header`.
    pub fn new(port: PortId, mtu: u16, family: Family, header: LinkHeader) -> Self {
        Self { header, port, mtu, family, used: false }
    }

    /// Returns whether a packet fits into the MTU, and has enough headroom for the link header.
    #[inline]
    pub fn takes(&self, packet: &Packet) -> bool {
        packet.network_len() <= usize::from(self.mtu)
            && packet.headroom() + packet.network_offset() >= self.header.len()
    }

    /// Returns the [`Exit`] of the adjacency, for a series of packets; [`Exit::NONE`] if the link header has
    /// VLAN tags. A caller that sends packets by the exit must call [`note_use`](Self::note_use).
    pub fn exit(&self) -> Exit {
        let Some(header) = self.header.as_bytes().first_chunk().filter(|_| self.header.len() == PLAIN) else {
            return Exit::NONE;
        };
        Exit { header: *header, longest: PLAIN + usize::from(self.mtu), family: self.family }
    }

    /// Marks the neighbour as used.
    pub fn note_use(&mut self) {
        self.used = true;
    }

    /// Decrements the TTL or hop limit of a packet, puts the link header before it, and marks the neighbour
    /// as used. The packet must be of the adjacency's family, have a valid network header and a TTL above 1,
    /// and the adjacency must [take](Self::takes) it.
    #[inline(always)]
    pub fn rewrite(&mut self, packet: &mut Packet) {
        self.used = true;
        // Can't fail: the caller has checked the headroom by [`takes`](Self::takes).
        let _ = self.header.apply(packet);
        let network = packet.data_mut().get_mut(self.header.len()..).unwrap_or_default();
        // Can't fail: the TTL is above 1.
        let _ = match self.family {
            Family::V4 => network.first_chunk_mut().is_some_and(decrement_ttl),
            Family::V6 => network.first_chunk_mut().is_some_and(decrement_hop_limit),
        };
    }
}

#[inline(always)]
fn decrement_ttl(header: &mut [u8; ipv4::HEADER_LEN]) -> bool {
    ipv4::Packet::new_unchecked(header).decrement_ttl()
}

#[inline(always)]
fn decrement_hop_limit(header: &mut [u8; ipv6::HEADER_LEN]) -> bool {
    ipv6::Packet::new_unchecked(header).decrement_hop_limit()
}

/// Length of a link header without VLAN tags, in bytes.
const PLAIN: usize = 14;
/// Number of bytes that [`Exit`] reads: a link header without VLAN tags, and the first 20 bytes of the
/// network header.
pub const START: usize = PLAIN + ipv4::HEADER_LEN;

/// Copy of an adjacency for a series of packets. It takes only packets that arrive and leave with a link
/// header without VLAN tags.
#[derive(Clone, Copy, Debug)]
pub struct Exit {
    header: [u8; PLAIN],
    /// Maximum length of a frame in bytes: link header and MTU.
    longest: usize,
    family: Family,
}

impl Exit {
    /// Exit that takes no packets.
    pub const NONE: Self = Self { header: [0; PLAIN], longest: 0, family: Family::V4 };

    /// Returns the first bytes of a packet; `None` if the packet has VLAN tags or several memory frames, or
    /// is longer than this exit allows.
    #[inline(always)]
    pub fn start<'p>(&self, packet: &'p mut Packet) -> Option<Start<'p, START>> {
        packet.start_mut::<{ PLAIN as u16 }, START>().filter(|start| start.length <= self.longest)
    }

    /// Does the same as [`start`](Self::start) for a packet that is known to have a single memory frame and
    /// no VLAN tags.
    #[inline(always)]
    pub fn start_plain<'p>(&self, packet: &'p mut Packet) -> Option<Start<'p, START>> {
        packet.first_mut::<START>().filter(|start| start.length <= self.longest)
    }

    /// Returns whether a packet with these first bytes still has a whole network header and a TTL above 1. A
    /// plugin may have changed it since it was parsed.
    #[inline(always)]
    pub fn is_whole(&self, start: &Start<'_, START>) -> bool {
        match self.family {
            Family::V4 => start.bytes[PLAIN + 8] > 1,
            Family::V6 => start.bytes[PLAIN + 7] > 1 && start.length >= PLAIN + ipv6::HEADER_LEN,
        }
    }

    /// Rewrites the first bytes of a packet like [`Adjacency::rewrite`]. The packet must have a TTL above 1.
    #[inline(always)]
    pub fn rewrite(&self, start: &mut [u8; START]) {
        start[..PLAIN].copy_from_slice(&self.header);
        match self.family {
            Family::V4 => {
                // TTL, protocol and checksum are read as one little-endian word, with the TTL in its lowest
                // byte.
                if let Some(word) = start[PLAIN + 8..].first_chunk_mut() {
                    *word = ipv4::hop_taken_off(u32::from_le_bytes(*word)).to_le_bytes();
                }
            }
            Family::V6 => start[PLAIN + 7] -= 1,
        }
    }
}

/// Adjacencies in use, by number, and the numbers that are valid.
#[derive(Debug)]
pub struct AdjacencyTable {
    entries: Vec<Adjacency>,
    keys: Vec<NeighbourKey>,
    numbers: HashMap<(NeighbourKey, Family), u32, FixedState>,
    epoch: u32,
    /// Neighbours in use whose numbers `forget` has invalidated; `take_used` reports them.
    used: Vec<NeighbourKey>,
    /// Index at which `take_used` continues; `None` between two scans.
    hand: Option<usize>,
}

impl AdjacencyTable {
    /// Creates an empty table, with memory for the maximum number of adjacencies. `seed` should be random.
    pub fn new(seed: u64) -> Self {
        Self {
            entries: Vec::with_capacity(MOST),
            keys: Vec::with_capacity(MOST),
            numbers: HashMap::with_capacity_and_hasher(MOST, FixedState::with_seed(seed)),
            epoch: 1,
            used: Vec::with_capacity(MOST),
            hand: None,
        }
    }

    /// Returns the number of the adjacency of a neighbour for a family. If there is none, creates it with
    /// `make`. Returns `None` if the table is full.
    pub fn intern(
        &mut self,
        neighbour: NeighbourKey,
        family: Family,
        make: impl FnOnce() -> Adjacency,
    ) -> Option<u32> {
        if let Some(number) = self.numbers.get(&(neighbour, family)) {
            return Some(*number);
        }
        if self.entries.len() == MOST {
            return None;
        }
        let number = self.epoch << INDEX_BITS | self.entries.len() as u32;
        self.entries.push(make());
        self.keys.push(neighbour);
        self.numbers.insert((neighbour, family), number);
        Some(number)
    }

    /// Returns the adjacency of a number; `None` if the number is invalid.
    #[inline]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut Adjacency> {
        if number >> INDEX_BITS != self.epoch {
            return None;
        }
        self.entries.get_mut((number & (MOST as u32 - 1)) as usize)
    }

    /// Invalidates all numbers. [`take_used`](Self::take_used) still reports the used neighbours. Returns
    /// `true` when the epoch has wrapped to 1: the caller must then discard all stored numbers, because old
    /// numbers could become valid again.
    #[must_use]
    pub fn forget(&mut self) -> bool {
        // Neighbours beyond the limit are not reported. A neighbour that is really in use gets marked again
        // soon.
        let used = self.entries.iter().zip(&self.keys).filter(|(entry, _)| entry.used).map(|(_, key)| *key);
        self.used.extend(used.take(MOST - self.used.len()));
        self.entries.clear();
        self.keys.clear();
        self.numbers.clear();
        self.epoch += 1;
        let over = self.epoch == 1 << (u32::BITS - INDEX_BITS);
        if over {
            self.epoch = 1;
        }
        over
    }

    /// Calls `tell` with up to `most` neighbours that were used since they were last reported. Returns
    /// whether another call would report more. The next call continues where this call ends.
    pub fn take_used(&mut self, most: usize, mut tell: impl FnMut(NeighbourKey)) -> bool {
        let told = self.used.len().min(most);
        self.used.drain(self.used.len() - told..).for_each(&mut tell);
        let mut left = most - told;
        let mut hand = self.hand.unwrap_or_default();
        let end = self.entries.len().min(hand + LOOKED_AT);
        while left > 0 && hand < end {
            if let Some(entry) = self.entries.get_mut(hand)
                && std::mem::take(&mut entry.used)
            {
                self.keys.get(hand).copied().into_iter().for_each(&mut tell);
                left -= 1;
            }
            hand += 1;
        }
        self.hand = (hand < self.entries.len()).then_some(hand);
        self.hand.is_some() || !self.used.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use millrace_packet::Pool;
    use millrace_wire::vlan::{Control, StackedTag};
    use millrace_wire::{EtherType, MacAddr};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::test_packets::udp4;

    fn framed() -> Vec<u8> {
        [&[0; 14], &*udp4(&[7; 40])].concat()
    }

    fn neighbour(host: u8) -> NeighbourKey {
        NeighbourKey { port: PortId(3), address: [10, 0, 0, host].into() }
    }

    fn header() -> LinkHeader {
        LinkHeader::new(MacAddr([2; 6]), MacAddr([4; 6]), &[], EtherType::IPV4)
    }

    fn adjacency() -> Adjacency {
        Adjacency::new(PortId(3), 1500, Family::V4, header())
    }

    #[test]
    fn a_packet_loses_a_hop_and_gets_the_link_header() {
        let pool = Pool::new(2).unwrap();
        let (mut adjacency, before) = (adjacency(), framed());
        let mut packet = pool.packet_from(&before).unwrap();
        packet.set_network(14);
        assert!(adjacency.takes(&packet));
        adjacency.rewrite(&mut packet);
        assert_eq!(packet.data()[..14], *header().as_bytes());
        let (old, new) = (ipv4::Packet::new_unchecked(&before[14..]), packet.network().to_vec());
        let new = ipv4::Packet::new_unchecked(&new[..]);
        assert_eq!((new.ttl(), ipv4::sanity(packet.network(), before.len())), (old.ttl() - 1, Ok(())));
        assert_eq!(packet.data()[34..], before[34..]);
    }

    proptest! {
        /// If an exit takes a packet, its adjacency takes it as well, and both make the same changes.
        #[test]
        fn exit_forwards_like_its_adjacency(
            mut bytes in vec(any::<u8>(), 0..200),
            hops in prop_oneof![0_u8..3, any::<u8>()],
            (network, mtu) in (prop::sample::select(vec![0_usize, 14, 18]), prop::sample::select(vec![20_u16, 60, 1500])),
            (v6, tagged, checksum) in (any::<bool>(), any::<bool>(), prop::option::of(0xfe00_u16..)),
        ) {
            let family = if v6 { Family::V6 } else { Family::V4 };
            let tags = [StackedTag { tag_protocol: EtherType::VLAN, control: Control(7) }];
            let tags = if tagged { &tags[..] } else { &[] };
            let header = LinkHeader::new(MacAddr([2; 6]), MacAddr([4; 6]), tags, EtherType::IPV4);
            if let Some(place) = bytes.get_mut(network + if v6 { 7 } else { 8 }) {
                *place = hops;
            }
            if let (Some(place), Some(checksum)) = (bytes.get_mut(network + 10..network + 12), checksum) {
                place.copy_from_slice(&checksum.to_be_bytes());
            }
            let pool = Pool::new(4).unwrap();
            let [mut one, mut other] = [0, 1].map(|_| {
                let mut packet = pool.packet_from(&bytes).unwrap();
                packet.set_network(network);
                packet
            });
            let mut adjacency = Adjacency::new(PortId(3), mtu, family, header);
            let exit = adjacency.exit();
            if network == 14 {
                let plain = exit.start_plain(&mut one).map(|start| (*start.bytes, start.length));
                prop_assert_eq!(plain, exit.start(&mut one).map(|start| (*start.bytes, start.length)));
            }
            let takes = exit.start(&mut one).map(|start| (start.length, exit.is_whole(&start).then(|| exit.rewrite(start.bytes))));
            let fits = adjacency.takes(&other) && bytes.len() >= 34;
            let is_whole = hops > 1 && (!v6 || bytes.len() >= 14 + ipv6::HEADER_LEN);
            let takes_it = fits && !tagged && network == 14;
            prop_assert_eq!(takes, takes_it.then_some((bytes.len(), is_whole.then_some(()))));
            if takes_it && is_whole {
                adjacency.rewrite(&mut other);
                prop_assert_eq!(one.to_vec(), other.to_vec());
            }
        }
    }

    #[test]
    fn numbers_are_one_per_neighbour_and_void_after_a_change() {
        let mut table = AdjacencyTable::new(0);
        let one = table.intern(neighbour(1), Family::V4, adjacency).unwrap();
        let two = table.intern(neighbour(2), Family::V4, adjacency).unwrap();
        assert_eq!(table.intern(neighbour(1), Family::V4, || unreachable!()), Some(one));
        assert!(one != two && one != NO_ADJACENCY && table.get_mut(one).is_some());
        assert!(table.get_mut(NO_ADJACENCY).is_none());
        assert!(!table.forget());
        assert!(table.get_mut(one).is_none());
        let again = table.intern(neighbour(1), Family::V4, adjacency).unwrap();
        assert!(again != one && table.get_mut(again).is_some() && table.get_mut(one).is_none());
    }

    #[test]
    fn used_adjacency_is_reported_once() {
        let pool = Pool::new(2).unwrap();
        let mut table = AdjacencyTable::new(0);
        let numbers = [1, 2].map(|host| table.intern(neighbour(host), Family::V4, adjacency).unwrap());
        let mut packet = pool.packet_from(&framed()).unwrap();
        packet.set_network(14);
        table.get_mut(numbers[1]).unwrap().rewrite(&mut packet);
        let mut used = Vec::new();
        assert!(!table.take_used(8, |key| used.push(key)));
        assert!(!table.take_used(8, |key| used.push(key)));
        assert_eq!(used, [neighbour(2)]);
    }

    #[test]
    fn full_table_gives_no_number_and_epochs_restart() {
        let mut table = AdjacencyTable::new(0);
        let key = |n: usize| NeighbourKey { port: PortId(0), address: (n as u32).to_be_bytes().into() };
        let given = (0..=MOST).filter_map(|n| table.intern(key(n), Family::V4, adjacency)).count();
        assert_eq!(given, MOST);
        let forgotten = (0..1 << (32 - INDEX_BITS)).filter(|_| table.forget()).count();
        assert_eq!(forgotten, 1);
    }

    #[test]
    fn used_adjacencies_are_reported_in_pieces_and_once_each_even_if_void() {
        let mut table = AdjacencyTable::new(1);
        let key =
            |number: u32| NeighbourKey { port: PortId(1), address: std::net::Ipv4Addr::from(number).into() };
        let used = |table: &mut AdjacencyTable, many: u32| {
            for number in 0..many {
                let made = || Adjacency { used: true, ..adjacency() };
                table.intern(key(number), Family::V4, made).unwrap();
            }
        };
        let told = |table: &mut AdjacencyTable| {
            let (mut told, mut pieces) = (Vec::new(), 0);
            loop {
                let before = told.len();
                let more = table.take_used(100, |key| told.push(key));
                assert!(told.len() - before <= 100, "{} at once", told.len() - before);
                pieces += 1;
                if !more {
                    told.sort_unstable();
                    return (told, pieces);
                }
            }
        };
        used(&mut table, 1000);
        let all: Vec<NeighbourKey> = (0..1000).map(key).collect();
        assert_eq!(told(&mut table), (all.clone(), 10));
        assert_eq!(told(&mut table), (Vec::new(), 1));
        assert!(!table.forget());
        used(&mut table, 1000);
        assert!(!table.forget());
        assert_eq!(told(&mut table), (all, 10), "of numbers that are void");
        // Among many adjacencies, unused ones are also visited in pieces.
        for number in 0..3000 {
            table.intern(key(number), Family::V4, adjacency).unwrap();
        }
        assert_eq!(told(&mut table), (Vec::new(), 3));
    }
}
