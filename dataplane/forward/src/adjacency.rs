//! Adjacencies: all that is needed to send a plain packet to a station behind a port, made once, used for every packet.
//!
//! A flow's record holds a [number](AdjacencyTable::intern) of an adjacency. The number bears the *epoch* of the table, so that
//! [`forget`](AdjacencyTable::forget) makes all numbers void at once, wherever they are kept. Who changes a port, a
//! neighbour or what a route means forgets; who then finds a number void looks everything up, and gets another one.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use millrace_packet::{Family, Packet, Start};
use millrace_units::PortId;
use millrace_wire::{ipv4, ipv6};

use crate::{LinkHeader, NeighbourKey};

/// Most adjacencies of a table; further ones get no number. A power of two.
const MOST: usize = 1 << 14;
/// Adjacencies that are looked at for their use at a time.
const LOOKED_AT: usize = 1024;
/// Bits of a number below the epoch.
const INDEX_BITS: u32 = MOST.trailing_zeros();
/// The number of no adjacency. Epochs begin at 1, so no other number is 0.
pub const NO_ADJACENCY: u32 = 0;

/// How packets of one family leave towards one neighbour.
#[derive(Clone, Copy, Debug)]
pub struct Adjacency {
    header: LinkHeader,
    /// The port to leave by.
    pub port: PortId,
    mtu: u16,
    family: Family,
    used: bool,
}

impl Adjacency {
    /// By `port`, whose packets may have `mtu` bytes, under this link header.
    pub fn new(port: PortId, mtu: u16, family: Family, header: LinkHeader) -> Self {
        Self { header, port, mtu, family, used: false }
    }

    /// Whether a packet may leave in one piece, and its frame has room for the link header.
    #[inline]
    pub fn takes(&self, packet: &Packet) -> bool {
        packet.network_len() <= usize::from(self.mtu)
            && packet.headroom() + packet.network_offset() >= self.header.len()
    }

    /// The same for packets in a row. Who has one leave by it [says so](Self::note_use).
    pub fn exit(&self) -> Exit {
        let Some(header) = self.header.as_bytes().first_chunk().filter(|_| self.header.len() == PLAIN) else {
            return Exit::NONE;
        };
        Exit { header: *header, longest: PLAIN + usize::from(self.mtu), family: self.family }
    }

    /// Notes that the neighbour is in use.
    pub fn note_use(&mut self) {
        self.used = true;
    }

    /// Takes one hop off a packet of the family that it [`takes`](Self::takes), whose hops have not run out and whose network
    /// header is sane, and puts the link header before it. Notes that the neighbour is in use.
    #[inline(always)]
    pub fn rewrite(&mut self, packet: &mut Packet) {
        self.used = true;
        // There is room.
        let _ = self.header.apply(packet);
        let network = packet.data_mut().get_mut(self.header.len()..).unwrap_or_default();
        // Hops that have run out were seen before.
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

/// Bytes of a link header without tags.
const PLAIN: usize = 14;
/// Bytes that [`Exit`] looks at: that header, and a network header as far as both families have one.
pub const START: usize = PLAIN + ipv4::HEADER_LEN;

/// What many packets in a row need of an adjacency, as a copy: for those that leave as most do, under a link header without
/// tags, that came under one. It takes no others.
#[derive(Clone, Copy, Debug)]
pub struct Exit {
    header: [u8; PLAIN],
    /// The longest frame.
    longest: usize,
    family: Family,
}

impl Exit {
    /// It takes no packets.
    pub const NONE: Self = Self { header: [0; PLAIN], longest: 0, family: Family::V4 };

    /// The start of a packet that may leave so.
    #[inline(always)]
    pub fn start<'p>(&self, packet: &'p mut Packet) -> Option<Start<'p, START>> {
        packet.start_mut::<{ PLAIN as u16 }, START>().filter(|start| start.length <= self.longest)
    }

    /// The same of a packet that stands in one frame, with a link header without tags.
    #[inline(always)]
    pub fn start_plain<'p>(&self, packet: &'p mut Packet) -> Option<Start<'p, START>> {
        packet.first_mut::<START>().filter(|start| start.length <= self.longest)
    }

    /// Whether a packet that begins so, and may have been changed since it was read, has a whole network header and hops left.
    #[inline(always)]
    pub fn is_whole(&self, start: &Start<'_, START>) -> bool {
        match self.family {
            Family::V4 => start.bytes[PLAIN + 8] > 1,
            Family::V6 => start.bytes[PLAIN + 7] > 1 && start.length >= PLAIN + ipv6::HEADER_LEN,
        }
    }

    /// Does what [`Adjacency::rewrite`] does to a packet that begins so, whose hops have not run out.
    #[inline(always)]
    pub fn rewrite(&self, start: &mut [u8; START]) {
        start[..PLAIN].copy_from_slice(&self.header);
        match self.family {
            Family::V4 => {
                // Time to live, protocol and checksum are one word, the time to live lowest.
                if let Some(word) = start[PLAIN + 8..].first_chunk_mut() {
                    *word = ipv4::hop_taken_off(u32::from_le_bytes(*word)).to_le_bytes();
                }
            }
            Family::V6 => start[PLAIN + 7] -= 1,
        }
    }
}

/// The adjacencies in use, by number.
#[derive(Debug)]
pub struct AdjacencyTable {
    entries: Vec<Adjacency>,
    keys: Vec<NeighbourKey>,
    numbers: HashMap<(NeighbourKey, Family), u32, FixedState>,
    epoch: u32,
    /// Neighbours that were used by numbers that are void now.
    used: Vec<NeighbourKey>,
    /// The entry that is looked at next for its use; nothing before a round begins.
    hand: Option<usize>,
}

impl AdjacencyTable {
    /// An empty table, with memory for all that it may have. `seed` should be random.
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

    /// The number of the adjacency towards a neighbour, which `make` describes where there is none yet; `None` when the
    /// table is full.
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

    /// The adjacency of a number; `None` when the number is void.
    #[inline]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut Adjacency> {
        if number >> INDEX_BITS != self.epoch {
            return None;
        }
        self.entries.get_mut((number & (MOST as u32 - 1)) as usize)
    }

    /// Makes all numbers void; that neighbours were used is told later. Returns `true` when epochs begin anew: then numbers that
    /// were given out long ago must not be asked for any more.
    #[must_use]
    pub fn forget(&mut self) -> bool {
        // Who is beyond what may be told is used again, or was not used much.
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

    /// Calls `tell` with neighbours that packets were sent to since they were last told, `most` at the most; whether this round has
    /// more of them. The next round begins behind the last one.
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
        assert_eq!((new.ttl(), new.sanity(before.len())), (old.ttl() - 1, Ok(())));
        assert_eq!(packet.data()[34..], before[34..]);
    }

    proptest! {
        /// Whatever an exit takes, the adjacency takes, and does the same to it.
        #[test]
        fn an_exit_does_what_its_adjacency_does(
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
    fn who_was_used_is_told_once() {
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
    fn a_full_table_gives_no_number_and_epochs_begin_anew() {
        let mut table = AdjacencyTable::new(0);
        let key = |n: usize| NeighbourKey { port: PortId(0), address: (n as u32).to_be_bytes().into() };
        let given = (0..=MOST).filter_map(|n| table.intern(key(n), Family::V4, adjacency)).count();
        assert_eq!(given, MOST);
        let forgotten = (0..1 << (32 - INDEX_BITS)).filter(|_| table.forget()).count();
        assert_eq!(forgotten, 1);
    }

    #[test]
    fn what_was_used_is_told_in_pieces_each_once_also_of_numbers_that_are_void() {
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
        // Many that nobody uses are looked at in pieces, too.
        for number in 0..3000 {
            table.intern(key(number), Family::V4, adjacency).unwrap();
        }
        assert_eq!(told(&mut table), (Vec::new(), 3));
    }
}
